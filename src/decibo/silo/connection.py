"""One connection of a site or of the relay: TLS without a transport, who may wait at the door, and
what nobody at the other end can do.

TLS 1.3 only, and both sides show a certificate. Certificates are self-signed and pinned: what
counts is that the other side has the key of a certificate in the job, and nothing that an authority
says. Sessions are never resumed.

Strangers without a key can make connections, and nothing else. A connection waits from when it is
made until its handshake is over. However many a stranger makes, the sites of the job must get in:

    (1)  so many may wait at once, and each for a few seconds only
    (2)  if one more comes, another one has to go: of the network that has the most of them, one
         that has not sent a byte yet, or else the one that has waited longest. So who comes gets
         in, and a stranger's connections are in each other's way. A network is an address of IPv4,
         and of IPv6 a /64, which one host has all addresses of
    (3)  the addresses of the job have places of their own, which no other address can take
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import ssl
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from decibo.errors import InputError, first_line
from decibo.silo.identity import Credentials, host_and_port
from decibo.silo.wire import FewLines

HANDSHAKE = 3.0  # seconds for that of a connection that others have made
CONNECT = 10.0  # seconds for making one, to a site or a relay that is busy
PLACES = 64  # where connections wait
CHUNK = 1 << 16  # bytes
SETTLE = 5  # turns of the event loop after which new connections are known
REASONS = {
    "HTTP_REQUEST": "it speaks HTTP",
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
    "UNSUPPORTED_PROTOCOL": "it does not offer TLS 1.3",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate",
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not that of a site of this job",
    "NO_SHARED_CIPHER": "it offers no cipher of TLS 1.3",
}
NO_CHECK_TIME = ssl.VerifyFlags(0x200000)  # X509_V_FLAG_NO_CHECK_TIME, which Python has no name for


class Refused(ConnectionError):  # noqa: N818
    """A connection that this side ends, and why."""


def context(own: Credentials, trusted: Iterable[str], *, server: bool) -> ssl.SSLContext:
    """The settings of one side, which trusts these certificates (PEM) and no other."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False  # a pinned certificate says more than a name
    made.minimum_version = made.maximum_version = ssl.TLSVersion.TLSv1_3
    made.verify_mode = ssl.CERT_REQUIRED
    # A pinned certificate is valid as long as the job names it. Its dates would only keep out a
    # site whose clock is wrong: to one that is behind, a new certificate is not valid yet.
    made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | NO_CHECK_TIME
    made.load_cert_chain(own.certificate, own.key)
    made.load_verify_locations(cadata="\n".join(trusted))
    if server:
        made.num_tickets = 0
    return made


class TlsSession:
    """One side of a TLS session: bytes of the network in, bytes of the other side out.

    The handshake is made by hand, over `ssl.MemoryBIO`, and not by asyncio: so a connection is
    accepted first, a failed handshake is known with its reason and the address it came from, and a
    session can run inside another one (through a relay) without losing the bytes that follow the
    relay's answer.

    write         sends bytes to the other side
    secured       whether the handshake is over
    over          whether the other side has ended the session
    certificate   of the other side
    """

    def __init__(self, settings: ssl.SSLContext, write: Callable[[bytes], None], *, server: bool):
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = settings.wrap_bio(self._incoming, self._outgoing, server_side=server)
        self._write = write
        self.secured = False
        self.over = False
        self.certificate = b""
        self._shake()

    def feed(self, content: bytes) -> bytes:
        """What these bytes of the other side say, b"" if nothing yet; raises ssl.SSLError if it
        cannot be trusted."""
        self._incoming.write(content)
        if not self.secured:
            self._shake()
        parts = []
        while self.secured and not self.over:
            try:
                parts.append(self._tls.read(CHUNK))
            except ssl.SSLWantReadError:
                break
            # No error: what was sent last comes with the end, often in one segment of TCP, and
            # says why it has come.
            self.over = not parts[-1]
        self._flush()
        return b"".join(parts)

    def send(self, content: bytes) -> None:
        view = memoryview(content)
        while view:
            view = view[self._tls.write(view) :]
        self._flush()

    def end(self) -> None:
        with contextlib.suppress(ssl.SSLError, ValueError):
            self._tls.unwrap()
        self._flush()

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
            self.secured = True
            self.certificate = self._tls.getpeercert(binary_form=True) or b""
        except ssl.SSLWantReadError:
            pass
        finally:
            self._flush()  # after a failure, the alert

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._write(self._outgoing.read())


class Gate:
    """The connections that wait for the end of their handshake."""

    def __init__(self, lines: FewLines, places: int = PLACES) -> None:
        self.lines = lines
        self.places = places
        self.known: set[str] = set()  # the networks of the job's addresses
        self.waiting: dict[Connection, str] = {}  # with their networks, the oldest first

    async def learn(self, addresses: Iterable[str]) -> None:
        """Keep places for these addresses of the job."""
        for address in addresses:
            with contextlib.suppress(OSError):  # a name that nobody knows here
                host, _ = host_and_port(address, "a site")
                found = await asyncio.get_running_loop().getaddrinfo(host, None)
                self.known |= {network_of(str(where[0])) for *_, where in found}

    def enter(self, connection: Connection, host: str) -> None:
        network = network_of(host)
        known = network in self.known
        equals = {at: where for at, where in self.waiting.items() if (where in self.known) == known}
        if len(equals) >= self.places:  # (1), (3)
            count = Counter(equals.values())
            most = max(count, key=count.__getitem__)
            crowd = [other for other, where in equals.items() if where == most]
            last = min(crowd, key=lambda other: other.spoke)  # (2), the first of these
            del self.waiting[last]
            last.give_way()
            self.lines("gate", f"too many connections at once: ended one from {most}")
        self.waiting[connection] = network

    def leave(self, connection: Connection) -> None:
        self.waiting.pop(connection, None)


def network_of(host: str) -> str:
    """What counts as one place where connections come from."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 4:
        return str(address)
    mapped = address.ipv4_mapped
    return str(mapped or ipaddress.ip_network((int(address), 64), strict=False))


class Listener:
    """Whoever accepts connections: a site or the relay."""

    def __init__(self, lines: FewLines, pins: dict[bytes, str]) -> None:
        self.lines = lines
        self.pins = pins  # certificate -> the site whose it is
        self.gate = Gate(lines)
        self.open: set[Connection] = set()
        self._server: asyncio.Server | None = None

    async def listen(self, name: str, address: str, make: Callable[[], Any], remedy: str) -> None:
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(make, *host_and_port(address, name))
        except OSError as error:
            raise InputError(
                f"{name} cannot listen on {address}: {first_line(error)}.", remedy
            ) from error

    async def stop_listening(self) -> None:
        """Accept no more connections.

        Those that were just accepted become known first: Server.close() would leave them open, and
        whoever has called would wait (python/cpython issue 109564).
        """
        if self._server is None:
            return
        for listener in self._server.sockets:
            with contextlib.suppress(NotImplementedError):
                asyncio.get_running_loop().remove_reader(listener.fileno())
        await settle()
        self._server.close()


async def settle() -> None:
    """Let connections that were just accepted or made become known."""
    for _ in range(SETTLE):
        await asyncio.sleep(0)


class Connection(asyncio.Protocol):
    """One connection. Whatever the other side sends, it ends this connection at most.

    peer      the site at the other end, once it is known
    problem   why this side has ended it
    """

    def __init__(self, owner: Listener, peer: str = "") -> None:
        self.owner = owner
        self.peer = peer
        self.problem = ""
        self.spoke = False
        self._timer: asyncio.TimerHandle | None = None
        self._second = 0.0  # when the second began
        self._read = 0  # bytes in it

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.host = str((transport.get_extra_info("peername") or ("?",))[0])
        self.owner.open.add(self)

    def data_received(self, data: bytes) -> None:
        self.spoke = True
        if not self.problem:
            self.guarded(lambda: self.received(data))

    def received(self, data: bytes) -> None:
        raise NotImplementedError

    def connection_lost(self, exc: Exception | None) -> None:
        self.owner.open.discard(self)
        self.owner.gate.leave(self)
        self.no_limit()

    def give_way(self) -> None:
        self.problem = "it gave way to another one"
        self.transport.abort()

    def within(self, seconds: float, why: str) -> None:

        def too_late() -> None:
            self.refuse(why)
            self.transport.abort()

        self.no_limit()
        self._timer = asyncio.get_running_loop().call_later(seconds, too_late)

    def no_limit(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def identified(self, session: TlsSession) -> str:
        """The site whose certificate the other side has the key of; never what it says."""
        if session.certificate not in self.owner.pins:
            raise Refused("its certificate is not that of a site of this job")
        self.owner.gate.leave(self)
        return self.owner.pins[session.certificate]

    def guarded(self, work: Callable[[], object]) -> None:
        """Do what may fail by what the other side sends."""
        try:
            work()
        except ssl.SSLZeroReturnError:
            self.transport.close()
        except (ssl.SSLError, Refused, ValueError, OSError) as error:
            code = getattr(error, "reason", None) or ""
            self.refuse(REASONS.get(code) or code.lower().replace("_", " ") or first_line(error))
            # of a failed handshake the other side learns why, by an alert that must still leave
            self.transport.close() if isinstance(error, ssl.SSLError) else self.transport.abort()

    def refuse(self, why: str) -> None:
        if not self.problem:
            self.problem = why
            who = f"{self.peer} at {self.host}" if self.peer else self.host
            self.owner.lines(why, f"refused {who}: {why}")

    def charge(self, size: int, most: int) -> bool:
        """Count what was read; if this is more than the most in a second, read no more in it."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._second >= 1:
            self._second = loop.time()
            self._read = 0
        self._read += size
        if self._read > most:
            self.pause()
            loop.call_later(max(0.0, self._second + 1 - loop.time()), self.resume)
        return self._read > most

    def pause(self) -> None:
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def resume(self) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()
