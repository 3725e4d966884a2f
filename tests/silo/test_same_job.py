"""Sites that compute different things never agree silently: another function, another number in it,
other software."""

import threading

import jax.numpy as jnp
import numpy as np
import pytest

import decibo
from decibo.errors import InputError
from decibo.run.fingerprint import software
from decibo.silo import join
from decibo.silo.same_job import described, of_shapes
from decibo.silo.wire import Faults, Memory
from helpers.sites import Changing, in_threads, make_job

THREE = ("north", "east", "west")
TARGETS = np.arange(6.0).reshape(3, 2)
METHOD = decibo.ahead_exact(alpha=0.05, gamma=0.05)


def problem(number, data):
    """Of which one number in g may differ from owner to owner."""
    outer = lambda x, y, d: jnp.mean(jnp.sum((y - d["t"]) ** 2, -1)) + 0.1 * jnp.sum(x**2)
    inner = lambda x, y, d: (
        jnp.sum((y - x) ** 2) * number + 0.5 * jnp.mean(jnp.sum((y - d["t"]) ** 2, -1))
    )
    return decibo.Problem(outer, inner, data, np.zeros(2), np.zeros(2), agents=3)


class AllHere(Changing):
    """A wire whose site begins when the others are there."""

    def __init__(self, wire, barrier):
        super().__init__(wire, lambda peer, frame, content: [content])
        self.barrier = barrier

    def start(self, receiver):
        super().start(receiver)
        self.barrier.wait(60)


def run(tmp_path, numbers, rows, *, memory=None, own=True, **options):
    """Every site's result and its log, each with its own number in g and so many rows of data.

    own   whether data are a function, so that only their owner knows what they look like
    """
    memory = memory or Memory()
    tables = [np.tile(target, (count, 1)) for target, count in zip(TARGETS, rows, strict=True)]
    logs = {name: [] for name in THREE}
    barrier = threading.Barrier(3)

    def site(name):
        i = THREE.index(name)
        data = (lambda agent: {"t": tables[i]}) if own else {"t": TARGETS[:, None]}
        job = make_job(
            problem(numbers[i], data),
            METHOD,
            sites=THREE,
            network=decibo.ring(3),
            steps=5,
            patience=5.0,
            again=0.1,
        )
        return join(
            job,
            site=name,
            data={"t": tables[i]},
            folder=tmp_path / name,
            wire=AllHere(memory.wire(name), barrier),
            log=logs[name].append,
            **options,
        )

    return in_threads(site, THREE), logs


@pytest.mark.parametrize("own", [False, True], ids=["data in memory", "data of the owner"])
@pytest.mark.parametrize("rows", [(1, 1, 1), (4, 2, 9)], ids=["as many", "more or fewer samples"])
def test_another_number_in_the_objective_of_one_site_is_another_job(tmp_path, own, rows):
    found, _ = run(tmp_path / "same", (1.0, 1.0, 1.0), rows, own=own)
    assert {result.status for result in found.values()} == {decibo.Status.done}
    found, _ = run(tmp_path / "other", (1.0, 1.0, 7.0), rows, own=own)
    for name in ("north", "east"):
        assert isinstance(found[name], InputError)
        assert "west runs another job (inner: another function there than here)" in str(found[name])
    assert "runs another job (inner: another function there than here)" in str(found["west"])
    assert all(not (tmp_path / "other" / name / "solution.json").exists() for name in THREE)


def test_shapes_that_could_not_be_another_number_of_samples_are_another_job():
    data = {"a": np.zeros((4, 3)), "b": np.zeros(4, np.int64)}
    assert described(data) == "float64[4,3] int64[4]"
    found = of_shapes("float64[9,3] int64[9]", data)
    assert (found["a"].shape, found["b"].dtype) == ((9, 3), np.int64)
    for words in ("", "float64[4,3]", "float64[4,4] int64[4]", "float32[4,3] int64[4]",
                  "float64[4,3] int64[]", "float64[4,3] int64[4", "float64[99999999999,3] int64[4]"):  # fmt: skip
        assert of_shapes(words, data) is None


def test_with_other_software_it_is_said_at_both_ends_and_the_owner_decides(tmp_path, monkeypatch):
    """West has another JAX, which traces the same programs; then one that traces others."""
    west = lambda: "west" in threading.current_thread().name
    mine = lambda: software() | ({"jax": "9.9"} if west() else {})
    monkeypatch.setattr("decibo.silo.job.software", mine)
    found, logs = run(tmp_path / "same", (1.0, 1.0, 1.0), (1, 1, 1))
    assert {result.status for result in found.values()} == {decibo.Status.done}
    words = f"runs other software (jax: 9.9 there, {software()['jax']} here), and the same programs"
    assert logs["north"].count(f"west {words}") == 1
    assert any("north runs other software (jax: " in line for line in logs["west"])
    found, _ = run(tmp_path / "other", (1.0, 1.0, 7.0), (1, 1, 1))
    for name, other in (("north", "west"), ("east", "west"), ("west", "")):
        assert isinstance(found[name], InputError)
        assert f"{other} runs other software (jax: " in str(found[name])
        assert "cannot be found out" in str(found[name])
    found, logs = run(tmp_path / "known", (1.0, 1.0, 7.0), (1, 1, 1), same_programs=True)
    assert {result.status for result in found.values()} == {decibo.Status.done}
    assert any("its programs are believed" in line for line in logs["north"])


def test_what_a_neighbour_sends_counts_only_once_its_job_is_known(tmp_path):
    """A HELLO may be lost on the way: then who sends numbers is asked, and they are not used."""
    memory = Memory(Faults(lose=0.4, seed=3))
    found, _ = run(tmp_path, (1.0, 1.0, 7.0), (1, 1, 1), memory=memory)
    memory.end()
    assert all(isinstance(result, Exception) for result in found.values())
    memory = Memory(Faults(lose=0.4, seed=3))
    found, _ = run(tmp_path / "calm", (1.0, 1.0, 1.0), (1, 1, 1), memory=memory)
    memory.end()
    assert {result.status for result in found.values()} == {decibo.Status.done}
