"""What a site sees of its run: measures of its own and of all, targets, callbacks, progress, how it
ended."""

import json
import os
import signal
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import decibo
from decibo.callbacks import EarlyStopping
from decibo.errors import InputError, LostError
from decibo.silo import join, read_job
from decibo.silo.wire import Faults, Memory
from helpers.sites import NAMES, in_threads, make_job, run_all

FIXED = decibo.ahead_exact(alpha=0.05, gamma=0.1)


@pytest.fixture(scope="module")
def four():
    return decibo.problems.quadratic(agents=4)


def same_states(results, calm):
    for name in NAMES:
        for leaf, same in zip(
            jax.tree.leaves(results[name].state), jax.tree.leaves(calm[name].state), strict=True
        ):
            np.testing.assert_array_equal(leaf, same)


def test_a_site_measures_its_own_data_at_its_own_point(four, tmp_path):
    size = lambda s: jnp.sum(s.agents.x**2)
    job = make_job(four, FIXED, steps=12)
    results = run_all(job, tmp_path, Memory(), measures=["outer", ("size", size)], every=5)
    simulated = decibo.solve(four, job.network, FIXED, steps=12, measures=[])
    for i, name in enumerate(NAMES):
        own = results[name]
        assert list(own.history) == ["step", "outer", "size"]
        assert own.history["step"].tolist() == [0, 5, 10, 12]
        answer = FIXED.answer
        x, y = (np.asarray(vars(simulated.agents)[part][i]) for part in ("x", answer))
        d = jax.tree.map(lambda leaf, i=i: leaf[i], four.data)
        np.testing.assert_allclose(own.history["outer"][-1], four.outer(x, y, d), rtol=1e-10)
        np.testing.assert_allclose(own.history["size"][-1], np.sum(x**2), rtol=1e-10)
        assert own.cost.measuring > 0 < own.cost.seconds


def test_what_is_a_property_of_all_sites_is_not_measured_by_one(four, tmp_path):
    wire = Memory().wire("north")
    place = {"site": "north", "data": None, "folder": tmp_path, "wire": wire}
    for name in ("consensus_x", "direction_norm", "stationarity"):
        with pytest.raises(InputError, match=f"{name} is a property of all sites"):
            join(make_job(four, FIXED), **place, measures=[name])
    with pytest.raises(InputError, match="There is no measure 'outr'"):
        join(make_job(four, FIXED), **place, measures=["outr"])
    with pytest.raises(InputError, match="record residual at the same steps, every 1"):
        join(make_job(four, FIXED, until={"residual": 1.0}), **place, every=7)


def at_own_points(s, function):
    """A function of every agent's x, answer and data."""
    x, y = s.rows["x"], s.rows[s.answer]
    layouts = s.functions
    one = lambda x, y, d: function(layouts.x.unravel(x), layouts.y.unravel(y), d)
    return x, y, jax.vmap(one)(x, y, s.data)


def residual(s):
    """The plain twin, on all data in one place: (2) of network_measures.py."""
    x, y, slopes = at_own_points(s, jax.grad(s.functions.inner, argnums=1))
    parts = [s.mean_direction.x, slopes.mean(0), x - x.mean(0), y - y.mean(0)]
    return jnp.max(jnp.array([jnp.abs(part).max() for part in parts]))


def mean_outer(s):
    return at_own_points(s, s.functions.outer)[2].mean()


def mean_inner(s):
    return at_own_points(s, s.functions.inner)[2].mean()


@pytest.mark.parametrize("network", [decibo.ring(4), decibo.networks.path(4)], ids=["ring", "path"])
def test_sites_find_the_means_of_all_and_end_together(four, tmp_path, network):
    """As many steps as the simulation, though crashes of the wire delay them differently."""
    options = {"measures": ["mean_outer", "mean_inner"], "until": {"residual": 0.05}, "every": 3}
    job = make_job(four, FIXED, network=network, steps=300, **options)
    results = run_all(job, tmp_path, Memory(Faults(lose=0.02, seed=1)))
    simulated = decibo.solve(
        four,
        network,
        FIXED,
        steps=300,
        every=3,
        measures=[residual, mean_outer, mean_inner],
        until={"residual": 0.05},
    )
    assert 0 < simulated.steps < 300
    for own in results.values():
        assert (own.status, own.steps) == (decibo.Status.converged, simulated.steps)
        assert own.message.startswith(f"Reached residual <= 0.05 at step {own.steps}.")
        for name in ("residual", "mean_outer", "mean_inner"):
            np.testing.assert_allclose(own.history[name], simulated.history[name], rtol=1e-8)
            np.testing.assert_array_equal(own.history[name], results["north"].history[name])
    again = join(
        job, site="north", data=None, folder=tmp_path / "north", wire=Memory().wire("north")
    )
    assert again.status is decibo.Status.converged
    assert again.message.startswith("This run was complete already.")


def test_sites_with_other_targets_are_told_so(tmp_path):
    memory = Memory()
    two = {"network": decibo.complete(2), "sites": NAMES[:2]}
    problem = decibo.problems.quadratic(agents=2)
    targets = {"north": 0.2, "east": 0.1}

    def one(name):
        job = make_job(problem, FIXED, **two)
        place = {"folder": tmp_path / name, "wire": memory.wire(name)}
        return join(job, site=name, data=None, until={"residual": targets[name]}, **place)

    results = in_threads(one, NAMES[:2])
    assert isinstance(results["north"], InputError)
    assert "residual <= 0.1 there" in str(results["north"])


def test_a_callback_at_one_site_ends_all_and_the_same_command_goes_on(four, tmp_path):
    job = make_job(four, FIXED, steps=60)
    calm = run_all(job, tmp_path / "calm", Memory())
    memory = Memory()
    seen = []
    ends = []

    class Watch:
        def start(self, plan):
            seen.append(plan.step)

        def record(self, step, measures):
            seen.append(step)
            return "enough" if step == 20 else None

        def end(self, solution):
            ends.append(str(solution.status))

    def one(name, **options):
        return join(
            job, site=name, data=None, folder=tmp_path / name, wire=memory.wire(name), **options
        )

    stopped = in_threads(lambda n: one(n, callbacks=[Watch()] if n == "south" else []))
    assert {str(result.status) for result in stopped.values()} == {"stopped"}
    assert stopped["south"].message.startswith("Stopped by Watch at step 20: enough.")
    assert "south: Stopped by Watch at step 20" in stopped["north"].message
    assert seen == [0, *range(21)]
    assert ends == ["stopped"]
    assert all(20 <= result.steps <= 22 for result in stopped.values())
    memory.end()
    memory = Memory()
    results = in_threads(one)
    assert {str(result.status) for result in results.values()} == {"done"}
    assert f"Resumed from the checkpoint of step {stopped['north'].steps}." in (
        results["north"].message
    )
    same_states(results, calm)


def test_a_site_may_stop_early(four, tmp_path):
    job = make_job(four, FIXED, steps=400)
    memory = Memory()
    results = in_threads(
        lambda name: join(
            job,
            site=name,
            data=None,
            folder=tmp_path / name,
            wire=memory.wire(name),
            callbacks=[EarlyStopping("outer", patience=3, delta=10.0)],
        )
    )
    assert {str(result.status) for result in results.values()} == {"stopped"}
    with pytest.raises(InputError, match="EarlyStopping must be one of outer"):
        join(
            job,
            site="north",
            data=None,
            folder=tmp_path / "other",
            wire=Memory().wire("north"),
            callbacks=[EarlyStopping("outre")],
        )


class Progress:
    """Writes down what a line of progress would show."""

    def __init__(self):
        self.steps = []
        self.waited = []

    def __call__(self, step, steps, latest):
        self.steps.append((step, steps, list(latest)))

    def waits(self, names, seconds):
        self.waited.append((names, seconds))


def test_progress_says_for_whom_a_site_waits_and_so_does_its_folder(four, tmp_path):
    progress = Progress()
    alone = make_job(four, FIXED, patience=0.7)
    place = tmp_path / "north"
    with pytest.raises(LostError, match=r"waited 0\.7 seconds for east and west in step 1"):
        join(alone, site="north", data=None, folder=place, wire=Memory().wire("north"),
             progress=progress)  # fmt: skip
    names, seconds = zip(*progress.waited, strict=True)
    assert set(names) == {("east", "west")}
    assert 0 < max(seconds) < 0.7
    status = json.loads((place / "status.json").read_text())
    assert status["waiting_for"] == ["east", "west"]
    assert (status["status"], status["step"], status["steps"]) == ("lost", 0, 30)

    job = make_job(four, FIXED, steps=12)
    progress = Progress()
    memory = Memory()
    here = lambda name: {"folder": tmp_path / "all" / name, "wire": memory.wire(name)}
    in_threads(lambda name: join(job, site=name, data=None, **here(name),
                                 progress=progress if name == "north" else False))  # fmt: skip
    assert progress.steps[-1] == (12, 12, ["outer", "inner"])
    status = json.loads((tmp_path / "all" / "north" / "status.json").read_text())
    assert (status["status"], status["message"]) == ("done", "All 12 steps done.")


def test_ctrl_c_ends_a_site_that_waits_and_the_same_command_goes_on(four, tmp_path):
    """In the main thread, where Python handles signals; the others come only later."""
    job = make_job(four, FIXED, steps=40)
    calm = run_all(job, tmp_path / "calm", Memory())
    begun = time.monotonic()
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    place = {"site": "north", "data": None, "folder": tmp_path / "north"}
    ended = join(job, **place, wire=Memory().wire("north"))
    assert 0.4 < time.monotonic() - begun < 10  # and not the 20 seconds of patience
    assert ended.status is decibo.Status.interrupted
    assert ended.message.startswith("Interrupted after step 0 of 40; the same command continues")
    same_states(run_all(job, tmp_path, Memory()), calm)


def test_waiting_and_compiling_are_told_apart_from_the_steps(tmp_path):
    outer = lambda x, y, d: jnp.sum((x - d + 0 * y) ** 2)  # a new problem, which must be compiled
    inner = lambda x, y, d: 0.5 * jnp.sum((y - x) ** 2)
    problem = decibo.Problem(outer, inner, np.arange(4.0)[:, None], np.zeros(1), np.zeros(1))
    job = make_job(problem, FIXED, steps=30)
    memory = Memory()
    own = in_threads(
        lambda name: join(job, site=name, data=None, folder=tmp_path / name, wire=memory.wire(name))
    )
    assert max(solution.cost.compiling for solution in own.values()) > 0.01
    assert all(solution.cost.measuring > 0 for solution in own.values())


def test_a_site_that_did_not_move_says_so(four, tmp_path):
    still = decibo.ahead_exact(alpha=1e-12, gamma=0.1)
    result = run_all(make_job(four, still, steps=4), tmp_path, Memory())["north"]
    assert result.status is decibo.Status.done
    assert "x has hardly moved" in result.message


def test_what_sites_record_together_is_refused_where_it_cannot_be_had(four):
    free = {"mode": "free", "method": decibo.methods.ahead_free(alpha=0.05, gamma=0.1)}
    for words, options in {
        "no step at which all of them could find residual": free,
        "Masks hide what a site sends, but residual": {"method": decibo.privacy.masked(FIXED, 3.0)},
        "Secure sums hide": {"network": decibo.complete(4), "secure_sums": True},
        "must be one of residual, mean_outer, mean_inner": {"until": {"outer": 1.0}},
        "measures must be a list": {"measures": "mean_outer"},
        "must be a finite number of at least 0": {"until": {"residual": -1.0}},
    }.items():
        with pytest.raises(InputError, match=words):
            make_job(four, **{"method": FIXED, "until": {"residual": 0.1}} | options)


def test_on_a_wire_of_your_own_a_site_of_a_job_needs_its_name_only(tmp_path):
    path = tmp_path / "job.toml"
    sites = "".join(f'[[site]]\nname = "{name}"\n' for name in NAMES)
    method = 'name = "ahead_exact"\nalpha = 0.05\ngamma = 0.1\n'
    path.write_text(f'problem = "quadratic"\n[method]\n{method}{sites}')
    assert read_job(path, certificates=False).names == list(NAMES)
    with pytest.raises(InputError, match="needs a name and a certificate"):
        read_job(path)


@pytest.mark.slow
def test_with_a_new_member_sites_find_the_new_solution_and_an_old_start_saves_little(
    four, tmp_path
):
    steps = {}
    rows = jax.tree.map(lambda leaf: leaf[:3], four.data)
    three = decibo.Problem(four.outer, four.inner, rows, four.x0, four.y0)
    last = decibo.solve(three, decibo.complete(3), FIXED, steps=300).agents
    for name, start in {
        "anew": (four.x0, four.y0),
        "from the last": (last.x[0], last.y[0]),
    }.items():
        problem = decibo.Problem(four.outer, four.inner, four.data, *start)
        job = make_job(problem, FIXED, network=decibo.complete(4), steps=900, every=5,
                       until={"residual": 1e-6})  # fmt: skip
        found = run_all(job, tmp_path / name, Memory())
        steps[name] = found["north"].steps
        np.testing.assert_allclose(found["north"].x, four.solution["x"], atol=1e-5)
    assert steps["from the last"] > 0.8 * steps["anew"]
