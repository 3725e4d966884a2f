r"""Who sends which rows to which device, in rounds in which every device sends to one and hears one.

    (1)  p sends agent j to q     if j is on p, q is another device, and some agent on q gives j a weight
    (2)  rounds                   a colouring of the links p -> q with as many colours as the busiest device has links
    (3)  parts                    within a round, pairs with more to say go on while the others are silent

By (1) a row crosses a border once, however many agents beyond it listen; by (3) nothing but such rows travels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Plan:
    """An exchange between devices.

    parts    for each transfer, the pairs (from, to) of devices taking part
    sends    for each transfer, (devices, width): which rows of its block a device sends
    pool     (devices, rows): the agent of each row that a device has at the end, its own block first; -1 for none
    """

    parts: tuple[Pairs, ...]
    sends: tuple[np.ndarray, ...]
    pool: np.ndarray

    @cached_property
    def crossings(self) -> int:
        """How many rows cross a border between devices in one exchange."""
        return sum(len(pairs) * send.shape[1] for pairs, send in zip(self.parts, self.sends, strict=True))

    def bytes(self, row: int) -> int:
        """What one exchange moves between devices, if a row has so many bytes."""
        return self.crossings * row


def make_plan(weights: Any, agents: np.ndarray) -> Plan:
    """The plan for agents laid out as (devices, rows), listening with these weights (any sparse matrix)."""
    devices = len(agents)
    needs = _needs(weights, agents)  # (1)
    parts: list[Pairs] = []
    sends: list[np.ndarray] = []
    pool = [agents]
    for pairs in colour(list(needs)):  # (2)
        longest, done = max(len(needs[pair]) for pair in pairs), 0
        while done < longest:  # (3)
            talking = tuple(pair for pair in pairs if len(needs[pair]) > done)
            width = min(len(needs[pair]) for pair in talking) - done
            send, heard = np.zeros((devices, width), np.int32), np.full((devices, width), -1)
            for p, q in talking:
                heard[q] = needs[p, q][done : done + width]
                send[p] = heard[q] - agents[p, 0]
            parts.append(talking)
            sends.append(send)
            pool.append(heard)
            done += width
    return Plan(tuple(parts), tuple(sends), np.concatenate(pool, axis=1))


def _needs(weights: Any, agents: np.ndarray) -> dict[tuple[int, int], np.ndarray]:
    """For each pair (p, q) of devices the agents on p that some agent on q hears, in order."""
    device = np.zeros(int(agents.max()) + 1, int)
    device[agents] = np.arange(len(agents))[:, None]
    links = weights.tocoo()
    crossing = device[links.row] != device[links.col]
    triples = np.stack([device[links.col], device[links.row], links.col], axis=1)[crossing]
    triples = np.unique(triples, axis=0)
    cuts = np.flatnonzero(np.any(np.diff(triples[:, :2], axis=0), axis=1)) + 1
    groups = np.split(triples, cuts) if len(triples) else []
    return {(int(group[0, 0]), int(group[0, 1])): group[:, 2] for group in groups}


def colour(links: list[tuple[int, int]]) -> list[Pairs]:
    """Links p -> q in the fewest rounds in which nobody sends twice and nobody hears two (König's theorem)."""
    sent: dict[tuple[int, int], int] = {}  # (p, round) -> q
    heard: dict[tuple[int, int], int] = {}  # (q, round) -> p
    free = lambda taken, who: next(r for r in range(len(links) + 1) if (who, r) not in taken)
    for p, q in links:
        a, b = free(sent, p), free(heard, q)
        # Make round a free for q too: along the path of links that alternate between rounds a and b, swap the two.
        path, at, now, other = [], q, a, b
        while (at, now) in (heard if len(path) % 2 == 0 else sent):
            if len(path) % 2 == 0:
                path.append((heard[at, now], at, now))
                at = heard[at, now]
            else:
                path.append((at, sent[at, now], now))
                at = sent[at, now]
            now, other = other, now
        for source, target, r in path:
            del sent[source, r], heard[target, r]
        for source, target, r in path:
            swapped = b if r == a else a
            sent[source, swapped], heard[target, swapped] = target, source
        sent[p, a], heard[q, a] = q, p
    rounds: dict[int, list[tuple[int, int]]] = {}
    for (p, r), q in sent.items():
        rounds.setdefault(r, []).append((p, q))
    return [tuple(sorted(rounds[r])) for r in sorted(rounds)]
