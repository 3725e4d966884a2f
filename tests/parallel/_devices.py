"""Run in a process of its own with eight devices: compares them with one, and reads the compiled
step.

    python tests/parallel/_devices.py [--daily]

One method of each kind, few steps; with --daily only three pairs, which between them have symmetric
and random links, clones, and a network for each variable. tests/parallel/_same.py does all of them,
on processes too.
"""

from __future__ import annotations

import json
import os
import sys

os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
)

import jax

jax.config.update("jax_enable_x64", True)

import _cases as cases  # noqa: E402
import numpy as np  # noqa: E402

import decibo  # noqa: E402
from decibo.parallel.collectives import across  # noqa: E402
from decibo.parallel.placement import SPLIT, place_agents  # noqa: E402
from decibo.run import loop  # noqa: E402
from decibo.run.run import begin  # noqa: E402
from decibo.run.solve import prepare  # noqa: E402

STEPS = 60
DAILY = ("ring", "sleeping agents", "one for each variable")


def pairs() -> dict[str, tuple[decibo.Network, str]]:
    """A network of each kind and a method of each kind; a network knows nothing of the method, so
    any two may meet."""
    plain = cases.networks()
    return {
        "ring": (plain["ring"], "ahead_exact"),
        "star": (plain["star"], "c2dfb"),
        "erdos_renyi": (plain["erdos_renyi"], "ma_dsbo"),
        "torus": (plain["torus"], "gradient_tracking"),
        "sleeping agents": (decibo.networks.sleeping(plain["torus"], 0.3), "fab"),
        "in turn": (decibo.networks.periodic([plain["ring"], plain["star"]]), "sldbo"),
        "large": (decibo.networks.random_regular(200, 4, seed=0), "sldbo"),
        "hub": (decibo.networks.star(200), "d_soba"),
        "one for each variable": (
            decibo.networks.each(
                {
                    "x": plain["ring"],
                    "y": decibo.networks.chebyshev(plain["star"], 2),
                    "z": decibo.networks.failing(plain["torus"], 0.3),
                }
            ),
            "ahead",
        ),
    }


def difference(one: dict, two: dict) -> float:
    return max(float(np.nanmax(np.abs(one[key] - two[key]))) for key in one)


def compiled_step(method: decibo.Algorithm, network: decibo.Network) -> str:
    """The text of one step as it is run, eight devices."""
    placement = place_agents(network.agents)
    setup = prepare(
        cases.problem("ahead"), network, method, steps=10, every=10, placement=placement
    )
    one = lambda inputs, state: loop.step(setup.program, inputs, state, np.int32(0))
    spread = across(placement, one, (loop.INPUTS, SPLIT), SPLIT)
    return jax.jit(spread).lower(setup.inputs, begin(setup).agents).compile().as_text()


def streamed(devices: int) -> np.ndarray:
    """Where a run ends whose minibatches come from the host, for seven agents: two devices have a
    clone."""
    rows = [{"b": np.random.default_rng(agent).normal(size=(10 + agent, 3))} for agent in range(7)]
    problem = decibo.Problem(
        lambda x, y, d: 0.5 * ((y - d["b"]) ** 2).mean() + 0.05 * (x**2).sum(),
        lambda x, y, d: 0.5 * ((y - x - d["b"]) ** 2).mean(),
        decibo.data.Stream.from_arrays(rows, 4, block=16),
        np.zeros(3),
        np.zeros(3),
    )
    method = decibo.minibatch(decibo.ahead_exact(alpha=0.1, gamma=0.2))
    return np.asarray(
        decibo.solve(problem, decibo.ring(7), method, steps=STEPS, devices=devices).agents.x
    )


def main() -> None:
    assert jax.device_count() == 8
    found = {}
    daily = "--daily" in sys.argv
    for name, (network, method) in pairs().items():
        if daily and name not in DAILY:
            continue
        # of 12 agents, so that some devices have a clone
        devices = 5 if name == "one for each variable" else 8
        # The exact reference is a program of its own: once is enough.
        options = {"measures": ["all"]} if name == "in turn" else {}
        run = lambda n: cases.run(method, network, STEPS, smooth=True, devices=n, **options)  # noqa: B023
        found[f"{method}, {name}, {devices} devices"] = difference(run(1), run(devices))
    problem = cases.problem("ahead")
    if not daily:
        found["stream, 4 devices"] = float(np.abs(streamed(1) - streamed(4)).max())
        chosen = [
            decibo.solve(problem, decibo.ring(12), steps=400, devices=n, progress=False).agents.x
            for n in (1, 8)
        ]
        found["automatic step sizes"] = float(
            np.abs(np.asarray(chosen[0]) - np.asarray(chosen[1])).max()
        )
    try:
        decibo.solve(
            problem,
            decibo.ring(12),
            cases.method("ahead"),
            steps=2,
            measures=[lambda s: s.data["F"].sum()],
        )
        refused = "nothing"
    except decibo.InputError as error:
        refused = str(error)
    texts = {
        net: compiled_step(cases.method("ahead"), network)
        for net, network in cases.networks().items()
        if not daily or net == "ring"
    }
    words = ("collective-permute", "all-gather", "all-reduce", "all-to-all")
    counts = {net: {word: text.count(word) for word in words} for net, text in texts.items()}
    print(json.dumps({"differences": found, "compiled": counts, "refused": refused}))


if __name__ == "__main__":
    main()
