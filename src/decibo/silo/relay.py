"""The relay: for links of which neither site can be called. Both call the relay, which copies bytes
between them.

    site a  -- TLS to the relay --  relay  -- TLS to the relay --  site b
            ------------------- TLS from a to b -------------------

What it copies is the session between the two sites, which it has no key of: it sees who talks to
whom, when and how much, but no number and no word. It admits the sites of a job only, by their
certificates, and connects neighbours only.

    CALL b\\n      what a says after its handshake; the relay waits until b calls a
    OK\\n          the answer; all that follows is copied

It keeps nothing: what one side sends faster than the other reads is not read, at most `rate` bytes
in a second are copied for each connection, and strangers who make connections are in each other's
way, and in nobody else's (gate.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections.abc import Callable

from decibo.errors import InputError, first_line
from decibo.silo.consortium import Consortium
from decibo.silo.gate import FewLines, Gate
from decibo.silo.identity import host_and_port
from decibo.silo.tls import ANSWER, CALL, Refused, stop_listening
from decibo.silo.tls_session import HANDSHAKE, Credentials, TlsSession, context, reason

RATE = 50_000_000  # bytes in a second
HIGH = 1 << 20  # bytes that wait to be written at most
REQUEST = re.compile(re.escape(CALL) + rb"([A-Za-z0-9_-]{1,40})\n")
LONGEST = 64  # bytes of a request


class Relay:
    """The relay of a job. `await relay.serve(listen)`, or `start` and `close`."""

    def __init__(
        self,
        consortium: Consortium,
        credentials: Credentials,
        log: Callable[[str], None] = lambda line: None,
        *,
        rate: int = RATE,
        tap: Callable[[bytes], None] | None = None,
    ) -> None:
        self.log = log
        self.rate = rate
        self.tap = tap  # sees what is copied, for those who want to see that it cannot be read
        self.lines = FewLines(log)
        self.gate = Gate(self.lines)
        self.hosts = [
            host_and_port(site.address, site.name)[0] for site in consortium.sites if site.address
        ]
        self.settings = context(
            credentials, [site.certificate for site in consortium.sites], server=True
        )
        self.pins = {site.der: site.name for site in consortium.sites}
        self.links = {
            (name, other) for name in consortium.names for other in consortium.neighbours(name)
        }
        self.callers: dict[tuple[str, str], Caller] = {}  # by who calls whom
        self.open: set[Caller] = set()
        self._server: asyncio.Server | None = None

    async def start(self, listen: str) -> None:
        """Begin to accept connections."""
        host, port = host_and_port(listen, "the relay")
        try:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: Caller(self), host, port
            )
        except OSError as error:
            raise InputError(
                f"The relay cannot listen on {listen}: {first_line(error)}."
            ) from error
        self._learning = asyncio.get_running_loop().create_task(self.gate.learn(self.hosts))
        self.log(f"the relay listens on {listen}")

    async def close(self) -> None:
        """End all connections."""
        self._learning.cancel()
        if self._server is not None:
            await stop_listening(self._server)
        while self.open:
            for caller in list(self.open):
                caller.transport.abort()
            await asyncio.sleep(0.005)

    async def serve(self, listen: str) -> None:
        """Run until cancelled."""
        await self.start(listen)
        try:
            await asyncio.Event().wait()
        finally:
            await self.close()


class Caller(asyncio.Protocol):
    """One connection to the relay."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.name = ""
        self.wants = ""
        self.other: Caller | None = None
        self._request = bytearray()
        self._copied = 0
        self._second = 0.0
        self.spoke = False
        self._secured = False
        self._full = False
        self._problem = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.relay.open.add(self)
        self.host = str((transport.get_extra_info("peername") or ("?",))[0])
        transport.set_write_buffer_limits(high=HIGH)
        self._timer = asyncio.get_running_loop().call_later(HANDSHAKE, self._too_late)
        self._session: TlsSession | None = None  # before it has said a word
        self.relay.gate.enter(self, self.host)

    def give_way(self) -> None:
        """End at once, since too many wait."""
        self._problem = True
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.relay.open.discard(self)
        self._timer.cancel()
        self.relay.gate.leave(self)
        if self.relay.callers.get((self.name, self.wants)) is self:
            del self.relay.callers[self.name, self.wants]
        if self.other is not None:
            self.other.other = None
            self.other.transport.close()

    def data_received(self, data: bytes) -> None:
        if self._problem:
            return
        self.spoke = True
        try:
            if self._session is None:
                self._session = TlsSession(self.relay.settings, self.transport.write, server=True)
                self._session.start()
            self._received(self._session, self._session.feed(data))
        except ssl.SSLZeroReturnError:
            self.transport.close()
        except (ssl.SSLError, Refused, ValueError, OSError) as error:
            self._refuse(reason(error))
            self.transport.close() if isinstance(error, ssl.SSLError) else self.transport.abort()

    def pause_writing(self) -> None:
        """This side reads too slowly: read no more from the other one."""
        self._full = True
        if self.other is not None:
            self.other.rest()

    def resume_writing(self) -> None:
        self._full = False
        if self.other is not None:
            self.other.go_on()

    def rest(self) -> None:
        """Read nothing for now."""
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def go_on(self) -> None:
        """Read again, if the other side can take it."""
        if not self.transport.is_closing() and not (self.other is not None and self.other._full):
            self.transport.resume_reading()

    def send(self, content: bytes) -> None:
        """To this side."""
        if self._session is not None and not self.transport.is_closing():
            with contextlib.suppress(ssl.SSLError):
                self._session.send(content)

    def _received(self, session: TlsSession, plain: bytes) -> None:
        if session.secured and not self._secured:
            self._secured = True
            self.relay.gate.leave(self)
            name = self.relay.pins.get(session.certificate)
            if name is None:
                raise Refused("its certificate is not that of a site of this job")
            self.name = name
        if not plain:
            return
        if self.wants:
            self._copy(plain)
            return
        self._request += plain
        if b"\n" in self._request or len(self._request) > LONGEST:
            self._answer()

    def _answer(self) -> None:
        """Connect two sites that have called each other."""
        found = REQUEST.fullmatch(bytes(self._request))
        if found is None:
            raise Refused("it does not say whom it calls")
        wants = found[1].decode()
        if (self.name, wants) not in self.relay.links:
            raise Refused(f"{self.name} calls {wants}, which is no neighbour of it")
        self._timer.cancel()
        self.wants = wants
        place = (self.name, wants)
        before = self.relay.callers.get(place)
        self.relay.callers[place] = self
        if before is not None:
            before.transport.abort()
        partner = self.relay.callers.get((wants, self.name))
        if partner is not None and partner.other is None:
            self.other = partner
            partner.other = self
            self.relay.log(f"connected {self.name} with {wants}")
            self.send(ANSWER)
            partner.send(ANSWER)

    def _copy(self, plain: bytes) -> None:
        if self.other is None:
            raise Refused(f"{self.name} sends before {self.wants} is there")
        if self.relay.tap is not None:
            self.relay.tap(plain)
        self.other.send(plain)
        loop = asyncio.get_running_loop()
        if loop.time() - self._second >= 1:
            self._second = loop.time()
            self._copied = 0
        self._copied += len(plain)
        if self._copied > self.relay.rate:
            self.rest()
            loop.call_later(max(0.0, self._second + 1 - loop.time()), self.go_on)

    def _refuse(self, why: str) -> None:
        if not self._problem:
            self._problem = True
            who = f"{self.name} at {self.host}" if self.name else self.host
            self.relay.lines(why, f"refused {who}: {why}")

    def _too_late(self) -> None:
        if not self.wants:
            self._refuse(f"no request within {HANDSHAKE:g} seconds")
            self.transport.abort()
