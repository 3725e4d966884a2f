"""Every method of the catalogue with settings that work, the networks, and a small script that
several processes run.

    python tests/parallel/_cases.py OUT [method ...]

runs the methods on all processes and devices there are and writes what every agent ended with to
OUT, a .npz file. Without names: every method, each on one of the four networks in turn; with --all
on all four.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

AGENTS, STEPS = 12, 200
RATES = {
    "alpha": 0.03,
    "beta": 0.03,
    "gamma": 0.05,
    "lam": 4.0,
    "theta": 0.2,
    "eta": 0.1,
    "T": 3,
    "N": 4,
    "K": 2,
    "noise": 0.01,
}
MINIMAX = ("ahead_minimax", "dgda", "gt_gda", "fab")
SINGLE = ("dgd", "gradient_tracking", "extra", "exact_diffusion")
SAMPLED = ("saba", "srba")  # these need a list of batches
# these are for one agent, who has nobody to talk to
ALONE = ("f2sa", "f2sa_p", "bome", "v_pbgd")


def networks() -> dict[str, Any]:
    import decibo

    return {
        "ring": decibo.ring(AGENTS),
        "star": decibo.networks.star(AGENTS),
        "erdos_renyi": decibo.networks.erdos_renyi(AGENTS, 0.4, seed=1),
        "torus": decibo.networks.torus(3, 4),
    }


def method(name: str, smooth: bool = False) -> Any:
    """With settings that work; if smooth, without choosing entries by size, which makes much of the
    last digit."""
    import decibo

    factory = decibo.CATALOG[name]
    wanted = inspect.signature(factory).parameters
    keep = {"c2dfb": {"beta": None}}.get(name, {})
    keep |= {"keep": 1.0} if smooth and "keep" in wanted else {}
    return factory(**({key: value for key, value in RATES.items() if key in wanted} | keep))


def problem(name: str, agents: int = AGENTS) -> Any:
    import decibo

    if name in MINIMAX:
        return decibo.problems.minimax("quadratic", agents=agents, seed=3)
    if name in SINGLE:
        import jax.numpy as jnp

        return decibo.problems.single_level(
            _square,
            {"a": jnp.linspace(0.5, 2.0, agents), "b": jnp.arange(1.0 * agents)},
            {"u": jnp.ones(3)},
        )
    quadratic = decibo.problems.quadratic(agents, seed=3)
    if name in SAMPLED:
        return dataclasses.replace(quadratic, sample=decibo.data.Batches(1, take=_all))
    return quadratic


def _all(d: Any, j: Any) -> Any:
    return d


def _square(x: Any, d: Any) -> Any:
    return 0.5 * d["a"] * ((x["u"] - d["b"] / 10) ** 2).sum()


def several() -> list[str]:
    """The methods for several agents."""
    import decibo

    return [name for name in decibo.CATALOG if name not in ALONE]


def cases(names: Sequence[str], everywhere: bool) -> Iterator[tuple[str, str]]:
    """Pairs of a method and a network: for each method another of the four in turn, or all four."""
    nets = [*networks()]
    for i, name in enumerate(names):
        yield from ((name, net) for net in (nets if everywhere else [nets[i % 4]]))


def run(
    name: str,
    network: Any,
    steps: int = STEPS,
    nudge: bool = False,
    smooth: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """The agents' states and the history; if nudged, from a start that differs in the last
    digit."""
    import jax
    import numpy as np

    import decibo

    digit = np.finfo(np.float64 if jax.config.jax_enable_x64 else np.float32).eps
    start = decibo.random_start(5, float(0.3 * (1 + digit)) if nudge else 0.3)
    solution = decibo.solve(
        problem(name, network.agents),
        network,
        method(name, smooth),
        steps=steps,
        every=steps // 2,
        start=start,
        progress=False,
        **({"measures": ["outer", "consensus_x"]} | options),
    )
    leaves = jax.tree.leaves(vars(solution.agents))
    history = np.concatenate(
        [np.atleast_1d(solution.history[key][-1]) for key in sorted(solution.history)]
    )
    return {f"leaf{n}": np.asarray(leaf) for n, leaf in enumerate(leaves)} | {"history": history}


def main() -> None:
    import jax
    import numpy as np

    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("methods", nargs="*")
    parser.add_argument("--all", action="store_true", help="all four networks for each method")
    parser.add_argument("--float32", action="store_true")
    parser.add_argument("--nudge", action="store_true")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", not options.float32)
    import decibo

    decibo.init_distributed()
    found = {}
    nets = networks()
    for name, net in cases(options.methods or several(), options.all):
        found |= {
            f"{name} {net} {key}": value
            for key, value in run(name, nets[net], nudge=options.nudge).items()
        }
    if jax.process_index() == 0:
        np.savez(options.out, **found)


if __name__ == "__main__":
    main()
