"""Minibatches from the host: the same as a plain numpy loop makes, to the sample, in any blocks,
resumed or not."""

import itertools
import threading

import jax.numpy as jnp
import numpy as np
import pytest

import decibo
from decibo import estimator
from decibo.data import Stream
from decibo.errors import StreamError

SIZES = (40, 55, 7, 64)  # samples of each agent; one has fewer than a batch
BATCH, STEPS, SEED = 8, 60, 3
SETTINGS = {"alpha": 0.05, "beta": 0.02, "gamma": 0.1, "lam": 5.0}
random = np.random.default_rng(0)
ARRAYS = [{"a": 1 + random.random((n, 3)), "b": random.normal(size=(n, 3))} for n in SIZES]
HELD_OUT = {"a": np.ones((4, 5, 3)), "b": random.normal(size=(4, 5, 3))}
NETWORK = decibo.ring(4)
METHOD = decibo.minibatch(decibo.ahead(**SETTINGS))


def outer(x, y, d):
    return 0.5 * jnp.mean(jnp.sum((y - d["b"]) ** 2, axis=1)) + 0.05 * jnp.sum(x**2)


def inner(x, y, d):
    return 0.5 * jnp.mean(jnp.sum(d["a"] * (y - x) ** 2, axis=1))


def problem(stream, data=HELD_OUT, **options):
    return decibo.Problem(outer, inner, data, np.zeros(3), np.ones(3), sample=stream, **options)


def arrays(block=7, **options):
    return Stream.from_arrays(ARRAYS, BATCH, block=block, **options)


def run(stream, method=METHOD, steps=STEPS, seed=SEED, every=20, **options):
    return decibo.solve(
        problem(stream), NETWORK, method, steps=steps, every=every, seed=seed, **options
    )


def state(solution):
    return np.concatenate([np.asarray(leaf) for leaf in vars(solution.agents).values()], axis=1)


def batch_of(agent, step, seed=SEED):
    """Rows b k, ..., b k + b - 1 of one shuffled pass after another, by the definition."""
    n = SIZES[agent]
    passes = [
        np.random.default_rng((seed, agent, e)).permutation(n)
        for e in range((BATCH * (step + 1) - 1) // n + 1)
    ]
    rows = np.concatenate(passes)[BATCH * step : BATCH * (step + 1)]
    return {name: array[rows] for name, array in ARRAYS[agent].items()}


def direction(d, x, y, z):
    """AHEAD's direction on one batch, by hand."""
    a = d["a"].mean(axis=0)
    lam = SETTINGS["lam"]
    d_x = 0.1 * x - lam * a * (y - x) + lam * a * (z - x)
    return np.stack([d_x, y - d["b"].mean(axis=0) + lam * a * (y - x), a * (z - x)])


def twin(weight):
    """Steps of AHEAD on minibatches in plain numpy; with a weight below 1, by STORM: two directions
    on one batch."""
    W = NETWORK.weights.toarray()
    sizes = np.array([SETTINGS[name] for name in ("alpha", "beta", "gamma")])[:, None]
    # agents, variables, entries
    s = np.stack([np.stack([np.zeros(3), np.ones(3), np.ones(3)])] * 4)
    past, d = s, np.zeros_like(s)
    for k in range(STEPS):
        keep = 0.0 if k == 0 else 1 - weight
        batches = [batch_of(agent, k) for agent in range(4)]
        new = np.stack([direction(b, *v) for b, v in zip(batches, s, strict=True)])
        old = np.stack([direction(b, *v) for b, v in zip(batches, past, strict=True)])
        d = new + keep * (d - old)
        past, s = s, np.einsum("ij,jvn->ivn", W, s) - sizes * d
    return s.reshape(4, 9)


@pytest.fixture(scope="module")
def whole():
    return run(arrays())


def test_a_run_is_that_of_the_numpy_twin(whole):
    np.testing.assert_allclose(state(whole), twin(1.0), atol=1e-12)
    assert whole.cost.share == 1
    assert whole.cost.gradients == 3


def test_storm_takes_both_directions_of_a_step_on_one_batch():
    found = run(arrays(), decibo.with_estimator(decibo.ahead(**SETTINGS), estimator.storm(0.3)))
    np.testing.assert_allclose(state(found), twin(0.3), atol=1e-12)


def test_blocks_are_not_seen_in_the_result(whole):
    assert (state(run(arrays(block=None))) == state(whole)).all()  # all steps in one block


def test_the_seed_decides_on_the_batches(whole):
    assert np.abs(state(run(arrays(), seed=4)) - state(whole)).max() > 1e-6


def test_a_function_and_an_iterator_bring_the_same(whole):
    def read(agent, step, random):
        return batch_of(agent, step)

    assert (state(run(Stream.from_function(read, agents=4, block=7))) == state(whole)).all()
    # no batch more than there are steps
    start = lambda agent: (batch_of(agent, k) for k in range(STEPS))
    assert (state(run(Stream.from_iterators(start, block=7))) == state(whole)).all()


def test_a_function_draws_from_seed_agent_and_step():
    drawn = {}
    read = lambda agent, step, random: drawn.setdefault((agent, step), random.random(2))
    readers = [Stream.from_function(read).open(agent, 5) for agent in (0, 1)]
    for agent, step in itertools.product((0, 1), (0, 3)):
        readers[agent](step)
        assert (drawn[agent, step] == np.random.default_rng((5, agent, step)).random(2)).all()


@pytest.mark.parametrize("kind", ["arrays", "iterators"])
def test_a_run_resumes_to_the_sample(whole, tmp_path, kind):
    begun = []

    def start(agent):
        begun.append(agent)
        return (batch_of(agent, k) for k in itertools.count())

    stream = arrays() if kind == "arrays" else Stream.from_iterators(start, block=7)
    kept = decibo.Checkpoints(tmp_path, every=1000)
    run(stream, steps=23, every=20, checkpoint=kept)
    again = run(stream, checkpoint=decibo.Checkpoints(tmp_path, every=1000, resume=True))
    assert (state(again) == state(whole)).all()
    assert kind == "arrays" or begun == [0, 1, 2, 3] * 2


def test_other_data_or_batches_are_another_run(tmp_path):
    run(arrays(), steps=5, checkpoint=decibo.Checkpoints(tmp_path))
    resumed = decibo.Checkpoints(tmp_path, resume=True)
    with pytest.raises(decibo.InputError, match="belongs to another run"):
        run(Stream.from_arrays(ARRAYS, BATCH, shuffle=False), steps=6, checkpoint=resumed)
    changed = [*ARRAYS[:3], {name: array + 1 for name, array in ARRAYS[3].items()}]
    with pytest.raises(decibo.InputError, match="began with other data of agent 3"):
        run(Stream.from_arrays(changed, BATCH), steps=6, checkpoint=resumed)


def test_memory_maps_are_read_row_by_row(whole, tmp_path):
    def opened(agent):
        for name, array in ARRAYS[agent].items():
            np.save(tmp_path / f"{agent}{name}.npy", array)
        return {
            name: np.load(tmp_path / f"{agent}{name}.npy", mmap_mode="r") for name in ARRAYS[agent]
        }

    assert (state(run(Stream.from_arrays(opened, BATCH, agents=4, block=7))) == state(whole)).all()


def test_a_part_of_the_data_stays_on_the_device(whole):
    """The outer level sees all that was checked, the inner level a batch of the rest."""
    own = {"a": np.ones((4, 1, 3)), "b": np.arange(12.0).reshape(4, 1, 3)}
    part = Stream.from_arrays(
        [{"a": part["a"]} for part in ARRAYS], BATCH, join=lambda d, batch: d | batch
    )
    same = Stream.from_arrays([{"a": part["a"]} for part in ARRAYS], BATCH)
    put = lambda d, batch: batch | {"b": d["b"]}
    found = [
        decibo.solve(
            decibo.Problem(outer, inner, own, np.zeros(3), np.zeros(3), sample=s),
            NETWORK,
            METHOD,
            steps=20,
        )
        for s in (part, Stream(same.open, same.words, 4, put))
    ]
    assert (state(found[0]) == state(found[1])).all()
    assert np.abs(state(found[0]) - state(whole)).max() > 0.1


def test_measures_see_the_data_or_else_the_first_batches(whole):
    x = np.asarray(whole.x)
    y = np.asarray(whole.y)
    value = lambda parts: np.mean([float(outer(x, y, part)) for part in parts])
    mine = [{name: leaf[i] for name, leaf in HELD_OUT.items()} for i in range(4)]
    assert abs(whole.history["outer"][-1] - value(mine)) < 1e-12
    alone = decibo.Problem(outer, inner, arrays(), np.zeros(3), np.ones(3))
    found = decibo.solve(alone, NETWORK, METHOD, steps=STEPS, seed=SEED)
    assert (state(found) == state(whole)).all()
    first = [batch_of(agent, 0, seed=0) for agent in range(4)]
    assert abs(found.history["outer"][-1] - value(first)) < 1e-12
    with pytest.raises(decibo.InputError, match="phi solves the inner level exactly, but all data"):
        decibo.solve(alone, NETWORK, METHOD, measures=["phi"])
    exact = run(arrays(), steps=1, measures=["phi"])
    assert np.isfinite(exact.history["phi"]).all()


def test_what_goes_wrong_in_the_thread_is_raised_with_agent_and_step():
    def read(agent, step, random):
        if (agent, step) == (2, 17):
            raise OSError("the disk is gone")
        return (
            batch_of(agent, step) if step < 40 else {"a": np.zeros((3, 3)), "b": np.zeros((3, 3))}
        )

    with pytest.raises(
        StreamError, match="agent 2 for step 17 could not be read: OSError: the disk is gone"
    ) as found:
        run(Stream.from_function(read, block=7))
    assert isinstance(found.value.__cause__, OSError)
    late = Stream.from_function(
        lambda agent, step, random: read(agent, max(step, 18), random), block=7
    )
    with pytest.raises(
        StreamError, match=r"float64\[8, 3\].*that of agent 0 for step 40 has .*float64\[3, 3\]"
    ):
        run(late)
    ends = Stream.from_iterators(lambda agent: (batch_of(agent, k) for k in range(30)), block=7)
    with pytest.raises(StreamError, match="agent 0 ended before it had a batch for step 30"):
        run(ends)
    assert not [
        thread
        for thread in threading.enumerate()
        if thread.name == "decibo stream" and not thread.daemon
    ]


def test_a_diverging_run_ends_with_its_last_finite_state():
    found = run(arrays(), METHOD.replace(alpha=1e200), every=7)
    assert found.status == "diverged"
    assert np.isfinite(state(found)).all()
    assert "Lower the step sizes" in found.message


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: run(arrays(), decibo.ahead(**SETTINGS)), "takes gradients on all data"),
        (
            lambda: run(
                arrays(), decibo.with_estimator(decibo.ahead(**SETTINGS), estimator.page(0.1))
            ),
            "takes gradients on all data",
        ),
        (
            lambda: run(
                arrays(), decibo.with_estimator(decibo.ahead(**SETTINGS), estimator.saga())
            ),
            "a fixed list of batches",
        ),
        (
            lambda: decibo.sweep(problem(arrays()), NETWORK, METHOD, seeds=2),
            "A sweep needs data in memory in place of a stream",
        ),
        (lambda: Stream.from_arrays(ARRAYS[0], 8), "must be a list with an entry for each agent"),
        (
            lambda: Stream.from_arrays([{"a": np.ones(3), "b": np.ones(4)}], 8),
            "one row for each sample",
        ),
        (
            lambda: Stream.from_function(lambda agent, step: 0),
            "must be a function .agent, step, random.",
        ),
        (
            lambda: Stream.from_arrays(ARRAYS, 8, agents=5),
            "agents is 5, but there are arrays for 4",
        ),
        (lambda: problem(arrays(), agents=5), "agents is 5, but the stream is for 4 agents"),
        (
            lambda: decibo.Problem(outer, inner, arrays(), 0.0, 0.0, sample=arrays()),
            "nothing else to draw from",
        ),
        (
            lambda: run(Stream.from_arrays([{"a": p["a"]} for p in ARRAYS], 8)),
            "outer.* raised KeyError",
        ),
        (
            lambda: run(Stream.from_arrays([*ARRAYS[:3], {"a": ARRAYS[3]["a"]}], 8)),
            "structure, shapes and types",
        ),
        (
            lambda: run(Stream.from_function(lambda agent, step, random: "text")),
            "agent 0 for step 0 .* numbers",
        ),
    ],
)
def test_what_cannot_work_is_refused(make, match):
    with pytest.raises((decibo.InputError, StreamError), match=match):
        make()


def test_repeat_draws_other_batches_for_each_seed(whole):
    runs = decibo.repeat(
        lambda seed: problem(arrays()), NETWORK, METHOD, seeds=[SEED, 4], steps=STEPS, every=20
    )
    assert (state(runs[0]) == state(whole)).all()
    assert np.abs(state(runs[1]) - state(whole)).max() > 1e-6
