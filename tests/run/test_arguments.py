"""Arguments that make no sense are rejected in a sentence, before any work; `faults.py arguments`
tries thousands."""

import time

import networkx
import numpy as np
import pytest
import scipy.sparse

import decibo
from decibo.errors import InputError

PROBLEM = decibo.problems.quadratic(4)
RING = decibo.ring(4)
METHOD = decibo.ahead(alpha=0.05, gamma=0.1, lam=20.0)
EXACT = decibo.ahead_exact(alpha=0.05, gamma=0.1)
LABELS = np.array(["a", "b", "c", "d"])


def f(x, y, d):
    return (y - d) ** 2 + x**2


def g(x, y, d):
    return (y - x - d) ** 2


def solve(**options):
    return decibo.solve(PROBLEM, RING, METHOD, **{"steps": 2, "progress": False, **options})


def problem(**options):
    return decibo.Problem(
        **{"outer": f, "inner": g, "data": np.arange(4.0), "x0": 0.0, "y0": 0.0, **options}
    )


def compose(**options):
    fine = {
        "direction": decibo.direction.penalty(1.0),
        "consensus": decibo.consensus.dgd(),
        "x": 0.1,
        "y": 0.1,
        "z": 0.1,
    }
    return decibo.compose(**fine | options)


def job(**options):
    sites = [decibo.silo.Site(name) for name in ("north", "east", "south", "west")]
    return decibo.silo.Job(
        **{"sites": sites, "problem": PROBLEM, "network": RING, "method": METHOD, **options}
    )


CASES = {
    "seed None": (
        lambda: solve(seed=None),
        "seed must be an integer of at least 0, but it is None",
    ),
    "seed fraction": (
        lambda: solve(seed=1.5),
        "seed must be an integer of at least 0, but it is 1.5",
    ),
    "seed text": (lambda: solve(seed="a"), "seed must be an integer of at least 0, but it is 'a'"),
    "seed huge": (lambda: solve(seed=2**63), "seed must be at most 2,147,483,647"),
    "steps wrap": (
        lambda: solve(steps=2**31),
        "steps must be at most 2,147,483,647, but it is 2,147,483,648",
    ),
    "sweep steps": (
        lambda: decibo.sweep(PROBLEM, RING, METHOD, {"alpha": [0.1]}, steps=2**31),
        "at most 2,147,483,647",
    ),
    "until text": (
        lambda: solve(until="outer"),
        "until must be a dictionary of measures and values, but it is 'outer'",
    ),
    "until number": (
        lambda: solve(until=5),
        "until must be a dictionary of measures and values, but it is 5",
    ),
    "until None": (
        lambda: solve(until={"outer": None}),
        r"until\['outer'\] must be a finite number, but it is None",
    ),
    "measures": (
        lambda: solve(measures=5),
        "measures must be a list of names and functions, but it is 5",
    ),
    "measures table": (
        lambda: solve(measures={"a": 3}),
        "measures must be a list of names and functions",
    ),
    "checkpoint": (lambda: solve(checkpoint=5), r"must be decibo.Checkpoints\(folder\)"),
    "progress": (lambda: solve(progress="x"), "progress must be True, False or a function"),
    "throw": (lambda: solve(throw="yes"), "throw must be True or False, but it is 'yes'"),
    "start": (
        lambda: solve(start={"x": np.zeros((4, 3), complex)}),
        "must hold real numbers, but it holds complex128",
    ),
    "labels": (
        lambda: problem(data=LABELS),
        "Data must be numbers, but data is text.*Encode labels as integers",
    ),
    "objects": (
        lambda: problem(data=LABELS.astype(object)),
        "Data must be numbers, but data is of type object",
    ),
    "masked": (lambda: problem(data=np.ma.masked_array(np.arange(4.0))), "data is a masked array"),
    "sparse": (
        lambda: problem(data=scipy.sparse.eye_array(4).tocsr()),
        "Data must be numbers, but data is",
    ),
    "more agents": (lambda: problem(agents=7), "agents is 7, but data has entries for 4 agents"),
    "agents": (lambda: problem(agents=4.0), "agents must be a positive integer, but it is 4.0"),
    "tuple": (lambda: problem(outer=lambda x, y, d: (x,)), "but outer returns a tuple of"),
    "nothing": (lambda: problem(outer=lambda x, y, d: None), "but outer returns nothing"),
    "solution": (
        lambda: problem(solution={"x": np.zeros(7)}),
        r"solution\['x'\] must look like x0",
    ),
    "sample": (lambda: problem(sample=5), "sample must be a function or None, but it is 5"),
    "graph": (
        lambda: decibo.solve(PROBLEM, networkx.cycle_graph(4), METHOD),
        r"Use decibo.from_graph\(graph\)",
    ),
    "no graph": (lambda: decibo.from_graph(5), "graph must be a networkx graph, but it is 5"),
    "method": (lambda: decibo.solve(PROBLEM, RING, decibo.ahead), "Call it with its settings"),
    "bytes": (
        lambda: decibo.ahead(alpha=b"1", gamma=0.1, lam=1.0),
        "alpha must be a positive, finite number",
    ),
    "schedule": (
        lambda: decibo.ahead(alpha=lambda: 1, gamma=0.1, lam=1.0),
        r"function of the step, but alpha\(0\) raised",
    ),
    "difference": (
        lambda: decibo.methods.d_soba(alpha=0.1, beta=0.1, gamma=0.1, difference="a"),
        "difference must be",
    ),
    "resume": (lambda: decibo.Checkpoints("folder", resume="yes"), "resume must be True or False"),
    "reference": (lambda: decibo.reference(None), "problem must be a decibo problem"),
    "each": (
        lambda: decibo.networks.each(5),
        "A network for each variable is a dictionary .*, but it is 5",
    ),
    "away": (
        lambda: decibo.networks.asynchronous(RING, away=5),
        "away must be a dictionary such as",
    ),
    "box of words": (
        lambda: decibo.prox.box("a", 1.0),
        "low must be a number or a vector of numbers, but it is 'a'",
    ),
    "box of NaN": (
        lambda: decibo.prox.box(0.0, np.nan),
        "high must be a number or a vector of numbers, but it is nan",
    ),
    "direction": (
        lambda: compose(direction="penalty"),
        "The direction must be one of decibo.direction.*'penalty'",
    ),
    "direction uncalled": (
        lambda: compose(direction=decibo.direction.penalty),
        "The direction must be one of",
    ),
    "strategy": (
        lambda: compose(consensus="dgd"),
        "A strategy must be one of decibo.consensus.*'dgd'",
    ),
    "strategy of x": (
        lambda: compose(
            consensus={"x": 5, "y": decibo.consensus.dgd(), "z": decibo.consensus.dgd()}
        ),
        "A strategy must be one of decibo.consensus.*but this is 5",
    ),
    "average": (
        lambda: compose(average=5),
        "average must be a dictionary such as {'x': 0.2}, but it is 5",
    ),
    "proximal maps": (lambda: compose(prox=5), "prox must be a dictionary such as"),
    "no estimator": (lambda: decibo.with_estimator(METHOD, None), "There is no estimator"),
    "no masks": (
        lambda: decibo.privacy.masked(EXACT, {}),
        "none is given: nothing would be masked",
    ),
    "pricing": (
        lambda: decibo.problems.stackelberg_pricing(seed=[]),
        "seed must be an integer of at least 0",
    ),
    "saddle": (lambda: decibo.problems.minimax(seed=None), "seed must be an integer of at least 0"),
    "cleaning": (
        lambda: decibo.problems.hyper_cleaning(seed=-1),
        "seed must be an integer of at least 0",
    ),
    "dataset": (
        lambda: decibo.problems.hyper_cleaning("digits"),
        "dataset must be a decibo dataset.*but it is 'digits'",
    ),
    "logistic": (
        lambda: decibo.problems.logistic_hyperparameters(5),
        "dataset must be a decibo dataset",
    ),
    "no labels": (
        lambda: decibo.data.iid(None, 2),
        "labels must be an array with one label for each sample",
    ),
    "ratios": (
        lambda: decibo.data.by_label(np.ones(4), 2, "a"),
        r"share of positives in \[0, 1\].*but it is 'a'",
    ),
    "size": (
        lambda: decibo.data.by_label(np.ones(4), 2, [1.0, 1.0], size="a"),
        "size must be a positive integer",
    ),
    "stream": (
        lambda: decibo.data.Stream.from_arrays([np.ones(4)] * 4, 2, agents=np.ones(2)),
        "agents must be a positive integer",
    ),
    "path": (lambda: decibo.data.libsvm(5), "path must be a path, but it is 5"),
    "table": (lambda: decibo.data.read_table(5), "source must be a path, but it is 5"),
    "sites": (lambda: job(sites=("north",) * 4), "sites must be a list of decibo.silo.Site"),
    "relay": (
        lambda: job(relay="north"),
        "relay must be a decibo.silo.Site or None, but it is 'north'",
    ),
    "certificate": (lambda: decibo.silo.Site("north", []), "The certificate of north must be PEM"),
    "faults": (
        lambda: decibo.silo.Faults(seed="a"),
        "seed must be an integer of at least 0, but it is 'a'",
    ),
    "periodic": (
        lambda: decibo.networks.periodic(5),
        "networks must be a list of networks, but it is 5",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_rejected_in_a_sentence(case):
    call, words = CASES[case]
    with pytest.raises(InputError, match=words):
        call()


def test_weights_that_differ_in_the_last_digits_show_by_how_much():
    W = np.full((2, 2), 0.5)
    W[0, 1] += 1e-8
    with pytest.raises(InputError, match=r"W\[0, 1\] = 0.5 and W\[1, 0\] = 0.5 differ by 1e-08"):
        decibo.from_weights(W)


def test_a_problem_prints_what_it_is_and_not_its_data():
    big = decibo.Problem(f, g, np.arange(4.0), 0.0, 0.0, name="mine")
    assert repr(big) == "Problem(mine: 4 agents, x of 1 and y of 1 numbers)"


def test_a_penalty_that_drowns_in_rounding_is_warned_about():
    single = decibo.Problem(f, g, np.arange(4, dtype=np.float32), np.float32(0), np.float32(0))
    with pytest.warns(
        UserWarning,
        match=r"lam = 1e\+08 is too large for float32.*Lower lam, or use double precision",
    ):
        decibo.solve(
            single,
            RING,
            decibo.ahead_exact(alpha=0.01, gamma=0.1, lam=1e8),
            steps=1,
            progress=False,
        )


def test_a_hundred_million_steps_begin_at_once():
    """A list of all their intervals would take a gigabyte, and minutes to make."""
    seen = []
    begun = time.perf_counter()

    def stop(step, steps, latest):
        seen.append(step)
        if step:
            seen.append(time.perf_counter() - begun)
            raise KeyboardInterrupt

    solution = decibo.solve(PROBLEM, RING, METHOD, steps=10**8, every=10, progress=stop)
    assert solution.status == "interrupted"
    *_, step, seconds = seen
    assert step < 10_000
    assert seconds < 40
