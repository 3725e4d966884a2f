"""The relay: for links of which neither site can be called. Both call the relay, which copies bytes
between them.

    site a  -- TLS to the relay --  relay  -- TLS to the relay --  site b
            ------------------- TLS from a to b -------------------

What it copies is the session between the two sites, which it has no key of: it sees who talks to
whom, when and how much, but no number and no word. It admits the sites of a job only, by their
certificates, and connects neighbours only.

    CALL b\\n      what a says after its handshake; the relay waits until b calls a
    OK\\n          the answer; all that follows is copied

It keeps nothing: what one side sends faster than the other reads is not read, at most RATE bytes
in a second are copied for each connection, and strangers who make connections are in each other's
way, and in nobody else's (connection.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl

from decibo.silo.connection import HANDSHAKE, Connection, Listener, Refused, TlsSession, context
from decibo.silo.consortium import Consortium
from decibo.silo.identity import Credentials
from decibo.silo.tls import ANSWER, CALL
from decibo.silo.wire import FewLines, Log, no_log

RATE = 50_000_000  # bytes in a second
HIGH = 1 << 20  # bytes that wait to be written at most
REQUEST = re.compile(re.escape(CALL) + rb"([A-Za-z0-9_-]{1,40})\n")
LONGEST = 64  # bytes of a request


class Relay(Listener):
    """The relay of a job. `await relay.serve(listen)`, or `start` and `close`."""

    def __init__(self, consortium: Consortium, credentials: Credentials, log: Log = no_log) -> None:
        sites = consortium.sites
        super().__init__(FewLines(log), {site.der: site.name for site in sites})
        self.log = log
        self.addresses = [site.address for site in sites if site.address]
        self.settings = context(credentials, [site.certificate for site in sites], server=True)
        self.links = {
            (name, other) for name in consortium.names for other in consortium.neighbours(name)
        }
        self.callers: dict[tuple[str, str], Caller] = {}  # by who calls whom

    async def start(self, listen: str) -> None:
        await self.listen("the relay", listen, lambda: Caller(self), "")
        self._learning = asyncio.get_running_loop().create_task(self.gate.learn(self.addresses))
        self.log(f"the relay listens on {listen}")

    async def close(self) -> None:
        self._learning.cancel()
        await self.stop_listening()
        while self.open:
            for caller in list(self.open):
                caller.transport.abort()
            await asyncio.sleep(0.005)

    async def serve(self, listen: str) -> None:
        await self.start(listen)
        try:
            await asyncio.Event().wait()
        finally:
            await self.close()


class Caller(Connection):
    """One connection to the relay.

    wants   whom it calls, once that is known
    other   the connection that its bytes are copied to
    full    whether it reads more slowly than the other one sends
    """

    def __init__(self, relay: Relay) -> None:
        super().__init__(relay)
        self.relay = relay
        self.wants = ""
        self.other: Caller | None = None
        self.full = False
        self._request = b""
        self._session: TlsSession | None = None  # before its first byte

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.set_write_buffer_limits(high=HIGH)
        self.within(HANDSHAKE, f"no request within {HANDSHAKE:g} seconds")
        self.relay.gate.enter(self, self.host)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.relay.callers.get((self.peer, self.wants)) is self:
            del self.relay.callers[self.peer, self.wants]
        if self.other is not None:
            self.other.other = None
            self.other.transport.close()

    # What one side cannot take is not read from the other one, so that nothing piles up here.

    def pause_writing(self) -> None:
        self.full = True
        if self.other is not None:
            self.other.pause()

    def resume_writing(self) -> None:
        self.full = False
        if self.other is not None:
            self.other.resume()

    def resume(self) -> None:
        if self.other is None or not self.other.full:
            super().resume()

    def send(self, content: bytes) -> None:
        if self._session is not None and not self.transport.is_closing():
            with contextlib.suppress(ssl.SSLError):
                self._session.send(content)

    def received(self, data: bytes) -> None:
        if self._session is None:
            self._session = TlsSession(self.relay.settings, self.transport.write, server=True)
        plain = self._session.feed(data)
        if self._session.secured and not self.peer:
            self.peer = self.identified(self._session)
        if self.wants and plain:
            self._copy(plain)
        elif plain:
            self._request += plain
            if b"\n" in self._request or len(self._request) > LONGEST:
                self._answer()
        if self._session.over:
            self.transport.close()

    def _answer(self) -> None:
        """Connect two sites that have called each other."""
        found = REQUEST.fullmatch(self._request)
        if found is None:
            raise Refused("it does not say whom it calls")
        wants = found[1].decode()
        if (self.peer, wants) not in self.relay.links:
            raise Refused(f"{self.peer} calls {wants}, which is no neighbour of it")
        self.no_limit()
        self.wants = wants
        before = self.relay.callers.get((self.peer, wants))
        self.relay.callers[self.peer, wants] = self
        if before is not None:
            before.transport.abort()
        partner = self.relay.callers.get((wants, self.peer))
        if partner is not None and partner.other is None:
            self.other = partner
            partner.other = self
            self.relay.log(f"connected {self.peer} with {wants}")
            self.send(ANSWER)
            partner.send(ANSWER)

    def _copy(self, plain: bytes) -> None:
        if self.other is None:
            raise Refused(f"{self.peer} sends before {self.wants} is there")
        self.other.send(plain)
        self.charge(len(plain), RATE)
