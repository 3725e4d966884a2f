r"""Compressed messages: every vector s that a method mixes has a public copy c, which all
neighbours know as well.

    (1)  q  = Q(s - c)                        what is sent: a compressed residual, so that errors
                                              are fed back
    (2)  c+ = c + q
    (3)  u+ = u + W q                         u = W c, kept up to date from the messages alone
    (4)  mix(s) = s + eta (u+ - c+)           W s if nothing is lost and eta = 1

[CHOCO: Koloskova, Stich & Jaggi 2019]. Residuals vanish as the agents come to rest, and what is
lost of them with them: exact methods stay exact. c and u are two more copies of every message in
memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.tree_util import Partial

from decibo.algorithm.algorithm import Algorithm
from decibo.algorithm.compose import check_wrappable, wrapped
from decibo.algorithm.schedules import Scalar
from decibo.capabilities import Need
from decibo.errors import InputError
from decibo.network.mixing import How, Mix, WrappedMix
from decibo.problem.problem import Oracle
from decibo.pytree import Tree, Vector
from decibo.validate import fraction as share
from decibo.validate import one_of

T = TypeVar("T")

__all__ = ["Compressor", "compressed", "quantise", "random_k", "rounded", "top_k"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Compressor:
    """A compressor: `apply(s, key)` is what a receiver reconstructs, `bits(size, width)` counts
    what was sent."""

    apply: Callable[[Vector, jax.Array], Vector] = field(metadata={"static": True})
    bits: Callable[[int, int], int] = field(metadata={"static": True})
    name: str = field(metadata={"static": True})


def top_k(fraction: float) -> Compressor:
    """The largest entries in absolute value, with their positions."""
    fraction = share("fraction", fraction, zero=False)
    return Compressor(_TopK(fraction), _EntryBits(fraction, seed=False), f"top_k({fraction:g})")


def random_k(fraction: float) -> Compressor:
    """Entries drawn at random, without their positions: neighbours draw the same ones from the seed
    that is sent."""
    fraction = share("fraction", fraction, zero=False)
    return Compressor(
        _RandomK(fraction), _EntryBits(fraction, seed=True), f"random_k({fraction:g})"
    )


def quantise(bits: int) -> Compressor:
    """Every entry rounded to one of 2^bits - 1 levels between -max and max, and the maximum."""
    if isinstance(bits, bool) or not isinstance(bits, int) or not 2 <= bits <= 16:
        raise InputError(f"bits must be an integer from 2 to 16, but it is {bits!r}.")
    return Compressor(_Quantise(bits), _LevelBits(bits), f"quantise({bits})")


def rounded(dtype: str = "bfloat16") -> Compressor:
    """Every entry in a shorter floating-point type, "bfloat16" or "float16"."""
    kind = {"bfloat16": jnp.bfloat16, "float16": jnp.float16}[
        one_of("dtype", dtype, ("bfloat16", "float16"))
    ]
    return Compressor(_Rounded(jnp.dtype(kind)), _LevelBits(16, scale=False), f"rounded({dtype})")


class Compressed(NamedTuple):
    """The method's state, and for each of its messages the public copy c and u = W c."""

    state: Tree
    c: tuple[Tree, ...]
    u: tuple[Tree, ...]


def compressed(method: Algorithm, compressor: Compressor, *, eta: float = 1.0) -> Algorithm:
    """The method with every message compressed, with error feedback.

    eta   how far agents move towards what they receive, at most 1; the stronger the compression,
          the smaller
    """
    if not isinstance(compressor, Compressor):
        raise InputError(
            f"The compressor must be a decibo Compressor, but it is {compressor!r}.",
            "Pass decibo.compression.top_k(0.1), for example.",
        )
    eta = share("eta", eta, zero=False)
    check_wrappable(method)
    core = method.core
    # Vectors are compressed one by one, so that nothing says which variable one belongs to.
    needs = {Need.SYMMETRIC_WEIGHTS, Need.ONE_NETWORK, Need.FIXED_LINKS, Need.LOCKSTEP}
    return wrapped(
        method,
        compressor.name,
        lambda method: compressed(method, compressor, eta=eta),
        Partial(_begin_compressed, core.init, core.step),
        Partial(_compressed, core.step, compressor, eta),
        Partial(asked_inside, core.view),
        chosen=None if core.chosen is None else Partial(asked_inside, core.chosen),
        needs=method.needs | needs,
    )


def _begin_compressed(
    init: Partial, step: Partial, oracle: Oracle, mix: Mix, start: dict[str, Vector]
) -> Compressed:
    """Public copies start at 0; a trial run on shapes alone finds the messages."""
    state = init(oracle, mix, start)
    zeros = tuple(
        jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), tree)
        for tree in messages_of(step, oracle, state)
    )
    return Compressed(state, zeros, zeros)


def messages_of(step: Callable[..., Tree], oracle: Oracle, state: Tree) -> list[Tree]:
    """The shapes of what an agent in this state mixes in one step, in order."""
    # The list is filled while the step is traced, which eval_shape does and nothing else.
    messages = MessageShapes()
    jax.eval_shape(lambda s: step(oracle, messages, s, jnp.int32(0), jax.random.key(0)), state)
    return messages.seen


def _compressed(
    step: Partial,
    compressor: Compressor,
    eta: Scalar,
    oracle: Oracle,
    mix: Mix,
    s: Compressed,
    k: jax.Array,
    key: jax.Array,
) -> Compressed:
    draw, rest = jax.random.split(key)
    messages = CompressingMix(mix, compressor, eta, draw, s)
    state = step(oracle, messages, s.state, k, rest)
    return Compressed(state, tuple(messages.c), tuple(messages.u))


def asked_inside(question: Partial, s: Tree) -> Any:
    """What the method inside answers of its state, of which s is a wrapper."""
    return question(s.state)


class MessageShapes(Mix):
    """A mix that remembers the shapes of what went through it."""

    def __init__(self) -> None:
        self.seen: list[Tree] = []

    def exchange(self, tree: T, how: How, bits: int | None = None) -> T:
        if how is not How.LARGEST:  # single numbers, which are not compressed
            self.seen.append(
                jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)
            )
        return tree


class CompressingMix(WrappedMix):
    """A mix that sends compressed residuals; used once, for the messages of one step in their
    order."""

    def __init__(
        self, mix: Mix, compressor: Compressor, eta: Scalar, key: jax.Array, memory: Compressed
    ):
        super().__init__(mix)
        self.compressor = compressor
        self.eta = eta
        self.key = key
        self.memory = memory
        self.c: list[Tree] = []
        self.u: list[Tree] = []

    def exchange(self, tree: T, how: How, bits: int | None = None) -> T:
        if how is How.LARGEST:
            return self.mix.exchange(tree, how, bits)  # single numbers: they arrive as they are
        number = len(self.c)
        leaves, treedef = jax.tree.flatten(tree)
        keys = jax.random.split(jax.random.fold_in(self.key, number), len(leaves))
        c = jax.tree.leaves(self.memory.c[number])
        u = jax.tree.leaves(self.memory.u[number])
        q = [
            self.compressor.apply((s - c).ravel(), key).reshape(s.shape)
            for s, c, key in zip(leaves, c, keys, strict=True)
        ]  # (1)
        sent = sum(self.compressor.bits(leaf.size, leaf.dtype.itemsize * 8) for leaf in leaves)
        c = [a + b for a, b in zip(c, q, strict=True)]  # (2)
        u = [a + b for a, b in zip(u, self.mix(q, bits=sent), strict=True)]  # (3)
        self.c.append(jax.tree.unflatten(treedef, c))
        self.u.append(jax.tree.unflatten(treedef, u))
        change = jax.tree.unflatten(
            treedef, [self.eta * (u - c) for u, c in zip(u, c, strict=True)]
        )
        # (4); compressed methods run on undirected networks only, where a push is a sum
        return change if how is How.DIFFERENCE else jax.tree.map(jnp.add, tree, change)


def keep_largest(s: Vector, count: int) -> Vector:
    """The entries of largest size, so many of them, and zeros elsewhere; of equal ones the first.

    The size of the last entry that is kept is found bit by bit, which is several times faster than
    sorting on a CPU: numbers without a sign are ordered like the integers of the same bits.
    """
    width = 8 * s.dtype.itemsize
    kind = jnp.dtype(f"uint{width}")
    sizes = lax.bitcast_convert_type(jnp.abs(s), kind)

    def next_bit(
        at: tuple[jax.Array, jax.Array, jax.Array],
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        place, least, _ = at
        higher = least | (jnp.asarray(1, kind) << place.astype(kind))
        many = jnp.sum(sizes >= higher, dtype=jnp.int32)
        return place - 1, jnp.where(many >= count, higher, least), many == count

    more = lambda at: (at[0] >= 0) & ~at[2]  # bits left, and not yet as many as wanted
    start = jnp.int32(width - 2), jnp.asarray(0, kind), jnp.asarray(s.size == count)
    _, least, _ = lax.while_loop(more, next_bit, start)
    above = sizes > least
    equal = sizes == least
    room = count - jnp.sum(above, dtype=jnp.int32)
    places = jnp.arange(s.size, dtype=jnp.int32)

    def next_place(bit: jax.Array, end: jax.Array) -> jax.Array:
        further = end | (jnp.int32(1) << (bits - 1 - bit))
        return jnp.where(jnp.sum(equal & (places < further), dtype=jnp.int32) <= room, further, end)

    bits = s.size.bit_length()
    # of the equal ones that are kept; cumsum would be slow
    end = lax.fori_loop(0, bits, next_place, jnp.int32(0))
    return jnp.where(above | (equal & (places < end)), s, 0)


@dataclass(frozen=True)
class _TopK:
    fraction: float

    def __call__(self, s: Vector, key: jax.Array) -> Vector:
        return keep_largest(s, _kept(s.size, self.fraction))


@dataclass(frozen=True)
class _RandomK:
    fraction: float

    def __call__(self, s: Vector, key: jax.Array) -> Vector:
        places = jax.random.permutation(key, s.size)[: _kept(s.size, self.fraction)]
        return jnp.zeros_like(s).at[places].set(s[places])


@dataclass(frozen=True)
class _Quantise:
    bits: int

    def __call__(self, s: Vector, key: jax.Array) -> Vector:
        levels = 2 ** (self.bits - 1) - 1
        largest = jnp.max(jnp.abs(s))
        scale = jnp.where(largest > 0, largest, 1) / levels
        return jnp.round(s / scale) * scale


@dataclass(frozen=True)
class _Rounded:
    dtype: jnp.dtype

    def __call__(self, s: Vector, key: jax.Array) -> Vector:
        return s.astype(self.dtype).astype(s.dtype)


@dataclass(frozen=True)
class _EntryBits:
    """Bits of some entries of a vector: their values, and their places or the seed that they were
    drawn with."""

    fraction: float
    seed: bool

    def __call__(self, size: int, width: int) -> int:
        count = _kept(size, self.fraction)
        return (
            count * width + 64 if self.seed else count * (width + max(1, (size - 1).bit_length()))
        )


@dataclass(frozen=True)
class _LevelBits:
    """Bits of a vector whose entries have so many each, and those of the largest value, if that is
    sent too."""

    bits: int
    scale: bool = True

    def __call__(self, size: int, width: int) -> int:
        return size * self.bits + width * self.scale


def _kept(size: int, fraction: float) -> int:
    return max(1, round(fraction * size))
