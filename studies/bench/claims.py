"""Claims of other papers about order and shape, each with a verdict from runs, as studies.paper has
them for AHEAD.

No published table of decentralised bilevel results can be matched number for number, so what is
tested is which method is ahead of which, and what makes no difference. Some claims are read from
the results of a benchmark, others from runs of their own on heterogeneous quadratics (condition 10,
ten agents, five seeds). Ahead means a lower area under the curve of what the task is judged by,
median over the seeds; differences below 1 % decide nothing.

SPARKLE   Zhu et al. 2024       D-SOBA   Kong et al. 2024
SLDBO     Dong et al. 2023      C2DFB    Wen et al. 2024
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import jax
import numpy as np

from decibo.algorithm import consensus, direction
from decibo.algorithm.algorithm import Algorithm
from decibo.algorithm.c2dfb import c2dfb
from decibo.algorithm.compose import compose, minibatch
from decibo.algorithm.methods import d_soba, sparkle_ed
from decibo.formatting import listed, plural
from decibo.network.graphs import complete, exponential, ring
from decibo.network.network import Network
from decibo.network.per_variable import each
from decibo.problem.problem import Problem
from decibo.problems.quadratic import quadratic
from decibo.run.fingerprint import software
from studies.bench.judging import judged_run
from studies.bench.material import NOISE, noisy
from studies.bench.page import Block
from studies.bench.ranks import costs, first_step
from studies.bench.storage import Result, Run, computed_once
from studies.bench.tasks import TASKS
from studies.bench.tuning import score
from studies.paper.experiment import Claim, Verdict, judge, or_never, tally, true_for

__all__ = ["Claim", "as_dict", "block", "check"]

SEEDS = range(5)
STEPS = 600
STEP = 0.1  # of every variable in the runs of their own
TARGET = 1e-6
CLOSE = 1.25  # what counts as equal


def check(out: Path, results: Sequence[Result]) -> list[Claim]:
    """All claims, from the results of a benchmark and from runs that are stored in its folder."""
    return [
        _ahead(
            results,
            "SPARKLE: exact diffusion is ahead of gradient tracking",
            "sparkle_ed",
            "sparkle_gt",
        ),
        _ahead(
            results, "SPARKLE: EXTRA is ahead of gradient tracking", "sparkle_extra", "sparkle_gt"
        ),
        _ahead(results, "SPARKLE: gradient tracking is ahead of D-SOBA", "sparkle_gt", "d_soba"),
        *(_computed(out, claim) for claim in (_mixed, _topology, _differences, _denser)),
        _exact(results),
        _cheaper(
            results, "SLDBO: needs less computation than methods with inner loops", "sldbo", "work"
        ),
        _cheaper(
            results,
            "C2DFB: needs less traffic than second-order methods with inner loops",
            "c2dfb",
            "bytes",
        ),
        *(_computed(out, claim) for claim in (_compressed, _speed_up, _transient)),
    ]


def _computed(out: Path, claim: Callable[[], Claim]) -> Claim:
    """A claim with runs of its own, which are computed once for a folder."""
    path = out / "claims" / f"{claim.__name__.strip('_')}.json"
    asked = {"software": software(), "about": [STEPS, STEP, TARGET, CLOSE, NOISE, list(SEEDS)]}
    found = computed_once(path, asked, lambda: asdict(claim()))
    found["verdict"] = Verdict(found["verdict"])
    return Claim(**{name: value for name, value in found.items() if name != "key"})


def block(claims: Sequence[Claim]) -> Block:
    """The claims as a section of the page."""
    words = {
        Verdict.holds: ("holds", "hold"),
        Verdict.fails: ("does not hold", "do not hold"),
        Verdict.open: ("is undecided", "are undecided"),
    }
    found = {verdict: sum(claim.verdict is verdict for claim in claims) for verdict in words}
    counts = listed([f"{n} {words[verdict][n != 1]}" for verdict, n in found.items() if n])
    rows = [(claim.paper, claim.finding, str(claim.verdict)) for claim in claims]
    text = (
        f"Of {plural(len(claims), 'claim')} {counts}. A claim holds if it does in at least 4 of 5"
        " cases, does not hold if it does in at most 1 of 5, and is undecided in between. Some"
        " rules were read in abstracts only, as the reference says of each method: a verdict is"
        " about the method as it is implemented here."
    )
    return Block("Claims of other papers", [text], ("the paper says", "measured", "verdict"), rows)


def as_dict(claim: Claim) -> dict[str, str]:
    """A claim as JSON can hold it."""
    return {"paper": claim.paper, "measured": claim.finding, "verdict": str(claim.verdict)}


# From the results of a benchmark


def _ahead(results: Sequence[Result], says: str, first: str, second: str) -> Claim:
    """Whether the first has the lower area under its curve, on each task and network."""
    by_method = {
        name: {each.scenario: each for each in results if each.method == name}
        for name in (first, second)
    }
    pairs = [
        (by_method[first][where], other)
        for where, other in by_method[second].items()
        if where in by_method[first]
    ]
    answers: list[bool | None] = []
    for one, other in pairs:
        mine, its = (
            float(np.median([_area(result, run) for run in result.runs])) for result in (one, other)
        )
        close = (
            abs(mine - its) <= 0.01 * max(abs(mine), abs(its))
            if np.isfinite([mine, its]).all()
            else mine == its
        )
        answers.append(None if close else mine < its)
    return Claim(says, f"in {tally(answers).replace('seed', 'task')}", judge(*answers))


def _area(result: Result, run: Run) -> float:
    if not run.sound:
        return np.inf
    return float(score(result.rule.judged, run.history[result.rule.judged][None])[0])


def _exact(results: Sequence[Result]) -> Claim:
    says = "SLDBO: constant steps lead to the exact solution although the agents differ"
    here = [
        result
        for result in results
        if result.method == "sldbo" and result.task in ("quadratic", "quadratic-severe")
    ]
    answers = [
        first_step(run, "stationarity", TARGET, np.nan) < np.inf
        for result in here
        for run in result.runs
    ]
    return true_for(says, answers, f": |grad Phi|^2 falls to {TARGET:g} of its start")


def _cheaper(results: Sequence[Result], says: str, name: str, axis: str) -> Claim:
    """Whether it reaches the targets with less than MDBO and MA-DSBO, where one of them does."""
    rivals = ("mdbo", "ma_dsbo")
    found = costs([result for result in results if result.method in (name, *rivals)])
    if not {name, *rivals} <= set(found.methods):
        return Claim(says, "the benchmark has no such results", judge())
    mine = found.of(axis, name)
    theirs = np.min([found.of(axis, rival) for rival in rivals], axis=0)
    decided = np.isfinite(mine) | np.isfinite(theirs)
    answers = [bool(value) for value in (mine < theirs)[decided]]
    less = "fewer" if axis.endswith("s") else "less"
    return Claim(
        says, f"{less} {axis} in {tally(answers).replace('seed', 'instance')}", judge(*answers)
    )


# From runs of their own


def _runs(
    method: Algorithm, network: Network, make: Callable[[int], Problem] | None = None
) -> list[Run]:
    task = TASKS["quadratic"]
    make = make or task.make
    found = [judged_run(task, make(seed), network, method, seed, STEPS) for seed in SEEDS]
    return [
        Run(
            int(str(run["seed"])),
            str(run["status"]),
            run["history"],
            {"bytes": run["cost"]["bytes"]},
        )  # type: ignore[arg-type, index]
        for run in found
    ]


def _steps(runs: Sequence[Run], target: float = TARGET) -> np.ndarray:
    return np.array([first_step(run, "stationarity", target, np.nan) for run in runs])


def _areas(runs: Sequence[Run]) -> np.ndarray:
    areas = [
        float(score("stationarity", run.history["stationarity"][None])[0]) if run.sound else np.inf
        for run in runs
    ]
    return np.array(areas)


_steady = {"alpha": STEP, "beta": STEP, "gamma": STEP, "theta": None}
_implicit = partial(compose, direction.implicit(), x=STEP, y=STEP, v=STEP)


def _close(mine: np.ndarray, its: np.ndarray) -> list[bool | None]:
    """Whether two numbers of steps are about equal, seed by seed; undecided if nobody got there."""
    pairs = zip(mine, its, strict=True)
    return [
        None if not np.isfinite([a, b]).any() else bool(max(a, b) <= CLOSE * min(a, b))
        for a, b in pairs
    ]


def _mixed() -> Claim:
    """Exact diffusion at the lower level, another strategy for x."""
    lower = {"y": consensus.exact_diffusion(), "v": consensus.exact_diffusion()}
    pure = _steps(_runs(sparkle_ed(**_steady), ring(10)))  # type: ignore[arg-type]
    answers = []
    for upper in (consensus.atc_tracking(), consensus.extra()):
        mixed = _steps(_runs(_implicit({"x": upper, **lower}), ring(10)))
        answers += _close(mixed, pure)
    says = (
        "SPARKLE: mixed strategies (tracking or EXTRA for x, exact diffusion below) are equal to"
        " pure ones"
    )
    return true_for(
        says,
        answers,
        f": steps to {TARGET:g} within a factor of {CLOSE:g}, two mixtures",
        "pairs of runs with one step size",
    )


def _differences() -> Claim:
    plain = _areas(_runs(d_soba(**_steady), ring(10)))  # type: ignore[arg-type]
    first = _areas(_runs(d_soba(difference=1e-4, **_steady), ring(10)))  # type: ignore[arg-type]
    answers = [bool(abs(a - b) <= 0.01 * abs(a)) for a, b in zip(plain, first, strict=True)]
    says = "D-SOBA: differences of gradients do as well as second derivatives"
    return true_for(says, answers, ": areas within 1 %", "the quadratic has no third derivatives")


def _denser() -> Claim:
    ends = lambda network: [
        run.history["stationarity"][-1] for run in _runs(d_soba(**_steady), network)
    ]  # type: ignore[arg-type]
    on_ring = ends(ring(10))
    better = ends(exponential(10))
    answers = [bool(a < b) for a, b in zip(better, on_ring, strict=True)]
    measured = (
        f": |grad Phi|^2 ends at {np.median(better):.1e} on an exponential graph,"
        f" {np.median(on_ring):.1e} on a ring"
    )
    return true_for(
        "D-SOBA: a better connected network brings it closer to the solution", answers, measured
    )


def _compressed() -> Claim:
    """C2DFB with and without compression, at the same settings."""
    found = {}
    for keep in (0.5, 1.0):
        runs = _runs(c2dfb(alpha=STEP, gamma=STEP, lam=100.0, K=5, keep=keep), ring(10))
        found[keep] = _steps(runs, 1e-3) * [run.price["bytes"] for run in runs]
    answers = [
        None if not np.isfinite([a, b]).any() else bool(a < b)
        for a, b in zip(found[0.5], found[1.0], strict=True)
    ]
    return true_for(
        "C2DFB: compression saves traffic on the way to the same accuracy",
        answers,
        ": bytes to 1e-3, half of the numbers sent",
    )


# With noise


def _noisy(agents: int, heterogeneity: float, seed: int) -> Problem:
    """The first agents of sixteen; if they are equal, it is the same problem for every number of
    them."""
    whole = quadratic(16, 8, 16, condition=10.0, heterogeneity=heterogeneity, seed=seed)
    data = jax.tree.map(lambda leaf: leaf[:agents], whole.data)
    return replace(whole, data=data, agents=agents, sample=noisy, solution=None, constants=None)


def _courses(method: Algorithm, network: Network, heterogeneity: float) -> np.ndarray:
    """|grad Phi|^2 along runs with noise, (seeds, records)."""
    made = partial(_noisy, network.agents, heterogeneity)
    return np.array(
        [run.history["stationarity"] for run in _runs(minibatch(method), network, made)]
    )


def _speed_up() -> Claim:
    """Four times as many agents, a quarter of the noise."""
    method = sparkle_ed(**_steady)  # type: ignore[arg-type]
    ends = {m: _courses(method, complete(m), 0.0) for m in (4, 16)}
    floors = {m: rows[:, rows.shape[1] // 2 :].mean(axis=1) for m, rows in ends.items()}
    ratios = floors[4] / floors[16]
    says = (
        "SPARKLE, D-SOBA: linear speed-up, the error that noise leaves falls in proportion to the"
        " number of agents"
    )
    measured = (
        f": from 4 to 16 agents it falls {np.median(ratios):.1f}-fold (median; within a factor of 2"
        " of 4)"
    )
    return true_for(says, [bool(2 <= ratio <= 8) for ratio in ratios], measured)


def _topology() -> Claim:
    """A sparse network for x, or for y and v, with noise."""
    dense = complete(16)
    sparse = ring(16)
    method = d_soba(**_steady)  # type: ignore[arg-type]
    on = lambda x, low: _courses(method, each({"x": x, "y": low, "v": low}), 1.0)
    floors = [
        rows[:, rows.shape[1] // 2 :].mean(axis=1)
        for rows in (on(dense, sparse), on(sparse, dense))
    ]
    answers = [
        None if abs(a - b) <= 0.01 * b else bool(a > b) for a, b in zip(*floors, strict=True)
    ]
    lower, upper = (float(np.median(each)) for each in floors)
    measured = (
        f": |grad Phi|^2 ends at {lower:.1e} with a ring for y and v only, {upper:.1e} with a ring"
        " for x only"
    )
    says = "SPARKLE: the topology of y and v matters more than that of x"
    return true_for(says, answers, measured, "D-SOBA's consensus, noise, 16 unequal agents")


def _transient() -> Claim:
    """Steps until a ring is within a factor of 2 of the complete graph, for good."""
    found = {}
    for name, factory in (("SPARKLE-ED", sparkle_ed), ("D-SOBA", d_soba)):
        on_ring, at_best = (
            _courses(factory(**_steady), network, 1.0).mean(axis=0)  # type: ignore[arg-type]
            for network in (ring(16), complete(16))
        )
        smooth = lambda row: np.convolve(row, np.ones(9) / 9, mode="valid")
        far = np.flatnonzero(smooth(on_ring) > 2 * smooth(at_best))
        records = len(on_ring) - 8
        last = 0 if not len(far) else far[-1] + 1
        found[name] = np.inf if last >= records else last * STEPS / (len(on_ring) - 1)
    says = (
        "SPARKLE: fewer transient steps than D-SOBA, until a sparse network does not matter any"
        " more"
    )
    listed = ", ".join(f"{name} {or_never(steps)}" for name, steps in found.items())
    measured = (
        f"steps until a ring of 16 stays within a factor of 2 of the complete graph: {listed}"
    )
    return Claim(says, measured, judge(bool(found["SPARKLE-ED"] < found["D-SOBA"])))
