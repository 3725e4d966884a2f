r"""Masks between owners: each link has a secret that only its two ends know, and their masks are
drawn from it.

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
2011), as long as wanted, at about the speed of SHA-256, and both are in Python's standard library;
ChaCha20 would be as good, and is not.

What they hide stays hidden only as long as it is hidden once: from the same exchange with other
data a neighbour could subtract what it has received before. So a mark of the data (run.data_marks)
is kept beside the shares, from before anything is sent, and other data need another run; and a
record of all that is sent, for the case that a neighbour lies (message_record.py).

(4) is made of sums and one product in a fixed order, and of no logarithm, so that both ends get the
same bits on any machines, and their masks cancel exactly. What (5) is for, and what it hides and
does not hide: algorithm/privacy.py.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256, shake_256
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from decibo.algorithm.compose import MASK
from decibo.errors import CorruptedFileError, InputError
from decibo.files import PRIVATE, read_record, write_record
from decibo.run.data_marks import marked
from decibo.silo.frame import SHARE
from decibo.silo.mailbox import Mailbox
from decibo.silo.message_record import MessageRecord

UNIFORM = 12  # numbers whose sum is nearly normal, with deviation 1
BLOCK = 1 << 14  # numbers that are drawn at once
FILE = "links.json"
KIND = "decibo link secrets"
FORMAT = 2
Shares = dict[str, bytes]


def own_shares(
    folder: Path, peers: Iterable[str], data: Sequence[np.ndarray], *, new: bool
) -> tuple[Shares, Shares]:
    """This site's shares, drawn and written down if the run is new; and those of the neighbours
    that are known.

    data   this site's own, which must be those with which the shares were drawn
    new    whether the run has no checkpoint yet; otherwise there must be shares of all neighbours
    """
    path = folder / FILE
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
        if (
            set(mine) != set(peers)
            or not (new or set(theirs) == set(peers))
            or any(len(share) != SHARE for share in (*mine.values(), *theirs.values()))
        ):
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
    content = texts | {"data": _mark(own, data).hex()}
    write_record(folder / FILE, KIND, FORMAT, content, PRIVATE)


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


def agreed_secrets(
    mailbox: Mailbox, folder: Path, data: Sequence[np.ndarray], *, new: bool
) -> dict[int, bytes]:
    """Agree with the neighbours on the secret of each link, by the number of the neighbour; from
    here on the mailbox sends one message in each exchange, ever.

    data   this site's own, which must be those with which the shares were drawn
    new    whether the run has no checkpoint yet; otherwise nothing is sent, since the folder has
           all shares
    """
    first = new and not (folder / FILE).exists()
    names = sorted(mailbox.number, key=mailbox.number.__getitem__)
    mailbox.record = MessageRecord(folder, names, mailbox.me, new=first)
    own, theirs = own_shares(folder, mailbox.peers, data, new=new)
    if new:
        mailbox.start()
    theirs = mailbox.share(own, theirs)
    keep_shares(folder, own, theirs, data)
    number = mailbox.number[mailbox.me]
    found: dict[int, bytes] = {}
    for peer in mailbox.peers:
        other = mailbox.number[peer]
        shares = (own[peer], theirs[peer]) if number < other else (theirs[peer], own[peer])
        found[other] = link_secret(mailbox.job, *shares)
    return found


def draw(secret: bytes, name: str, count: int) -> np.ndarray:
    """Random numbers of mean 0 and deviation 1 that follow from a secret."""
    parts: list[np.ndarray] = []
    for start in range(0, count, BLOCK):
        size = min(BLOCK, count - start)
        place = start.to_bytes(8, "little") + name.encode()
        drawn = stream(secret, b"mask", place, 8 * UNIFORM * size)
        bits = np.frombuffer(drawn, "<u8").reshape(UNIFORM, size)
        total = np.full(size, -UNIFORM / 2)
        for u in (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53:  # (3)
            total = total + u
        parts.append(total)
    return np.concatenate(parts) if parts else np.zeros(0)


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
