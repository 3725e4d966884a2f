"""The methods of figure 4, their grids of step sizes, and what a step of each costs in gradients and seconds.

Every method is tried with the same number of settings and the same amount of work: a gradient counts 1 and a
second-derivative product counts 1 too, which favours the Hessian-based methods (a product costs about two gradients).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from decibo.algorithm.algorithm import Algorithm
from decibo.algorithm.ma_dsbo import ma_dsbo
from decibo.algorithm.methods import ahead, ahead_exact, sldbo, sparkle_ed
from decibo.execute import loop
from decibo.execute.run import begin
from decibo.measure.cost import Cost
from decibo.network.network import Network
from decibo.paper.sweep import mean_y, single, sweep
from decibo.problem.problem import Problem

ALPHAS = (0.1, 0.3, 1.0)
GAMMAS = (0.06, 0.12, 0.18, 0.27)
PAPER = ("AHEAD", "SLDBO", "MA-DSBO")  # the lines of the paper's figure; the others are extra


def grids(quick: bool = False) -> dict[str, list[Algorithm]]:
    """24 settings of each method (12 if quick)."""
    alphas, gammas = (ALPHAS[:2], GAMMAS[1:]) if quick else (ALPHAS, GAMMAS)
    both = list(itertools.product(alphas, gammas))
    return {
        "AHEAD": [ahead(alpha=a, beta=g / lam, gamma=g, lam=lam) for lam in (10.0, 100.0) for a, g in both],
        "SLDBO": [sldbo(alpha=a, beta=g, gamma=g / v) for v in (1.0, 3.0) for a, g in both],
        "MA-DSBO": [ma_dsbo(alpha=a, beta=g, gamma=g, T=n, N=n) for n in (5, 20) for a, g in both],
        "ahead_exact": [ahead_exact(alpha=a, gamma=g, lam=lam) for lam in (10.0, 100.0) for a, g in both],
        "SPARKLE-ED": [sparkle_ed(alpha=a, beta=g, gamma=g, theta=t) for t in (0.2, 1.0) for a, g in both],
    }


def at_edge(trials: Sequence[Algorithm], best: Algorithm) -> list[str]:
    """Which step sizes of the best trial are the smallest or largest tried: a wider grid could do better."""
    names = [name for name in ("alpha", "beta", "gamma") if name in best.settings]
    tried = {name: [trial.settings[name] for trial in trials] for name in names}
    return [name for name in names if best.settings[name] in (min(tried[name]), max(tried[name]))]


def price(problem: Problem, network: Network, method: Algorithm) -> Cost:
    """What one step costs one agent."""
    return single(problem, network, method).cost


def work(cost: Cost) -> int:
    """Gradients and products of a step."""
    return cost.gradients + cost.products


def tune(problems: Sequence[Problem], network: Network, trials: Sequence[Algorithm], budget: int, judge: Any) -> int:
    """The trial with the lowest mean of judge(problem, ybar) at the end of the budget; diverging once loses."""
    found = np.zeros(len(trials))
    for problem, same in itertools.product(problems, _alike(trials)):
        some = [trials[k] for k in same]
        steps = max(1, budget // work(price(problem, network, some[0])))
        end = sweep(problem, network, some, steps=steps, every=steps, measures={"y": mean_y})
        values = judge(problem, end.rows["y"][:, -1])
        found[same] += np.where(end.finite & np.isfinite(values), values, np.inf)
    return int(np.argmin(found))


def _alike(trials: Sequence[Algorithm]) -> list[list[int]]:
    """Places of trials that differ in numbers only and so can run in one program."""
    kinds: dict[Any, list[int]] = {}
    for k, trial in enumerate(trials):
        kinds.setdefault(jax.tree.structure(trial.core), []).append(k)
    return list(kinds.values())


def seconds_per_step(
    problem: Problem, network: Network, methods: dict[str, tuple[Algorithm, int]], repeats: int
) -> dict[str, list[float]]:
    """Wall time of a step of each method, given with how many steps to time, in turn; compiled beforehand."""
    programs = {}
    for name, (method, steps) in methods.items():
        setup = single(problem, network, method)
        start = begin(setup).agents
        chunk = loop.Chunk.silent(steps)
        programs[name] = (partial(loop.advance, setup.program, setup.inputs, start, np.int32(0), chunk), steps)
        jax.block_until_ready(programs[name][0]())
    found: dict[str, list[float]] = {name: [] for name in methods}
    for _ in range(repeats):
        for name, (call, steps) in programs.items():
            begun = time.perf_counter()
            jax.block_until_ready(call())
            found[name].append((time.perf_counter() - begun) / steps)
    return found
