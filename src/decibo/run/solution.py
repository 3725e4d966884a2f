"""What a run returns: the answer, its history, and how it ended."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from decibo.algorithm.algorithm import Algorithm
from decibo.errors import missing
from decibo.measure.cost import Cost
from decibo.network.directed import DirectedNetwork
from decibo.network.network import Network
from decibo.pytree import Tree

if TYPE_CHECKING:
    import pandas


class Status(StrEnum):
    """How a run ended.

    done          all steps were made
    converged     every target of `until` was reached
    stopped       a callback ended the run
    diverged      numbers of the state stopped being finite, or grew without bound
    failed        the state stayed bounded, but the result is invalid: a measure is not a finite
                  number, or the inner level is not strongly convex
    interrupted   it was asked to stop
    """

    done = "done"
    converged = "converged"
    stopped = "stopped"
    diverged = "diverged"
    failed = "failed"
    interrupted = "interrupted"

    @property
    def sound(self) -> bool:
        """Whether x and y can be used: done, converged, or stopped or interrupted on the way."""
        return self not in (Status.diverged, Status.failed)


@dataclass(frozen=True, eq=False)
class Solution:
    """The result of a run.

    x, y      the means over the agents, shaped like x0 and y0
    agents    every agent's own: agents.x, agents.y, ... with a leading axis of agents
    history   name of a measure -> array with one entry for each record; history["step"] says when
    cost      what a step costs and what the run cost: gradients, messages, bytes, seconds
    status    done, converged, stopped, diverged, failed or interrupted (see `Status`); `message`
              says it in words
    steps     the number of steps after which x, y and agents were taken
    method    the method; the step sizes that agents have found themselves are in `message`
    """

    x: Tree
    y: Tree
    agents: SimpleNamespace
    history: dict[str, np.ndarray]
    cost: Cost
    status: Status
    message: str
    steps: int
    method: Algorithm
    network: Network | DirectedNetwork
    state: Tree = field(repr=False, default=None)

    def to_pandas(self) -> pandas.DataFrame:
        """The history as a pandas DataFrame, a row for each record: what was spent so far, and
        every measure.

        work, gradients and products are those of all agents, bytes those of all links; seconds are
        those of the steps, shared out equally.

        A measure that is an array becomes several columns: name[0], name[1], ...
        """
        try:
            import pandas
        except ImportError as error:
            raise missing("pandas", "Solution.to_pandas", "table") from error
        step = self.history["step"]
        columns = {"step": step} | self.cost.so_far(step)
        for name, values in self.history.items():
            flat = values.reshape(len(values), math.prod(values.shape[1:]))
            columns |= {
                name if values.ndim == 1 else f"{name}[{i}]": flat[:, i]
                for i in range(flat.shape[1])
            }
        return pandas.DataFrame(columns)

    def __repr__(self) -> str:
        last = ", ".join(
            f"{name}={values[-1]:.3g}"
            for name, values in self.history.items()
            if name != "step" and len(values) and np.ndim(values[-1]) == 0
        )
        return (
            f"Solution({self.status} after {self.steps} steps of {self.method} on {self.network}:"
            f" {last})"
        )


class DivergedError(RuntimeError):
    """A run diverged or failed and `throw=True` was passed; `solution` holds everything up to
    then."""

    def __init__(self, solution: Solution):
        super().__init__(solution.message)
        self.solution = solution
