r"""Our transcription of the solvers of benchmark_bilevel, for the single-agent comparison.

    SOBA     implicit directions on minibatches, steps like 1/sqrt(k)    [Dagreou et al. 2022]
    SABA     the same with SAGA's tables, constant steps                 [Dagreou et al. 2022]
    SRBA     the same with SARAH: all samples at every period-th step    [Dagreou et al. 2024]
    AmIGO    ten inner steps, ten for the linear system, warm starts     [Arbel & Mairal 2022]
    StocBiO  ten inner steps, ten terms of a Neumann series              [Ji, Yang & Liang 2021]

Their rules were read in solvers/*.py of github.com/benchopt/benchmark_bilevel. That benchmark is a
folder of scripts for the program benchopt: the package registry has no distribution of it, so that
its solvers cannot be a dependency here. To run decibo's methods there, see benchopt.py.

Here each is one compiled step, with that benchmark's samplers (batches of 64 in an order that is
shuffled after every pass), its step-size rules (step_size for y and v, step_size/outer_ratio for
x), period_frac = 0.5 for SRBA and ten inner steps for AmIGO and StocBiO. AmIGO's compiled version
there keeps the v and x of the last record inside its loop; here it has the v and x of the step
before, as in the paper and the other version there.

`work` counts gradients on one batch: a product with second derivatives, or with both of them at
once, counts as two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from decibo.data.stream import Batches
from decibo.measure.cost import PRODUCT
from decibo.problem.problem import Problem

BATCH = 64


class Task(NamedTuple):
    """A problem in both forms, samples for the public solvers and problems for decibo, and the
    exact value function.

    centres   the step size and the ratio around which each method is tuned, and the factor between
              step sizes
    """

    name: str
    inner: Callable[[jax.Array, jax.Array, Any], jax.Array]  # (x, y, samples): the mean over them
    outer: Callable[[jax.Array, jax.Array, Any], jax.Array]
    train: Any
    validation: Any
    x0: np.ndarray
    y0: np.ndarray
    phi: Callable[[np.ndarray], float]
    lowest: Callable[[np.ndarray], float]  # Phi*, searched from a point
    centres: dict[str, tuple[float, float, float]]

    def problem(self) -> Problem:
        """The problem of one agent, whose samples of both levels are a fixed list of batches."""
        parts = jax.tree.map(
            lambda leaf: np.asarray(leaf)[None],
            {"train": self.train, "validation": self.validation},
        )
        size = {kind: jax.tree.leaves(part)[0].shape[1] for kind, part in parts.items()}
        batches = size["train"] // BATCH
        per_batch = size["train"] // batches
        turns = size["validation"] // per_batch  # fewer batches: each is used several times
        assert size["train"] % batches == size["validation"] % per_batch == batches % turns == 0

        def take(d: Any, j: jax.Array) -> Any:
            at = lambda part, i: jax.tree.map(
                lambda leaf: lax.dynamic_slice_in_dim(leaf, i * per_batch, per_batch), part
            )
            return {"train": at(d["train"], j), "validation": at(d["validation"], j % turns)}

        return Problem(
            lambda x, y, d: self.outer(x, y, d["validation"]),
            lambda x, y, d: self.inner(x, y, d["train"]),
            parts,
            self.x0,
            self.y0,
            sample=Batches(batches, take=take),
        )


class Solver(NamedTuple):
    """A method as functions: start with a setting (step size, ratio), advance, and return x."""

    name: str
    settings: list[tuple[float, float]]
    start: Callable[[float, float], Any]
    advance: Callable[[Any, int], Any]
    x: Callable[[Any], np.ndarray]
    work: Callable[[int], float]  # of so many steps, in gradients on one batch
    ours: bool = False


def around(centre: tuple[float, float, float]) -> list[tuple[float, float]]:
    """Nine settings, the centre first."""
    h, ratio, step = centre
    return [(h * step**i, ratio * 10 ** (j / 2)) for i in (0, -1, 1) for j in (0, -1, 1)]


# A state holds the variables, the samplers, the step sizes and what the method
# remembers.


class Sampler(NamedTuple):
    """The benchmark's: batches in an order that is shuffled after every pass."""

    order: jax.Array
    at: jax.Array
    key: jax.Array

    @classmethod
    def of(cls, batches: int, seed: int) -> Sampler:
        return cls(jnp.arange(batches, dtype=jnp.int32), jnp.int32(0), jax.random.key(seed))

    def draw(self) -> tuple[jax.Array, Sampler]:
        last = self.at + 1 == len(self.order)
        again = lambda: (
            jax.random.permutation(self.key, self.order),
            jnp.int32(0),
            jax.random.split(self.key)[0],
        )
        onward = lambda: (self.order, self.at + 1, self.key)
        return self.order[self.at], Sampler(*lax.cond(last, again, onward))


class State(NamedTuple):
    """The state of a solver."""

    y: jax.Array
    v: jax.Array
    x: jax.Array
    inner: Sampler
    outer: Sampler
    h: jax.Array  # the steps of y and v, and of x
    a: jax.Array
    k: jax.Array
    memory: Any


class PublicSolvers:
    """The five solvers, on one task."""

    def __init__(self, task: Task):
        piece = lambda samples, i: jax.tree.map(
            lambda leaf: lax.dynamic_slice_in_dim(leaf, i * BATCH, BATCH), samples
        )
        self.task = task
        self.train = jax.tree.map(jnp.asarray, task.train)
        self.validation = jax.tree.map(jnp.asarray, task.validation)
        self.f = lambda y, x, i: task.outer(x, y, piece(self.validation, i))
        self.g = lambda y, x, i: task.inner(x, y, piece(self.train, i))
        self.counts = tuple(
            len(jax.tree.leaves(part)[0]) // BATCH for part in (self.train, self.validation)
        )
        self.period = sum(self.counts) // 2  # period_frac = 0.5

    def start(self, h: float, ratio: float, memory: Callable[[], Any] = tuple) -> State:
        y = jnp.asarray(self.task.y0)
        samplers = [Sampler.of(count, seed) for seed, count in enumerate(self.counts)]
        return State(
            y=y,
            v=jnp.zeros_like(y),
            x=jnp.asarray(self.task.x0),
            inner=samplers[0],
            outer=samplers[1],
            h=jnp.asarray(h),
            a=jnp.asarray(h / ratio),
            k=jnp.int32(0),
            memory=memory(),
        )

    def inner_parts(
        self, y: jax.Array, x: jax.Array, v: jax.Array, i: jax.Array | None
    ) -> tuple[jax.Array, ...]:
        """g_y, H v and J v on a batch, or on all samples."""
        g = (
            (lambda y, x: self.task.inner(x, y, self.train))
            if i is None
            else (lambda y, x: self.g(y, x, i))
        )
        g_y, back = jax.vjp(jax.grad(g), y, x)
        return g_y, *back(v)

    def outer_parts(
        self, y: jax.Array, x: jax.Array, j: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        """f_y and f_x."""
        f = (
            (lambda y, x: self.task.outer(x, y, self.validation))
            if j is None
            else (lambda y, x: self.f(y, x, j))
        )
        return jax.grad(f, (0, 1))(y, x)

    def parts(self, s: State, i: jax.Array | None, j: jax.Array | None) -> tuple[jax.Array, ...]:
        """d_y, d_v, d_x."""
        g_y, Hv, Jv = self.inner_parts(s.y, s.x, s.v, i)
        f_y, f_x = self.outer_parts(s.y, s.x, j)
        return g_y, Hv - f_y, f_x - Jv

    def moved(self, s: State, d: tuple[jax.Array, ...], falling: bool = False) -> State:
        slow = jnp.sqrt(s.k + 1.0) if falling else 1.0
        h, a = s.h / slow, s.a / slow
        return s._replace(y=s.y - h * d[0], v=s.v - h * d[1], x=s.x - a * d[2], k=s.k + 1)

    def draws(self, s: State) -> tuple[jax.Array, jax.Array, State]:
        i, inner = s.inner.draw()
        j, outer = s.outer.draw()
        return i, j, s._replace(inner=inner, outer=outer)

    def soba(self, s: State) -> State:
        i, j, s = self.draws(s)
        return self.moved(s, self.parts(s, i, j), falling=True)

    def saba(self, s: State) -> State:
        """A table for each of the five parts, as in the benchmark; they start at 0."""
        i, j, s = self.draws(s)
        fresh = (*self.inner_parts(s.y, s.x, s.v, i), *self.outer_parts(s.y, s.x, j))
        tables, means, pending = s.memory
        found, memory = [], []
        for new, table, mean, (at, row), now in zip(
            fresh, tables, means, pending, (i, i, i, j, j), strict=True
        ):
            # what the step before found: written before it is read, it is not copied
            table = table.at[at].set(row)
            change = new - table[now]
            found.append(change + mean)
            memory.append((table, mean + change / len(table), (now, new)))
        g_y, Hv, Jv, f_y, f_x = found
        tables, means, pending = (tuple(column) for column in zip(*memory, strict=True))
        return self.moved(s, (g_y, Hv - f_y, f_x - Jv))._replace(memory=(tables, means, pending))

    def saba_memory(self) -> Any:
        y, x = jnp.zeros(len(self.task.y0)), jnp.zeros(len(self.task.x0))
        shapes = (
            (self.counts[0], y),
            (self.counts[0], y),
            (self.counts[0], x),
            (self.counts[1], y),
            (self.counts[1], x),
        )
        tables = tuple(jnp.zeros((count, len(row))) for count, row in shapes)
        rows = tuple(row for _, row in shapes)
        return tables, rows, tuple((jnp.int32(0), row) for row in rows)

    def srba(self, s: State) -> State:
        """SARAH: all samples at every period-th step, else what changes on a batch."""

        def change(s: State) -> tuple[tuple[jax.Array, ...], State]:
            i, j, s = self.draws(s)
            y, v, x, d = s.memory
            old = self.parts(s._replace(y=y, v=v, x=x), i, j)
            return (
                tuple(d + new - o for d, new, o in zip(d, self.parts(s, i, j), old, strict=True)),
                s,
            )

        d, s = lax.cond(s.k % self.period == 0, lambda s: (self.parts(s, None, None), s), change, s)
        return self.moved(s, d)._replace(memory=(s.y, s.v, s.x, d))

    def srba_memory(self) -> Any:
        y, x = jnp.asarray(self.task.y0), jnp.asarray(self.task.x0)
        zero = jnp.zeros_like(y)
        return y, zero, x, (zero, zero, jnp.zeros_like(x))

    def descended(self, s: State) -> State:
        """Ten inner steps."""

        def one(_: int, s: State) -> State:
            i, inner = s.inner.draw()
            return s._replace(y=s.y - s.h * jax.grad(self.g)(s.y, s.x, i), inner=inner)

        return lax.fori_loop(0, 10, one, s)

    def with_system(self, s: State, each: Callable[..., Any], start: Any) -> tuple[Any, State]:
        """Ten steps for the linear system, each with H of another batch."""

        def one(_: int, at: tuple[Any, Sampler]) -> tuple[Any, Sampler]:
            i, inner = at[1].draw()
            H = lambda v: jax.vjp(lambda y: jax.grad(self.g)(y, s.x, i), s.y)[1](v)[0]
            return each(H, at[0]), inner

        found, inner = lax.fori_loop(0, 10, one, (start, s.inner))
        return found, s._replace(inner=inner)

    def outer_step(self, s: State, v: jax.Array, f_x: jax.Array) -> State:
        i, inner = s.inner.draw()
        Jv = jax.vjp(lambda x: jax.grad(self.g)(s.y, x, i), s.x)[1](v)[0]
        return self.descended(s._replace(x=s.x - s.a * (f_x - Jv), inner=inner, k=s.k + 1))

    def amigo(self, s: State) -> State:
        j, outer = s.outer.draw()
        f_y, f_x = self.outer_parts(s.y, s.x, j)
        v, s = self.with_system(s._replace(outer=outer), lambda H, v: v - s.h * (H(v) - f_y), s.v)
        return self.outer_step(s._replace(v=v), v, f_x)

    def stocbio(self, s: State) -> State:
        j, outer = s.outer.draw()
        f_y, f_x = self.outer_parts(s.y, s.x, j)

        def term(
            H: Callable[[jax.Array], jax.Array], at: tuple[jax.Array, jax.Array]
        ) -> tuple[jax.Array, jax.Array]:
            v = at[0] - s.h * H(at[0])
            return v, at[1] + v

        (_, total), s = self.with_system(s._replace(outer=outer), term, (f_y, f_y))
        return self.outer_step(s, s.h * total, f_x)

    def solvers(self) -> list[Solver]:
        memories = {
            "SRBA": self.srba_memory,
            "SABA": self.saba_memory,
            "AmIGO": tuple,
            "SOBA": tuple,
            "StocBiO": tuple,
        }
        solvers = []
        for name, memory in memories.items():
            one = getattr(self, name.lower())
            advance = jax.jit(lambda s, n, one=one: lax.fori_loop(0, n, lambda _, s: one(s), s))
            start = lambda h, ratio, memory=memory: self.start(h, ratio, memory)
            settings = around(self.task.centres[name])
            work = getattr(self, f"{name.lower()}_work", self.plain_work)
            solvers.append(Solver(name, settings, start, advance, lambda s: np.asarray(s.x), work))
        return solvers

    def plain_work(self, steps: int) -> float:
        """g_y, J and H at once, f_x with f_y."""
        return (2 + PRODUCT) * steps

    def srba_work(self, steps: int) -> float:
        full = -(-steps // self.period)
        return 2 * self.plain_work(steps - full) + full * (
            (1 + PRODUCT) * self.counts[0] + self.counts[1]
        )

    def amigo_work(self, steps: int) -> float:
        """f, ten products, J, and ten inner steps."""
        return (1 + 10 * PRODUCT + PRODUCT + 10) * steps

    stocbio_work = amigo_work
