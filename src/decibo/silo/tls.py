"""The wire between sites: one TLS connection for each link, which either side may make, and which
is made again.

    who calls       the site with the smaller number, if the other one has an address; otherwise the
                    other one; both call the relay if neither has an address
    who is it       the site whose certificate, pinned in the job, the other side has the key of;
                    never what it says
    what travels    frames, each after its length in four bytes; longer ones than any message of
                    this job end the connection, and more than RATE or BYTES in a second slow it
    who may wait    for a handshake: connection.py

All of it runs in one thread with an event loop. Frames for a site that is not connected are
dropped: `Mailbox` repeats them when asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Coroutine
from typing import Any

from decibo.errors import InputError, first_line
from decibo.silo.connection import (
    CONNECT,
    HANDSHAKE,
    Connection,
    Listener,
    Refused,
    TlsSession,
    context,
    settle,
)
from decibo.silo.consortium import Consortium
from decibo.silo.identity import Identity, Site, host_and_port
from decibo.silo.wire import FewLines, Log, Receiver, no_log

LENGTH = 4  # bytes before a frame
RATE = 20_000  # frames in a second of one neighbour; lockstep needs fewer
BYTES = 1 << 26  # in a second of one neighbour
BACKLOG = 1 << 26  # bytes that wait for a slow neighbour; more are dropped, and asked for again
FIRST = 0.05  # seconds until a connection is tried again, doubled each time
LONGEST = 5.0  # up to this
LASTED = 5.0  # seconds after which a connection was a good one
CALL = b"CALL "
ANSWER = b"OK\n"


def route(consortium: Consortium, me: Site, peer: Site) -> str | None:
    """How the link to a neighbour is made: "call", "wait" for its call, or call the "relay"; None
    if it cannot be."""
    first = consortium.number(me.name) < consortium.number(peer.name)
    if peer.address and (first or not me.address):
        return "call"
    if me.address:
        return "wait"
    return "relay" if consortium.relay is not None else None


class TlsWire(Listener):
    def __init__(self, consortium: Consortium, site: str, own: Identity, log: Log = no_log) -> None:
        super().__init__(FewLines(log), {each.der: each.name for each in consortium.sites})
        self.consortium = consortium
        self.number = consortium.number(site)
        self.me = consortium.sites[self.number]
        self.log = log
        self.address = own.listen or self.me.address
        known = {each.name: each for each in consortium.sites}
        self.peers = {name: known[name] for name in consortium.neighbours(site)}
        self.links: dict[str, TlsLink] = {}  # those whose other side is known
        self.receiver: Receiver | None = None
        credentials = own.credentials(self.me)
        pinned = [each.certificate for each in consortium.sites]
        self.server = context(credentials, pinned, server=True)
        self.clients = {
            name: context(credentials, [peer.certificate], server=False)
            for name, peer in self.peers.items()
        }
        self.relay = None
        if consortium.relay is not None:
            self.relay = context(credentials, [consortium.relay.certificate], server=False)
        for peer in self.peers.values():
            if route(consortium, self.me, peer) is None:
                raise InputError(
                    f"{site} and {peer.name} are neighbours, but neither has an address at which it"
                    " can be called.",
                    "Give one of them an address, or add a [relay] to the consortium.",
                )
        self._loop = asyncio.new_event_loop()
        work = self._loop.run_forever
        self._thread = threading.Thread(target=work, name=f"decibo-{site}", daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    def start(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.longest = receiver.longest
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._begin(), self._loop).result()

    def send(self, peer: str, content: bytes) -> None:
        def work() -> None:
            if peer in self.links:
                self.links[peer].send(content)

        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(work)

    def close(self) -> None:
        if self._thread.is_alive():
            with contextlib.suppress(Exception):
                asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(timeout=10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=10)
        if not self._loop.is_running():
            self._loop.close()

    async def _begin(self) -> None:
        if self.address is not None:
            remedy = (
                "If others reach it at another address than its own, set listen ="
                ' "0.0.0.0:PORT" in site.toml.'
            )
            await self.listen(self.me.name, self.address, lambda: TlsLink(self, ""), remedy)
        self._task(self.gate.learn([peer.address for peer in self.peers.values() if peer.address]))
        for peer in self.peers.values():
            way = route(self.consortium, self.me, peer)
            if way != "wait":
                self._task(self._keep_calling(peer, way == "relay"))

    def _task(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _keep_calling(self, peer: Site, by_relay: bool) -> None:
        wait = FIRST
        logged = ""
        # Through the relay both call, and the one with the smaller number opens the session.
        server = by_relay and self.number > self.consortium.number(peer.name)
        where = self.consortium.relay if by_relay else peer
        assert where is not None
        address = host_and_port(where.address, where.name)
        while not self._closing:
            link = TlsLink(self, peer.name, calls=True, server=server, by_relay=by_relay)
            begun = time.monotonic()
            try:
                async with asyncio.timeout(CONNECT):
                    await self._loop.create_connection(lambda link=link: link, *address)
                await link.closed
                problem = link.problem
            except (OSError, TimeoutError) as error:
                # asyncio's words are an error number and the address once more
                closed = isinstance(error, ConnectionRefusedError)
                why = "nobody listens there" if closed else first_line(error)
                problem = f"{where.name} does not answer at {where.address} ({why})"
            wait = FIRST if time.monotonic() - begun > LASTED else min(2 * wait, LONGEST)
            if problem and problem != logged and not self._closing:
                self.log(problem)
            logged = problem
            await asyncio.sleep(wait)

    async def _end(self) -> None:
        self._closing = True
        await self.stop_listening()
        links = list(self.links.values())
        until = time.monotonic() + 2
        pending = lambda link: link.transport.get_write_buffer_size() > 0
        while any(map(pending, links)) and time.monotonic() < until:
            await asyncio.sleep(0.005)
        for link in links:
            link.end()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await settle()
        # The links have sent that they end, and get a second, since all above may have taken long
        # on a busy machine; connections that are not links yet get none.
        until = time.monotonic() + 1
        while self.open:
            for link in self.open - (set() if time.monotonic() > until else set(links)):
                link.transport.abort()
            await asyncio.sleep(0.005)


class TlsLink(Connection):
    """One connection: a TLS session, inside that of the relay if there is one, and the frames in
    it.

    calls, by_relay   whether this site has made it, and whether it goes through the relay
    server            whether this site is the server of the session
    """

    def __init__(
        self,
        wire: TlsWire,
        peer: str,
        *,
        calls: bool = False,
        server: bool = True,
        by_relay: bool = False,
    ) -> None:
        super().__init__(wire, peer)
        self.wire = wire
        self.calls = calls
        self.server = server
        self.by_relay = by_relay
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.accepted = False
        self._outer: TlsSession | None = None
        self._inner: TlsSession | None = None
        self._answer = b""
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        seconds = CONNECT if self.calls else HANDSHAKE
        self.within(seconds, f"no handshake within {seconds:g} seconds")
        if not self.calls:  # who calls speaks first, and costs nothing before
            self.wire.gate.enter(self, self.host)
        elif self.by_relay:
            self.guarded(self._call_relay)
        else:
            self.guarded(lambda: self._shake(self.transport.write))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if not self.accepted and not self.calls and self._inner is not None:
            self.refuse("it left before the end of the handshake")
        if self.wire.links.get(self.peer) is self:
            del self.wire.links[self.peer]
        if not self.closed.done():
            self.closed.set_result(None)

    def end(self) -> None:
        if self._inner is not None and self.accepted:
            self._inner.end()
        self.transport.close()

    def refuse(self, why: str) -> None:
        if not self.calls:
            super().refuse(why)
        elif not self.problem:  # which the caller logs
            self.problem = f"ended the connection with {self.peer} at {self.host}: {why}"

    # Sessions

    def _call_relay(self) -> None:
        assert self.wire.relay is not None
        self._outer = TlsSession(self.wire.relay, self.transport.write, server=False)

    def _shake(self, write: Any) -> TlsSession:
        settings = self.wire.server if self.server else self.wire.clients[self.peer]
        self._inner = TlsSession(settings, write, server=self.server)
        return self._inner

    def received(self, data: bytes) -> None:
        if self._outer is not None:
            begun = self._outer.secured
            data = self._outer.feed(data)
            if self._outer.secured and not begun:
                self.no_limit()  # the other site may be away for long
                self._outer.send(CALL + self.peer.encode() + b"\n")
            if self._inner is None:
                self._answer += data
                if len(self._answer) < len(ANSWER):
                    return
                if not self._answer.startswith(ANSWER):
                    raise Refused(f"the relay says {self._answer[:100]!r}")
                data = self._answer[len(ANSWER) :]
                self.within(CONNECT, f"no handshake within {CONNECT:g} seconds")
                self._shake(self._outer.send)
        inner = self._inner or self._shake(self.transport.write)
        plain = inner.feed(data)
        if inner.secured and not self.accepted:
            self._accept(inner)
        if plain:
            self._frames(plain)
        if inner.over or (self._outer is not None and self._outer.over):
            self.transport.close()

    def _accept(self, session: TlsSession) -> None:
        """The handshake is over: who is it?"""
        name = self.identified(session)
        if self.peer and name != self.peer:
            raise Refused(f"it is {name}, and not {self.peer}")
        if name not in self.wire.peers:
            raise Refused(f"{name} is a site of this job, but no neighbour of {self.wire.me.name}")
        self.peer = name
        self.accepted = True
        self.no_limit()
        before = self.wire.links.get(name)
        self.wire.links[name] = self
        if before is not None and before is not self:
            before.end()
        self.wire.log(f"connected with {name} at {self.host}")
        assert self.wire.receiver is not None
        self.wire.receiver.connected(name)

    # Frames

    def send(self, content: bytes) -> None:
        inner = self._inner
        if inner is None or self.transport.is_closing():
            return  # asyncio would print a line for each frame that is written to it
        if self.transport.get_write_buffer_size() < BACKLOG:
            self.guarded(lambda: inner.send(len(content).to_bytes(LENGTH, "little") + content))

    def _frames(self, plain: bytes) -> None:
        self._buffer += plain
        start = count = 0
        assert self.wire.receiver is not None
        while len(self._buffer) - start >= LENGTH:
            size = int.from_bytes(self._buffer[start : start + LENGTH], "little")
            if size > self.wire.longest:
                raise Refused(
                    f"it announces a frame of {size:,} bytes, and none of this job has more than"
                    f" {self.wire.longest:,}"
                )
            if len(self._buffer) - start - LENGTH < size:
                break
            start += LENGTH + size
            count += 1
            self.wire.receiver.deliver(self.peer, bytes(self._buffer[start - size : start]))
        del self._buffer[:start]
        # every frame costs, however short it is
        if self.charge(max(len(plain), count * (BYTES // RATE)), BYTES):
            line = f"{self.peer} sends more than {RATE:,} frames or {BYTES:,} bytes in a second"
            self.wire.lines("slow", f"{line}, and is slowed down")
