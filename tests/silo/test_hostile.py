"""A member of a job that sends what it should not: who is blamed, and what it costs the others."""

import time

import numpy as np
import pytest

import decibo
from decibo.errors import InputError, LostError
from decibo.silo.collectives import Collectives
from decibo.silo.frame import Kind, pack
from decibo.silo.lockstep import Exchanger
from decibo.silo.mailbox import EndedError
from decibo.silo.wire import Memory
from helpers.sites import (
    ABC,
    JOB,
    Changing,
    Silent,
    greeted,
    in_threads,
    make_async_mailbox,
    make_mailbox,
)
from helpers.variants import daily


class Deaf:
    """A receiver of nothing."""

    longest = 0

    def deliver(self, peer, content):
        pass

    def connected(self, peer):
        pass


RING = {"a": ["b", "d"], "b": ["a", "c"], "c": ["b", "d"], "d": ["c", "a"]}


def data(change):
    """DATA of step 2 on is changed: change(frame) -> a frame's bytes, or None for nothing."""

    def changed(peer, frame, content):
        if frame.kind is not Kind.DATA or frame.step < 2:
            return [content]
        new = change(frame)
        return [] if new is None else [new]

    return changed


def packed(frame, *, job=JOB, shift=0, numbers=None):
    new = frame.numbers if numbers is None else numbers
    return pack(Kind.DATA, job, frame.sender, frame.step + shift, frame.call, numbers=new)


def excuse(named, behind, first=0):
    """No data from step 2 on; and whoever asks is told that this site waits for somebody else."""

    def changed(peer, frame, content):
        if frame.kind is Kind.DATA and frame.step >= 2:
            return []
        if frame.kind is Kind.HERE:
            words = {"waiting": [named], "first": [first if frame.step >= 2 else 0, 0]}
            step = max(0, frame.step - behind)
            return [pack(Kind.HERE, JOB, frame.sender, step, 0, words=words)]
        return [content]

    return changed


# what d sends -> why b and the others of its neighbours name it
LIES = {
    "size": (data(lambda f: packed(f, numbers=np.zeros(5))), "5 numbers of type float64 where 2"),
    "type": (data(lambda f: packed(f, numbers=f.numbers.astype(np.float32))), "of type float32"),
    "step": (data(lambda f: packed(f, shift=1000)), "it is at step 100"),
    "job": (data(lambda f: packed(f, job=bytes(16))), "it belongs to another job"),
    "damage": (data(lambda f: packed(f)[:-1] + b"x"), "its checksum is wrong"),
    "silence": (data(lambda f: None), "it answers without the message that is due"),
    "an excuse": (excuse("b", 0), "it answers without the message that is due"),
    "a better one": (excuse("b", 2), "it says that it waits for b, whose message is here"),
    "amnesia of others": (excuse("b", 0, 99), "it says that it has discarded the message"),
}


@pytest.mark.parametrize(
    "lie", daily(LIES, "size", "an excuse", "a better one", "amnesia of others")
)
def test_who_sends_what_nobody_can_use_is_named_by_all_and_nobody_else_is(lie):
    change, reason = LIES[lie]
    memory = Memory()

    def site(me):
        wire = memory.wire(me)
        own = Changing(wire, change) if me == "d" else wire
        # the liar gives up last, with words that are no answer
        mailbox = make_mailbox(own, me, peers=RING[me], patience=3.0 if me == "d" else 1.0)
        mailbox.start()
        for step in range(6):
            mailbox.exchange(step, 0, np.zeros(2))

    found = in_threads(site, ABC)
    for name in "abc":
        assert isinstance(found[name], LostError)
        assert f"{name} has waited 1 seconds for d in step" in str(found[name])
    assert reason in str(found["a"])


def test_numbers_of_a_site_whose_job_is_not_known_are_not_used_and_it_is_asked():
    wire = Silent()
    mailbox = make_mailbox(wire, "b")
    number = pack(Kind.DATA, JOB, 0, 1, 0, numbers=np.zeros(2))
    mailbox.deliver("a", number)
    assert not mailbox._box["a"]
    assert [(peer, frame.words) for peer, frame in wire.sent] == [("a", {"who": True})]
    mailbox.deliver("a", pack(Kind.HELLO, JOB, 0, words={"steps": "10"}))
    mailbox.deliver("a", number)
    assert list(mailbox._box["a"]) == [(1, 0)]


def test_a_flood_of_descriptions_is_read_once_in_each_connection():
    lines = []
    mailbox = make_mailbox(Silent(), "b", log=lines.append)
    words = {f"{i:x}": "0" * 3 for i in range(4500)}
    hellos = [
        pack(Kind.HELLO, bytes(16), 0, words=words | {"n": str(n)}, call=n) for n in range(400)
    ]
    began = time.monotonic()
    used = time.process_time()
    for content in hellos:
        mailbox.deliver("a", content)
    spent = time.process_time() - used
    assert "it runs another job (its description has 4501 parts)" in lines[0]
    assert max(map(len, lines)) < 600
    assert len(lines) < 2 + 6 * (1 + time.monotonic() - began)  # a few in a second, and not 400
    assert mailbox._unread == {"c"}
    mailbox.connected("a")
    mailbox.deliver("a", pack(Kind.HELLO, JOB, 0, words={"steps": "10"}))
    assert mailbox.greeted["a"] == ""
    # reading all of them would take a second and more, 10 ms for each
    assert spent < 0.5


def test_at_most_five_differences_are_put_into_words():
    lines = []
    mailbox = make_mailbox(Silent(), "b", log=lines.append)
    mailbox.deliver("a", pack(Kind.HELLO, bytes(16), 0, words={f"k{i}": "v" for i in range(50)}))
    assert lines[0].count(" there, ") == 5
    assert "and 46 more)" in lines[0]


def test_words_beyond_a_few_hundred_in_a_second_are_not_read():
    mailbox = greeted(make_mailbox(Silent(), "b"))
    here = pack(Kind.HERE, JOB, 0, 1, 0, words={"waiting": ["c"], "first": [0, 0]})
    for _ in range(2000):
        mailbox.deliver("a", here)
    assert 1400 < mailbox.refused < 2000
    mailbox.deliver("c", pack(Kind.HERE, JOB, 2, 1, 0, words={"waiting": ["d"], "first": [0, 0]}))
    assert mailbox._statuses["c"].waiting == ("d",)


def test_one_frame_of_a_neighbour_does_not_shut_a_site_out_at_another_one():
    """West says that it knows north by an order close to the largest. Then north starts again,
    from nothing."""
    memory = Memory()

    def site(me):
        mailbox = greeted(make_async_mailbox(memory.wire(me), me, peers=RING[me], again=0.02))
        mailbox.offer(np.zeros(2), busy=True)
        mailbox.start()
        return mailbox

    b, c = site("b"), site("c")
    try:
        a = memory.wire("a")
        a.start(Deaf())
        for _ in range(3):
            time.sleep(0.03)
            a.send("b", pack(Kind.HERE, JOB, 0, words={"newest": [(1 << 32) - 3, 0]}))
        b.offer(np.ones(2), busy=True)
        known = c._newest["b"].order
        assert known[0] == 0
        b.close()
        b = site("b")
        until = time.monotonic() + 20
        while not (c._newest["b"].numbers == 7).all():
            b.offer(np.full(2, 7.0), busy=True)
            time.sleep(0.02)
            assert time.monotonic() < until
    finally:
        b.close()
        c.close()


# Before the first step of a fit

SHARED = {"columns": {"age": ""}, "labels": ["no", "yes"]}


def letters(text, row):
    """The words in a row of the table that all sites merge are these."""

    def changed(vector):
        table = vector.reshape(3, -1).copy()
        code = np.frombuffer(text.encode(), np.uint8)[: table.shape[1]]
        table[row, : len(code)] = code
        table[row, len(code) :] = -1
        return table.ravel()

    return changed


# in which exchange c sends what in place of its own -> what a and b say of it
BEFORE = {
    "infinity": (0, lambda vector: vector * np.inf, "c has sent numbers that are not finite"),
    "nan": (0, lambda vector: vector * np.nan, "c has sent numbers that are not finite"),
    "all memory": (0, lambda vector: vector * 2e7, "c sends numbers that no site"),
    "another's words": (1, letters("{}", 0), "c has changed what a shares with all sites"),
    "no letters": (1, lambda vector: vector + 0.0 + 1000, "c sends numbers that no site"),
    "nested": (1, letters("[" * 200, 2), "What c shares before the job cannot be used"),
    "a list": (1, letters("[]", 2), "What c shares before the job cannot be used"),
    "no table": (1, letters('{"columns":1,"labels":[]}', 2), "What c shares before the job"),
    "a sum of nan": (2, lambda vector: vector * np.nan, "c has sent numbers that are not finite"),
}


@pytest.mark.parametrize("lie", daily(BEFORE, "nan", "all memory", "another's words", "a list"))
def test_who_spoils_what_sites_agree_on_before_a_fit_is_named(lie):
    at, change, reason = BEFORE[lie]
    memory = Memory()
    names = list(ABC[:3])

    def site(me):
        peers = [name for name in names if name != me]
        mailbox = make_mailbox(memory.wire(me), me, peers=peers, calls=9, patience=2.0)
        exchanger = Exchanger(mailbox).of(0)
        mailbox.start()

        def exchange(vector):
            lies = me == "c" and exchanger.call == at
            mailbox.most = 1 << 22
            if lies:  # past the check of an honest site
                exchanger.call += 1
                received = mailbox.exchange(0, at, change(vector))
                return np.stack([vector, *(received[peer] for peer in peers)])
            return exchanger(vector)

        sites = Collectives(exchange, decibo.complete(3), names, names.index(me))
        sites.share(SHARED)
        sites.total([1.0])

    found = in_threads(site, names)
    for name in "ab":
        assert isinstance(found[name], EndedError | InputError), found[name]
        assert reason in str(found[name])
