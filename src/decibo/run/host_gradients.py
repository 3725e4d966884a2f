"""Steps whose gradients are computed by other libraries: compiled pieces, and the gradients in
between.

A compiled loop that calls the host back hands arrays over through the host's memory. Where a
gradient can take them where they are (`on_device`, as PyTorch does on a GPU), the step is cut at
its gradients instead,

    piece 0 | gradient | piece 1 | gradient | ... | piece n        for every step of an interval

and only the record at the end of the interval is left to the compiled loop. Steps with gradients
inside a loop or a branch, and agents on several devices, stay with the compiled loop.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import jax
import numpy as np
from jax.extend.core import JaxprEqn

from decibo.pytree import Tree
from decibo.run import loop
from decibo.run.checkpoint import RunState
from decibo.run.jaxpr_split import Pieces, cut, is_flat, shapes, traced, types
from decibo.run.loop import INTERVALS, Chunk, Inputs, Program, Progress
from decibo.run.run import CompiledStepper

PROGRAMS = 16  # how many are remembered
# a compiled program calls back from a thread of its own, in which JAX must not be called
_here = threading.local()


def are_wanted(program: Program) -> bool:
    """Whether a gradient takes arrays where they are, and all agents are on one device."""
    gradients = (program.functions.outer_gradient, program.functions.inner_gradient)
    on_device = any(getattr(gradient, "on_device", False) for gradient in gradients)
    return program.placement is None and on_device


class PiecesStepper(CompiledStepper):
    """Makes the steps of one interval at a time, where a step can be cut at its gradients, and
    leaves the record to the compiled program."""

    def compile(self, inputs: Inputs, state: RunState) -> RunState:
        self.pieces = _pieces(self.setup.program, *types((inputs, state.agents, np.int32(0))))
        self.most = INTERVALS if self.pieces is None else 1
        return super().compile(inputs, state)

    def call(
        self, inputs: Inputs, state: Tree, step: int, chunk: Chunk, votes: jax.Array | None = None
    ) -> Progress:
        if self.pieces is not None and chunk.length:
            end = step + int(chunk.steps[0])
            for k in range(step, end):
                state = self.pieces(_call, inputs, state, np.int32(k))
            step = end
            chunk = chunk._replace(steps=np.zeros_like(chunk.steps))
        return super().call(inputs, state, step, chunk, votes)


def at_stop() -> bool:
    """Whether this is called between two pieces, and not back from a compiled program."""
    return getattr(_here, "stopped", False)


@lru_cache(maxsize=PROGRAMS)
def _pieces(program: Program, structure: Any, kinds: tuple[Any, ...]) -> Pieces | None:
    closed, result = traced(partial(loop.step, program), *shapes(structure, kinds))
    return cut(closed, result, _calls_back) if is_flat(closed.jaxpr, _calls_back) else None


def _calls_back(equation: JaxprEqn) -> bool:
    return equation.primitive.name == "pure_callback" and callable(equation.params.get("callback"))


def _call(equation: JaxprEqn, *values: jax.Array) -> Sequence[Any]:
    """What the compiled loop would call, with the arrays where they are."""
    _here.stopped = True
    try:
        return jax.tree.leaves(equation.params["callback"](*values))
    finally:
        _here.stopped = False
