r"""How much the penalty matters: methods that have one, with penalties from 1 to 10,000, on three
tasks.

    tuned    the step sizes are tuned for every penalty, with the budget of the benchmark: what the
             penalty itself does
    kept     those that were tuned for a penalty of USUAL, whatever it is now: what a wrong guess
             does
    beta     AHEAD with its step beta of y kept as well, where without it beta = gamma/lam follows
             the penalty

Cells are those of the benchmark, with all that follows from it: they are kept in a folder of their
own, made once, and judged on the same seeds in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from decibo.formatting import listed, typeset_number
from studies.bench import results
from studies.bench.entrants import Entrant, entrants
from studies.bench.page import Block
from studies.bench.ranks import first_step, lowest_phi
from studies.bench.results import Cell
from studies.bench.suite import BUDGETS, Job, carry_out

FOLDER = "penalty"
TASKS = ("quadratic", "bent", "cleaning-30")
NETWORK = "ring"
PENALTIES = (1.0, 10.0, 100.0, 1000.0, 10_000.0)
USUAL = 100.0  # for which the steps are tuned that are kept
# who has one, and what it is called
NAMES = {"ahead_exact": "lam", "ahead": "lam", "c2dfb": "lam", "sun_dsbo_gt": "c"}
TUNED, KEPT, BETA = "tuned", "kept", "beta"
STEPS = {TUNED: "tuned for it", KEPT: f"of {USUAL:g}", BETA: f"of {USUAL:g}, beta too"}


class Case(NamedTuple):
    """A method with a penalty, and where its step sizes come from."""

    method: str
    steps: str
    value: float

    @property
    def name(self) -> str:
        """What its cells are called."""
        return f"{self.method}; {self.steps}; {self.value:g}"

    @classmethod
    def of(cls, cell: Cell) -> Case:
        """The case of a cell."""
        method, steps, value = cell.method.split("; ")
        return cls(method, steps, float(value))

    def entrant(self, settings: Mapping[str, float] | None = None) -> Entrant:
        """Who takes part: tuned without settings, and else with these."""
        known = entrants()[self.method]
        name = NAMES[self.method]
        fixed = {**known.fixed, name: self.value}
        if settings is None:
            dials = tuple(dial for dial in known.dials if dial.name != name)
            return Entrant(self.name, known.factory, dials, fixed, known.source)
        tied = {other: settings[dial.name] for dial in known.dials for other in dial.tied}
        beta = {"beta": settings["gamma"] / USUAL} if self.steps == BETA else {}
        return Entrant(
            self.name, known.factory, (), {**fixed, **settings, **tied, **beta}, known.source
        )


def kept(
    out: Path,
    budget: str,
    made: Mapping[str, str],
    tasks: Sequence[str] = TASKS,
    methods: Sequence[str] = tuple(NAMES),
) -> list[Cell]:
    """All cells; those that are not in the folder yet are made, `made` when, with what and
    where."""
    folder = out / FOLDER
    for task in tasks:
        job = Job("", (task,), (NETWORK,), BUDGETS[budget], folder, made)
        for method in methods:
            for value in PENALTIES:
                carry_out(job, Case(method, TUNED, value).entrant())
            usual = results.path_of(folder, task, NETWORK, Case(method, TUNED, USUAL).name)
            settings = results.read_cell(usual).settings
            for steps in (KEPT, BETA) if method == "ahead" else (KEPT,):
                for value in PENALTIES:
                    carry_out(job, Case(method, steps, value).entrant(settings))
    cells = read(out)
    results.write_tables(folder, cells)
    return cells


def read(out: Path) -> list[Cell]:
    """What is there, whoever made it, in the order of the tables."""
    cells = results.read_all(out / FOLDER)
    place = lambda cell: (
        list(NAMES).index(Case.of(cell).method),
        list(STEPS).index(Case.of(cell).steps),
    )
    return sorted(
        cells, key=lambda cell: (TASKS.index(cell.task), *place(cell), Case.of(cell).value)
    )


def solved(cells: Sequence[Cell]) -> dict[Case, float]:
    """The share of the questions (task, seed and target) that each case answers."""
    found: dict[Case, list[bool]] = {}
    for cell in cells:
        same = [other for other in cells if other.task == cell.task]
        for k, run in enumerate(cell.runs):
            lowest = lowest_phi(same, k)
            reached = [
                np.isfinite(first_step(run, cell.rule.judged, t, lowest)) for t in cell.rule.targets
            ]
            found.setdefault(Case.of(cell), []).extend(map(bool, reached))
    return {case: float(np.mean(answers)) for case, answers in found.items()}


def blocks(cells: Sequence[Cell]) -> list[Block]:
    """The sections of the page."""
    heads = [f"{value:g}" for value in PENALTIES]
    shares = solved(cells)
    pairs = list(dict.fromkeys((case.method, case.steps) for case in shares))
    rows = []
    for method, steps in pairs:
        row = [shares.get(Case(method, steps, value)) for value in PENALTIES]
        rows.append(
            [
                method,
                STEPS[steps],
                *("" if share is None else f"{100 * share:.0f} %" for share in row),
            ]
        )
    names = list(dict.fromkeys(cell.task for cell in cells))
    text = (
        f"Methods with a penalty (lam; for sun_dsbo_gt it is c), from 1 to {PENALTIES[-1]:,.0f}, on"
        f" {listed(names)}, ring. The share of the questions that each solves, with step sizes that"
        f" were tuned for this penalty, and with those that were tuned for a penalty of {USUAL:g}"
        " and kept: what a wrong guess costs. In the row with beta the step of y is kept as well;"
        " in the others it follows the penalty, beta = gamma/lam."
    )
    first = Block(
        "How much does the penalty matter?",
        [text, *_answer(shares)],
        ("method", "steps", *heads),
        rows,
    )
    return [first, _ends(cells, heads)]


def _answer(shares: Mapping[Case, float]) -> list[str]:
    """In words: how far apart the best and the worst penalty are if the step sizes are kept."""
    spans: dict[str, str] = {}
    for method, steps in dict.fromkeys((case.method, case.steps) for case in shares):
        row = [
            share for case, share in shares.items() if (case.method, case.steps) == (method, steps)
        ]
        if steps != TUNED:
            name = f"{method} with beta kept too" if steps == BETA else method
            spans[name] = f"{name} solves {100 * min(row):.0f} to {100 * max(row):.0f} %"
    return (
        [f"Over all penalties, with step sizes kept: {listed(list(spans.values()))}."]
        if spans
        else []
    )


def _ends(cells: Sequence[Cell], heads: Sequence[str]) -> Block:
    """Task by task: the last value of what is judged."""
    found = {(cell.task, Case.of(cell)): cell for cell in cells}
    rows = []
    for task, method, steps in dict.fromkeys(
        (task, case.method, case.steps) for task, case in found
    ):
        row = [found.get((task, Case(method, steps, value))) for value in PENALTIES]
        rows.append(
            [task, method, STEPS[steps], *("" if cell is None else _end(cell) for cell in row)]
        )
    text = (
        "After the last step, median over the seeds: the squared norm of the true hypergradient for"
        " quadratics, and the true objective for hyper-cleaning."
    )
    return Block("The penalty, task by task", [text], ("task", "method", "steps", *heads), rows)


def _end(cell: Cell) -> str:
    ends = sorted(
        float(run.history[cell.rule.judged][-1]) if run.sound else np.inf for run in cell.runs
    )
    middle = ends[len(ends) // 2]
    return typeset_number(middle) if np.isfinite(middle) else "diverged"
