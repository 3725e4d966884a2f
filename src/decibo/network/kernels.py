"""S -> W S for all agents at once, in the way that suits the network. S has one row for each agent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from decibo.errors import InputError
from decibo.network.mixing import Mixing
from decibo.network.shifts import Shifts

KINDS = ("dense", "circulant", "sparse")

# Measured on two cores, float32: up to 64 agents all kinds take about 10 microseconds; beyond, one gathered
# neighbour costs as much as 4 to 6 columns of a dense product. A GPU moves both numbers in favour of dense.
DENSE_AGENTS = 64
DENSE_SHARE = 4
# Slots of neighbours that are written out one by one; more of them become a loop over as many at a time. One at a
# time, which reads and writes all of S for each neighbour, took 3 to 4 times as long.
UNROLLED = 16


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Dense(Mixing):
    """A matrix product."""

    W: jax.Array
    total: jax.Array  # (m,) row sums

    def heard(self, S: jax.Array, pool: jax.Array, k: Any = None, key: Any = None) -> jax.Array:
        """W pool."""
        S, pool = _rows(S, self.W.shape[0]), _rows(pool, self.W.shape[1])
        return _product(self.W, self.total, pool.reshape(pool.shape[0], -1)).reshape(S.shape)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Circulant(Mixing):
    """Shifts of S, those of equal weight summed first; only differences between agents are rounded.

    S is continued at both ends once and then sliced: 35 offsets take a tenth of the time of 35 rolls.
    """

    weights: jax.Array  # one for each group
    total: jax.Array  # the sum of a row
    groups: tuple[tuple[int, ...], ...] = field(metadata={"static": True})  # offsets between -m/2 and m/2
    m: int = field(metadata={"static": True})

    def stacked(self, S: jax.Array, k: Any = None, key: Any = None) -> jax.Array:
        """total S[a] + the sum of w (S[a + offset] - S[a])."""
        S = _rows(S, self.m)
        weights = self.weights.astype(S.dtype)
        offsets = [offset for group in self.groups for offset in group]
        before, after = -min([0, *offsets]), max([0, *offsets])
        longer = jnp.concatenate([S[self.m - before :], S, S[:after]])
        mixed = self.total.astype(S.dtype) * S
        for weight, (first, *rest) in zip(weights, self.groups, strict=True):
            differences = longer[before + first :][: self.m] - S
            for offset in rest:
                differences = differences + (longer[before + offset :][: self.m] - S)
            mixed = mixed + weight * differences
        return mixed


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sparse(Mixing):
    """One gather for each of D neighbours, D the same for all; agents with more are rows of a product.

    Nothing as large as the number of links times the width of S is ever made.
    """

    total: jax.Array  # (m,) row sums
    neighbours: jax.Array  # (D, m); an agent with fewer hears itself with weight 0
    weights: jax.Array  # (D, m)
    hubs: jax.Array  # (h,) agents with more than D neighbours
    hub_rows: jax.Array  # (h, pool) their rows of W
    hub_total: jax.Array  # (h,) the sums of these

    def heard(self, S: jax.Array, pool: jax.Array, k: Any = None, key: Any = None) -> jax.Array:
        """total S_i + the sum of w_ij (pool_j - S_i), one slot of neighbours after another."""
        S = _rows(S, self.total.shape[0])
        flat, pool = S.reshape(S.shape[0], -1), jnp.asarray(pool).reshape(pool.shape[0], -1)
        weights = self.weights.astype(S.dtype)

        def slot(r: Any, mixed: jax.Array) -> jax.Array:
            heard = pool.at[self.neighbours[r]].get(mode="promise_in_bounds")
            return mixed + weights[r][:, None] * (heard - flat)

        mixed, slots = self.total.astype(S.dtype)[:, None] * flat, self.neighbours.shape[0]
        if slots <= UNROLLED:
            for r in range(slots):
                mixed = slot(r, mixed)
        else:
            mixed = lax.fori_loop(0, slots, slot, mixed, unroll=UNROLLED)
        if self.hubs.shape[0]:
            rows = _product(self.hub_rows, self.hub_total, pool)
            mixed = mixed.at[self.hubs].set(rows, mode="promise_in_bounds")
        return mixed.reshape(S.shape)


def _product(W: jax.Array, total: jax.Array, flat: jax.Array) -> jax.Array:
    """W S as total S_0 + W (S - S_0).

    This rounds what the agents differ by and not what they have in common, which strategies with a memory (EXTRA,
    exact diffusion) would add up: in single precision they drifted away by 1e-7 a step.
    """
    first = flat[:1]
    differing = jnp.matmul(W.astype(flat.dtype), flat - first, precision=lax.Precision.HIGHEST)
    return total.astype(flat.dtype)[:, None] * first + differing


def _total(weights: Any) -> np.ndarray:
    """Row sums, exactly 1 where they should be."""
    sums = np.asarray(weights.sum(axis=1)).ravel()
    return np.where(np.abs(sums - 1) < 1e-9, 1.0, sums)


def choose_mixing(weights: Any, circulant: Callable[[], Shifts | None], kind: str | None) -> Mixing:
    """The mixing of this kind, or of the fastest kind if None."""
    m = weights.shape[0]
    if kind not in (None, *KINDS):
        raise InputError(f"kind = {kind!r}", f"it must be None or one of {', '.join(KINDS)}", "Leave it out.")
    if kind == "dense" or (kind is None and suits_dense(weights)):
        return make_dense(weights)
    shifts = None if kind == "sparse" else circulant()
    if shifts is not None:
        return _circulant(shifts)
    if kind == "circulant":
        raise InputError(
            f"kind = 'circulant' on {m} agents",
            "circulant mixing needs rows of W that are shifts of the first",
            "Leave kind out.",
        )
    return make_sparse(weights, *split_hubs(links_of(weights)))


def suits_dense(weights: Any) -> bool:
    """Whether a matrix product is the fastest way; weights may have more columns than rows."""
    rows, columns = weights.shape
    return columns <= DENSE_AGENTS or DENSE_SHARE * weights.nnz > rows * columns


def make_dense(weights: Any) -> Dense:
    """Mixing by a matrix product."""
    return Dense(jnp.asarray(weights.toarray()), jnp.asarray(_total(weights)))


def _circulant(shifts: Shifts) -> Circulant:
    m = shifts.shape[0]
    groups: dict[float, list[int]] = {}
    for offset, weight in zip(shifts.offsets, shifts.weights, strict=True):
        signed = offset if 2 * offset <= m else offset - m
        if signed:  # what an agent gives itself is in the total
            groups.setdefault(round(weight, 15), []).append(signed)
    total = _total(np.array([shifts.weights]))[0]
    return Circulant(jnp.asarray(list(groups)), jnp.asarray(total), tuple(map(tuple, groups.values())), m)


def make_sparse(weights: Any, slots: int, hubs: np.ndarray) -> Sparse:
    """Mixing by neighbours: `slots` of them, the rows of hubs as products. Row i's own column is i."""
    rows, coo = weights.shape[0], weights.tocoo()
    link = coo.row != coo.col
    row, column, value = coo.row[link], coo.col[link], coo.data[link]
    degrees = np.bincount(row, minlength=rows)
    # Entries come row by row, so the slot of a neighbour is its place within the row.
    place = np.arange(len(row)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
    keep = degrees[row] <= slots
    neighbours, share = np.tile(np.arange(rows, dtype=np.int32), (slots, 1)), np.zeros((slots, rows))
    neighbours[place[keep], row[keep]] = column[keep]
    share[place[keep], row[keep]] = value[keep]
    products = weights[hubs].toarray() if len(hubs) else np.zeros((0, weights.shape[1]))
    total = _total(weights)
    return Sparse(*map(jnp.asarray, (total, neighbours, share, hubs.astype(np.int32), products, total[hubs])))


def links_of(weights: Any) -> np.ndarray:
    """How many others each row listens to."""
    coo = weights.tocoo()
    return np.bincount(coo.row[coo.row != coo.col], minlength=weights.shape[0])


def split_hubs(degrees: np.ndarray) -> tuple[int, np.ndarray]:
    """D and the agents above it such that D gathers and one dense row for each of those cost least."""
    order = np.argsort(-degrees, kind="stable")
    first = int((degrees[order] + np.arange(len(order))).argmin())
    slots = int(degrees[order[first]])
    return slots, np.sort(order[degrees[order] > slots])


def _rows(S: Any, m: int) -> jax.Array:
    S = jnp.asarray(S)
    if S.ndim == 0 or S.shape[0] != m or not jnp.issubdtype(S.dtype, jnp.inexact):
        raise InputError(
            f"mixing {S.dtype}{list(S.shape)} on a network of {m} agents",
            "what is mixed must be floating-point with one entry for each agent",
            "Check that problem and network have the same number of agents; keep counters out of mix.",
        )
    return S
