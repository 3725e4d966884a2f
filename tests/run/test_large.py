"""Large states: changed in place, there once, and the same numbers as ever."""

import dataclasses
import sys

import jax
import numpy as np
import pytest

import decibo
from decibo.run import checkpoint, checkpoint_files, loop, run
from decibo.run.checkpoint_files import Saved
from decibo.run.solve import prepare

PROBLEM = decibo.problems.quadratic(4, seed=3)
METHOD = decibo.ahead_exact(alpha=0.03, gamma=0.05, lam=4.0)
OPTIONS = {"steps": 40, "every": 10, "measures": ["outer"]}


def solve(method=METHOD, **options):
    return decibo.solve(PROBLEM, decibo.ring(4), method, **OPTIONS | options)


def same(one, two):
    pairs = zip(jax.tree.leaves(one.state), jax.tree.leaves(two.state), strict=True)
    return all((np.asarray(a) == np.asarray(b)).all() for a, b in pairs)


@pytest.fixture
def in_place(monkeypatch):
    monkeypatch.setattr(loop, "LARGE", 0)


def test_a_state_that_is_changed_in_place_comes_to_the_same(monkeypatch, tmp_path):
    plain = solve()
    monkeypatch.setattr(loop, "LARGE", 0)
    changed = solve(checkpoint=decibo.Checkpoints(tmp_path / "whole", every=15))
    assert same(plain, changed)
    assert (plain.history["outer"] == changed.history["outer"]).all()
    solve(steps=23, every=10, checkpoint=decibo.Checkpoints(tmp_path / "part"))
    assert same(plain, solve(checkpoint=decibo.Checkpoints(tmp_path / "part", resume=True)))


def test_old_and_new_state_share_their_memory():
    setup = prepare(PROBLEM, decibo.ring(4), METHOD, steps=40, every=10, measures=["outer"])
    state = run.begin(setup).agents
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    places = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(state)]
    # y and z begin equal, but not as one array, which could not be changed
    assert len(set(places)) == len(places)
    chunk = loop.Chunk.silent(3)
    lowered = [
        way.lower(setup.program, setup.inputs, state, np.int32(0), chunk)
        .compile()
        .memory_analysis()
        for way in (loop.advance, loop.advance_in_place)
    ]
    assert [memory.alias_size_in_bytes for memory in lowered] == [0, size]


def test_equal_starting_points_are_in_memory_once():
    rows = PROBLEM.start_rows(1000)
    assert all(row.strides[0] == 0 for row in rows.values())


def test_a_run_in_place_that_diverges_says_what_is_lost(in_place):
    found = solve(METHOD.replace(alpha=1e200))
    assert found.status == "diverged"
    assert "between steps 0 and 10 of 40" in found.message
    assert "only a checkpoint has the one before" in found.message
    assert found.history["step"].tolist() == [0]
    with pytest.raises(decibo.DivergedError):
        solve(METHOD.replace(alpha=1e200), throw=True)


def test_a_large_run_computes_the_objectives_in_its_steps_only(in_place, monkeypatch):
    """One program holds the user's functions; what it would have said before the run is said after
    it."""
    monkeypatch.setattr(sys.modules["decibo.run.solve"], "LARGE", 0)
    called = []
    values = loop.values
    monkeypatch.setattr(loop, "values", lambda *args: (called.append(args), values(*args))[1])
    assert solve().status == "done"
    assert not called
    data = PROBLEM.data | {"q": PROBLEM.data["q"].at[2].set(np.nan)}
    broken = dataclasses.replace(PROBLEM, data=data, solution=None)
    found = decibo.solve(broken, decibo.ring(4), METHOD, **OPTIONS)
    assert found.status == "diverged"
    assert "Already at the start outer of agent 2 was nan" in found.message


def test_an_interrupted_run_in_place_keeps_what_it_can(in_place, monkeypatch, tmp_path):
    """Between chunks the state is there; inside a chunk it is not, and the interruption is passed
    on."""

    def interrupt(step, steps, latest):
        if step >= 20:
            raise KeyboardInterrupt

    found = solve(progress=interrupt, checkpoint=decibo.Checkpoints(tmp_path))
    assert found.status == "interrupted"
    assert 20 <= found.steps < 40
    real = loop.advance_in_place

    def killed(program, inputs, state, k, chunk, votes=None):
        end = real(program, inputs, state, k, chunk, votes)
        if k >= 20:
            raise KeyboardInterrupt
        return end

    monkeypatch.setattr(loop, "advance_in_place", killed)
    with pytest.raises(KeyboardInterrupt):
        solve()


def test_the_cost_says_what_an_agent_keeps():
    n, r = PROBLEM.x_layout.size, PROBLEM.y_layout.size
    state = run.begin(prepare(PROBLEM, decibo.ring(4), METHOD, steps=1, every=1)).agents
    size = sum(leaf.size for leaf in jax.tree.leaves(state)) // 4
    assert solve().cost.state == size == 3 * (n + 2 * r)


def test_a_checkpoint_is_written_leaf_by_leaf(monkeypatch, tmp_path):
    """No leaf is fetched before the one before it has been written."""
    order = []
    fetch, write = checkpoint._fetched, np.lib.format.write_array
    monkeypatch.setattr(
        checkpoint, "_fetched", lambda leaf: (order.append("fetch"), fetch(leaf))[1]
    )
    monkeypatch.setattr(
        np.lib.format,
        "write_array",
        lambda *args, **kw: (order.append("write"), write(*args, **kw))[1],
    )
    solve(checkpoint=decibo.Checkpoints(tmp_path))
    fetched = [place for place, what in enumerate(order) if what == "fetch"]
    assert len(fetched) == 2 * 9  # x, y and z with two memories each, at the start and at the end
    assert all(order[place + 1] == "write" for place in fetched)


def test_a_process_reads_the_rows_of_its_own_agents_only(monkeypatch, tmp_path):
    parts = {(0, 1): 1.0, (2, 3): 2.0, (4, 5): 3.0}
    for agents, value in parts.items():
        np.savez(
            tmp_path / f"agents-{agents[0]}-{agents[1]}.npz",
            agents=np.array(agents),
            y=np.full((2, 3), value) + np.array(agents)[:, None],
        )
    saved = Saved(tmp_path, 1, {}, {}, tuple(path.name for path in tmp_path.iterdir()))
    read = []
    load = checkpoint_files._load
    monkeypatch.setattr(
        checkpoint_files,
        "_load",
        lambda path, names=None: (read.append((path.name, names)), load(path, names))[1],
    )
    rows = saved.rows(np.arange(6), np.array([1, 2]))
    assert rows["y"].tolist() == [[2.0] * 3, [4.0] * 3]
    assert sorted(name for name, names in read if names is None) == [
        "agents-0-1.npz",
        "agents-2-3.npz",
    ]
    assert saved.rows(np.arange(6))["y"][:, 0].tolist() == [1.0, 2.0, 4.0, 5.0, 7.0, 8.0]
