"""Who may wait at a door: strangers without a key can make connections, and nothing else.

A connection waits from when it is made until its handshake is over. However many a stranger makes,
the sites of the job must get in:

    (1)  so many may wait at once, and each for a few seconds only
    (2)  if one more comes, another one has to go: of the network that has the most of them, one
         that has not sent a byte yet, or else the one that has waited longest. So who comes gets
         in, and a stranger's connections are in each other's way. A network is an address of IPv4,
         and of IPv6 a /64, which one host has all addresses of
    (3)  the addresses of the job have places of their own, which no other address can take

Both kinds of floods make lines for the log; `FewLines` lets some of them through.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from decibo.errors import short
from decibo.silo.wire import Log

PLACES = 64
FEW = 5  # lines of one kind in a second
LONGEST = 500  # letters of a line


class Waiting(Protocol):
    """A connection whose handshake is not over."""

    @property
    def spoke(self) -> bool:
        """Whether it has sent anything."""
        ...

    def give_way(self) -> None:
        """End at once."""
        ...


class Gate:
    """The connections that wait."""

    def __init__(self, lines: FewLines, places: int = PLACES) -> None:
        self.lines = lines
        self.places = places
        self.known: set[str] = set()  # the networks of the job's addresses
        self.waiting: dict[Waiting, str] = {}  # and their networks, in the order in which they came

    async def learn(self, hosts: Iterable[str]) -> None:
        """Keep places for these hosts of the job."""
        loop = asyncio.get_running_loop()
        for host in hosts:
            try:
                found = await loop.getaddrinfo(host, None)
            except OSError:
                continue  # a name that nobody knows here
            self.known |= {network_of(str(address[0])) for *_, address in found}

    def enter(self, connection: Waiting, host: str) -> None:
        """A connection begins to wait."""
        network = network_of(host)
        equals = {
            other: where
            for other, where in self.waiting.items()
            if (where in self.known) == (network in self.known)  # (3)
        }
        if len(equals) >= self.places:
            count = Counter(equals.values())
            most = max(count, key=count.__getitem__)
            crowd = [other for other, where in equals.items() if where == most]
            last = min(crowd, key=lambda other: other.spoke)  # (2), the first of these
            del self.waiting[last]
            last.give_way()
            self.lines("gate", f"too many connections at once: ended one from {most}")
        self.waiting[connection] = network

    def leave(self, connection: Waiting) -> None:
        """A connection does not wait any longer."""
        self.waiting.pop(connection, None)


def network_of(host: str) -> str:
    """What counts as one place where connections come from."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 6 and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return (
        str(address)
        if address.version == 4
        else str(ipaddress.ip_network((int(address), 64), strict=False))
    )


class FewLines:
    """A log that gets a few lines of each kind in a second, none of them long, and then how many
    more there were."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._seen: dict[str, tuple[float, int]] = {}  # kind -> since when, how many

    def __call__(self, kind: str, line: str) -> None:
        """Log a line, if there are not too many of its kind."""
        now = time.monotonic()
        since, count = self._seen.get(kind, (now, 0))
        more = ""
        if now - since >= 1:
            more = f" ({count - FEW} more like the last one)" if count > FEW else ""
            since, count = now, 0
            self._seen = {k: v for k, v in self._seen.items() if now - v[0] < 1}
        self._seen[kind] = (since, count + 1)
        if count < FEW:
            self.log(short(line, LONGEST) + more)
