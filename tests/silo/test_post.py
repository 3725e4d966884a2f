"""Frames and Post, without JAX: whatever arrives, in whatever order, numbers are right or a line
says who is not."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decibo.errors import InputError, LostError
from decibo.silo.frame import HEADER, BadFrame, Kind, pack, unpack
from decibo.silo.mailbox import EndedError
from decibo.silo.wire import Faults, Memory
from helpers.frames import FRAMES
from helpers.sites import (
    ABC,
    JOB,
    PATH,
    Silent,
    greeted,
    in_threads,
    make_async_mailbox,
    make_mailbox,
)

pytestmark = pytest.mark.quick


@given(
    st.lists(st.floats(width=64, allow_nan=False), max_size=20),
    st.integers(0, 2**31),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=30)
def test_a_frame_comes_back_as_it_was(numbers, step, call):
    vector = np.array(numbers)
    frame = unpack(pack(Kind.DATA, JOB, 3, step, call, numbers=vector), 20)
    assert frame[:5] == (Kind.DATA, 3, step, call, JOB)
    np.testing.assert_array_equal(frame.numbers, vector)


@given(st.data())
@settings(max_examples=150)
def test_any_damage_to_a_frame_is_noticed(data):
    whole = bytearray(pack(Kind.DATA, JOB, 1, 5, 0, numbers=np.arange(4.0)))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(BadFrame):
        unpack(bytes(whole), 100)


@pytest.mark.parametrize("waits", [True, False], ids=["lockstep", "free"])
@given(arrivals=st.lists(st.tuples(st.sampled_from([*ABC, "?"]), FRAMES), max_size=30))
@settings(max_examples=40)
def test_whatever_arrives_raises_nothing_and_is_not_kept(waits, arrivals):
    lines = []
    mailbox = (
        make_mailbox(Silent(), "b", log=lines.append)
        if waits
        else make_async_mailbox(Silent(), "b", log=lines.append)
    )
    if not waits:
        mailbox.offer(np.zeros(3), busy=True)
    for peer, content in arrivals:
        mailbox.deliver(peer, content)
        mailbox.connected(peer)
    if waits:
        assert all(len(box) <= mailbox.room for box in mailbox._box.values())
    else:
        assert set(mailbox._newest) <= {"a", "c"}
        assert all(
            heard.numbers.shape == (3,) and np.isfinite(heard.numbers).all()
            for heard in mailbox._newest.values()
        )
    assert bool(mailbox.refused) == bool(lines)


def averaged(memory, me, steps=25):
    """Each site moves halfway to the mean of its neighbours, and returns every number it has
    had."""
    mailbox = make_mailbox(memory.wire(me), me)
    mailbox.start()
    value = np.array([float(ABC.index(me)), 1.0])
    seen = []
    for step in range(steps):
        for call in range(2):
            heard = mailbox.exchange(step, call, value)
            value = (value + sum(heard[peer] for peer in PATH[me]) / len(heard)) / 2
        seen.append(value)
    assert mailbox.finish()
    mailbox.close()
    return np.array(seen)


def test_loss_doubling_delay_and_disorder_change_no_bit():
    quiet = Memory()
    calm = in_threads(lambda me: averaged(quiet, me), ABC)
    rough = Memory(Faults(lose=0.15, double=0.2, delay=0.004, seed=1))
    result = in_threads(lambda me: averaged(rough, me), ABC)
    rough.end()
    for name in ABC:
        np.testing.assert_array_equal(result[name], calm[name])


def test_the_name_of_the_site_that_is_gone_reaches_all():
    """a - b - c - d, and d never comes: a has no link to it, but says its name."""
    memory = Memory()

    def run(me):
        mailbox = make_mailbox(memory.wire(me), me, patience=1.5, again=0.1)
        mailbox.start()
        for step in range(9):
            mailbox.exchange(step, 0, np.zeros(2))

    results = in_threads(run, ("a", "b", "c"))
    for name, error in results.items():
        assert isinstance(error, LostError), error
        assert f"{name} has waited 1.5 seconds for d in step" in str(error)


def test_a_neighbour_with_another_job_is_named_with_what_differs():
    memory = Memory()

    def run(me):
        job, steps = (JOB, "10") if me == "a" else (bytes(16), "20")
        mailbox = make_mailbox(
            memory.wire(me), me, peers=["b" if me == "a" else "a"], job=job, terms={"steps": steps}
        )
        mailbox.start()
        time.sleep(0.1)
        mailbox.exchange(0, 0, np.zeros(1))

    results = in_threads(run, ("a", "b"))
    assert isinstance(results["a"], InputError)
    assert "b runs another job (steps: 20 there, 10 here)" in str(results["a"])
    assert "a runs another job (steps: 10 there, 20 here)" in str(results["b"])


def test_what_others_say_cannot_control_a_terminal():
    lines = []
    mailbox = make_mailbox(Silent(), "b", log=lines.append)
    mailbox.deliver("a", pack(Kind.HELLO, bytes(16), 0, words={"steps": "\x1b[2J\n10"}))
    assert "steps: ?[2J?10 there, 10 here" in lines[0]
    mailbox = make_mailbox(Silent(), "b")
    mailbox.deliver("a", pack(Kind.BYE, JOB, 0, words={"status": "diverged", "why": "\x07bell"}))
    with pytest.raises(EndedError, match=r"^\?bell$"):
        mailbox.exchange(0, 0, np.zeros(1))


def test_frames_that_cannot_be_used_are_refused_with_the_name_of_the_sender():
    lines = []
    mailbox = greeted(make_mailbox(Silent(), "b", log=lines.append))
    good = pack(Kind.DATA, JOB, 0, 0, 0, numbers=np.ones(2))
    cases = [
        ("d", pack(Kind.DATA, JOB, 3, 0, 0, numbers=np.ones(2)), "from d: it is no neighbour"),
        ("c", good, "from c: it says that it is site 0"),
        (
            "a",
            pack(Kind.DATA, bytes(16), 0, 0, 0, numbers=np.ones(2)),
            "from a: it belongs to another job",
        ),
        ("a", good[:-1], "from a: 15 bytes follow its header"),
        ("a", pack(Kind.DATA, JOB, 0, 0, 0, numbers=np.ones(101)), "from a: it is too large"),
        (
            "a",
            pack(Kind.DATA, JOB, 0, 100, 0, numbers=np.ones(2)),
            "from a: it is at step 100, and this site at",
        ),
    ]
    for peer, content, words in cases:
        mailbox.deliver(peer, content)
        assert words in lines[-1]
    assert not any(mailbox._box.values())
    mailbox.deliver("a", good)
    # a replay: the first stays
    mailbox.deliver("a", pack(Kind.DATA, JOB, 0, 0, 0, numbers=np.zeros(2)))
    assert len(lines) == len(cases)
    np.testing.assert_array_equal(mailbox._box["a"][0, 0], np.ones(2))


def test_a_flood_makes_one_line_and_no_memory():
    lines = []
    mailbox = greeted(make_mailbox(Silent(), "b", log=lines.append))
    for k in range(2000):
        mailbox.deliver("a", b"x" * HEADER.size)
        mailbox.deliver("a", pack(Kind.DATA, JOB, 0, 0, k, numbers=np.ones(1)))
    assert len(mailbox._box["a"]) <= mailbox.room
    assert len(lines) < 10


def test_an_answer_repeats_what_was_said_and_tells_where_the_site_is():
    wire = Silent()
    mailbox = greeted(make_mailbox(wire, "a", keep=3))
    for step in range(6):
        mailbox.deliver("b", pack(Kind.DATA, JOB, 1, step, 0, numbers=np.zeros(1)))
        mailbox.exchange(step, 0, np.full(1, float(step)))
    wire.sent.clear()
    mailbox.deliver("b", pack(Kind.ASK, JOB, 1, 4, 0))
    data, here = [frame for _, frame in wire.sent[:2]], wire.sent[-1][1]
    assert [(frame.step, frame.numbers[0]) for frame in data] == [(4, 4.0), (5, 5.0)]
    assert (here.kind, here.step, here.words["first"]) == (Kind.HERE, 5, [3, 0])
    wire.sent.clear()
    mailbox.deliver("b", pack(Kind.ASK, JOB, 1, 4, 0))
    assert not wire.sent  # not again at once


def test_a_site_that_lost_its_state_ends_and_so_do_the_others():
    wire = Silent()
    mailbox = make_mailbox(wire, "a", patience=5.0)
    mailbox.connected("b")
    here = pack(Kind.HERE, JOB, 1, 50, 0, words={"waiting": ["a"], "first": [40, 0]})
    wire.send = lambda peer, content: (
        mailbox.deliver("b", here) if content[5] == Kind.ASK else wire.sent.append(content)
    )
    with pytest.raises(
        LostError, match="a is at step 0, but b keeps only its messages from step 40 on"
    ):
        mailbox.exchange(0, 0, np.zeros(1))
    assert wire.sent[-1][5] == Kind.BYE
    other = make_mailbox(Silent(), "b")
    other.deliver("a", wire.sent[-1])
    with pytest.raises(EndedError, match="a has lost its state"):
        other.exchange(50, 0, np.zeros(1))


def test_that_nobody_needs_a_site_is_noted_before_all_know_it():
    noted = []
    mailbox = make_mailbox(Silent(), "a")
    words = {"status": "done", "why": "", "received": False, "waiting": []}
    mailbox.deliver("b", pack(Kind.BYE, JOB, 1, 9, 0, words=words))

    def note():
        noted.append(time.monotonic())

    assert mailbox.finish(note)
    assert len(noted) == 1
    assert time.monotonic() - noted[0] >= mailbox.again  # b had not acknowledged it


def test_what_was_said_survives_a_checkpoint():
    mailbox = greeted(make_mailbox(Silent(), "a"))
    for step in range(3):
        mailbox.deliver("b", pack(Kind.DATA, JOB, 1, step, 0, numbers=np.zeros(step + 1)))
        mailbox.exchange(step, 0, np.arange(step + 1.0))
    again = make_mailbox(Silent(), "a")
    again.restore((3, 0), mailbox.saved())
    assert list(again.sent) == list(mailbox.sent)
    for position, vector in mailbox.sent.items():
        np.testing.assert_array_equal(again.sent[position], vector)
