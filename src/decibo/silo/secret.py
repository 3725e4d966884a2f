r"""The secret of a link, which only its two ends know; masks drawn from it; and the record by which
what hides a message hides one message, ever.

When a run begins, the two ends of a link send each other 32 random bytes over their own encrypted
connection, which a relay on the way cannot read, and keep them with the run, so that a site that
starts again has the same masks:

    (1)  secret_ij   = HKDF-Extract(job; share of the smaller number, share of the larger)
    (2)  key_ij      = HKDF-Expand(secret_ij, what it is for)
    (3)  u_1, u_2 .. = the bits of SHAKE-256(key_ij, variable, block), 53 for each number in [0, 1)
    (4)  r_ij        = scale (u_1 + ... + u_12 - 6)      mean 0 and deviation `scale`, nearly normal
    (5)  b_i         = sum over the neighbours j of  sign(j - i) r_ij

HKDF is that of RFC 5869 with SHA-256, which TLS 1.3 derives its keys with. The stream is SHAKE-256
(FIPS 202) of a key of fixed length and a place: a sponge with its key in front is a pseudorandom
function (Bertoni, Daemen, Peeters & Van Assche, "On the security of the keyed sponge construction",
2011). Both are in Python's standard library; ChaCha20 would do as well, and is not. (4) is made of
sums and one product in a fixed order, and of no logarithm, so that both ends get the same bits on
any machines, and their masks cancel exactly. What (5) is for, and what it hides and does not hide:
algorithm/privacy.py.

What hides the message of exchange (k, c), a mask or a pad of secure_sum.py, follows from the
secret, k and c, and is the same when a site that has crashed repeats the exchange. Two messages
under it that differ would show by how much. A site repeats itself bit for bit as long as its own
data and programs and all that it receives are the same. So a mark of the data (run.fingerprint) is
kept beside the shares, and other data need another run; and, since a neighbour may lie,

    (6)  H(m_i[k, c]) is on the disk of i before m_i[k, c] is sent for the first time, and with it
         H(m_j[k', c']) of all neighbours j in the exchange (k', c') before
    (7)  a neighbour whose message has another hash than the one on disk is refused, by name
    (8)  a message of i itself with another hash than the one on disk is not sent

By (8) no pad hides two messages, whoever is killed, lies or starts again, however often. By (7) the
site that sent something else is found first, since m_i[k, c] follows from what i received before.

    links.json  the shares, and the mark of the data
    sent.log    entries of 52 bytes: step, call, number of the site, SHA-256, CRC-32 of the rest;
                half an entry at the end is one whose message never left
"""

from __future__ import annotations

import hmac
import os
import secrets
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256, shake_256
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from decibo.algorithm.compose import MASK
from decibo.errors import CorruptedFileError, InputError, LostError
from decibo.files import PRIVATE, named, read_checked, read_record, write_record
from decibo.run.fingerprint import marked
from decibo.silo.frame import SHARE

UNIFORM = 12  # numbers whose sum is nearly normal, with deviation 1
BLOCK = 1 << 14  # numbers that are drawn at once
LINKS = "links.json"
KIND = "decibo link secrets"
FORMAT = 2
RECORD = "sent.log"
ENTRY = struct.Struct("<QIHxx32sI")
ROW = np.dtype([("step", "<u8"), ("call", "<u4"), ("site", "<u2"), ("pad", "V2"), ("hash", "V32"),
                ("crc", "<u4")])  # fmt: skip
Shares = dict[str, bytes]  # neighbour -> a share of the secret of the link with it
Position = tuple[int, int]  # step, call


def own_shares(
    folder: Path, peers: Iterable[str], data: Sequence[np.ndarray], *, new: bool
) -> tuple[Shares, Shares]:
    """This site's shares, drawn and written down if the run is new; and those of the neighbours
    that are known.

    data   this site's own, which must be those with which the shares were drawn
    new    whether the run has no checkpoint yet; otherwise there must be shares of all neighbours
    """
    path = folder / LINKS
    if new and not path.exists():
        drawn = {peer: secrets.token_bytes(SHARE) for peer in peers}
        keep_shares(folder, drawn, {}, data)
        return drawn, {}
    try:
        stored = read_record(path, KIND, FORMAT)
        mine, theirs = (
            {peer: bytes.fromhex(text) for peer, text in stored[part].items()}
            for part in ("own", "theirs")
        )
        complete = set(mine) == set(peers) and (new or set(theirs) == set(peers))
        if not complete or any(len(share) != SHARE for share in (*mine.values(), *theirs.values())):
            raise ValueError("other neighbours")
        known = bytes.fromhex(stored["data"])
    except InputError:  # of another version
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptedFileError(
            f"{path} does not hold the shares of this run's links. Without them its masks cannot be"
            " made again: start a new job."
        ) from error
    if not hmac.compare_digest(known, _mark(mine, data)):
        raise InputError(
            f"The run in {folder} began with other data, and its neighbours could subtract what it"
            " sent then from what it would send now.",
            "Pass the same data; or begin a new run at all sites, with another seed or another word"
            " for the run.",
        )
    return mine, theirs


def keep_shares(folder: Path, own: Shares, theirs: Shares, data: Sequence[np.ndarray]) -> None:
    """Write the shares and a mark of the data down, for this site's user only."""
    texts = {
        part: {peer: share.hex() for peer, share in shares.items()}
        for part, shares in (("own", own), ("theirs", theirs))
    }
    write_record(folder / LINKS, KIND, FORMAT, texts | {"data": _mark(own, data).hex()}, PRIVATE)


def _mark(own: Shares, data: Sequence[np.ndarray]) -> bytes:
    """A mark of the data, whose key is all that this site has drawn."""
    key = b"decibo data" + b"".join(share for _, share in sorted(own.items()))
    return bytes.fromhex(marked(key, data))


def link_secret(job: bytes, smaller: bytes, larger: bytes) -> bytes:
    """The secret of a link, from the share of the site with the smaller number and that of the
    other."""
    return hmac.digest(job, smaller + larger, sha256)  # (1)


def stream(secret: bytes, purpose: bytes, place: bytes, size: int) -> bytes:
    """So many bytes that follow from a secret; others for every purpose, and for every place."""
    key = hmac.digest(secret, b"decibo " + purpose + b"\x01", sha256)  # (2)
    return shake_256(key + place).digest(size)


def draw(secret: bytes, name: str, count: int) -> np.ndarray:
    """Random numbers of mean 0 and deviation 1 that follow from a secret."""
    parts = [np.zeros(0)]
    for start in range(0, count, BLOCK):
        size = min(BLOCK, count - start)
        place = start.to_bytes(8, "little") + name.encode()
        drawn = stream(secret, b"mask", place, 8 * UNIFORM * size)
        bits = np.frombuffer(drawn, "<u8").reshape(UNIFORM, size)
        total = np.full(size, -UNIFORM / 2)
        for u in (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53:  # (3)
            total = total + u
        parts.append(total)
    return np.concatenate(parts)


def masks_of_site(
    scales: Mapping[str, float],
    like: Mapping[str, jax.Array],
    number: int,
    secret_of: Mapping[int, bytes],
) -> dict[str, jax.Array]:
    """The masks of one site, as entries of its start.

    scales      the deviation for each variable
    like        x and y as they start
    secret_of   the secret of the link to each neighbour, by its number
    """
    masks: dict[str, jax.Array] = {}
    for name, scale in scales.items():
        shape = like["x" if name == "x" else "y"]
        total = np.zeros(shape.size, shape.dtype)
        for other, secret in sorted(secret_of.items()):
            r = (scale * draw(secret, name, shape.size)).astype(shape.dtype)  # (4)
            total = total + (r if other > number else -r)  # (5)
        masks[MASK + name] = jnp.asarray(total.reshape(shape.shape))
    return masks


class MessageRecord:
    """What one site has sent and received in each exchange, as hashes in the folder of its run.

    names   of all sites, in the order of the agents
    me      which of them this is
    new     whether the run begins, and has no record yet
    """

    def __init__(self, folder: Path, names: Sequence[str], me: str, *, new: bool) -> None:
        self.path = folder / RECORD
        self.names = list(names)
        self.me = me
        if new:
            os.close(os.open(self.path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, PRIVATE))
        content = read_checked(self.path)
        size = ENTRY.size
        whole = len(content) - len(content) % size
        rows = np.frombuffer(content, ROW, whole // size)
        sums = (zlib.crc32(content[at : at + size - 4]) for at in range(0, whole, size))
        if rows["crc"].tolist() != list(sums):
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
        if not self._same(at, self.me, message):  # (8)
            raise LostError(
                f"{self.me} would send something else in step {at[0]} than before it was started"
                " again, and a neighbour could subtract one from the other. No neighbour has sent"
                f" anything else, so the data, decibo, JAX or the machine of {self.me} have"
                " changed. Go on with those of before, or start a new job."
            )
        if self._due:
            with named(self.path):
                handle = os.open(self.path, os.O_WRONLY | os.O_APPEND)
                try:
                    os.write(handle, b"".join(self._due))
                    getattr(os, "fdatasync", os.fsync)(handle)
                finally:
                    os.close(handle)
            self._due = []  # (6)

    def received(self, at: Position, messages: Mapping[str, np.ndarray]) -> None:
        """What the neighbours have sent in an exchange."""
        for name, message in messages.items():
            if not self._same(at, name, message):  # (7)
                raise LostError(
                    f"{name} sends something else in step {at[0]} than before {self.me} was started"
                    f" again. If {self.me} went on from it, {name} could find out what is hidden,"
                    f" so nothing more is sent. Ask {name} what has happened, and start a new job."
                )

    def _same(self, at: Position, name: str, message: np.ndarray) -> bool:
        """Whether a message is that of before this site was started again; a new one is noted."""
        number = self.names.index(name)
        if self._known is None:
            rows = self._rows[self._rows["step"] >= at[0]].tolist()
            self._known = {(row[0], row[1], row[2]): bytes(row[4]) for row in rows}
            self._rows = self._rows[:0]
        form = f"{message.dtype.str} {message.size} ".encode()
        found = sha256(form + message.tobytes()).digest()
        known = self._known.pop((*at, number), None)
        if known is None:
            rest = ENTRY.pack(*at, number, found, 0)[:-4]
            self._due.append(rest + zlib.crc32(rest).to_bytes(4, "little"))
        return known in (None, found)
