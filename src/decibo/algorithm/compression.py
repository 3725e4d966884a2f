r"""Wrappers that make a method of a method: minibatches, and messages that are compressed.

compressed: every vector s that the method mixes has a public copy c, which all neighbours know as well

    (1)  q  = Q(s - c)                        what is sent: a compressed residual, so that errors are made good
    (2)  c+ = c + q
    (3)  u+ = u + W q                         u = W c, kept up to date from the messages alone
    (4)  mix(s) = s + eta (u+ - c+)           W s if nothing is lost and eta = 1

[CHOCO: Koloskova, Stich & Jaggi 2019]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from decibo.algorithm.algorithm import Algorithm
from decibo.errors import InputError
from decibo.problem.oracle import Oracle
from decibo.pytree import Tree, Vector

__all__ = ["Compressor", "compressed", "quantise", "random_k", "top_k"]


def minibatch(method: Algorithm) -> Algorithm:
    """The method with every gradient of a step taken on a minibatch drawn by the problem's `sample`."""
    core = method.core
    return _wrapped(method, "minibatch", minibatch, core.init, Partial(_sampled, core.step), stochastic=True)


def _sampled(step: Any, oracle: Oracle, mix: Any, state: Any, k: jax.Array, key: jax.Array) -> Any:
    draw, rest = jax.random.split(key)
    return step(oracle.sampled(draw), mix, state, k, rest)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Compressor:
    """`apply(s, key)` is what a receiver reconstructs, `bits(size, width)` what was really sent for it."""

    apply: Callable[[Vector, jax.Array], Vector] = field(metadata={"static": True})
    bits: Callable[[int, int], int] = field(metadata={"static": True})
    name: str = field(metadata={"static": True})


def top_k(fraction: float) -> Compressor:
    """The largest entries in size, with their places."""
    fraction = _fraction(fraction)
    return Compressor(_TopK(fraction), _Bits("places", fraction), f"top_k({fraction:g})")


def random_k(fraction: float) -> Compressor:
    """Entries drawn at random, without their places: neighbours draw the same ones from the seed that is sent."""
    fraction = _fraction(fraction)
    return Compressor(_RandomK(fraction), _Bits("seed", fraction), f"random_k({fraction:g})")


def quantise(bits: int) -> Compressor:
    """Every entry rounded to one of 2^bits - 1 levels between -max and max, and the maximum."""
    if isinstance(bits, bool) or not isinstance(bits, int) or not 2 <= bits <= 16:
        raise InputError(f"bits = {bits!r}", "it must be an integer from 2 to 16", "Give 8, for example.")
    return Compressor(_Quantise(bits), _Bits("levels", bits), f"quantise({bits})")


class Compressed(NamedTuple):
    """The method's state, and for each of its messages the public copy c and u = W c."""

    state: Any
    c: tuple[Tree, ...]
    u: tuple[Tree, ...]


def compressed(method: Algorithm, compressor: Compressor, *, eta: float = 1.0) -> Algorithm:
    """The method with every message compressed, with error feedback.

    eta   how far agents move towards what they hear, at most 1; the stronger the compression, the smaller
    """
    if not isinstance(compressor, Compressor):
        raise InputError(f"compressor = {compressor!r}", "it must be a decibo compressor", "Give top_k(0.1).")
    if not (np.isfinite(eta) and 0 < eta <= 1):
        raise InputError(f"eta = {eta!r}", "it must be above 0 and at most 1", "Give 0.5, for example.")
    core = method.core
    again = lambda method: compressed(method, compressor, eta=eta)
    return _wrapped(
        method,
        compressor.name,
        again,
        Partial(_begin_compressed, core.init, core.step),
        Partial(_compressed, core.step, compressor, float(eta)),
        Partial(_view_compressed, core.view),
        directed=False,
        fixed_network=True,
    )


def _begin_compressed(init: Any, step: Any, oracle: Oracle, mix: Any, start: Any) -> Compressed:
    """Public copies start at 0; a trial run on shapes alone finds the messages."""
    state, messages = init(oracle, mix, start), _Messages()
    jax.eval_shape(lambda s: step(oracle, messages, s, jnp.int32(0), jax.random.key(0)), state)
    zeros = tuple(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), tree) for tree in messages.seen)
    return Compressed(state, zeros, zeros)


def _compressed(
    step: Any,
    compressor: Compressor,
    eta: Any,
    oracle: Oracle,
    mix: Any,
    s: Compressed,
    k: jax.Array,
    key: jax.Array,
) -> Compressed:
    draw, rest = jax.random.split(key)
    messages = _CompressedMix(mix, compressor, eta, s, draw)
    state = step(oracle, messages, s.state, k, rest)
    return Compressed(state, tuple(messages.c), tuple(messages.u))


def _view_compressed(view: Any, s: Compressed) -> dict[str, Vector]:
    return view(s.state)


class _Messages:
    """A mix that remembers the shapes of what went through it."""

    def __init__(self) -> None:
        self.seen: list[Tree] = []

    def __call__(self, tree: Tree, bits: int | None = None) -> Tree:
        self.seen.append(jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree))
        return tree


class _CompressedMix:
    """A mix that sends compressed residuals; used once, for the messages of one step in their order."""

    def __init__(self, mix: Any, compressor: Compressor, eta: Any, memory: Compressed, key: jax.Array):
        self.mix, self.compressor, self.eta, self.memory, self.key = mix, compressor, eta, memory, key
        self.c: list[Tree] = []
        self.u: list[Tree] = []

    def __call__(self, tree: Tree, bits: int | None = None) -> Tree:
        number = len(self.c)
        leaves, treedef = jax.tree.flatten(tree)
        c, u = jax.tree.leaves(self.memory.c[number]), jax.tree.leaves(self.memory.u[number])
        keys = jax.random.split(jax.random.fold_in(self.key, number), len(leaves))
        q = [
            self.compressor.apply((s - c).ravel(), key).reshape(s.shape)
            for s, c, key in zip(leaves, c, keys, strict=True)
        ]  # (1)
        sent = sum(self.compressor.bits(leaf.size, leaf.dtype.itemsize * 8) for leaf in leaves)
        c = [a + b for a, b in zip(c, q, strict=True)]  # (2)
        u = [a + b for a, b in zip(u, self.mix(q, bits=sent), strict=True)]  # (3)
        self.c.append(jax.tree.unflatten(treedef, c))
        self.u.append(jax.tree.unflatten(treedef, u))
        mixed = [s + self.eta * (u - c) for s, u, c in zip(leaves, u, c, strict=True)]  # (4)
        return jax.tree.unflatten(treedef, mixed)


@dataclass(frozen=True)
class _TopK:
    fraction: float

    def __call__(self, s: Vector, key: jax.Array) -> Vector:
        count = _kept(s.size, self.fraction)
        _, places = jax.lax.top_k(jnp.abs(s), count)
        return jnp.zeros_like(s).at[places].set(s[places])


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
        levels, largest = 2 ** (self.bits - 1) - 1, jnp.max(jnp.abs(s))
        scale = jnp.where(largest > 0, largest, 1) / levels
        return jnp.round(s / scale) * scale


@dataclass(frozen=True)
class _Bits:
    """What one vector of this size, of numbers this wide, really costs to send."""

    kind: str
    value: Any

    def __call__(self, size: int, width: int) -> int:
        if self.kind == "levels":
            return size * self.value + width
        count = _kept(size, self.value)
        if self.kind == "seed":
            return count * width + 64
        return count * (width + max(1, (size - 1).bit_length()))


def _kept(size: int, fraction: float) -> int:
    return max(1, round(fraction * size))


def _fraction(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise InputError(f"fraction = {value!r}", "it must be above 0 and at most 1", "Give 0.1, for example.")
    return float(value)


def _wrapped(
    method: Algorithm, word: str, again: Any, init: Any, step: Any, view: Any = None, **more: Any
) -> Algorithm:
    """The wrapped method; its settings are those of the method inside, and changing one wraps it again."""
    if not isinstance(method, Algorithm):
        raise InputError(f"{method!r}", "only an algorithm can be wrapped", "Give decibo.ahead(...), for example.")
    if method.controller is not None:
        raise InputError(f"{method!r}", "a method without step sizes cannot be wrapped", "Give alpha and gamma.")
    inside = method.factory
    factory = None if inside is None else (lambda **settings: again(inside(**settings)))
    view = method.view if view is None else view
    return replace(method, init=init, step=step, view=view, name=f"{method.name} + {word}", factory=factory, **more)
