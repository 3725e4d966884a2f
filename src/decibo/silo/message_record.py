r"""What a site has sent and received in each exchange, as hashes on its disk: so that numbers that
hide a message hide one message, ever.

What hides a message of exchange (k, c) follows from the secret of a link, k and c (secret.py,
secure_sum.py), and is the same again when a site that has crashed repeats the exchange. Under it,
two messages that differ show by how much. A site repeats itself bit for bit as long as its own data
and programs and all that it receives are the same; but a neighbour may lie. So

    (1)  H(m_i[k, c]) is on the disk of i before m_i[k, c] is sent for the first time, and with it
         H(m_j[k', c']) of all neighbours j in the exchange (k', c') before
    (2)  a neighbour whose message has another hash than the one on disk is refused, by name
    (3)  a message of i itself with another hash than the one on disk is not sent

By (3) no pad hides two messages, whoever is killed, lies or starts again, however often. By (2) the
site that said something else is found first, since m_i[k, c] follows from what i received before.
An entry is written and flushed before the message leaves; half an entry at the end of the file is
one whose message never did.

    sent.log    entries of 52 bytes: step, call, number of the site, SHA-256, CRC-32 of the rest
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np

from decibo.errors import CorruptedFileError, LostError
from decibo.files import PRIVATE, named, read_checked

FILE = "sent.log"
ENTRY = struct.Struct("<QIHxx32sI")
ROW = np.dtype([("step", "<u8"), ("call", "<u4"), ("site", "<u2"), ("pad", "V2"), ("hash", "V32"),
                ("crc", "<u4")])  # fmt: skip
Position = tuple[int, int]  # step, call


class MessageRecord:
    """The record of one site in the folder of its run.

    names   of all sites, in the order of the agents
    me      which of them this is
    new     whether the run begins, and has no record yet
    """

    def __init__(self, folder: Path, names: Sequence[str], me: str, *, new: bool) -> None:
        self.path = folder / FILE
        self.names = list(names)
        self.me = me
        if new:
            os.close(os.open(self.path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, PRIVATE))
        content = read_checked(self.path)
        whole = len(content) - len(content) % ENTRY.size
        rows = np.frombuffer(content, ROW, whole // ENTRY.size)
        size = ENTRY.size
        if any(
            zlib.crc32(content[at : at + size - 4]) != crc
            for at, crc in zip(range(0, whole, size), rows["crc"].tolist(), strict=True)
        ):
            raise CorruptedFileError(
                f"{self.path} is damaged. Without it this run could show what it has hidden: start"
                " a new job."
            )
        os.truncate(self.path, whole)
        self._rows = rows
        self._known: dict[tuple[int, int, int], bytes] | None = None  # once the run goes on
        self._due: list[bytes] = []  # entries that are not on disk yet

    def sending(self, at: Position, message: np.ndarray) -> None:
        """This site is about to send this; it may if this returns."""
        own = self.names.index(self.me)
        known = self._at(at, own)
        found = _hash(message)
        if known is None:
            self._due.append(_entry(at, own, found))
            with named(self.path):
                handle = os.open(self.path, os.O_WRONLY | os.O_APPEND)
                try:
                    os.write(handle, b"".join(self._due))
                    getattr(os, "fdatasync", os.fsync)(handle)
                finally:
                    os.close(handle)
            self._due = []  # (1)
        elif known != found:  # (3)
            raise LostError(
                f"{self.me} would send something else in step {at[0]} than before it was started"
                " again, and a neighbour could subtract one from the other. No neighbour has sent"
                f" anything else, so the data, decibo, JAX or the machine of {self.me} have"
                " changed. Go on with those of before, or start a new job."
            )

    def received(self, at: Position, messages: Mapping[str, np.ndarray]) -> None:
        """What the neighbours have sent in an exchange."""
        for name, message in messages.items():
            number = self.names.index(name)
            known = self._at(at, number)
            found = _hash(message)
            if known is None:
                self._due.append(_entry(at, number, found))
            elif known != found:  # (2)
                raise LostError(
                    f"{name} sends something else in step {at[0]} than before {self.me} was started"
                    f" again. If {self.me} went on from it, {name} could find out what is hidden,"
                    f" so nothing more is sent. Ask {name} what has happened, and start a new job."
                )

    def _at(self, at: Position, number: int) -> bytes | None:
        """The hash from before this site was started again; what is behind it is forgotten."""
        if self._known is None:
            rows = self._rows[self._rows["step"] >= at[0]].tolist()
            self._known = {(row[0], row[1], row[2]): bytes(row[4]) for row in rows}
            self._rows = self._rows[:0]
        return self._known.pop((*at, number), None)


def _hash(message: np.ndarray) -> bytes:
    return sha256(f"{message.dtype.str} {message.size} ".encode() + message.tobytes()).digest()


def _entry(at: Position, number: int, found: bytes) -> bytes:
    rest = ENTRY.pack(*at, number, found, 0)[:-4]
    return rest + zlib.crc32(rest).to_bytes(4, "little")
