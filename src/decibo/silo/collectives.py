r"""Maxima, sums and words of all sites, each exchanging messages with its neighbours only.

    largest   (1)  v_i <- max of v_i and the neighbours' v, as often as the network is wide
    share     (2)  words, as a table of letters with a row for each site and -1 where a site knows
                   nothing yet; then (1)
    total     (3)  up a tree: s_i = own_i + sum of s_j over the sites j right below i, one level at
                   a time
              (4)  down the tree: the root sends the total, and every site what the one above it
                   sent
              (5)  with secure sums (secure_sum.py): every site sends what cannot be read, and adds
                   up what all have sent

So all sites have the same bits at the end. All sites read what was shared. Of a sum all sites learn
the total, and by (3) the neighbours of a site the sum over it and those below it: no site further
away learns what one site added. By (5) no site learns more than the total.

A neighbour may send what cannot be: numbers that are too large, or words of another site that it
has changed. It is named, before any memory is taken for what it announces.

The results are remembered. Neighbours discard their messages from before the first steps, so a site
that starts again after them reads the results from its own folder instead of asking.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import networkx
import numpy as np
from numpy.typing import ArrayLike

from decibo.errors import InputError
from decibo.formatting import listed
from decibo.network.network import Network
from decibo.silo.mailbox import DIVERGED, EndedError
from decibo.silo.mix import Exchange, neighbours_of
from decibo.silo.secure_sum import SecureSums

MOST = 1 << 22  # numbers in a message before the first step
WORD = str | int | float | None  # what stands for itself in JSON


@dataclass(eq=False)
class Collectives:
    """The sites of a network, as one of them sees them.

    names     of the sites, in the order of the agents
    number    which of them this is
    past      the results in an earlier process, if there was one: nothing is sent then
    sums      what hides the numbers of this site in sums, if they are secure
    results   so far
    """

    exchange: Exchange
    network: Network
    names: list[str]
    number: int
    past: list[Any] | None = None
    sums: SecureSums | None = None
    results: list[Any] = field(default_factory=list, init=False)

    def share(self, value: Any) -> list[Any]:
        """What each site has, as JSON."""
        return self._agreed(lambda: self._shared(value))

    def total(self, numbers: ArrayLike) -> np.ndarray:
        """The sum of what the sites have; all must have as many numbers."""
        own = np.asarray(numbers, dtype=np.float64)
        if not own.size:
            return own
        return np.asarray(
            self._agreed(lambda: self.sum(own.ravel()).reshape(own.shape).tolist()), np.float64
        )

    def _agreed(self, find: Callable[[], Any]) -> Any:
        if self.past is None:
            result = find()
        elif len(self.results) < len(self.past):
            result = self.past[len(self.results)]
        else:
            raise InputError(
                "What the sites agreed on was less than this fit needs, so it was another fit's."
            )
        self.results.append(result)
        return result

    # Exchanges whose results are not remembered, for what is asked at every record

    def maximum(self, vector: np.ndarray, most: float = math.inf) -> np.ndarray:
        """The largest of what the sites have, number by number; none may be above `most`."""
        for _ in range(self._tree.width):
            vector = self._received(vector, most).max(axis=0)  # (1)
        return vector

    def _received(self, vector: np.ndarray, most: float = math.inf) -> np.ndarray:
        """What this site sends, and what each neighbour does, if it can be so."""
        rows = self.exchange(vector)
        for name, row in zip(self._neighbours, rows[1:], strict=True):
            if (row > most).any():
                raise EndedError(f"{name} sends numbers that no site can have here.", DIVERGED)
        return rows

    def _shared(self, value: Any) -> list[Any]:
        text = json.dumps(value).encode("ascii")
        most = MOST // len(self.names)
        if len(text) > most:
            raise InputError(
                f"Names, categories and classes have {len(text):,} letters here, and {most:,} at"
                " most can be shared.",
                "Leave out columns of free text.",
            )
        size = int(self.maximum(np.array([len(text)], np.float64), most)[0])
        table = np.full((len(self.names), size), -1.0)
        table[self.number, : len(text)] = np.frombuffer(text, np.uint8)
        for _ in range(self._tree.width):  # (2)
            rows = self._received(table.ravel(), 127).reshape(-1, *table.shape)
            self._check_words(rows)
            table = rows.max(axis=0)
        return [self._read(name, row, value) for name, row in zip(self.names, table, strict=True)]

    def _check_words(self, rows: np.ndarray) -> None:
        """Words are passed on as they are: who has changed those of another site is named, and not
        that site."""
        for number, owner in enumerate(self.names):
            versions = {
                sender: rows[i, number].tobytes()
                for i, sender in enumerate([self.names[self.number], *self._neighbours])
                if (rows[i, number] != -1).any()
            }
            if len(set(versions.values())) > 1:
                right = versions.get(owner)
                wrong = [sender for sender, version in versions.items() if version != right]
                wrong = [sender for sender in wrong if sender != self.names[self.number]]
                has = "has" if len(wrong) == 1 else "have, or one of them has,"
                words = f"{listed(wrong)} {has} changed what {owner} shares with all sites."
                raise EndedError(words, DIVERGED)

    def _read(self, name: str, row: np.ndarray, own: Any) -> Any:
        letters = row[row >= 0]
        try:
            value = json.loads(bytes(letters.astype(np.uint8)).decode("ascii"))
        except (ValueError, RecursionError):
            value = None
        if not _alike(own, value):
            raise InputError(
                f"What {name} shares before the job cannot be used here.",
                "Use the same decibo there.",
            )
        return value

    @cached_property
    def _neighbours(self) -> list[str]:
        return [self.names[other] for other in neighbours_of(self.network, self.number)]

    def sum(self, vector: np.ndarray) -> np.ndarray:
        if self.sums is not None:
            return self.sums.opened(self.exchange(self.sums.hidden(vector)))  # (5)
        tree = self._tree
        nothing = np.zeros_like(vector)
        for level in range(tree.height, 0, -1):
            rows = self._received(vector if tree.level == level else nothing)
            if tree.level == level - 1:
                vector = vector + rows[tree.below].sum(axis=0)  # (3)
        for level in range(tree.height):
            rows = self._received(vector if tree.level == level else nothing)
            if tree.level == level + 1:
                vector = rows[tree.above]  # (4)
        return vector

    @cached_property
    def _tree(self) -> SpanningTree:
        return tree_of(self.network, self.number)


def _alike(own: Any, value: Any) -> bool:
    """Whether what another site shares has the form of what this one does."""
    if isinstance(own, dict):
        same = isinstance(value, dict) and value.keys() == own.keys()
        return same and all(_alike(own[key], value[key]) for key in own)
    if isinstance(own, list) and any(isinstance(item, list) for item in own):
        same = isinstance(value, list) and len(value) == len(own)
        return same and all(map(_alike, own, value))
    if isinstance(own, list):
        return isinstance(value, list) and all(isinstance(item, WORD) for item in value)
    return isinstance(value, WORD) and isinstance(value, str) == isinstance(own, str)


@dataclass(frozen=True)
class SpanningTree:
    """A site's place in a tree on the links of a network: the same tree at all sites, as low as it
    can be.

    width, height   the longest way between two sites of the network, and from the root of the tree
    level           how far from the root this site is
    above, below    of the rows that an exchange returns, that of the site above, and those of the
                    sites below
    """

    width: int
    height: int
    level: int
    above: int
    below: list[int]


def tree_of(network: Network, number: int) -> SpanningTree:
    graph = networkx.Graph()
    graph.add_nodes_from(range(network.agents))
    graph.add_edges_from((int(i), int(j)) for i, j in network.edges if i != j)
    ways = {site: networkx.single_source_shortest_path_length(graph, site) for site in graph}
    far = {site: max(way.values()) for site, way in ways.items()}
    root = min(far, key=lambda site: (far[site], site))
    level = ways[root]
    above = {
        site: min(n for n in graph[site] if level[n] == level[site] - 1)
        for site in graph
        if site != root
    }
    row = {other: place for place, other in enumerate(neighbours_of(network, number), start=1)}
    below = [row[other] for other in row if above.get(other) == number]
    return SpanningTree(
        max(far.values()), far[root], level[number], row.get(above.get(number, -1), 0), below
    )
