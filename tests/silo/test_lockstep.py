"""Sites that talk to neighbours only: the simulation to rounding, and after any crashes the calm
run bit for bit."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import decibo
from decibo.errors import InputError, LostError
from decibo.silo import join
from decibo.silo.site_run import prepare
from decibo.silo.wire import Faults, Memory
from helpers.sites import NAMES, Killed, Mortal, in_threads, make_job, run_all

FIXED = decibo.ahead_exact(alpha=0.05, gamma=0.1)


@pytest.fixture(scope="module")
def four():
    return decibo.problems.quadratic(agents=4)


def largest_difference(results, solution):
    rows = {name: np.asarray(vars(solution.agents)[name]) for name in ("x", "y")}
    own = {
        name: np.stack([np.asarray(vars(results[site].agents)[name][0]) for site in NAMES])
        for name in rows
    }
    return max(np.abs(own[name] - rows[name]).max() for name in rows)


@pytest.mark.parametrize(
    "network",
    # of which all sites draw the same links
    [decibo.ring(4), decibo.networks.failing(decibo.ring(4), 0.3)],
    ids=["ring", "failing links"],
)
def test_sites_compute_what_the_simulation_does(four, tmp_path, network):
    job = make_job(four, FIXED, network=network, steps=60)
    results = run_all(job, tmp_path, Memory())
    assert (
        largest_difference(results, decibo.solve(four, network, FIXED, steps=60, measures=[]))
        < 1e-12
    )
    assert {result.steps for result in results.values()} == {60}


def test_an_exchange_of_several_rounds_is_as_many_messages(four):
    job = make_job(four, FIXED, network=decibo.networks.chebyshev(decibo.ring(4), 2))
    assert prepare(job, "north", None).during == [11, 11]


def test_sites_find_step_sizes_together(four, tmp_path):
    """With `mix.largest` and `mix.reach`. Curvatures are found from tiny moves, whose rounding
    errors are seen: the simulation itself, started 1e-15 elsewhere, ends as far from where it
    ended.
    """
    method = decibo.ahead_exact()
    job = make_job(four, method, steps=20)
    results = run_all(job, tmp_path, Memory())
    reference = decibo.solve(four, job.network, method, steps=20, measures=[])
    start = {
        name: np.tile(np.asarray(point) + 1e-15, (4, 1))
        for name, point in (("x", four.x0), ("y", four.y0))
    }
    nudged = decibo.solve(four, job.network, method, steps=20, start=start, measures=[])
    apart = max(
        np.abs(nudged.agents.x - reference.agents.x).max(),
        np.abs(nudged.agents.y - reference.agents.y).max(),
    )
    assert largest_difference(results, reference) < 10 * apart < 1e-6
    rows = jax.vmap(method.core.chosen)(reference.state)
    for i, name in enumerate(NAMES):
        own = method.core.chosen(jax.tree.map(lambda leaf: leaf[0], results[name].state))
        for setting, value in own.items():
            np.testing.assert_allclose(value, rows[setting][i], rtol=1e-6)


def test_a_method_that_mixes_inside_a_loop_is_refused(four):
    for method in (
        decibo.methods.ma_dsbo(alpha=0.05, beta=0.1, gamma=0.1, T=3, N=4),
        decibo.methods.c2dfb(alpha=0.05, gamma=0.1, lam=20.0, K=2),
    ):
        with pytest.raises(InputError, match="exchanges messages inside a loop of its step"):
            prepare(make_job(four, method), "north", None)


def test_any_crashes_of_any_sites_change_no_bit(four, tmp_path):
    """Every site crashes three times, at random, some of them at once, on a wire that loses
    frames."""
    job = make_job(four, FIXED, steps=60)
    calm = run_all(job, tmp_path / "calm", Memory())
    memory = Memory(Faults(lose=0.02, delay=0.001, seed=3))
    crashes = dict.fromkeys(NAMES, 0)

    def stubborn(name):
        threading.current_thread().name = f"site {name}"
        random = np.random.default_rng(NAMES.index(name))
        while True:
            life = random.integers(1, 60) if crashes[name] < 3 else 10**9
            try:
                wire = Mortal(memory.wire(name), life)
                return join(job, site=name, data=None, folder=tmp_path / name, wire=wire)
            except Killed:
                crashes[name] += 1

    results = in_threads(stubborn)
    memory.end()
    assert set(crashes.values()) == {3}
    for name in NAMES:
        for leaf, same in zip(
            jax.tree.leaves(results[name].state), jax.tree.leaves(calm[name].state), strict=True
        ):
            np.testing.assert_array_equal(leaf, same)
        np.testing.assert_array_equal(results[name].history["outer"], calm[name].history["outer"])


def test_a_complete_run_is_not_run_again(four, tmp_path):
    job = make_job(four, FIXED, steps=8)
    first = run_all(job, tmp_path, Memory())
    again = join(
        job, site="north", data=None, folder=tmp_path / "north", wire=Memory().wire("north")
    )
    np.testing.assert_array_equal(again.x, first["north"].x)
    assert again.message == "This run was complete already."


def test_sites_may_have_tables_of_different_length(tmp_path):
    """The mean over each site's own rows, without padding: as the simulation of repeated rows."""
    random = np.random.default_rng(0)
    tables = {"north": random.normal(size=(3, 2)), "east": random.normal(size=(4, 2))}
    outer = lambda x, y, d: jnp.mean(jnp.sum((y - d) ** 2, axis=1))
    inner = lambda x, y, d: 0.5 * jnp.sum((y - x) ** 2) + 0.05 * jnp.mean((d @ y) ** 2)
    shapes = decibo.Problem(outer, inner, np.zeros((2, 3, 2)), np.zeros(2), np.zeros(2))
    method = decibo.ahead_exact(alpha=0.1, gamma=0.3)
    job = make_job(shapes, method, steps=50, sites=list(tables), network=decibo.complete(2))
    memory = Memory()
    place = lambda name: {"folder": tmp_path / name, "wire": memory.wire(name)}
    results = in_threads(
        lambda name: join(job, site=name, data=tables[name], **place(name)), list(tables)
    )
    repeated = np.stack([np.tile(table, (12 // len(table), 1)) for table in tables.values()])
    pooled = decibo.Problem(outer, inner, repeated, np.zeros(2), np.zeros(2))
    reference = decibo.solve(pooled, job.network, method, steps=50, measures=[])
    np.testing.assert_allclose([results[name].x for name in tables], reference.agents.x, atol=1e-12)


def test_a_site_resumes_with_its_own_data_only(four, tmp_path):
    job = make_job(four, FIXED, steps=8, patience=0.3)
    own = jax.tree.map(lambda leaf: leaf[0], four.data)
    with pytest.raises(
        LostError, match=r"north has waited 0\.3 seconds for east and west in step 1"
    ):
        join(job, site="north", data=own, folder=tmp_path / "north", wire=Memory().wire("north"))
    run_all(make_job(four, FIXED, steps=8), tmp_path, Memory())
    other = jax.tree.map(lambda leaf: leaf[1], four.data)
    with pytest.raises(InputError, match="began with other data of agent 0"):
        join(job, site="north", data=other, folder=tmp_path / "north", wire=Memory().wire("north"))


def test_numbers_that_are_not_finite_end_all_sites(four, tmp_path):
    job = make_job(
        four,
        decibo.ahead(alpha=0.5, beta=5.0, gamma=5.0, lam=50.0),
        steps=400,
        checkpoint_every=400,
    )
    memory = Memory()
    results = in_threads(
        lambda name: join(job, site=name, data=None, folder=tmp_path / name, wire=memory.wire(name))
    )
    assert {result.status for result in results.values()} == {decibo.Status.diverged}
    assert all("stopped being finite in step" in result.message for result in results.values())
    assert all(np.isfinite(np.asarray(result.x)).all() for result in results.values())


def test_a_site_that_ran_away_is_not_done(tmp_path):
    """Every number is finite to the end, but x has grown without bound."""
    outer = lambda x, y, d: jnp.sum((x - d + 0 * y) ** 2)
    inner = lambda x, y, d: 0.5 * jnp.sum((y - x) ** 2)
    problem = decibo.Problem(outer, inner, np.arange(2.0)[:, None], np.zeros(1), np.zeros(1))
    method = decibo.compose(decibo.direction.single(), decibo.consensus.dgd(), x=30.0, y=0.1)
    job = make_job(problem, method, network=decibo.complete(2), sites=NAMES[:2], steps=40)
    memory = Memory()
    place = lambda name: {"folder": tmp_path / name, "wire": memory.wire(name)}
    results = in_threads(lambda name: join(job, site=name, data=None, **place(name)), NAMES[:2])
    for result in results.values():
        assert np.isfinite(np.asarray(result.x)).all()
        assert result.status is decibo.Status.diverged
        assert "The largest number has grown from" in result.message


def test_what_a_site_keeps_is_for_its_user_alone_wherever_it_is(four, tmp_path):
    job = make_job(four, FIXED, steps=8)
    (tmp_path / "north").mkdir(mode=0o755)
    run_all(job, tmp_path, Memory())
    paths = [tmp_path / "north", *(tmp_path / "north").rglob("*")]
    assert len(paths) > 5
    for path in paths:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_only_undirected_networks_join_sites(four):
    with pytest.raises(InputError, match="A site needs symmetric"):
        make_job(four, decibo.methods.fab(alpha=0.1, beta=0.1, gamma=0.1, lam=50.0),
                 network=decibo.networks.directed_ring(4))  # fmt: skip


def test_a_simulation_of_sites_that_do_not_wait_is_no_network(four):
    free = decibo.networks.asynchronous(decibo.ring(4), delay=2)
    robust = decibo.compose(
        decibo.direction.penalty(20.0), decibo.consensus.robust_tracking(), x=0.01, y=0.01, z=0.01
    )
    with pytest.raises(
        InputError, match=r"A site needs all agents in lockstep, which Network\(.*asynchronous"
    ):
        make_job(four, robust, network=free)


def test_what_a_site_sends_is_known_before(four):
    run = prepare(make_job(four, FIXED), "north", None)
    assert (run.before, run.during) == ([], [11])
