r"""How much the penalty matters: methods that have one, with penalties from 1 to 10,000, on three
tasks.

    tuned    the step sizes are tuned for every penalty, with the budget of the benchmark: the
             effect of the penalty itself
    fixed    those that were tuned for a penalty of USUAL, whatever it is now: the effect of a wrong
             guess
    beta     AHEAD with its step beta of y fixed as well, where without it beta = gamma/lam follows
             the penalty

Results are those of the benchmark, in a folder of their own: computed once, and judged on the same
seeds in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from decibo.formatting import listed, typeset_number
from studies.bench import storage
from studies.bench.methods import TunableMethod, all_methods
from studies.bench.page import Block
from studies.bench.ranks import first_step, lowest_phi
from studies.bench.storage import Result
from studies.bench.suite import BUDGETS, Job, carry_out

FOLDER = "penalty"
TASKS = ("quadratic", "bent", "cleaning-30")
NETWORK = "ring"
PENALTIES = (1.0, 10.0, 100.0, 1000.0, 10_000.0)
USUAL = 100.0
# the methods that have a penalty, and its name
NAMES = {"ahead_exact": "lam", "ahead": "lam", "c2dfb": "lam", "sun_dsbo_gt": "c"}
TUNED, FIXED, BETA = "tuned", "fixed", "beta"
STEPS = {TUNED: "tuned for it", FIXED: f"of {USUAL:g}", BETA: f"of {USUAL:g}, beta too"}


class Case(NamedTuple):
    """A method with a penalty, and the source of its step sizes."""

    method: str
    steps: str
    value: float

    @property
    def name(self) -> str:
        """The name of its results."""
        return f"{self.method}; {self.steps}; {self.value:g}"

    @classmethod
    def of(cls, result: Result) -> Case:
        """The case of a result."""
        method, steps, value = result.method.split("; ")
        return cls(method, steps, float(value))

    def tunable(self, settings: Mapping[str, float] | None = None) -> TunableMethod:
        """The method to tune or, with settings, with nothing to tune."""
        known = all_methods()[self.method]
        penalty = NAMES[self.method]
        fixed = {**known.fixed, penalty: self.value}
        space = tuple(each for each in known.hyper_parameters if each.name != penalty)
        if settings is not None:
            tied = {
                other: settings[each.name] for each in known.hyper_parameters for other in each.tied
            }
            beta = {"beta": settings["gamma"] / USUAL} if self.steps == BETA else {}
            fixed |= {**settings, **tied, **beta}
            space = ()
        return TunableMethod(self.name, known.factory, space, fixed, known.source)


def compute(
    out: Path,
    budget: str,
    made: Mapping[str, str],
    tasks: Sequence[str] = TASKS,
    methods: Sequence[str] = tuple(NAMES),
) -> list[Result]:
    """All results; those that are not in the folder yet are computed."""
    folder = out / FOLDER
    for task in tasks:
        job = Job("", (task,), (NETWORK,), BUDGETS[budget], folder, made)
        for method in methods:
            for value in PENALTIES:
                carry_out(job, Case(method, TUNED, value).tunable())
            usual = storage.path_of(folder, task, NETWORK, Case(method, TUNED, USUAL).name)
            settings = storage.read_result(usual).settings
            for steps in (FIXED, BETA) if method == "ahead" else (FIXED,):
                for value in PENALTIES:
                    carry_out(job, Case(method, steps, value).tunable(settings))
    found = read(out)
    storage.write_tables(folder, found)
    return found


def read(out: Path) -> list[Result]:
    """The results in the folder, in the order of the tables."""

    def order(result: Result) -> tuple[int, int, int, float]:
        case = Case.of(result)
        row = (list(NAMES).index(case.method), list(STEPS).index(case.steps), case.value)
        return TASKS.index(result.task), *row

    return sorted(storage.read_all(out / FOLDER), key=order)


def solved(results: Sequence[Result]) -> dict[Case, float]:
    """The share of the instances (task, seed and target) that each case solves."""
    found: dict[Case, list[bool]] = {}
    for result in results:
        same = [other for other in results if other.task == result.task]
        rule = result.rule
        for k, run in enumerate(result.runs):
            lowest = lowest_phi(same, k)
            found.setdefault(Case.of(result), []).extend(
                bool(np.isfinite(first_step(run, rule.judged, target, lowest)))
                for target in rule.targets
            )
    return {case: float(np.mean(answers)) for case, answers in found.items()}


def blocks(results: Sequence[Result]) -> list[Block]:
    """The sections of the page."""
    heads = [f"{value:g}" for value in PENALTIES]
    shares = solved(results)
    rows, spans = [], []
    for method, steps in dict.fromkeys((case.method, case.steps) for case in shares):
        row = [shares.get(Case(method, steps, value)) for value in PENALTIES]
        percents = ["" if share is None else f"{100 * share:.0f} %" for share in row]
        rows.append([method, STEPS[steps], *percents])
        if steps != TUNED:
            name = f"{method} with beta fixed too" if steps == BETA else method
            there = [100 * share for share in row if share is not None]
            spans.append(f"{name} solves {min(there):.0f} to {max(there):.0f} %")
    text = (
        f"Methods with a penalty (lam; for sun_dsbo_gt it is c), from 1 to {PENALTIES[-1]:,.0f}, on"
        f" {listed(list(dict.fromkeys(result.task for result in results)))}, ring. The share of the"
        " instances that each solves, with step sizes that were tuned for this penalty, and with"
        f" those that were tuned for a penalty of {USUAL:g}: the cost of a wrong guess. In the row"
        " with beta the step of y is fixed as well; in the others it follows the penalty, beta ="
        " gamma/lam."
    )
    answer = [f"Over all penalties, with fixed step sizes: {listed(spans)}."] if spans else []
    first = Block(
        "How much does the penalty matter?", [text, *answer], ("method", "steps", *heads), rows
    )
    # task by task: the last value of what is judged
    ends = {(result.task, Case.of(result)): _end(result) for result in results}
    rows = [
        [task, method, STEPS[steps]]
        + [ends.get((task, Case(method, steps, value)), "") for value in PENALTIES]
        for task, method, steps in dict.fromkeys((task, *case[:2]) for task, case in ends)
    ]
    text = (
        "After the last step, median over the seeds: the squared norm of the true hypergradient for"
        " quadratics, and the true objective for hyper-cleaning."
    )
    head = ("task", "method", "steps", *heads)
    return [first, Block("The penalty, task by task", [text], head, rows)]


def _end(result: Result) -> str:
    ends = sorted(
        float(run.history[result.rule.judged][-1]) if run.sound else np.inf for run in result.runs
    )
    middle = ends[len(ends) // 2]
    return typeset_number(middle) if np.isfinite(middle) else "diverged"
