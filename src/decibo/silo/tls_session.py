"""TLS without a transport: bytes of the network in, bytes of the other side out.

TLS 1.3 only, and both sides show a certificate. Certificates are self-signed and pinned: what
counts is that the other side has the key of a certificate in the job, and nothing that an authority
says. Sessions are never resumed.

The handshake is made by hand, over `ssl.MemoryBIO`, and not by asyncio: so a connection is accepted
first, a failed handshake is known with its reason and the address it came from, and a session can
run inside another one (through a relay) without losing the bytes that follow the relay's answer.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

CHUNK = 1 << 16
HANDSHAKE = 3.0  # seconds for that of a connection that others have made
CONNECT = 10.0  # seconds for making one, to a site or a relay that is busy
REASONS = {
    "HTTP_REQUEST": "it speaks HTTP",
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
    "UNSUPPORTED_PROTOCOL": "it does not offer TLS 1.3",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate",
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not that of a site of this job",
    "NO_SHARED_CIPHER": "it offers no cipher of TLS 1.3",
}


class Credentials(NamedTuple):
    """The files of a site's certificate and key."""

    certificate: Path
    key: Path


def context(own: Credentials, trusted: Iterable[str], *, server: bool) -> ssl.SSLContext:
    """The settings of one side of a connection, which trusts these certificates (PEM) and no
    other."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False  # a pinned certificate says more than a name
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.maximum_version = ssl.TLSVersion.TLSv1_3
    made.verify_mode = ssl.CERT_REQUIRED
    made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    made.load_cert_chain(own.certificate, own.key)
    made.load_verify_locations(cadata="\n".join(trusted))
    if server:
        made.num_tickets = 0
    return made


class TlsSession:
    """One side of a TLS connection.

    write      sends bytes to the other side
    secured    whether the handshake is over
    """

    def __init__(
        self, settings: ssl.SSLContext, write: Callable[[bytes], None], *, server: bool
    ) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = settings.wrap_bio(self._incoming, self._outgoing, server_side=server)
        self._write = write
        self.secured = False
        self.certificate = b""  # of the other side

    def start(self) -> None:
        """Begin the handshake."""
        self._shake()

    def feed(self, content: bytes) -> bytes:
        """What these bytes of the other side say; raises ssl.SSLError if it cannot be trusted. b""
        if nothing yet."""
        self._incoming.write(content)
        if not self.secured:
            self._shake()
        parts = []
        while self.secured:
            try:
                part = self._tls.read(CHUNK)
            except ssl.SSLWantReadError:
                break
            if not part:
                raise ssl.SSLZeroReturnError("the other side has ended the session")
            parts.append(part)
        self._flush()
        return b"".join(parts)

    def send(self, content: bytes) -> None:
        """Encrypt and send."""
        view = memoryview(content)
        while view:
            view = view[self._tls.write(view) :]
        self._flush()

    def end(self) -> None:
        """Say that nothing follows."""
        with contextlib.suppress(ssl.SSLError, ValueError):
            self._tls.unwrap()
        self._flush()

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError:
            self._flush()  # the alert
            raise
        self.secured = True
        self.certificate = self._tls.getpeercert(binary_form=True) or b""
        self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._write(self._outgoing.read())


def reason(error: BaseException) -> str:
    """Why a handshake or a connection failed, in words."""
    known = REASONS.get(getattr(error, "reason", None) or "")
    if known:
        return known
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return str(error) or type(error).__name__
