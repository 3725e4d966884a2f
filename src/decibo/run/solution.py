"""What a run returns: the answer, its history, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from decibo.algorithm.algorithm import Algorithm
from decibo.errors import missing
from decibo.formatting import in_notebook
from decibo.measure.cost import Cost
from decibo.network.directed import DirectedNetwork
from decibo.network.network import Network
from decibo.pytree import Tree
from decibo.validate import one_of

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


Table = dict[str, np.ndarray]
COSTS = ("step", "work", "gradients", "products", "bytes", "seconds")
WIDE = 8  # components of a measure that a page still shows one by one


class Status(StrEnum):
    """How a run ended.

    done          all steps were made
    converged     every target of `until` was reached
    stopped       a callback ended the run
    diverged      numbers of the state stopped being finite, or grew without bound
    failed        the state stayed bounded, but the result is invalid: a measure is not a finite
                  number, or the inner level is not strongly convex; or agents that find their step
                  sizes had to go back, and no target says whether what they came to is valid
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
        every measure; one that is an array becomes several columns, name[0], name[1], ...

        work, gradients and products are those of all agents, bytes those of all links; seconds are
        those of the steps, divided equally among them.
        """
        try:
            import pandas
        except ImportError as error:
            raise missing("pandas", "Solution.to_pandas", "table") from error
        return pandas.DataFrame(history_table(self.history, self.cost)[0])

    def plot(self, *measures: str, ax: Axes | None = None) -> Axes:
        """Draw measures over the steps with matplotlib, by default all that are never negative;
        returns the axes."""
        history = self.history
        names = scalars_of(history)
        wanted = [one_of("The recorded measure", name, names) for name in measures] or names
        lines = {name: (history["step"], *3 * (history[name],)) for name in wanted}
        return drawn(lines, ax, all_of_them=bool(measures))

    _repr_html_ = in_notebook

    def __repr__(self) -> str:
        """One line of at most 80 columns: as many measures as fit."""
        text = (
            f"Solution({self.status} after {self.steps} steps of {self.method.name} on"
            f" {self.network.agents} agents"
        )
        for name in scalars_of(self.history):
            row = self.history[name]
            more = f", {name}={row[-1]:.3g}" if len(row) else ""
            text += more if len(text) + len(more) < 80 else ""
        return f"{text})"


def history_table(history: Mapping[str, ArrayLike], cost: Cost) -> tuple[Table, list[str]]:
    """What was spent until each record and every measure, and the names of those worth a curve."""
    step = np.asarray(history["step"], dtype=np.int64)
    table: Table = {"step": step} | cost.so_far(step)
    shown: list[str] = []
    for name, values in history.items():
        if name == "step":
            continue
        rows = np.asarray(values)
        components = (
            {"": rows}
            if rows.ndim <= 1
            else {
                f"[{','.join(map(str, index))}]": rows[(slice(None), *index)]
                for index in np.ndindex(*rows.shape[1:])
            }
        )
        for component, column in components.items():
            free = name + component
            while free in table or free in COSTS:  # the names of costs are reserved
                free += " (measure)"
            table[free] = column
            if len(components) <= WIDE:
                shown.append(free)
    return table, shown


def scalars_of(history: Mapping[str, np.ndarray]) -> list[str]:
    """The measures that are one number at each record."""
    return [name for name, row in history.items() if name != "step" and np.ndim(row) == 1]


def drawn(lines: Mapping[str, Sequence[np.ndarray]], ax: Axes | None, all_of_them: bool) -> Axes:
    """Lines by their label, (step, low, median, high), on a logarithmic axis if none is negative;
    otherwise all of them, or those that are not."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise missing("matplotlib", "Drawing runs", "plot") from error
    fit = {label: rows for label, rows in lines.items() if not (np.stack(rows[1:]) < 0).any()}
    lines = lines if all_of_them or not fit else fit
    ax = pyplot.subplots(layout="constrained")[1] if ax is None else ax
    if lines.keys() <= fit.keys():
        ax.set_yscale("log", nonpositive="mask")
    for label, (step, low, middle, high) in lines.items():
        (line,) = ax.plot(step, middle, label=label)
        ax.fill_between(step, low, high, color=line.get_color(), alpha=0.25, linewidth=0)
    ax.set_xlabel("steps")
    ax.legend(frameon=False)
    return ax


class DivergedError(RuntimeError):
    """A run diverged or failed and `throw=True` was passed; `solution` holds everything up to
    then."""

    def __init__(self, solution: Solution):
        super().__init__(solution.message)
        self.solution = solution
