"""How W acts: S -> W S for all agents at once, in the way that suits the network, and as one agent
sees it.

Mixing is the only way agents learn of each other. S has one row for each agent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from decibo.errors import InputError, short

if TYPE_CHECKING:
    from jaxtyping import Array, Inexact
    from scipy.sparse import csr_array

    from decibo.network.weights import Shifts

T = TypeVar("T")
Step = jax.Array | int | None  # the number of a step, where it matters

# The name of the axis of agents. Thanks to it `mix` cannot take another axis for the agents, such
# as a sweep of step sizes around the step or a vmap inside it.
AGENTS = "agents"
KERNELS = ("dense", "circulant", "sparse")

# Measured on two cores, float32: up to 64 agents all kernels take about 10 microseconds; beyond,
# gathering one neighbour costs as much as 4 to 6 columns of a dense product. A GPU moves both
# numbers in favour of dense.
DENSE_AGENTS = 64
DENSE_SHARE = 4
# Slots of neighbours that are written out one by one; more of them become a loop over as many at a
# time. One at a time, which reads and writes all of S for each neighbour, took 3 to 4 times as
# long.
UNROLLED = 16


class How(Enum):
    """What an exchange makes of the agent's message s_i and its neighbours' s_j."""

    SUM = "sum_j w_ij s_j"
    PUSH = "the same with column-stochastic weights, which keep the sum over agents"
    DIFFERENCE = "sum_j w_ij (s_j - s_i)"
    LARGEST = "the largest of s_i and all s_j, number by number"


class Reach(NamedTuple):
    """What every agent knows about the network before a run.

    width   how many exchanges it takes until the news of one agent have reached all
    slow    what one exchange takes off the disagreement that it takes least off: 1 - the second
            largest eigenvalue of W
    """

    width: jax.Array | int
    slow: jax.Array | float


class Mix:
    """What a step sees of the other agents: mix(tree) is sum_j w_ij tree_j, leaf by leaf.

    Every mix, and every wrapper of one, says what one exchange does; the words that methods use
    stand on it. `bits` says what a message really carries if less than its numbers; only the count
    of costs reads it.
    """

    def exchange(self, tree: T, how: How, bits: int | None = None) -> T:
        """Send `tree` to the neighbours and receive theirs: one message."""
        raise NotImplementedError

    @property
    def reach(self) -> Reach:
        """What every agent knows about the network before a run."""
        return Reach(1, 1.0)

    def __call__(self, tree: T, bits: int | None = None) -> T:
        """What agent i receives if every agent sends `tree`."""
        return self.exchange(tree, How.SUM, bits)

    def push(self, tree: T, bits: int | None = None) -> T:
        """The same with column-stochastic weights, which keep the sum over agents; no different if
        undirected."""
        return self.exchange(tree, How.PUSH, bits)

    def difference(self, tree: T, bits: int | None = None) -> T:
        """By how much the neighbours differ from the agent: sum_j w_ij (tree_j - tree_i), so (W -
        I) tree.

        The same message as that of mix(tree), but what the agents have in common is not rounded: a
        strategy that adds differences up must not add up the rounding errors of mix(tree) - tree.
        """
        return self.exchange(tree, How.DIFFERENCE, bits)

    def largest(self, tree: T, bits: int | None = None) -> T:
        """The largest of what the agent and its neighbours send, number by number, leaf by leaf.

        Repeated `reach.width` times it gives every agent the largest number of all, so that all can
        change a step size at a step that they all know.
        """
        return self.exchange(tree, How.LARGEST, bits)


class WrappedMix(Mix):
    """A mix around another, on the same network."""

    def __init__(self, mix: Mix):
        self.mix = mix

    @property
    def reach(self) -> Reach:
        return self.mix.reach


class Mixing:
    """One exchange between all agents. `k` is the step and `key` a random key that all agents
    share.

    A kernel says how differences and largest numbers are found, and, for directed networks, what
    the rows of W sum to; a wrapper says what an exchange is.
    """

    @property
    def fused(self) -> bool:
        """Whether all that an agent sends at once should travel as one vector: a message costs, not
        its parts."""
        return False

    @property
    def rounds(self) -> int:
        """How many messages every neighbour gets in one exchange."""
        return 1

    def shared_out(self, tree: T, exchange: Callable[[Mixing, T], T]) -> T:
        """Exchange a tree: as a whole, unless there is a network for each variable."""
        return exchange(self, tree)

    def exchange(
        self, S: jax.Array, how: How, k: Step = None, key: jax.Array | None = None
    ) -> jax.Array:
        """Row i of the result is what agent i receives if agent j sends S_j."""
        S = jnp.asarray(S)
        return self.combine(S, S, how, k, key)

    def combine(
        self, S: jax.Array, received: jax.Array, how: How, k: Step, key: jax.Array | None
    ) -> jax.Array:
        """The same for the agents with rows S, which receive the rows `received`, their own
        first."""
        if how is How.LARGEST:
            return self.largest_of(S, received, k, key)
        apart = self.differing(S, received, k, key)
        return apart if how is How.DIFFERENCE else self.summed(S) + apart

    def differing(
        self, S: jax.Array, received: jax.Array, k: Step = None, key: jax.Array | None = None
    ) -> jax.Array:
        """Row i of the result is sum_j w_ij (S_j - S_i); only differences between agents are
        rounded."""
        raise NotImplementedError

    def largest_of(
        self, S: jax.Array, received: jax.Array, k: Step = None, key: jax.Array | None = None
    ) -> jax.Array:
        """Row i of the result is the largest of S_i and the S_j of its neighbours, number by
        number."""
        raise NotImplementedError

    def summed(self, S: jax.Array) -> jax.Array:
        """The rows of S times the row sums of W, which a kernel for directed networks has."""
        total = getattr(self, "total", None)
        if total is None:
            return S
        return total.astype(S.dtype).reshape(total.shape + (1,) * (S.ndim - 1) * total.ndim) * S

    def stacked(
        self, S: Inexact[Array, "agents ..."], k: Step = None, key: jax.Array | None = None
    ) -> jax.Array:
        """W S: shape and type are those of S."""
        return self.exchange(S, How.SUM, k, key)


@dataclass(frozen=True, eq=False)
class AgentMix(Mix):
    """The `Mix` of step k on a network, for use under jax.vmap(..., axis_name=AGENTS); all agents
    share `key`."""

    mixing: Mixing
    k: Step
    key: jax.Array | None
    constants: Reach | None = None

    @property
    def reach(self) -> Reach:
        """What every agent knows about the network, if the method needs it."""
        if self.constants is None:
            raise InputError(
                "The step uses mix.reach, but the method does not say so, and the agents were not"
                " told.",
                "Pass needs=... with Need.NETWORK_CONSTANTS to decibo.Algorithm.",
            )
        return self.constants

    def exchange(self, tree: T, how: How, bits: int | None = None) -> T:
        try:
            agent = lax.axis_index(AGENTS)
        except NameError:
            raise InputError(
                "mix was called for no agent in particular, but it only works inside"
                " jax.vmap(step, axis_name='agents').",
                "Run the step with decibo.solve, or use network.mixing().stacked(S) for all agents"
                " at once.",
            ) from None

        def over(mixing: Mixing, tree: T) -> T:
            # Under vmap all_gather is the stacked array itself, at no cost, so all agents are mixed
            # at once.
            one = lambda leaf: own_row(
                agent, mixing.exchange(lax.all_gather(leaf, AGENTS), how, self.k, self.key)
            )
            return as_one(one, tree) if mixing.fused else jax.tree.map(one, tree)

        return self.mixing.shared_out(tree, over)


def as_one(exchange: Callable[[jax.Array], jax.Array], tree: T) -> T:
    """Exchange all leaves of one type as one vector."""
    values, treedef = jax.tree.flatten(tree)
    leaves = [jnp.asarray(value) for value in values]
    for dtype in {leaf.dtype: None for leaf in leaves}:
        alike = [i for i, leaf in enumerate(leaves) if leaf.dtype == dtype]
        mixed = exchange(jnp.concatenate([leaves[i].ravel() for i in alike]))
        stops = np.cumsum([leaves[i].size for i in alike])
        for i, part in zip(alike, jnp.split(mixed, stops[:-1]), strict=True):
            leaves[i] = part.reshape(leaves[i].shape)
    return jax.tree.unflatten(treedef, leaves)


@jax.custom_batching.custom_vmap
def own_row(agent: jax.Array, rows: jax.Array) -> jax.Array:
    """The agent's row."""
    return rows[agent]


@own_row.def_vmap
def _take_all(
    size: int, batched: list[bool], agent: jax.Array, rows: jax.Array
) -> tuple[jax.Array, bool]:
    """All agents taking one row each is all rows: the rule only spares a copy and never changes a
    value."""
    by_agent, by_rows = batched
    if not by_rows:
        return rows, True
    if not by_agent:  # some other axis than the agents'
        return own_row(agent, jnp.moveaxis(rows, 0, 1)), True
    return jax.vmap(lambda i, r: r[i])(agent, rows), True


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Dense(Mixing):
    """A matrix product."""

    total: jax.Array  # (agents,) row sums of W
    links: jax.Array  # W without what keeps an agent where it is: its rows sum to 0

    def differing(
        self, S: jax.Array, received: jax.Array, k: Step = None, key: jax.Array | None = None
    ) -> jax.Array:
        """(W - I) times what was received."""
        S = _rows(S, self.links.shape[0])
        received = _rows(received, self.links.shape[1])
        return _product(self.links, received.reshape(received.shape[0], -1)).reshape(S.shape)

    def largest_of(
        self, S: jax.Array, received: jax.Array, k: Step = None, key: jax.Array | None = None
    ) -> jax.Array:
        """The largest of the rows that a row of W has a weight for, and of the own."""
        return jnp.maximum(S, _largest(self.links, received))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Circulant(Mixing):
    """Shifts of S, those of equal weight summed first.

    S is continued at both ends once and then sliced: 35 offsets take a tenth of the time of 35
    rolls.
    """

    total: jax.Array  # the sum of a row
    weights: jax.Array  # one for each group
    # offsets between -agents/2 and agents/2
    groups: tuple[tuple[int, ...], ...] = field(metadata={"static": True})
    agents: int = field(metadata={"static": True})

    def differing(
        self, S: jax.Array, received: jax.Array, k: Step = None, key: jax.Array | None = None
    ) -> jax.Array:
        """The sum of w (S[a + offset] - S[a])."""
        S = _rows(S, self.agents)
        weights = self.weights.astype(S.dtype)
        offsets = [offset for group in self.groups for offset in group]
        before = -min([0, *offsets])
        after = max([0, *offsets])
        longer = jnp.concatenate([S[self.agents - before :], S, S[:after]])
        total = jnp.zeros_like(S)
        for weight, (first, *rest) in zip(weights, self.groups, strict=True):
            differences = longer[before + first :][: self.agents] - S
            for offset in rest:
                differences = differences + (longer[before + offset :][: self.agents] - S)
            total = total + weight * differences
        return total

    def largest_of(
        self, S: jax.Array, received: jax.Array, k: Step = None, key: jax.Array | None = None
    ) -> jax.Array:
        """The largest of S[a] and all S[a + offset]."""
        shifted = [jnp.roll(S, -offset, axis=0) for group in self.groups for offset in group]
        return reduce(jnp.maximum, shifted, S)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sparse(Mixing):
    """One gather for each of D neighbours, D the same for all; agents with more are rows of a
    product.

    Nothing as large as the number of links times the width of S is ever made.
    """

    total: jax.Array  # (agents,) row sums of W
    neighbours: jax.Array  # (D, agents); an agent with fewer has itself, with weight 0
    weights: jax.Array  # (D, agents)
    hubs: jax.Array  # (h,) agents with more than D neighbours
    hub_links: jax.Array  # (h, received rows) their rows of W, less the row sum at their own place

    def differing(
        self, S: jax.Array, received: jax.Array, k: Step = None, key: jax.Array | None = None
    ) -> jax.Array:
        """The sum of w_ij (received_j - S_i), one slot of neighbours after another."""
        S = _rows(S, self.total.shape[0])
        flat = S.reshape(S.shape[0], -1)
        received = jnp.asarray(received).reshape(received.shape[0], -1)
        weights = self.weights.astype(S.dtype)

        def slot(r: int | jax.Array, total: jax.Array) -> jax.Array:
            neighbour = received[self.neighbours[r]]
            return total + weights[r][:, None] * (neighbour - flat)

        total = jnp.zeros_like(flat)
        slots = self.neighbours.shape[0]
        if slots <= UNROLLED:
            for r in range(slots):
                total = slot(r, total)
        else:
            total = lax.fori_loop(0, slots, slot, total, unroll=UNROLLED)
        if self.hubs.shape[0]:
            total = total.at[self.hubs].set(
                _product(self.hub_links, received), mode="promise_in_bounds"
            )
        return total.reshape(S.shape)

    def largest_of(
        self, S: jax.Array, received: jax.Array, k: Step = None, key: jax.Array | None = None
    ) -> jax.Array:
        """The largest of the own row and of every slot of neighbours."""
        slot = lambda r, most: jnp.maximum(most, received[self.neighbours[r]])
        slots = self.neighbours.shape[0]
        most = lax.fori_loop(0, slots, slot, S) if slots else S
        if self.hubs.shape[0]:
            hubs = jnp.maximum(S[self.hubs], _largest(self.hub_links, received))
            most = most.at[self.hubs].set(hubs, mode="promise_in_bounds")
        return most


def _product(links: jax.Array, flat: jax.Array) -> jax.Array:
    """The product with a matrix whose rows sum to 0, so that S - S_0 does as well as S.

    This rounds what the agents differ by and not what they have in common, which strategies with a
    memory (EXTRA, exact diffusion) would add up: in single precision they drifted away by 1e-7 a
    step.
    """
    return jnp.matmul(links.astype(flat.dtype), flat - flat[:1], precision=lax.Precision.HIGHEST)


def _largest(links: jax.Array, received: jax.Array) -> jax.Array:
    """For every row of a matrix, the largest of the rows received that it does not leave out."""
    counted = (links != 0).reshape(*links.shape, *(1,) * (received.ndim - 1))
    return jnp.max(jnp.where(counted, received, -jnp.inf), axis=1)


def _total(weights: csr_array | np.ndarray) -> np.ndarray:
    """Row sums, exactly 1 where they should be."""
    sums = np.asarray(weights.sum(axis=1)).ravel()
    return np.where(np.abs(sums - 1) < 1e-9, 1.0, sums)


def choose_mixing(
    weights: csr_array, circulant: Callable[[], Shifts | None], kernel: str | None
) -> Mixing:
    """The mixing with this kernel, or with the fastest one if None."""
    if kernel is not None and kernel not in KERNELS:
        raise InputError(
            f"The kernel must be one of {', '.join(KERNELS)}, but it is {short(repr(kernel))}."
        )
    if kernel == "dense" or (kernel is None and suits_dense(weights)):
        return make_dense(weights)
    shifts = None if kernel == "sparse" else circulant()
    if shifts is not None:
        return _make_circulant(shifts)
    if kernel == "circulant":
        raise InputError(
            "The kernel 'circulant' needs a W whose rows are shifts of the first, but those of"
            f" this network of {weights.shape[0]} agents are not.",
            "Leave the kernel out.",
        )
    return make_sparse(weights, *split_hubs(links_of(weights)))


def suits_dense(weights: csr_array) -> bool:
    """Whether a matrix product is the fastest way; weights may have more columns than rows."""
    rows, columns = weights.shape  # pyright: ignore[reportGeneralTypeIssues]  (scipy is untyped)
    return columns <= DENSE_AGENTS or DENSE_SHARE * weights.nnz > rows * columns


def make_dense(weights: csr_array) -> Dense:
    """Mixing by a matrix product."""
    total = _total(weights)
    links = weights.toarray()
    np.fill_diagonal(links, links.diagonal() - total)
    return Dense(jnp.asarray(total), jnp.asarray(links))


def _make_circulant(shifts: Shifts) -> Circulant:
    agents = shifts.shape[0]
    groups: dict[float, list[int]] = {}
    for offset, weight in zip(shifts.offsets, shifts.weights, strict=True):
        signed = offset if 2 * offset <= agents else offset - agents
        if signed:  # an agent's weight for itself is in the total
            groups.setdefault(round(weight, 15), []).append(signed)
    total = _total(np.array([shifts.weights]))[0]
    return Circulant(
        jnp.asarray(total), jnp.asarray(list(groups)), tuple(map(tuple, groups.values())), agents
    )


def make_sparse(weights: csr_array, slots: int, hubs: np.ndarray) -> Sparse:
    """Mixing by neighbours: `slots` of them, the rows of hubs as products. Row i's own column is
    i."""
    rows = weights.shape[0]
    coo = weights.tocoo()
    is_link = coo.row != coo.col
    row = coo.row[is_link]
    degrees = np.bincount(row, minlength=rows)
    # Entries come row by row, so the slot of a neighbour is its place within the row.
    slot = np.arange(len(row)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
    few = degrees[row] <= slots
    neighbours = np.tile(np.arange(rows, dtype=np.int32), (slots, 1))
    neighbours[slot[few], row[few]] = coo.col[is_link][few]
    values = np.zeros((slots, rows))
    values[slot[few], row[few]] = coo.data[is_link][few]
    total = _total(weights)
    links = weights[hubs].toarray() if len(hubs) else np.zeros((0, weights.shape[1]))
    links[np.arange(len(hubs)), hubs] -= total[hubs]
    return Sparse(*map(jnp.asarray, (total, neighbours, values, hubs.astype(np.int32), links)))


def links_of(weights: csr_array) -> np.ndarray:
    """How many others each row receives from."""
    coo = weights.tocoo()
    return np.bincount(coo.row[coo.row != coo.col], minlength=weights.shape[0])


def split_hubs(degrees: np.ndarray) -> tuple[int, np.ndarray]:
    """D and the agents above it such that D gathers and one dense row for each of those cost
    least."""
    order = np.argsort(-degrees, kind="stable")
    first = int((degrees[order] + np.arange(len(order))).argmin())
    slots = int(degrees[order[first]])
    return slots, np.sort(order[degrees[order] > slots])


def _rows(S: jax.Array, agents: int) -> jax.Array:
    S = jnp.asarray(S)
    if S.ndim == 0 or S.shape[0] != agents or not jnp.issubdtype(S.dtype, jnp.inexact):
        raise InputError(
            f"What is mixed must be floating-point with one entry for each of the {agents} agents"
            f" of the network, but it is {S.dtype}{list(S.shape)}.",
            "Check that problem and network have the same number of agents; keep counters out of"
            " mix.",
        )
    return S
