"""Time of a step: every method of the catalogue against what a user would write, and against the
floor.

    python -m studies.performance.step [--quick]

(a) a hand-written jitted scan, (b) numpy with a loop over agents, (c) PyTorch autograd with a loop
over agents, (d) the matrix-vector passes that the method needs, timed alone. Ours is decibo.solve,
less what a run of one step takes.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import decibo
from decibo import contrib
from studies.performance.cases import CASES, Case
from studies.performance.hand import METHODS as HAND
from studies.performance.hand import hand_written
from studies.performance.loops import METHODS as LOOPS
from studies.performance.loops import numpy_loop, torch_loop
from studies.performance.timing import Row, interleaved, milliseconds, per_step, ratio, run_alone

CATALOG = decibo.CATALOG | contrib.CATALOG
GROUP = "step"
SHORTEST = 1e-7  # seconds a step: less is noise
CENTRALISED = ("f2sa", "f2sa_p", "bome", "v_pbgd", "lv_hba")
MINIMAX = ("ahead_minimax", "dgda", "gt_gda")
TABLE = (*(name for name in HAND if name != "mdbo"), "fab")  # direction x consensus
SMALL = {"T": 3, "N": 10, "K": 3}  # lengths of inner loops here


def settings(name: str, case: Case) -> dict[str, Any]:
    """What the method needs, from the step sizes of the case."""
    import inspect

    parameters = inspect.signature(CATALOG[name]).parameters
    values = scaled(name, case).steps | SMALL | {"eta": case.steps["gamma"], "theta": 0.2}
    if name == "bome":
        values |= {"eta": 0.5}
    return {key: values[key] for key in parameters if key in values}


def scaled(name: str, case: Case) -> Case:
    """These problems are not minimax problems: there, methods for those must not get far."""
    less = 1e-4 if name in MINIMAX else 1.0
    return case._replace(
        steps={key: value * (1 if key == "lam" else less) for key, value in case.steps.items()}
    )


def ours(case: Case, network: Any, method: Any, steps: int) -> Callable[[], Any]:
    return lambda: (
        decibo.solve(
            case.problem,
            network,
            method,
            steps=steps,
            every=steps,
            measures=["consensus_x"],
            progress=False,
        ).agents.x
    )


def floor(case: Case, cost: Any, steps: int) -> Callable[[], Any]:
    """The passes over the data that the gradients and products of a step need, and nothing else
    (logistic only)."""
    train = case.problem.data["train"]
    validation = case.problem.data["validation"]

    def there_and_back(X: jax.Array, y: jax.Array) -> jax.Array:
        margins = jnp.einsum("msf,mf->ms", X, y)
        return jnp.einsum("msf,ms->mf", X, margins)

    @jax.jit
    def run(train: jax.Array, validation: jax.Array, rows: list[jax.Array]) -> Any:
        def step(_: Any, rows: list[jax.Array]) -> list[jax.Array]:
            data = [validation] * cost.outer_gradients + [train] * (
                cost.inner_gradients + cost.hessian_products
            )
            return [there_and_back(X, row) for X, row in zip(data, rows, strict=True)]

        return jax.lax.fori_loop(0, steps, step, rows)

    count = cost.outer_gradients + cost.inner_gradients + cost.hessian_products
    rows = [jnp.full((len(train), train.shape[2]), 1e-3, jnp.float32)] * count
    return lambda: run(train, validation, rows)


def one_case(label: str, case: Case, quick: bool) -> Iterator[Row]:
    network = decibo.networks.erdos_renyi(10, 0.7, seed=0)
    alone = decibo.complete(1)
    logistic = "train" in case.problem.data
    long = (40 if quick else 150) if logistic else (1000 if quick else 8000)
    repeats = 3 if quick else 7 if logistic else 5
    for name, factory in CATALOG.items():
        method = factory(**settings(name, case))
        heavy = name in ("ma_dsbo", "mdbo", "c2dfb", "f2sa", "f2sa_p", "bome")
        steps = max(10, long // 10) if heavy else long
        here, net = (_merged(case), alone) if name in CENTRALISED else (case, network)
        candidates = {"long": ours(here, net, method, steps), "short": ours(here, net, method, 1)}
        candidates |= _others(name, here, net, method, steps, logistic)
        lengths = {"numpy": _few(steps), "torch": _few(steps)}
        times = interleaved(candidates, repeats)
        mine = per_step(times["long"], times["short"], steps)
        each = {key: [t / lengths.get(key, steps) for t in value] for key, value in times.items()}
        if min(mine) < SHORTEST:
            yield Row(
                GROUP,
                f"{label}: {name}",
                None,
                note="too short to be distinguished from the call itself",
            )
            continue
        yield from _rows(label, name, mine, each, logistic)


def _others(
    name: str, case: Case, network: Any, method: Any, steps: int, logistic: bool
) -> dict[str, Any]:
    calls: dict[str, Any] = {}
    if name in (*HAND, "fab"):
        same = "penalty_tracking" if name == "fab" else name
        sizes = scaled(name, case).steps
        calls["hand"] = hand_written(case.problem, network.W, sizes, same, steps)
        # Compared over few steps: written as W s, exact diffusion drifts in single precision, and
        # ours does not.
        few = min(steps, 100)
        short = hand_written(case.problem, network.W, sizes, same, few)()
        np.testing.assert_allclose(
            short, ours(case, network, method, few)(), rtol=1e-3, atol=1e-4, err_msg=name
        )
    if name in LOOPS:
        calls["numpy"] = numpy_loop(case, network.W, name, _few(steps))
        np.testing.assert_allclose(
            calls["numpy"](), ours(case, network, method, _few(steps))(), rtol=1e-3, atol=1e-4
        )
        if importlib.util.find_spec("torch"):
            calls["torch"] = torch_loop(case, network.W, name, _few(steps))
            np.testing.assert_allclose(calls["torch"](), calls["numpy"](), rtol=1e-3, atol=1e-4)
    if logistic:
        cost = decibo.solve(
            case.problem, network, method, steps=1, measures=["consensus_x"], progress=False
        ).cost
        calls["floor"] = floor(case, cost, steps)
    return calls


def _few(steps: int) -> int:
    return max(3, steps // 20)


def _rows(
    label: str, name: str, mine: list[float], each: dict[str, list[float]], logistic: bool
) -> Iterator[Row]:
    yield milliseconds(GROUP, f"{label}: {name}, a step", mine)
    if "hand" in each:
        target = "<= 1.10" if name == "ahead" else "<= 1.25" if name in TABLE else ""
        yield ratio(GROUP, f"{label}: {name} / hand-written scan", mine, each["hand"], target)
    if "numpy" in each:
        yield ratio(
            GROUP, f"{label}: numpy loop / {name}", each["numpy"], mine, ">= 2" if logistic else ""
        )
    if "torch" in each:
        yield ratio(
            GROUP,
            f"{label}: PyTorch loop / {name}",
            each["torch"],
            mine,
            ">= 6" if logistic else "",
        )
    elif name in LOOPS:
        yield Row(
            GROUP, f"{label}: PyTorch loop / {name}", None, note="skipped: torch is not installed"
        )
    if "floor" in each:
        target = "<= 1.3" if name in TABLE else ""
        yield ratio(GROUP, f"{label}: {name} / its passes alone", mine, each["floor"], target)


def _merged(case: Case) -> Case:
    """All data with one agent, for centralised methods."""
    data = {name: np.asarray(value) for name, value in case.problem.data.items()}
    if "train" in data:
        data = {name: value.reshape(1, -1, *value.shape[2:]) for name, value in data.items()}
    else:
        data = {name: value.mean(axis=0, keepdims=True) for name, value in data.items()}
    p = case.problem
    return case._replace(problem=decibo.Problem(p.outer, p.inner, data, p.x0, p.y0))


def compared(quick: bool) -> Iterator[Row]:
    """ahead_exact against AHEAD and SPARKLE-ED, in one run."""
    case = CASES["logistic 10 x 400 x 784"]()
    network = decibo.networks.erdos_renyi(10, 0.7, seed=0)
    steps = 60 if quick else 300
    names = ("ahead_exact", "ahead", "sparkle_ed")
    methods = {name: CATALOG[name](**settings(name, case)) for name in names}
    calls = {name: ours(case, network, method, steps) for name, method in methods.items()}
    calls |= {name + " 1": ours(case, network, method, 1) for name, method in methods.items()}
    times = interleaved(calls, 3 if quick else 9)
    each = {name: per_step(times[name], times[name + " 1"], steps) for name in names}
    for other in names[1:]:
        yield ratio(
            GROUP, f"logistic: ahead_exact / {other}", each["ahead_exact"], each[other], "<= 1.10"
        )
    yield milliseconds(GROUP, "a call of solve besides its steps", times["ahead 1"])


def rows(quick: bool) -> Iterator[Row]:
    for label, make in CASES.items():
        yield from one_case(label, make(), quick)
    yield from compared(quick)


if __name__ == "__main__":
    run_alone(rows)
