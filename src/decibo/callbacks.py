"""Callbacks: what looks at a run at every record, and may end it.

A callback is a function (step, measures) that returns True or a reason to end the run, or else
None; or an object with any of

    start(plan)              before the first step; `plan` has steps, every, measures, and step and
                             history of a run that resumes
    record(step, measures)   at every record, as the function
    end(solution)            after the run, however it ended

`solve`, `sweep` and `repeat` take a list of them. A run that a callback has ended has the status
`stopped`, and its state is that of the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from decibo.run.run import Plan
from decibo.validate import at_least, integer, one_of

__all__ = ["EarlyStopping", "Plan"]


@dataclass
class EarlyStopping:
    """Ends a run whose measure has not improved for some time.

    measure    the name of a measure that is recorded
    patience   the number of records without an improvement after which the run ends
    delta      by how much a value must be better than the best so far to count as an improvement
    mode       "min" if smaller is better, "max" if larger is

    Of a sweep, the runs that are made together end when none of them has improved.
    """

    measure: str
    patience: int = 10
    delta: float = 0.0
    mode: str = "min"
    best: np.ndarray = field(init=False, repr=False)
    waited: np.ndarray = field(init=False, repr=False)  # records since the best

    def __post_init__(self) -> None:
        integer("patience", self.patience)
        at_least("delta", self.delta, 0.0)
        one_of("mode", self.mode, ("min", "max"))

    def start(self, plan: Plan) -> None:
        one_of("The measure of EarlyStopping", self.measure, plan.measures)
        self.best = np.array(np.inf)
        self.waited = np.array(0)
        for value in plan.history.get(self.measure, ()):
            self._see(value)

    def record(self, step: int, measures: Mapping[str, Any]) -> str | None:
        self._see(measures[self.measure])
        if (self.waited < self.patience).any():
            return None
        return f"{self.measure} has not improved in {self.patience} records"

    def _see(self, value: Any) -> None:
        loss = np.asarray(value) * (1 if self.mode == "min" else -1)
        improved = loss < self.best - self.delta  # never true of NaN
        self.waited = np.where(improved, 0, self.waited + 1)
        self.best = np.where(improved, loss, self.best)
