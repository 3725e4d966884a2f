r"""Several exchanges in place of one: networks on which agents agree faster, at the price of more
messages.

T_K is the K-th Chebyshev polynomial; [low, high] holds the eigenvalues of W, apart from the 1 of
the constant vector.

    (1)  M    = (W - mid I)/half,   mid = (low + high)/2,   half = (high - low)/2,
              s   = (1 - mid)/half > 1
    (2)  P    = T_K(M)/T_K(s)                               symmetric, P 1 = 1,
                                                            |P - 11'/m| = 1/T_K(s)
    (3)  t_0  = 1,  t_1 = s,  t_k+1 = 2 s t_k - t_k-1,      omega_0 = 1,  omega_k = 2 s t_k/t_k+1
    (4)  v_0  = S,  v_k+1 = omega_k (v_k + (W - I) v_k/(1 - mid)) - (omega_k - 1) v_k-1,   v_K = P S

(4) is the three-term recursion of T_k(M)/t_k, since M = s I + (W - I)/half. With v_k = S + e_k

    (5)  e_0  = 0,  e_k+1 = omega_k (e_k + (W - I)(S + e_k)/(1 - mid)) - (omega_k - 1) e_k-1

and (P - I) S = e_K is found from differences between agents alone.

No polynomial of degree K that is 1 at 1 is smaller on [low, high] than (2). What it leaves of a
disagreement, 1/T_K(s), is about 2 exp(-K sqrt(2 (1 - high)/half)) where K plain exchanges leave
about exp(-K (1 - high)). P has negative eigenvalues, down to -1/T_K(s): exact diffusion and EXTRA
use (I + P)/2 and do not mind; other strategies need smaller steps where 1/T_K(s) is close to 1.

Sources: Golub & Varga 1961 for the iteration; Scaman, Bach, Bubeck, Lee & Massoulié 2017 for its
use in gossip.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from decibo.capabilities import Need, Needs
from decibo.network.mixing import How, Mixing, Reach, Step
from decibo.network.network import Exchange, Network, check_plain, dense
from decibo.network.weights import Spectrum, spectrum_of
from decibo.validate import integer

if TYPE_CHECKING:
    from jaxtyping import Float

# half the width of the eigenvalues where they are all equal and one exchange is enough
NARROW = 1e-3


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Chebyshev(Mixing):
    """One exchange of `inside` for each omega."""

    inside: Mixing
    # Numbers of Python take the type of S; arrays in double precision would widen it.
    omegas: tuple[float, ...] = field(metadata={"static": True})
    gain: float = field(metadata={"static": True})  # 1/(1 - mid)

    @property
    def fused(self) -> bool:
        """As the exchange inside."""
        return self.inside.fused

    @property
    def rounds(self) -> int:
        """How many exchanges there are."""
        return len(self.omegas)

    def exchange(
        self, S: jax.Array, how: How, k: Step = None, key: jax.Array | None = None
    ) -> jax.Array:
        """(P - I) S and P S; and the largest of all that `rounds` exchanges reach."""
        if how is How.LARGEST:
            for _ in self.omegas:
                S = self.inside.exchange(S, how, k, key)
            return S
        before = e = jnp.zeros_like(S)
        for omega in self.omegas:
            moved = e + self.gain * self.inside.exchange(S + e, How.DIFFERENCE, k, key)
            before, e = e, omega * moved - (omega - 1) * before  # (5)
        return e if how is How.DIFFERENCE else S + e


@dataclass(frozen=True, eq=False, repr=False)
class ChebyshevNetwork(Network):
    """A network with several exchanges in a step.

    `weights` and the links are those of one exchange; W and rho are those of all of them, W = P of
    (2).
    """

    lacks: ClassVar[Needs] = frozenset({Need.ONE_EXCHANGE})
    rounds: int = 1

    @cached_property
    def recursion(self) -> Recursion:
        """The numbers of (3), (4)."""
        return _recursion(spectrum_of(self.weights, self.shifts), self.rounds)

    @property
    def W(self) -> Float[np.ndarray, "agents agents"]:
        """What one mix does, as a dense array."""
        W = dense(self.weights, "W", "weights")
        before = v = np.eye(self.agents)
        for omega in self.recursion.omegas:
            # (4)
            before, v = v, omega * (v + self.recursion.gain * (W @ v - v)) - (omega - 1) * before
        return v

    @cached_property
    def spectrum(self) -> Spectrum:
        """Bounds of the eigenvalues of W; the one that is larger in modulus is attained."""
        return Spectrum(-1 / self.recursion.last, 1 / self.recursion.last)

    @property
    def reach(self) -> Reach:
        """As far as all exchanges of a step reach."""
        width = -(-super().reach.width // self.rounds)
        return Reach(width, 1 - self.spectrum.high)

    def made_of(self, exchange: Exchange) -> Mixing:
        one = exchange(self, self.weights)
        return Chebyshev(one, self.recursion.omegas, self.recursion.gain)


def chebyshev(network: Network, rounds: int) -> ChebyshevNetwork:
    """The network with this many exchanges in a step, so combined that agents agree as fast as
    possible.

    All methods run on it unchanged. A step sends `rounds` times as much; on poor networks (paths,
    rings, trees) that is repaid several times over.
    """
    check_plain("chebyshev", network)
    rounds = integer("rounds", rounds)
    return ChebyshevNetwork(
        network.weights,
        f"{network.name}, {rounds} Chebyshev rounds",
        network.labels,
        network.shape,
        rounds=rounds,
    )


class Recursion(NamedTuple):
    """omega_k of all exchanges, 1/(1 - mid), and T_K(s)."""

    omegas: tuple[float, ...]
    gain: float
    last: float


def _recursion(plain: Spectrum, rounds: int) -> Recursion:
    mid = (plain.low + plain.high) / 2
    half = max((plain.high - plain.low) / 2, NARROW)
    s = (1 - mid) / half  # (1)
    before, t = 1.0, s
    omegas = [1.0]
    for _ in range(rounds - 1):
        before, t = t, 2 * s * t - before
        omegas.append(2 * s * before / t)  # (3)
    return Recursion(tuple(omegas), 1 / (1 - mid), t)
