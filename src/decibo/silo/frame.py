"""What travels between two sites: a header of 52 bytes, then raw numbers or a small table of words.
Nothing else.

    offset  bytes   what
    0       4       "dcbo"
    4       1       version of this format
    5       1       kind: HELLO, DATA, ASK, HERE, BYE or SHARE
    6       1       type of the numbers: 0 none (words), 1 float32, 2 float64, 3 whole numbers of 64
                    bits (secure_sum.py)
    8       2       who sends it: the number of the site in the job
    10      2       calm: how far the wish to end has spread (async_mailbox.py); 0 in lockstep
    12      4       call: the number of the exchange within the step; without waiting, how often the
                    site has started
    16      8       step
    24      16      the job: the first bytes of the SHA-256 of what all sites must agree on
    40      8       how many numbers, or bytes of words, follow
    48      4       CRC-32 of all the rest

All numbers are little-endian. The checksum is against damage; against people there is TLS below and
the sender's certificate, which must be that of the site in the header. Reading a frame allocates no
more than the frame itself, executes nothing, and ends in a `Frame` or in `BadFrame`.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

import numpy as np

MAGIC = b"dcbo"
VERSION = 1
HEADER = struct.Struct("<4sBBBxHHIQ16sQI")
TYPES = {1: np.dtype("<f4"), 2: np.dtype("<f8"), 3: np.dtype("<u8")}
CODES = {"float32": 1, "float64": 2, "uint64": 3}
JSON_LIMIT = 1 << 16  # the most bytes of words in a HELLO
ANSWER_LIMIT = 1 << 14  # and in other frames
STEPS = 1 << 31  # steps are counted in 32 bits
SHARE = 32  # bytes of a site's share of a secret


class Kind(IntEnum):
    """What a frame says.

    HELLO   this is the job I run: {name of a part: what it is}
    DATA    this is what I say in this exchange
    ASK     I wait for what you say in this exchange, and all that follows
    HERE    this is the exchange I am at, and for whom I wait: the answer to ASK, after the numbers
    BYE     I have finished, or cannot go on
    SHARE   this is my part of the secret of our link, from which masks are drawn (secret.py)
    """

    HELLO = 1
    DATA = 2
    ASK = 3
    HERE = 4
    BYE = 5
    SHARE = 6


class BadFrame(ValueError):  # noqa: N818  (what it is, not how it is raised)
    """Bytes that are no frame, and why."""


class Frame(NamedTuple):
    """A frame that was read: DATA has numbers, all others have words."""

    kind: Kind
    sender: int
    step: int
    call: int
    job: bytes
    numbers: np.ndarray
    words: dict[str, object]
    calm: int = 0


NOTHING = np.zeros(0)


def pack(
    kind: Kind,
    job: bytes,
    sender: int,
    step: int = 0,
    call: int = 0,
    *,
    numbers: np.ndarray | None = None,
    words: Mapping[str, object] | None = None,
    calm: int = 0,
) -> bytes:
    """The bytes of a frame with a vector of numbers, or with words."""
    if numbers is not None:
        code = CODES[numbers.dtype.name]
        body = np.ascontiguousarray(numbers, TYPES[code]).tobytes()
        count = numbers.size
    else:
        code = 0
        body = json.dumps(dict(words or {}), separators=(",", ":")).encode()
        count = len(body)
    fields = (MAGIC, VERSION, int(kind), code, sender, calm, call, step, job, count)
    check = zlib.crc32(body, zlib.crc32(HEADER.pack(*fields, 0)))
    return HEADER.pack(*fields, check) + body


def kind_of(content: bytes) -> Kind | None:
    """What kind of frame it says that it is, before it is read."""
    found = content[5] if len(content) >= HEADER.size else 0
    return Kind(found) if found in Kind._value2member_map_ else None


def unpack(content: bytes, most: int) -> Frame:
    """Read a frame with at most so many numbers; raises `BadFrame` and nothing else, whatever the
    bytes are."""
    if len(content) < HEADER.size:
        raise BadFrame(f"{len(content)} bytes are too few for a frame")
    magic, version, kind, code, sender, calm, call, step, job, count, check = HEADER.unpack_from(
        content
    )
    if magic != MAGIC:
        raise BadFrame("it is not a frame of decibo")
    if version != VERSION:
        raise BadFrame(
            f"it has format {version}, and this version of decibo reads format {VERSION}"
        )
    if kind not in Kind._value2member_map_ or (
        code not in TYPES if kind == Kind.DATA else code != 0
    ):
        raise BadFrame(f"there is no frame of kind {kind} with numbers of type {code}")
    words = JSON_LIMIT if kind == Kind.HELLO else ANSWER_LIMIT
    if count > (most if code else words) or step > STEPS:
        raise BadFrame(
            f"it is too large (step {step}, {count} {'numbers' if code else 'bytes of words'})"
        )
    body = memoryview(content)[HEADER.size :]
    if len(body) != count * (TYPES[code].itemsize if code else 1):
        raise BadFrame(f"{len(body)} bytes follow its header, which announces {count}")
    bare = content[: HEADER.size - 4] + bytes(4)
    if zlib.crc32(body, zlib.crc32(bare)) != check:
        raise BadFrame("its checksum is wrong")
    numbers = np.frombuffer(body, TYPES[code]) if code else NOTHING
    return Frame(Kind(kind), sender, step, call, job, numbers, {} if code else _words(body), calm)


def _words(body: memoryview) -> dict[str, object]:
    try:
        words = json.loads(bytes(body))
    except (ValueError, RecursionError) as error:
        raise BadFrame("its words are not JSON") from error
    if not isinstance(words, dict):
        raise BadFrame("its words are not a table")
    return words
