"""The wire over cells of another system: who is believed, what is refused, and that sites reach
each other on it."""

import sys
import threading
import time

import numpy as np
import pytest

import decibo
from decibo.errors import InputError
from decibo.silo import nvflare_cells
from decibo.silo.job import read_job
from decibo.silo.join import join
from decibo.silo.mix import neighbours_of
from decibo.silo.nvflare_cells import FRAME, KNOCK, NUMBER, CellWire
from helpers.sites import NAMES, in_threads, make_job, warm


class Hub:
    """Cells in memory: the address of a site is its name and the job's, and whoever is away cannot
    be sent to."""

    def __init__(self):
        self.heard = {}

    def cell(self, name):
        return Here(self, f"{name}.job")


class Here:
    def __init__(self, hub, address):
        self.hub = hub
        self.address = address

    def listen(self, heard):
        self.hub.heard[self.address] = heard

    def send(self, address, content):
        if address not in self.hub.heard:
            raise ConnectionError("no path")
        self.hub.heard[address](self.address, content, True)


class Notes:
    """A receiver that writes down what it gets."""

    longest = 100

    def __init__(self):
        self.got = []
        self.changed = threading.Condition()

    def deliver(self, peer, content):
        self._note((peer, content))

    def connected(self, peer):
        self._note((peer, "connected"))

    def _note(self, entry):
        with self.changed:
            self.got.append(entry)
            self.changed.notify_all()

    def wait(self, count):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.got) >= count, 20), self.got


@pytest.fixture
def pair(monkeypatch):
    """Two wires on one hub, with what their sites got and their logs."""
    monkeypatch.setattr(nvflare_cells, "EVERY", 0.02)
    hub = Hub()
    log = []
    wires = {
        me: CellWire(hub.cell(me), {other: f"{other}.job"}, log.append, sealed=True)
        for me, other in (("a", "b"), ("b", "a"))
    }
    yield hub, wires, {name: Notes() for name in wires}, log
    for wire in wires.values():
        wire.close()


def test_sites_that_start_at_different_times_meet_once_and_again_after_a_restart(pair):
    hub, wires, notes, log = pair
    wires["a"].start(notes["a"])
    while not any("b cannot be reached: no path" in line for line in log):
        time.sleep(0.01)
    wires["b"].start(notes["b"])
    notes["a"].wait(1)
    notes["b"].wait(1)
    wires["a"].send("b", b"one")
    wires["b"].send("a", b"two")
    notes["a"].wait(2)
    notes["b"].wait(2)
    assert notes["a"].got == [("b", "connected"), ("b", b"two")]
    assert notes["b"].got == [("a", "connected"), ("a", b"one")]
    wires["b"].close()
    again, fresh = CellWire(hub.cell("b"), {"a": "a.job"}, log.append, sealed=True), Notes()
    again.start(fresh)
    notes["a"].wait(3)
    fresh.wait(1)
    again.close()
    assert notes["a"].got[2:] == [("b", "connected")]
    assert fresh.got == [("a", "connected")]


def test_an_answer_that_is_lost_is_given_again(pair, monkeypatch):
    """The first knock of b, its first answer and its second are lost, after which b has met a, but
    not a b."""
    _, wires, notes, _ = pair
    send, lost = wires["b"].cell.send, []
    lossy = lambda *message: lost.append(message) if len(lost) < 3 else send(*message)
    monkeypatch.setattr(wires["b"].cell, "send", lossy)
    wires["b"].start(notes["b"])
    wires["a"].start(notes["a"])
    notes["a"].wait(1)
    wires["b"].send("a", b"two")
    notes["a"].wait(2)
    assert notes["a"].got == [("b", "connected"), ("b", b"two")]
    assert notes["b"].got == [("a", "connected")]


@pytest.mark.parametrize(
    ("address", "content", "sealed", "why"),
    [
        ("c.job", FRAME + b"x", True, "c.job: it is no neighbour"),
        ("b.another", FRAME + b"x", True, "it is no neighbour"),
        ("b.job", FRAME + b"x", False, "b.job: it is not encrypted and signed"),
        ("b.job", KNOCK + bytes(NUMBER), False, "it is not encrypted and signed"),
        (
            "b.job",
            FRAME + bytes(101),
            True,
            "it has 102 bytes, and none of this job has more than 100",
        ),
        ("b.job", b"", True, "neither a frame nor a knock"),
        ("b.job", KNOCK + bytes(3), True, "neither a frame nor a knock"),
    ],
)
def test_what_is_not_a_sealed_message_of_a_neighbour_is_refused_with_a_line(
    pair, address, content, sealed, why
):
    hub, wires, notes, log = pair
    wires["a"].start(notes["a"])
    for _ in range(50):
        hub.heard["a.job"](address, content, sealed)
    assert notes["a"].got == []
    lines = [line for line in log if "refused" in line]
    assert lines
    assert len(lines) < 25  # a flood is not answered by one of lines
    assert why in lines[0]


def test_a_flood_of_names_that_are_made_up_fills_neither_log_nor_memory(pair):
    hub, wires, notes, log = pair
    wires["a"].start(notes["a"])
    for k in range(1000):
        hub.heard["a.job"](f"\x1b{k}.job", FRAME, True)
    lines = [line for line in log if "refused" in line]
    assert lines[0] == "refused a message from the cell ?0.job: it is no neighbour"
    assert len(lines) < 100
    assert len(wires["a"]._few._seen) == 1


def test_a_queue_that_is_full_drops_what_comes_and_nobody_waits(pair, monkeypatch):
    monkeypatch.setattr(nvflare_cells, "BACKLOG", 50)
    _, wires, _, _ = pair
    for _ in range(100):
        wires["a"].send("b", bytes(20))
        wires["a"].send("nobody", bytes(20))
    assert len(wires["a"].lines["b"]._queue) == 2


def test_four_sites_over_cells_are_the_simulation(tmp_path):
    problem = decibo.problems.quadratic(agents=4)
    job = make_job(problem, decibo.ahead_exact(alpha=0.05, gamma=0.1))
    warm(job)
    hub = Hub()

    def site(name):
        peers = {
            NAMES[other]: f"{NAMES[other]}.job"
            for other in neighbours_of(job.network, job.number(name))
        }
        wire = CellWire(hub.cell(name), peers, lambda line: None, sealed=True)
        return join(job, site=name, data=None, folder=tmp_path / name, wire=wire)

    found = in_threads(site)
    expected = decibo.solve(problem, job.network, job.method, steps=job.steps, measures=[]).agents.x
    for number, name in enumerate(NAMES):
        np.testing.assert_allclose(found[name].x, expected[number], rtol=0, atol=1e-12)


def test_on_such_a_wire_a_site_of_a_job_needs_its_name_only(tmp_path):
    path = tmp_path / "job.toml"
    sites = "".join(f'[[site]]\nname = "{name}"\n' for name in NAMES)
    path.write_text(
        'problem = "quadratic"\n[method]\nname = "ahead_exact"\nalpha = 0.05\ngamma = 0.1\n' + sites
    )
    assert read_job(path, certificates=False).names == list(NAMES)
    with pytest.raises(InputError, match="needs a name and a certificate"):
        read_job(path)


def test_without_nvflare_the_command_that_installs_it_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "nvflare"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "nvflare", None)
    monkeypatch.delitem(sys.modules, "decibo.silo.nvflare", raising=False)
    with pytest.raises(
        ImportError, match=r"NVFlare, which is not installed.*pip install 'decibo\[flare\]'"
    ):
        import decibo.silo.nvflare  # noqa: F401
