"""Masks and secure sums between owners: from secrets of single links, cancelling exactly, the same
after a crash."""

import dataclasses
import shutil
import threading

import jax
import numpy as np
import pytest

import decibo
from decibo.errors import CorruptedFileError, InputError, LostError
from decibo.silo import join
from decibo.silo.frame import Kind, pack, unpack
from decibo.silo.secret import draw, link_secret, masks_of_site, own_shares
from decibo.silo.site_run import prepare
from decibo.silo.wire import Faults, Memory
from helpers.sites import NAMES, Killed, Mortal, Silent, in_threads, make_job, make_mailbox, run_all

FIXED = decibo.ahead_exact(alpha=0.05, gamma=0.1)
SCALE = 300.0
MASKED = decibo.privacy.masked(FIXED, SCALE)


@pytest.fixture(scope="module")
def four():
    return decibo.problems.quadratic(agents=4)


class Tapped(Memory):
    """Keeps what travels."""

    def __init__(self, faults=None):
        super().__init__(faults)
        self.frames = []

    def send(self, sender, peer, content):
        self.frames.append((sender, peer, unpack(content, 1000)))
        super().send(sender, peer, content)


@pytest.fixture(scope="module")
def masked_run(four, tmp_path_factory):
    folder = tmp_path_factory.mktemp("masked")
    memory = Tapped()
    job = make_job(four, MASKED, steps=25)
    return job, folder, memory, run_all(job, folder, memory)


def masks_in(results):
    """variable -> the mask of each site, from its own state."""
    rows = [results[name].state.mask for name in NAMES]
    return {name: np.stack([np.asarray(row[name][0]) for row in rows]) for name in rows[0]}


def test_masks_cancel_over_the_network_and_are_new_in_every_run(four, masked_run, tmp_path):
    masks = masks_in(masked_run[3])
    again = masks_in(run_all(make_job(four, MASKED, steps=1), tmp_path, Memory()))
    for name, rows in masks.items():
        assert 0.2 * SCALE < np.abs(rows).mean() < 5 * SCALE
        np.testing.assert_allclose(rows.sum(axis=0), 0, atol=1e-12 * SCALE)
        assert not np.allclose(rows, again[name])  # though job and seed are the same
    assert not np.allclose(masks["y"], masks["z"])


def test_sites_with_masks_compute_what_the_simulation_does_with_these(
    four, masked_run, monkeypatch
):
    """From which follows where they end: test_privacy.py has the limit, with masks of any
    origin."""
    job, _, _, results = masked_run
    rows = {f"mask of {name}": jax.numpy.asarray(each) for name, each in masks_in(results).items()}
    monkeypatch.setattr("decibo.run.solve.masks_of", lambda *_: rows)
    simulated = decibo.solve(four, job.network, MASKED, steps=25, measures=[])
    own = np.stack([np.asarray(results[name].x) for name in NAMES])
    np.testing.assert_allclose(own, simulated.agents.x, atol=1e-12 * SCALE)


def test_what_a_neighbour_hears_first_is_noise_and_a_share_is_said_to_one_neighbour(
    four, masked_run
):
    """The first message is s - h d, with s = 0: without masks it is the direction, with them
    something else."""
    job, _, memory, results = masked_run
    shares = {}
    for sender, peer, frame in memory.frames:
        if frame.kind is Kind.SHARE:
            shares.setdefault((sender, peer), set()).add(frame.words["share"])
    # a share of its own for each end of each link
    assert len(shares) == len(set().union(*shares.values())) == 8
    plain = decibo.privacy.messages(four, job.network, FIXED, steps=1)[0][0]
    first = {
        sender: frame.numbers
        for sender, _, frame in memory.frames
        if frame.kind is Kind.DATA and frame.step == 1
    }
    masks = masks_in(results)
    for i, name in enumerate(NAMES):
        heard = -first[name][3:7] / 0.1
        direction = -np.asarray(plain["y"][i]) / 0.1
        assert np.abs(heard - direction).max() > 20 * np.abs(direction).max()
        np.testing.assert_allclose(heard - masks["y"][i], direction, atol=1e-12 * SCALE)


def test_shares_are_kept_for_the_user_alone_and_make_the_same_masks_again(four, tmp_path):
    """Every site ends before its first step and starts again, on a wire that loses frames."""
    memory = Memory(Faults(lose=0.1, delay=0.001, seed=2))
    job = make_job(four, MASKED, steps=12)
    alone = make_job(four, MASKED, steps=12, patience=1e-4)  # shares are drawn, but nobody is there
    start = lambda name: join(
        alone, site=name, data=None, folder=tmp_path / name, wire=Memory().wire(name)
    )
    assert all(isinstance(error, LostError) for error in in_threads(start).values())
    files = [tmp_path / name / "links.json" for name in NAMES]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    texts = [file.read_text() for file in files]
    results = run_all(job, tmp_path, memory)
    memory.end()
    peers = {
        "north": ("east", "west"),
        "south": ("east", "west"),
        "east": ("north", "south"),
        "west": ("north", "south"),
    }
    data = lambda name: [
        np.asarray(leaf) for leaf in jax.tree.leaves(prepare(job, name, None).rows)
    ]
    own = lambda name: own_shares(tmp_path / name, peers[name], data(name), new=False)
    assert all(
        text[: text.index("theirs")] in file.read_text()
        for text, file in zip(texts, files, strict=True)
    )
    for number, name in enumerate(NAMES):
        mine, theirs = own(name)
        pair = lambda peer, mine=mine, theirs=theirs: (mine[peer], theirs[peer])
        secret_of = {}
        for peer in mine:
            other = NAMES.index(peer)
            secret_of[other] = link_secret(
                job.digest, *(pair(peer) if number < other else reversed(pair(peer)))
            )
        like = {"x": jax.numpy.asarray(four.x0), "y": jax.numpy.asarray(four.y0)}
        expected = masks_of_site(MASKED.masks, like, number, secret_of)
        for variable, row in results[name].state.mask.items():
            np.testing.assert_array_equal(row[0], expected[f"mask of {variable}"])
    files[0].write_text('{"own": {"east": "00"}, "theirs": {}}')
    with pytest.raises(CorruptedFileError, match="does not hold the shares of this run's links"):
        own("north")
    files[1].unlink()
    # new ones would not do
    with pytest.raises(CorruptedFileError, match="does not hold the shares"):
        own("east")


@pytest.mark.parametrize("secure", [False, True], ids=["masks", "sums"])
def test_a_run_that_has_begun_refuses_other_data_even_before_its_first_checkpoint(
    four, tmp_path, secure
):
    """With the same secrets, the difference of two messages would be that of what they hide."""
    options = {"network": COMPLETE, "secure_sums": True} if secure else {}
    job = make_job(four, FIXED if secure else MASKED, patience=1e-3, **options)
    own = jax.tree.map(lambda leaf: np.asarray(leaf[0]), prepare(job, "north", None).rows)
    other = jax.tree.map(lambda leaf: leaf + 1e-12, own)

    start = lambda data, wire: join(job, site="north", data=data, folder=tmp_path, wire=wire)
    for _ in range(2):
        with pytest.raises(LostError):  # nobody else is there
            start(own, Silent())
        wire = Silent()
        with pytest.raises(
            InputError, match="began with other data, and its neighbours could subtract"
        ):
            start(other, wire)
        assert not wire.sent


def test_numbers_drawn_from_a_secret():
    r = draw(b"a secret", "y", 40_000)
    moments = [r.mean(), r.std(), (r**4).mean()]
    np.testing.assert_allclose(moments, [0, 1, 2.9], atol=0.1)  # nearly normal
    for other in (
        draw(b"a secret", "z", 40_000),
        draw(b"b secret", "y", 40_000),
        np.roll(r, 16384),
    ):
        assert abs(np.corrcoef(r, other)[0, 1]) < 0.03
    assert draw(b"a secret", "y", 0).shape == (0,)


def test_a_neighbour_with_another_share_than_before_has_lost_it():
    memory = Memory()
    mailboxes = [
        make_mailbox(memory.wire(name), name, peers=[peer])
        for name, peer in (("a", "b"), ("b", "a"))
    ]
    for mailbox in mailboxes:
        mailbox.start()
    first = in_threads(
        lambda mailbox: mailbox.share({mailbox.peers[0]: mailbox.me.encode() * 32}, {}), mailboxes
    )
    assert [first[mailbox] for mailbox in mailboxes] == [{"b": b"b" * 32}, {"a": b"a" * 32}]
    forgetful = make_mailbox(memory.wire("b"), "b", peers=["a"])
    forgetful.start()
    in_threads(lambda mailbox: mailbox.share({"a": b"c" * 32}, {}), [forgetful])
    with pytest.raises(LostError, match="b has lost its share of the secret of its link with a"):
        mailboxes[0].exchange(1, 0, np.zeros(1))


# Secure sums

COMPLETE = decibo.complete(4)


@pytest.fixture(scope="module")
def summed_run(four, tmp_path_factory):
    memory = Tapped()
    folder = tmp_path_factory.mktemp("sums")
    job = make_job(four, FIXED, network=COMPLETE, secure_sums=True, steps=25)
    return job, memory, run_all(job, folder, memory), folder


def test_sums_are_what_the_simulation_sums_and_single_messages_are_noise(four, summed_run):
    _, memory, results, _ = summed_run
    simulated = decibo.solve(four, COMPLETE, FIXED, steps=25, measures=[])
    own = np.stack([np.asarray(results[name].x) for name in NAMES])
    np.testing.assert_allclose(own, simulated.agents.x, atol=1e-11)
    plain = decibo.privacy.messages(four, COMPLETE, FIXED, steps=1)[0][0]
    rows = np.concatenate([plain[name] for name in ("x", "y", "z")], axis=1)
    heard = {}
    for sender, peer, frame in memory.frames:
        if frame.kind is Kind.DATA and frame.step == 1:
            heard[peer, sender] = frame.numbers
            assert (frame.numbers.dtype, frame.numbers.size) == (np.uint64, 11)
    read = lambda numbers: numbers.view(np.int64) * 2.0**-44 * 4  # every weight is 1/4
    for i, name in enumerate(NAMES):
        others = [j for j in range(4) if j != i]
        total = sum(heard[name, NAMES[j]] for j in others)
        np.testing.assert_allclose(read(total), rows[others].sum(axis=0), atol=1e-12)
        for j in others:
            assert np.median(np.abs(read(heard[name, NAMES[j]]) - rows[j])) > 1e4  # of up to 2^21


def test_sums_have_the_same_bits_with_other_secrets_and_after_crashes(summed_run, tmp_path):
    job, _, calm, _ = summed_run
    memory = Memory(Faults(lose=0.05, delay=0.001, seed=3))

    def stubborn(name):
        threading.current_thread().name = f"site {name}"
        for life in (20 + 9 * NAMES.index(name), 10**9):
            try:
                wire = Mortal(memory.wire(name), life)
                return join(job, site=name, data=None, folder=tmp_path / name, wire=wire)
            except Killed:
                continue
        raise AssertionError

    results = in_threads(stubborn)
    memory.end()
    for name in NAMES:
        for leaf, same in zip(
            jax.tree.leaves(results[name].state), jax.tree.leaves(calm[name].state), strict=True
        ):
            np.testing.assert_array_equal(leaf, same)


class Impatient(Silent):
    """A neighbour asks as soon as it can."""

    def start(self, receiver):
        receiver.deliver("east", pack(Kind.ASK, receiver.job, 1, 20, 0))


def test_a_site_that_starts_again_repeats_nothing_in_the_clear(four, summed_run, tmp_path):
    folder = shutil.copytree(summed_run[3] / "north", tmp_path / "north")
    (folder / "finished").unlink()
    job = make_job(four, FIXED, network=COMPLETE, secure_sums=True, steps=25, patience=1e-3)
    wire = Impatient()
    join(job, site="north", data=None, folder=folder, wire=wire)
    said = [frame for peer, frame in wire.sent if frame.kind is Kind.DATA]
    assert [frame.step for frame in said] == list(range(20, 26))
    assert {frame.numbers.dtype.name for frame in said} == {"uint64"}


def test_where_there_can_be_no_secure_sums(four):
    free = {"mode": "free", "method": decibo.methods.ahead_free(alpha=0.05, gamma=0.1)}
    for words, options in {
        "The neighbours of north, east and west, have no links among them": {
            "network": decibo.ring(4)
        },
        "north has 1 neighbours": {"network": decibo.networks.path(4)},
        "A secure sum needs all agents in lockstep": free,
        "which a secure sum does not offer. Pass alpha and gamma": {"method": decibo.ahead_exact()},
        "A secure sum needs": {"network": decibo.networks.failing(COMPLETE, 0.1)},
    }.items():
        with pytest.raises(InputError, match=words):
            make_job(four, **{"method": FIXED, "network": COMPLETE, "secure_sums": True} | options)


def test_numbers_too_large_for_secure_sums_end_the_run(four, tmp_path):
    far = dataclasses.replace(four, x0=np.full(3, 1e6))
    job = make_job(far, FIXED, network=COMPLETE, secure_sums=True)
    memory = Memory()
    results = in_threads(
        lambda name: join(job, site=name, data=None, folder=tmp_path / name, wire=memory.wire(name))
    )
    for result in results.values():  # some may not have begun when the first one ends
        words = str(result) if isinstance(result, LostError) else result.message
        assert "exceed 131,072, the limit of secure sums, in step 1." in words
