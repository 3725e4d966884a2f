r"""Secure sums: a site learns the weighted sum of its neighbours' messages, and nothing of any one
of them.

Towards a receiver i its neighbours hide their messages from it by numbers that they agree on with
each other. With whole numbers modulo 2^64, F bits of them behind the point, and R drawn anew for
every receiver, step k and call c from the secret of a link (secret.py), sites j and l being linked
and both neighbours of i:

    (1)  q_ij(s) = round(2^F w_ij s)
    (2)  m_ij    = q_ij(s_j) + sum over l of sign(l - j) R_jl(i, k, c)       what j sends to i;
                 uniform by itself
    (3)  sum_j m_ij = sum_j q_ij(s_j)                                        all R cancel, exactly
    (4)  e_i     = 2^-F sum_j (m_ij - q_ij(s_i))                             row i of (W - I) s

By w_ij = w_ji the e_i of all agents sum to 0, exactly in double precision below 2^(53 - F) = 512,
so that no rounding adds up, and a run has the same bits whatever the secrets are. A message that is
repeated after a crash is the same, or is not sent (secret.py). The neighbours of every site
must be connected among each other: those of a site in a ring of four or more have no link to agree
on.

What estimators add up before a run and now and then during it (collectives.py) is read by all
sites:
there every site hides its numbers from all others at once. On the complete network, with whole
numbers modulo 2^128, 64 bits of them behind the point, and S drawn anew for every exchange:

    (5)  m_i        = round(2^64 v_i) + sum over j of sign(j - i) S_ij(k, c)  what i sends to all;
                    uniform by itself
    (6)  sum_i m_i  = sum_i round(2^64 v_i)                     all S cancel: every site has the sum

Among three sites or more no site learns from (6) what another one added; all others together do. A
site whose table has changed needs a new run (Consortium.run), and is refused in this one
(secret.py):
two messages of one exchange would tell by how much its sums have changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import networkx
import numpy as np

from decibo.errors import InputError
from decibo.formatting import listed
from decibo.network.network import Network, entries
from decibo.silo.mix import neighbours_of
from decibo.silo.secret import stream

BITS = 44  # behind the point: 6e-14
FINE = 64  # bits behind the point in a sum that all sites read
WORD = 16  # bytes of a number there
MOST = 2.0**48  # of a number there: fewer than 2^14 of them stay below 2^63
# of a number, 131,072: differences of such numbers, weighted, stay below 2^63
LARGEST = 2.0 ** (61 - BITS)


class TooLargeError(OverflowError):
    """What this site was about to send is more than secure sums carry."""


def check_secure(network: Network, names: list[str]) -> None:
    """Reject a network in which some site would receive more than sums."""
    graph = networkx.Graph(network.edges.tolist())
    for number, name in enumerate(names):
        peers = neighbours_of(network, number)
        if len(peers) < 2:
            raise InputError(
                f"{name} has {len(peers)} neighbours, and the sum of one message is that message.",
                "Give every site two neighbours that are linked with each other, or use masks.",
            )
        if not networkx.is_connected(graph.subgraph(peers)):
            raise InputError(
                f"The neighbours of {name}, {listed([names[peer] for peer in peers])}, have no"
                " links among them on which they could agree on what to hide from it.",
                "Use the complete network, or one in which the neighbours of every site are"
                " connected, or use masks.",
            )


@dataclass(frozen=True, eq=False)
class NeighbourSums:
    """What one site needs for secure sums.

    number      the agent that it is
    secret_of   the secret of the link to each neighbour
    """

    network: Network
    number: int
    secret_of: Mapping[int, bytes]

    @cached_property
    def weights(self) -> dict[int, float]:
        """The weight of each link, of the same bits at both ends."""
        row = lambda one, other: float(
            entries(self.network.weights, np.array([one]), np.array([other]))[0]
        )
        return {other: row(*sorted((self.number, other))) for other in self.secret_of}

    @cached_property
    def partners(self) -> dict[int, list[int]]:
        """For each neighbour, with whom this site hides its messages to it: their common
        neighbours."""
        return {
            peer: [l for l in neighbours_of(self.network, peer) if l in self.secret_of]
            for peer in self.secret_of
        }

    def check(self, vector: np.ndarray) -> None:
        """Reject numbers that whole numbers of 64 bits cannot hold."""
        if not (np.abs(vector) < LARGEST).all():
            raise TooLargeError(f"exceed {LARGEST:,.0f}, the limit of secure sums,")

    def hidden(self, receiver: int, step: int, call: int, vector: np.ndarray) -> np.ndarray:
        """What this site sends to a neighbour in place of a vector."""
        total = self._whole(receiver, vector)
        place = b"".join(part.to_bytes(8, "little") for part in (receiver, step, call))
        for other in self.partners[receiver]:
            drawn = stream(self.secret_of[other], b"sum", place, 8 * vector.size)
            R = np.frombuffer(drawn, "<u8")
            total = total + R if other > self.number else total - R  # (2), modulo 2^64
        return total

    def differing(self, vector: np.ndarray, received: Mapping[int, np.ndarray]) -> np.ndarray:
        """By how much all neighbours together differ from this site: row i of (W - I) s."""
        total = np.zeros(vector.size, np.uint64)
        for other, message in received.items():
            total = total + message - self._whole(other, vector)
        return (total.view(np.int64) * 2.0**-BITS).astype(vector.dtype)  # (3), (4)

    def _whole(self, other: int, vector: np.ndarray) -> np.ndarray:
        scaled = vector.astype(np.float64) * self.weights[other]
        return np.rint(scaled * 2.0**BITS).astype(np.int64).view(np.uint64)  # (1)


def check_sums(network: Network) -> None:
    """Reject a network on which some site could not hide from some other."""
    agents = network.agents
    if agents < 3 or any(
        len(neighbours_of(network, number)) < agents - 1 for number in range(agents)
    ):
        raise InputError(
            "Secure sums of estimators need three sites or more, all of them neighbours, but this"
            f" is {network!r}.",
            'Use name = "complete" in [network], or leave secure_sums out.',
        )


@dataclass(frozen=True, eq=False)
class SecureSums:
    """Hides what one site adds to the sums that all sites read.

    number      the agent that it is
    secret_of   the secret of the link to each other site
    at          the step and the call of the next exchange
    """

    number: int
    secret_of: Mapping[int, bytes]
    at: Callable[[], tuple[int, int]]

    def hidden(self, vector: np.ndarray) -> np.ndarray:
        """What this site sends in place of a vector: two words of 64 bits for each number."""
        if not (np.abs(vector) < MOST).all():
            raise TooLargeError(f"are not finite, or beyond {MOST:.0e}, the limit of secure sums")
        whole = [round(math.ldexp(value, FINE)) for value in vector.tolist()]
        place = b"".join(part.to_bytes(8, "little") for part in self.at())
        for other, secret in self.secret_of.items():
            drawn = stream(secret, b"total", place, WORD * vector.size)
            sign = 1 if other > self.number else -1
            S = (int.from_bytes(drawn[k : k + WORD], "little") for k in range(0, len(drawn), WORD))
            whole = [value + sign * each for value, each in zip(whole, S, strict=True)]  # (5)
        content = b"".join((value % (1 << 8 * WORD)).to_bytes(WORD, "little") for value in whole)
        return np.frombuffer(content, "<u8").astype(np.uint64)

    @staticmethod
    def opened(rows: np.ndarray) -> np.ndarray:
        sent = [row.astype("<u8").tobytes() for row in rows]
        whole = (
            sum(int.from_bytes(row[k : k + WORD], "little") for row in sent)
            for k in range(0, len(sent[0]), WORD)
        )
        return np.array([math.ldexp(_signed(value), -FINE) for value in whole])  # (6)


def _signed(value: int) -> int:
    """A number modulo 2^128 as the nearest one to 0."""
    value %= 1 << 8 * WORD
    return value - (1 << 8 * WORD) if value >> (8 * WORD - 1) else value
