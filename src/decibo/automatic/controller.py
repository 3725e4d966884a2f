"""What may change a run between two chunks of steps: the state of a run, and the controllers that act on it.

A run is a fold over chunks of steps, RunState -> RunState. Between two chunks a method's controller may return another
state: other settings, an earlier point to continue from. Nothing is assigned in place.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from decibo.measure.cost import Seconds
from decibo.measure.measures import Direction
from decibo.parallel.placement import Placement
from decibo.problem.problem import Functions
from decibo.pytree import Tree, Vector


class RunState(NamedTuple):
    """Everything that a checkpoint holds.

    step        the number of steps done
    agents      the state of all agents; every leaf has a leading axis of agents
    settings    the settings that the controller has chosen; empty without one
    history     the records so far, by measure; "step" says when each was taken
    controller  the controller's own state; () without one
    seconds     where the time of the run has gone so far

    A pytree whose structure stays the same during a run: JAX arrays have a leading axis of agents, all other leaves are
    numbers of Python or numpy arrays of any length.
    """

    step: int
    agents: Tree
    settings: dict[str, float]
    history: dict[str, np.ndarray]
    controller: Tree = ()
    seconds: Seconds = Seconds()


class Variables(Protocol):
    """The variables of a penalty method, of one agent or of all."""

    @property
    def x(self) -> Vector: ...
    @property
    def y(self) -> Vector: ...
    @property
    def z(self) -> Vector: ...


class Agents(NamedTuple):
    """The agents of a run as a controller sees them: their objectives, where they are, their data and direction."""

    functions: Functions
    placement: Placement | None
    data: Tree
    direction: Direction


class Controller(Protocol):
    """Decides between chunks of steps; one that a method carries is consulted by `solve`."""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that it chooses, each with the number it must keep or None."""
        ...

    def init(self, agents: Agents, run: RunState, steps: int) -> RunState:
        """The state before the first step, with the controller's own part and the first settings filled in."""
        ...

    def interval(self, run: RunState) -> int:
        """The number of steps between two calls of `update`."""
        ...

    def update(self, agents: Agents, run: RunState) -> RunState:
        """The state to continue from; called at every multiple of `interval`, from step 0 on."""
        ...

    def on_nonfinite(self, agents: Agents, run: RunState) -> RunState | None:
        """The state to continue from after a number stopped being finite, or None to give up."""
        ...

    def troubled(self, run: RunState) -> bool:
        """Whether it had to undo steps, which makes the problem itself suspect."""
        ...

    def summary(self, run: RunState) -> str:
        """What was chosen, in a sentence or two, for the message of the solution."""
        ...
