"""Numbers that hide a message hide one message, ever: over kills, lies and restarts."""

import threading
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import decibo
from decibo.errors import CorruptedFileError, LostError
from decibo.silo.frame import Kind, pack, unpack
from decibo.silo.mailbox import EndedError
from decibo.silo.secret import MessageRecord, stream
from decibo.silo.secure_sum import NeighbourSums, SecureSums
from decibo.silo.wire import Memory
from helpers.sites import ABC, JOB, Killed, in_threads, make_mailbox

NETWORK = decibo.complete(4)
STEPS = 8
EVERY = 3  # steps between two checkpoints
PEERS = {me: [other for other in ABC if other != me] for me in ABC}


class Spied:
    """A wire that notes all that leaves, and whose site may be killed or lie.

    life    sends after which the site is killed; of frames of this kind, or of all
    lies    step -> what is added to the message of this step, to one neighbour
    """

    def __init__(self, wire, seen, life, lies, kind):
        self.wire = wire
        self.seen = seen
        self.life = life
        self.lies = lies
        self.kind = kind

    def start(self, receiver):
        self.wire.start(receiver)

    def send(self, peer, content):
        frame = unpack(content, 1000)
        own = threading.current_thread().name == f"site {self.wire.name}"
        if own and self.kind in (None, frame.kind):
            self.life -= 1
            if self.life < 0:
                self.wire.close()
                raise Killed
        if frame.kind is Kind.DATA:
            shift = self.lies.get((frame.step, peer))
            if shift:
                numbers = frame.numbers + np.uint64(shift)
                content = pack(
                    Kind.DATA, JOB, frame.sender, frame.step, frame.call, numbers=numbers
                )
            pad = (self.wire.name, peer, frame.step, frame.call)
            self.seen.setdefault(pad, set()).add(sha256(content).digest())
        self.wire.send(peer, content)

    def close(self):
        self.wire.close()


def one_life(me, folder, wire, stored, total):
    """A site of a computation with secure sums, from its checkpoint to the end: towards one
    neighbour each, or read by all (`total`)."""
    number = ABC.index(me)
    mailbox = make_mailbox(wire, me, peers=PEERS[me], keep=2 * EVERY + 4, patience=6.0)
    step, value, sent = stored.get(me, (0, np.array([number + 0.5, -number]), None))
    if sent is not None:
        mailbox.restore((step, 0), sent)
    try:
        secrets = mailbox.agreed_secrets(folder, [value[:0]], new=sent is None)
        at = [0, 0]
        sums = NeighbourSums(NETWORK, number, secrets)
        everybody = SecureSums(number, secrets, lambda: tuple(at))
        if not total:
            mailbox.hide = lambda peer, at, vector: sums.hidden(ABC.index(peer), *at, vector)
        mailbox.start()
        while step < STEPS:
            at[0] = step
            if total:
                own = everybody.hidden(value)
                rows = mailbox.exchange(step, 0, own)
                moved = everybody.opened(np.stack([own, *rows.values()])) / 4 - value
            else:
                rows = mailbox.exchange(step, 0, value)
                moved = sums.differing(value, {ABC.index(peer): row for peer, row in rows.items()})
            value = value + 0.7 * moved + 0.01 * np.tanh(value)
            step += 1
            if step % EVERY == 0 or step == STEPS:
                stored[me] = (step, value, mailbox.saved())
        mailbox.finish()
        return value
    finally:
        mailbox.close()


def all_lives(tmp_path, lives, lies, total, kind=None):
    """What each site ends with, and all that has left: (sender, receiver, step, call) -> hashes.

    lives   name -> the sends after which the site is killed, life by life
    lies    life -> the lies of d in it
    """
    memory = Memory()
    seen = {}
    stored = {}
    fell = threading.Event()  # d, for the first time
    if not lives.get("d"):
        fell.set()

    def site(me):
        threading.current_thread().name = f"site {me}"
        folder = tmp_path / me
        folder.mkdir()
        for number, life in enumerate([*lives.get(me, ()), 10**9]):
            if number and me != "d":
                fell.wait(1)
            own = lies.get(number, {}) if me == "d" else {}
            wire = Spied(memory.wire(me), seen, life, own, kind)
            try:
                return one_life(me, folder, wire, stored, total)
            except Killed:
                if me == "d":
                    fell.set()
        raise AssertionError

    return in_threads(site, ABC), seen


LIES = st.dictionaries(
    st.tuples(st.integers(0, STEPS - 1), st.sampled_from("abc")), st.integers(1, 2**50), max_size=2
)


@st.composite
def attacks(draw):
    """Kills and lies at random; and one that matters: d, killed as its victim is, says something
    else to it in a step that the victim has to make again."""
    lives = draw(st.dictionaries(st.sampled_from("abcd"), st.lists(st.integers(1, 20), max_size=2)))
    lies = draw(st.dictionaries(st.integers(0, 2), LIES, max_size=3))
    victim = draw(st.sampled_from("abc"))
    step = draw(st.sampled_from([s for s in range(STEPS) if s % EVERY]))
    lives |= {name: [3 * step + draw(st.integers(1, 2))] for name in (victim, "d")}
    again = draw(st.integers(step - step % EVERY, step - 1))
    lies[1] = {(again, victim): draw(st.integers(1, 2**50))}
    return lives, lies


@pytest.fixture(scope="module", params=[False, True], ids=["neighbours", "all"])
def calm(request, tmp_path_factory):
    """Whether all read the sums, and what the sites end with if nothing happens."""
    results, seen = all_lives(tmp_path_factory.mktemp("calm"), {}, {}, request.param)
    assert all(isinstance(value, np.ndarray) for value in results.values())
    return request.param, results, seen


@given(attack=attacks(), kind=st.sampled_from([None, Kind.DATA, Kind.DATA]), honest=st.booleans())
@settings(max_examples=12, phases=[Phase.generate])  # smaller cases take as long
def test_no_pad_hides_two_messages(tmp_path_factory, calm, attack, kind, honest):
    lives, lies = attack
    lies = {} if honest else lies
    total, undisturbed, _ = calm
    results, seen = all_lives(tmp_path_factory.mktemp("sites"), lives, lies, total, kind)
    for (sender, *_), hashes in seen.items():
        assert len(hashes) == 1 or sender == "d"
    assert set(map(type, results.values())) <= {np.ndarray, LostError, EndedError}
    if not any(lies.values()):
        for name in ABC:  # the same bits, after any kills
            np.testing.assert_array_equal(results[name], undisturbed[name])


def test_who_says_something_else_after_a_restart_is_named_and_nothing_more_is_sent(tmp_path, calm):
    """a is killed in step 2, before its first checkpoint; d, too, and then says something else in
    step 1."""
    total, _, before = calm
    lives = {"a": [7], "d": [7]}
    lies = {1: {(1, "a"): 1 << 40}}
    results, seen = all_lives(tmp_path, lives, lies, total, kind=Kind.DATA)
    assert isinstance(results["a"], LostError)
    assert "d sends something else in step 1 than before a was started again" in str(results["a"])
    assert all(len(hashes) == 1 for (sender, *_), hashes in seen.items() if sender != "d")
    assert before.keys() > seen.keys()


def test_a_record_is_read_again_and_half_an_entry_is_none(tmp_path):
    record = lambda new=False: MessageRecord(tmp_path, ABC, "a", new=new)
    first = record(new=True)
    first.sending((0, 0), np.arange(3.0))
    first.received((0, 0), {"b": np.ones(2), "c": np.zeros(2)})
    first.sending((0, 1), np.ones(1))
    path = tmp_path / "sent.log"
    assert (path.stat().st_mode & 0o777, path.stat().st_size) == (0o600, 4 * 52)
    path.write_bytes(path.read_bytes() + bytes(30))
    again = record()
    again.sending((0, 0), np.arange(3.0))
    with pytest.raises(LostError, match="c sends something else in step 0"):
        again.received((0, 0), {"b": np.ones(2), "c": np.full(2, 1e-300)})
    with pytest.raises(LostError, match="a would send something else in step 0"):
        again.sending((0, 1), np.zeros(1))
    content = bytearray(path.read_bytes())
    assert len(content) == 4 * 52
    content[60] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptedFileError, match="is damaged"):
        record()


def test_keys_are_those_of_the_standard():
    """RFC 5869, test case 1: the first 32 bytes of its output."""
    import hmac

    secret = hmac.digest(bytes(range(13)), b"\x0b" * 22, sha256)
    assert secret.hex().startswith("077709362c2e32df0ddc3f0dc47bba63")
    info = bytes(range(0xF0, 0xFA))
    assert (
        hmac.digest(secret, info + b"\x01", sha256).hex().startswith("3cb25f25faacd57a90434f64d0")
    )
    assert stream(secret, b"sum", b"here", 40)[:8] == stream(secret, b"sum", b"here", 8)
    assert stream(secret, b"sum", b"here", 40) != stream(secret, b"mask", b"here", 40)
