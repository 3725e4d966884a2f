"""Sites that do not wait: what the simulation does with the same messages, who is left out, how a
run ends."""

import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import decibo
from decibo import consensus, direction, networks
from decibo.errors import InputError
from decibo.silo import join
from decibo.silo.async_mailbox import AsyncMailbox
from decibo.silo.asynchronous import AsyncSite, AsyncStepper
from decibo.silo.frame import Kind, pack, unpack
from decibo.silo.site_run import prepare
from decibo.silo.wire import Faults, Memory
from helpers.sites import (
    ABC,
    NAMES,
    Changing,
    Killed,
    Mortal,
    Silent,
    greeted,
    in_threads,
    make_async_mailbox,
    make_job,
)

ROBUST = decibo.compose(direction.single(), consensus.robust_tracking(), x=0.2, y=0.2)
CURVATURES = np.linspace(0.5, 2.0, 4)
TARGETS = np.arange(8.0).reshape(4, 2)


def outer(x, y, d):
    return d["L"] * jnp.sum((x - d["b"]) ** 2) / 2


def inner(x, y, d):
    return jnp.sum(y**2) / 2


@pytest.fixture(scope="module")
def four():
    return decibo.Problem(outer, inner, {"L": CURVATURES, "b": TARGETS}, np.zeros(2), np.zeros(1))


def minimiser(*agents):
    """Of the mean of (L_i/2) |x - b_i|^2 over these agents."""
    chosen = list(agents)
    return CURVATURES[chosen] @ TARGETS[chosen] / CURVATURES[chosen].sum()


def async_job(problem, method=ROBUST, **options):
    return make_job(
        problem,
        method,
        **{"mode": "free", "steps": 3000, "rest": 1e-11, "patience": 20.0} | options,
    )


# The same messages in the same order


class Clock:
    """Tells the tick."""

    now = 0

    def __call__(self):
        return float(self.now)


class Overheard(Silent):
    """Keeps the newest frame with numbers, as bytes."""

    def send(self, peer, content):
        if unpack(content, 100).kind is Kind.DATA:
            self.newest = content


def conducted(job, network, ticks, seed):
    """Every site's x: real sites and real frames, of which those arrive that the simulation draws,
    and then."""
    clock = Clock()
    mixing = network.mixing()
    neighbours = np.asarray(mixing.neighbours)

    def drawn(k):
        key = jax.random.split(jax.random.fold_in(jax.random.key(seed), k))[0]
        mailbox = lambda i: mixing.arrivals(i, k, jax.random.fold_in(key, 0))
        return jax.vmap(mailbox)(jnp.arange(4)), jax.vmap(lambda i: mixing.awake(i, k))(
            jnp.arange(4)
        )

    (arrives, made), awake = jax.tree.map(np.asarray, jax.jit(jax.vmap(drawn))(jnp.arange(ticks)))
    movers = []
    for name in job.names:
        run = prepare(job, name, None)
        mailbox = greeted(run.mailbox(Overheard()))
        mailbox.clock = clock
        movers.append(AsyncSite(run, mailbox, run.agent.begin(run.first, None)))
        movers[-1].publish()
    said = []
    for k in range(ticks):
        clock.now = k
        said.append([mover.mailbox.wire.newest for mover in movers])
        for i, slot in np.argwhere(arrives[k]):
            j = neighbours[slot, i]
            movers[i].mailbox.deliver(job.names[j], said[made[k, i, slot]][j])
        for mover, ends in zip(movers, awake[k], strict=True):
            if job.pace is not None:
                mover.relay(mover.direction() if ends else None)
                mover.publish()
            elif ends:
                mover.step()
                mover.publish()
    assert {mover.mailbox.refused for mover in movers} == {0}
    return np.stack([np.asarray(mover.state.variables.x) for mover in movers])


@pytest.mark.parametrize(
    "hardship",
    [{"delay": 3, "loss": 0.3}, {"loss": 0.6, "patience": 1, "relay": True}],
    ids=["late and lost", "relaying, and left out at times"],
)
def test_sites_compute_what_the_simulation_does_with_the_same_messages(four, hardship):
    network = networks.asynchronous(decibo.ring(4), speeds=[1.0, 0.25, 1.0, 0.5], **hardship)
    pace = 1.0 if "relay" in hardship else None
    job = async_job(four, pace=pace, patience=float(hardship.get("patience", 100)), rest=None)
    simulated = decibo.solve(four, network, ROBUST, steps=16, seed=4, measures=[])
    np.testing.assert_allclose(conducted(job, network, 16, seed=4), simulated.agents.x, atol=1e-13)


# Who is there


def test_a_silent_neighbour_is_left_out_until_it_is_heard_again():
    clock = Clock()
    lines = []
    a, b = (
        greeted(make_async_mailbox(Overheard(), name, clock=clock, patience=5.0, log=lines.append))
        for name in ("a", "b")
    )
    for mailbox in (a, b):
        mailbox.offer(np.ones(2), busy=True)
    assert b.newest() == {}
    b.deliver("a", a.wire.newest)
    assert list(b.newest()) == ["a"]
    clock.now = 5
    assert (list(b.newest()), b.absent) == (["a"], ["c"])
    clock.now = 6
    assert (list(b.newest()), b.absent) == ([], ["a", "c"])
    b.deliver("a", a.wire.newest)  # the same again, from a site that is computing
    assert list(b.newest()) == ["a"]
    assert lines == ["a takes part", "a has been silent for 5 seconds and is left out until its next message",
                     "a takes part"]  # fmt: skip


def test_a_site_that_has_forgotten_how_often_it_moved_is_told():
    """Its frames would be taken for old ones."""
    memory = Memory()
    b = greeted(make_async_mailbox(memory.wire("b"), "b", again=1e-9))
    b.offer(np.zeros(1), busy=True)
    memory.wires["b"] = b.wire
    b.wire.receiver = b
    for start in range(3):
        a = greeted(make_async_mailbox(memory.wire("a"), "a", again=1e-9))
        a.wire.receiver = a
        memory.wires["a"] = a.wire
        for move in range(5 - start):
            a.offer(np.array([10.0 * start + move]), busy=True)
        assert b.newest()["a"] == [10 * start + 4 - start]
        assert a._boots["b"] == start


def spread(busy, rounds, ended=()):
    """How calm the sites of a path are after so many moves, and who ends; `busy(name, round)` says
    who has work."""
    memory = Memory()
    mailboxes = {
        name: greeted(make_async_mailbox(memory.wire(name), name, width=3)) for name in ABC
    }
    for mailbox in mailboxes.values():
        mailbox.offer(np.zeros(1), busy=True)
        mailbox.wire.receiver = mailbox
        memory.wires[mailbox.me] = mailbox.wire
    over = {}
    for k in range(rounds):
        for name, mailbox in mailboxes.items():
            mailbox.offer(np.zeros(1), busy=busy(name, k))
            if mailbox.over:
                over.setdefault(name, k)
    return mailboxes, over


def test_a_run_ends_when_all_have_nothing_to_do_and_not_before():
    assert spread(lambda name, k: name == "d", 40)[1] == {}
    assert {mailbox.calm for mailbox in spread(lambda name, k: name == "d", 40)[0].values()} == {
        0,
        1,
        2,
        3,
    }
    over = spread(lambda name, k: k < 10, 40)[1]
    assert set(over) == set(ABC)
    assert min(over.values()) > 10


def test_rest_must_last_before_it_counts():
    """Who moved with old messages, or along an old direction, is at rest until the next ones
    arrive."""
    clock = Clock()
    left = {"now": 1.0}
    job = SimpleNamespace(rest=0.1, steps=100, again=3.0, pace=None)
    site = SimpleNamespace(job=job, rest=lambda state: left["now"])
    mover = AsyncSite(site, SimpleNamespace(clock=clock), None)
    seen = []
    for steps, now, size in (
        (1, 1, 1.0),
        (5, 5, 0.05),
        (9, 6, 0.05),
        (10, 7, 0.05),
        (11, 8, 1.0),
        (12, 20, 0.05),
        (13, 21, 0.05),
    ):
        mover.steps = steps
        clock.now = now
        left["now"] = size
        seen.append(mover.is_done())
    assert seen == [False, False, False, True, False, False, True]
    mover.steps = 100
    left["now"] = 1.0
    assert mover.is_done()


# Whole runs


@pytest.fixture(scope="module")
def complete():
    return networks.complete(4)


def test_a_site_that_lost_its_disk_begins_again_and_nobody_is_led_astray(four, tmp_path, complete):
    """One site crashes twice, and finds its folder gone the second time; frames are lost and
    overtake each other."""
    job = async_job(four, network=complete)
    memory = Memory(Faults(lose=0.1, delay=0.001, seed=1))
    lives = [60, 60, 10**9]
    steps = []

    def site(name):
        threading.current_thread().name = f"site {name}"
        for number, life in enumerate(lives if name == "south" else lives[2:]):
            folder = tmp_path / name
            if number == 2:
                steps.append(max(int(path.name[5:]) for path in folder.glob("step-*")))
                shutil.rmtree(folder)
            try:
                return join(
                    job, site=name, data=None, folder=folder, wire=Mortal(memory.wire(name), life)
                )
            except Killed:
                continue
        raise AssertionError

    results = in_threads(site)
    memory.end()
    assert steps[0] > 0  # there was something to lose
    for result in results.values():
        assert (result.status, result.x.shape) == (decibo.Status.converged, (2,))
        np.testing.assert_allclose(result.x, minimiser(0, 1, 2, 3), atol=1e-9)
        assert result.history["rest"][-1] <= 1e-11 < result.history["rest"].max()
        assert result.history["step"][-1] == result.steps
    again = join(
        job, site="north", data=None, folder=tmp_path / "north", wire=Memory().wire("north")
    )
    assert again.message == "This run was complete already."


def test_who_says_it_is_done_and_goes_shows_by_the_age_of_its_last_message(
    four, tmp_path, complete, monkeypatch
):
    """West says that it has come to rest, long before it has, and is silent from then on."""
    job = async_job(four, network=complete)
    memory = Memory()

    taken = set()  # each neighbour takes numbers once; what comes before a HELLO is read is refused
    on_data = AsyncMailbox._on_data

    def noted(mailbox, peer, frame):
        on_data(mailbox, peer, frame)
        taken.add((peer, mailbox.me))

    monkeypatch.setattr(AsyncMailbox, "_on_data", noted)

    def bye(peer, frame, content):
        if frame.kind is not Kind.DATA:
            return [] if frame.kind is Kind.HERE else [content]
        if frame.step < 3 or ("west", peer) not in taken:
            return [content]
        words = {"status": "done", "why": "", "received": True, "waiting": []}
        return [pack(Kind.BYE, frame.job, frame.sender, frame.step, words=words)]

    def site(name):
        wire = memory.wire(name)
        wire = Changing(wire, bye) if name == "west" else wire
        return join(job, site=name, data=None, folder=tmp_path / name, wire=wire)

    found = in_threads(site)
    for name in NAMES[:3]:
        assert found[name].status is decibo.Status.converged
        ages = dict(re.findall(r"(\w+) ([0-9.]+) s ago", found[name].message))
        assert set(ages) == set(NAMES) - {name}
        # the others repeat theirs every 0.05 s
        assert float(ages.pop("west")) > max(map(float, ages.values()))


def test_who_never_comes_is_left_out_and_who_comes_late_is_not(four, complete):
    """Sites that move in turn, a second after each other; west never does, and south begins later
    than patience."""
    job = async_job(four, network=complete, patience=50.0, again=3.0)
    clock = Clock()
    memory = Memory()
    movers = {}
    ended = {}
    while len(ended) < 3:
        clock.now += 1
        name = NAMES[clock.now % 3]
        if name not in movers and (name != "south" or clock.now > 90):
            run = prepare(job, name, None)
            mailbox = run.mailbox(memory.wire(name))
            mailbox.clock = clock
            mailbox._began = clock()
            movers[name] = AsyncSite(run, mailbox, run.agent.begin(run.first, None))
            movers[name].publish()
            mailbox.wire.start(mailbox)
        elif name in movers and name not in ended:
            movers[name].step()
            movers[name].publish()
            if movers[name].mailbox.over:
                ended[name] = movers[name].mailbox.absent
        assert clock.now < 3000
    assert [ended[name] for name in NAMES[:3]] == [["west"]] * 3
    for mover in movers.values():
        np.testing.assert_allclose(mover.state.variables.x, minimiser(0, 1, 2), atol=1e-9)


def test_numbers_that_are_not_finite_end_all_sites(four, tmp_path, complete):
    steep = decibo.compose(direction.single(), consensus.robust_tracking(), x=1e30, y=0.2)
    job = async_job(four, steep, network=complete)
    memory = Memory()
    results = in_threads(
        lambda name: join(job, site=name, data=None, folder=tmp_path / name, wire=memory.wire(name))
    )
    assert {result.status for result in results.values()} == {decibo.Status.diverged}
    assert all("stopped being finite in step" in result.message for result in results.values())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_direction_is_computed_in_the_precision_of_the_run_in_its_own_thread_too(dtype):
    """Precision is a setting of each thread: a caller may have set it for its own only."""
    site = SimpleNamespace(first={"x": np.zeros(1, dtype)})
    stepper = AsyncStepper(site, Path(), None)
    stepper.mover = SimpleNamespace(direction=lambda: jnp.zeros(()).dtype.name)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(stepper._direction).result() == dtype


def test_what_free_mode_refuses(four):
    dgd = decibo.compose(direction.single(), consensus.dgd(), x=0.1, y=0.1)
    masked = decibo.privacy.masked(ROBUST, 3.0)
    for words, options in {
        "needs all agents in lockstep": {"method": decibo.ahead_exact(alpha=0.1, gamma=0.1)},
        "adds masks that cancel between neighbours": {"method": masked},
        "cannot tell whether it is at rest": {"method": dgd},
        "A site without waiting needs the same links": {
            "network": networks.failing(decibo.ring(4), 0.1)
        },
        "mode must be one of lockstep, free": {"mode": "loose"},
        'rest is for mode = "free"': {"mode": "lockstep"},
        "pace must be": {"pace": 0.0},
    }.items():
        with pytest.raises(InputError, match=words):
            async_job(four, **options)
    two = decibo.compose(
        direction.single(), {"x": consensus.robust_tracking(), "y": consensus.dgd()}, x=0.1, y=0.1
    )
    with pytest.raises(InputError, match=r"sends one message in each step, but .* sends 2"):
        prepare(async_job(four, two, rest=None), "north", None)
