r"""Several exchanges in place of one: networks on which agents agree faster, at the price of more messages.

T_K is the K-th Chebyshev polynomial; r is the largest modulus of an eigenvalue of W, apart from the 1 that belongs to the
constant vector.

    (1)  P       = T_K(W/r)/T_K(1/r)                        symmetric, P 1 = 1, |P - 11'/m| = 1/T_K(1/r)
    (2)  t_0     = 1,  t_1 = 1/r,  t_k+1 = 2 t_k/r - t_k-1,  omega_k = 2 t_k/(r t_k+1)
    (3)  v_0     = S,  v_1 = W S,  v_k+1 = omega_k W v_k - (omega_k - 1) v_k-1,     v_K = P S

No polynomial of degree K with p(1) = 1 is smaller on [-r, r] than (1), so no other way to use K exchanges with the
same weights is better for every network with this r: what is left of a disagreement, 1/T_K(1/r), is about
2 exp(-K sqrt(2 (1 - r))) where K plain exchanges leave r^K, about exp(-K (1 - r)).

By (2), v_k+1 = omega_k (v_k + (W - I) v_k) - (omega_k - 1) v_k-1, so with v_k = S + e_k

    (4)  e_k+1   = omega_k (e_k + (W - I)(S + e_k)) - (omega_k - 1) e_k-1,     e_0 = 0,  omega_0 = 1

and (P - I) S = e_K is found from differences between agents alone.

Sources: Golub & Varga 1961 for the iteration; Scaman, Bach, Bubeck, Lee & Massoulié 2017 for its use in gossip.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from decibo.errors import InputError
from decibo.network.mixing import Mixing, Step
from decibo.network.network import Network, dense
from decibo.network.varying import VaryingNetwork
from decibo.network.weights import Spectrum, spectrum_of
from decibo.validate import integer

if TYPE_CHECKING:
    from jaxtyping import Float


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Chebyshev(Mixing):
    """One exchange of `inside` for each omega."""

    inside: Mixing
    omegas: tuple[float, ...] = field(metadata={"static": True})

    @property
    def fused(self) -> bool:
        """As the exchange inside."""
        return self.inside.fused

    @property
    def rounds(self) -> int:
        """How many exchanges there are."""
        return len(self.omegas)

    def stacked(self, S: jax.Array, k: Step = None, key: jax.Array | None = None) -> jax.Array:
        """P S."""
        return S + self.difference(S, k, key)

    def difference(self, S: jax.Array, k: Step = None, key: jax.Array | None = None) -> jax.Array:
        """(P - I) S."""
        before = e = jnp.zeros_like(S)
        for omega in self.omegas:
            before, e = e, omega * (e + self.inside.difference(S + e, k, key)) - (omega - 1) * before  # (4)
        return e


@dataclass(frozen=True, eq=False, repr=False)
class ChebyshevNetwork(Network):
    """A network with several exchanges in a step.

    `weights` and the links are those of one exchange; W and rho are those of all of them, W = P of (1).
    """

    rounds: int = 1

    @cached_property
    def omegas(self) -> tuple[float, ...]:
        """The weights of (3): one for each exchange."""
        return _recursion(_radius(self), self.rounds)[0]

    @property
    def W(self) -> Float[np.ndarray, "agents agents"]:
        """What one mix does, as a dense array."""
        return _apply(dense(self.weights, "W", "weights"), self.omegas)

    @cached_property
    def spectrum(self) -> Spectrum:
        """Bounds of the eigenvalues of W; the one that is larger in modulus is attained."""
        left = 1 / _recursion(_radius(self), self.rounds)[1]
        return Spectrum(-left, left)

    def mixing(self, kernel: str | None = None) -> Mixing:
        """The network's own mixing, `rounds` times."""
        return Chebyshev(super().mixing(kernel), self.omegas)


def chebyshev(network: Network, rounds: int) -> ChebyshevNetwork:
    """The network with this many exchanges in a step, so combined that agents agree as fast as possible.

    All methods run on it unchanged. A step sends `rounds` times as much; on poor networks (paths, rings, trees) that
    is repaid several times over. rho becomes 1/T_rounds(1/sqrt(rho))^2.
    """
    if not isinstance(network, Network) or isinstance(network, VaryingNetwork | ChebyshevNetwork):
        raise InputError(
            "chebyshev needs an undirected network with the same links in every step and one exchange in it, but "
            f"this is {network!r}."
        )
    rounds = integer("rounds", rounds)
    return ChebyshevNetwork(
        network.weights, f"{network.name}, {rounds} Chebyshev rounds", network.labels, network.shape, rounds=rounds
    )


def _radius(network: Network) -> float:
    """r of (1), kept above 0, where one exchange is enough and any polynomial does."""
    plain = spectrum_of(network.weights, network.shifts)
    return max(abs(plain.low), abs(plain.high), 1e-3)


def _recursion(r: float, rounds: int) -> tuple[tuple[float, ...], float]:
    """The weights omega of all exchanges, and T_rounds(1/r)."""
    before, t = 1.0, 1 / r
    omegas = [1.0]
    for _ in range(rounds - 1):
        before, t = t, 2 * t / r - before  # (2)
        omegas.append(2 * before / (r * t))
    return tuple(omegas), t


def _apply(W: np.ndarray, omegas: tuple[float, ...]) -> np.ndarray:
    """(3) on the identity."""
    before = v = np.eye(len(W))
    for omega in omegas:
        before, v = v, omega * (W @ v) - (omega - 1) * before
    return v
