"""The wire between sites: one TLS connection for each link, which either side may make, and which
is made again.

    who calls       the site with the smaller number, if the other one has an address; otherwise the
                    other one; both call the relay if neither has an address
    who is it       the site whose certificate, pinned in the job, the other side has the key of;
                    never what it says
    what travels    frames, each after its length in four bytes; longer ones than any message of
                    this job end the connection, and more than RATE or BYTES in a second slow it
    who may wait    for a handshake: gate.py

All of it runs in one thread with an event loop. Frames for a site that is not connected are
dropped: `Mailbox` repeats them when asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

from decibo.errors import InputError, first_line
from decibo.silo.consortium import Consortium
from decibo.silo.gate import FewLines, Gate
from decibo.silo.identity import Site, host_and_port
from decibo.silo.tls_session import CONNECT, HANDSHAKE, Credentials, TlsSession, context, reason
from decibo.silo.wire import Receiver

LENGTH = 4  # bytes before a frame
RATE = 20_000  # frames in a second of one neighbour; lockstep needs fewer
BYTES = 1 << 26  # in a second of one neighbour
BACKLOG = 1 << 26  # bytes that wait for a slow neighbour; more are dropped, and asked for again
FIRST, LONGEST = 0.05, 5.0  # seconds until a connection is tried again: doubled each time
LASTED = 5.0  # seconds after which a connection was a good one
SETTLE = 5  # turns of the event loop after which new connections are known
CALL = b"CALL "
ANSWER = b"OK\n"


class Refused(ConnectionError):  # noqa: N818
    """A connection that this site ends, and why."""


def route(consortium: Consortium, me: Site, peer: Site) -> str | None:
    """How the link to a neighbour is made: "call", "wait" for its call, or call the "relay"; None
    if it cannot be."""
    first = consortium.number(me.name) < consortium.number(peer.name)
    if peer.address and (first or not me.address):
        return "call"
    if me.address:
        return "wait"
    return "relay" if consortium.relay is not None else None


class TlsWire:
    """Connections of one site to its neighbours."""

    def __init__(
        self,
        consortium: Consortium,
        site: str,
        credentials: Credentials,
        log: Callable[[str], None] = lambda line: None,
        listen: str | None = None,
    ) -> None:
        self.consortium = consortium
        self.number = consortium.number(site)
        self.me = consortium.sites[self.number]
        self.log = log
        self.listen = listen or self.me.address
        self.peers = {
            name: consortium.sites[consortium.number(name)] for name in consortium.neighbours(site)
        }
        self.pins = {each.der: each.name for each in consortium.sites}
        self.links: dict[str, TlsLink] = {}  # those whose other side is known
        self.open: set[TlsLink] = set()
        self.lines = FewLines(log)
        self.gate = Gate(self.lines)
        self.longest = 0
        self.receiver: Receiver | None = None
        self.server = context(
            credentials, [each.certificate for each in consortium.sites], server=True
        )
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
        self._thread = threading.Thread(
            target=self._loop.run_forever, name=f"decibo-{site}", daemon=True
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None
        self._closing = False

    def start(self, receiver: Receiver) -> None:
        """Listen and call."""
        self.receiver = receiver
        self.longest = receiver.longest
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._begin(), self._loop).result()

    def send(self, peer: str, content: bytes) -> None:
        """Send a frame, if the neighbour is connected."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._send, peer, content)

    def close(self) -> None:
        """End all connections, after what was sent has left."""
        if self._thread.is_alive():
            with contextlib.suppress(Exception):
                asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(timeout=10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=10)
        if not self._loop.is_running():
            self._loop.close()

    async def _begin(self) -> None:
        if self.listen is not None:
            host, port = host_and_port(self.listen, self.me.name)
            try:
                self._listener = await self._loop.create_server(
                    lambda: TlsLink(self, server=True), host, port
                )
            except OSError as error:
                raise InputError(
                    f"{self.me.name} cannot listen on {self.listen}: {first_line(error)}.",
                    "If others reach it at another address than its own, set listen ="
                    ' "0.0.0.0:PORT" in site.toml.',
                ) from error
        hosts = [host_and_port(p.address, p.name)[0] for p in self.peers.values() if p.address]
        self._task(self.gate.learn(hosts))
        for peer in self.peers.values():
            way = route(self.consortium, self.me, peer)
            if way != "wait":
                self._task(self._keep_calling(peer, way == "relay"))

    def _task(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _keep_calling(self, peer: Site, by_relay: bool) -> None:
        """Keep a connection to a neighbour."""
        wait = FIRST
        said = ""
        first = self.number < self.consortium.number(peer.name)
        where = self.consortium.relay if by_relay else peer
        assert where is not None
        host, port = host_and_port(where.address, where.name)
        while not self._closing:
            link = TlsLink(self, server=by_relay and not first, peer=peer.name, by_relay=by_relay)
            begun = time.monotonic()
            try:
                async with asyncio.timeout(CONNECT):
                    await self._loop.create_connection(lambda link=link: link, host, port)
                await link.closed
                problem = link.problem
            except (OSError, TimeoutError) as error:
                problem = f"{where.name} does not answer at {where.address} ({first_line(error)})"
            wait = FIRST if time.monotonic() - begun > LASTED else min(2 * wait, LONGEST)
            if problem and problem != said and not self._closing:
                self.log(problem)
            said = problem
            await asyncio.sleep(wait)

    def _send(self, peer: str, content: bytes) -> None:
        link = self.links.get(peer)
        if link is not None:
            link.send(content)

    async def _end(self) -> None:
        self._closing = True
        if self._listener is not None:
            await stop_listening(self._listener)
        links = list(self.links.values())
        until = time.monotonic() + 2
        while any(link.pending for link in links) and time.monotonic() < until:
            await asyncio.sleep(0.005)
        for link in links:
            link.end()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await settle()
        # for those that say farewell; on a busy machine all above may have taken long
        until = time.monotonic() + 1
        while self.open:
            for link in self.open - (set() if time.monotonic() > until else set(links)):
                link.transport.abort()
            await asyncio.sleep(0.005)

    def who(self, certificate: bytes) -> str:
        """The site with this certificate; raises for a stranger."""
        if certificate not in self.pins:
            raise Refused("its certificate is not that of a site of this job")
        return self.pins[certificate]


async def stop_listening(server: asyncio.Server) -> None:
    """Accept no more connections.

    Those that were just accepted become known first: Server.close() would leave them open, and
    whoever has called would wait (python/cpython issue 109564).
    """
    loop = asyncio.get_running_loop()
    for listener in server.sockets:
        with contextlib.suppress(NotImplementedError):
            loop.remove_reader(listener.fileno())
    await settle()
    server.close()


async def settle() -> None:
    """Let connections that were just accepted or made become known."""
    for _ in range(SETTLE):
        await asyncio.sleep(0)


class TlsLink(asyncio.Protocol):
    """One connection: a TLS session, inside that of the relay if there is one, and the frames in
    it."""

    def __init__(
        self, wire: TlsWire, *, server: bool, peer: str | None = None, by_relay: bool = False
    ) -> None:
        self.wire = wire
        self.server = server
        self.calls = peer is not None  # whether this site has made the connection
        self.peer = peer
        self.by_relay = by_relay
        self.problem = ""
        self.spoke = False
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._accepted = False
        self._outer: TlsSession | None = None
        self._inner: TlsSession | None = None
        self._answer = bytearray()
        self._buffer = bytearray()
        self._count = 0  # frames in this second
        self._size = 0  # and bytes
        self._second = 0.0

    # The transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.wire.open.add(self)
        self.host = str((transport.get_extra_info("peername") or ("?",))[0])
        later = asyncio.get_running_loop().call_later
        self._timer = later(CONNECT if self.calls else HANDSHAKE, self._too_late)
        if not self.calls:  # who calls speaks first, and costs nothing before
            self.wire.gate.enter(self, self.host)
        elif self.by_relay:
            assert self.wire.relay is not None
            self._outer = TlsSession(self.wire.relay, transport.write, server=False)
            self._guarded(self._outer.start)
        else:
            self._guarded(lambda: self._shake(transport.write))

    def give_way(self) -> None:
        """End at once, since too many wait."""
        self.problem = "it gave way to another one"
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        self.spoke = True
        if not self.problem:
            self._guarded(lambda: self._received(data))

    def connection_lost(self, exc: Exception | None) -> None:
        self.wire.open.discard(self)
        self._timer.cancel()
        self.wire.gate.leave(self)
        if not self._accepted and not self.calls and not self.problem and self._inner is not None:
            self._refuse("it left before the end of the handshake")
        if self.peer is not None and self.wire.links.get(self.peer) is self:
            del self.wire.links[self.peer]
        if not self.closed.done():
            self.closed.set_result(None)

    @property
    def pending(self) -> bool:
        """Whether something has not left yet."""
        return self.transport.get_write_buffer_size() > 0

    def end(self) -> None:
        """Close the connection, properly."""
        if self._inner is not None and self._accepted:
            self._inner.end()
        self.transport.close()

    # The sessions

    def _guarded(self, work: Callable[[], None]) -> None:
        """Whatever another side sends, it ends this connection at most."""
        try:
            work()
        except ssl.SSLZeroReturnError:
            self.transport.close()
        except (ssl.SSLError, Refused, ValueError, OSError) as error:
            self._refuse(reason(error))
            self.transport.close() if isinstance(error, ssl.SSLError) else self.transport.abort()

    def _refuse(self, why: str) -> None:
        if self.problem:
            return
        who = f"{self.peer} at {self.host}" if self.peer else self.host
        self.problem = (
            f"ended the connection with {who}: {why}" if self.calls else f"refused {who}: {why}"
        )
        if not self.calls:  # who calls says so itself, once
            self.wire.lines(why, self.problem)

    def _too_late(self) -> None:
        if not self._accepted:
            if not self.by_relay:
                within = CONNECT if self.calls else HANDSHAKE
                self._refuse(f"no handshake within {within:g} seconds")
            self.transport.abort()

    def _shake(self, write: Callable[[bytes], None]) -> None:
        settings = self.wire.server if self.server else self.wire.clients[self.peer or ""]
        self._inner = TlsSession(settings, write, server=self.server)
        self._inner.start()

    def _received(self, data: bytes) -> None:
        if self._outer is not None:
            begun = self._outer.secured
            data = self._outer.feed(data)
            if self._outer.secured and not begun:
                self._timer.cancel()  # the other site may be away for long
                self._outer.send(CALL + (self.peer or "").encode() + b"\n")
            if self._inner is None:
                self._answer += data
                if not self._answer.startswith(ANSWER):
                    if len(self._answer) >= len(ANSWER):
                        raise Refused(f"the relay says {bytes(self._answer[:100])!r}")
                    return
                data = bytes(self._answer[len(ANSWER) :])
                self._timer = asyncio.get_running_loop().call_later(CONNECT, self._too_late)
                self._shake(self._outer.send)
        if self._inner is None:
            self._shake(self.transport.write)
        assert self._inner is not None
        plain = self._inner.feed(data)
        if self._inner.secured and not self._accepted:
            self._accept()
        if plain:
            self._frames(plain)

    def _accept(self) -> None:
        """The handshake is over: who is it?"""
        assert self._inner is not None
        name = self.wire.who(self._inner.certificate)
        if self.peer is not None and name != self.peer:
            raise Refused(f"it is {name}, and not {self.peer}")
        if name not in self.wire.peers:
            raise Refused(f"{name} is a site of this job, but no neighbour of {self.wire.me.name}")
        self.peer = name
        self._accepted = True
        self.wire.gate.leave(self)
        self._timer.cancel()
        before = self.wire.links.get(name)
        self.wire.links[name] = self
        if before is not None and before is not self:
            before.end()
        self.wire.log(f"connected with {name} at {self.host}")
        assert self.wire.receiver is not None
        self.wire.receiver.connected(name)

    # The frames

    def send(self, content: bytes) -> None:
        """Send a frame, unless too many wait already."""
        if self._inner is not None and self.transport.get_write_buffer_size() < BACKLOG:
            inner = self._inner
            self._guarded(lambda: inner.send(len(content).to_bytes(LENGTH, "little") + content))

    def _frames(self, plain: bytes) -> None:
        self._buffer += plain
        self._size += len(plain)
        start = 0
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
            self.wire.receiver.deliver(self.peer or "", bytes(self._buffer[start - size : start]))
            self._count += 1
        del self._buffer[:start]
        self._slow_down()

    def _slow_down(self) -> None:
        """Read no more in this second from a neighbour that sends too much."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._second >= 1:
            self._second = loop.time()
            self._count = self._size = 0
        elif self._count > RATE or self._size > BYTES:
            line = f"{self.peer} sends more than {RATE:,} frames or {BYTES:,} bytes in a second"
            self.wire.lines("slow", f"{line}, and is slowed down")
            self.transport.pause_reading()
            loop.call_later(self._second + 1 - loop.time(), self._go_on)
            self._count = self._size = 0

    def _go_on(self) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()
