"""Arguments that make no sense are rejected in a sentence, before any work; `faults.py arguments` tries thousands."""

import networkx
import numpy as np
import pytest

import decibo
from decibo.errors import InputError

PROBLEM = decibo.problems.quadratic(4)
RING = decibo.ring(4)
METHOD = decibo.ahead(alpha=0.05, gamma=0.1, lam=20.0)
LABELS = np.array(["a", "b", "c", "d"])


def f(x, y, d):
    return (y - d) ** 2 + x**2


def g(x, y, d):
    return (y - x - d) ** 2


def solve(**options):
    return decibo.solve(PROBLEM, RING, METHOD, **{"steps": 2, "progress": False, **options})


def problem(**options):
    return decibo.Problem(**{"outer": f, "inner": g, "data": np.arange(4.0), "x0": 0.0, "y0": 0.0, **options})


CASES = {
    "seed None": (lambda: solve(seed=None), "seed must be an integer of at least 0, but it is None"),
    "seed huge": (lambda: solve(seed=2**63), "seed must be at most 2,147,483,647"),
    "steps wrap": (lambda: solve(steps=2**31), "steps must be at most 2,147,483,647, but it is 2,147,483,648"),
    "sweep steps": (
        lambda: decibo.sweep(PROBLEM, RING, METHOD, {"alpha": [0.1]}, steps=2**31),
        "at most 2,147,483,647",
    ),
    "until text": (
        lambda: solve(until="outer"),
        "until must be a dictionary of measures and values, but it is 'outer'",
    ),
    "until None": (lambda: solve(until={"outer": None}), r"until\['outer'\] must be a finite number, but it is None"),
    "measures": (lambda: solve(measures=5), "measures must be a list of names and functions, but it is 5"),
    "progress": (lambda: solve(progress="x"), "progress must be True, False or a function"),
    "throw": (lambda: solve(throw="yes"), "throw must be True or False, but it is 'yes'"),
    "start": (lambda: solve(start={"x": np.zeros((4, 3), complex)}), "must hold real numbers, but it holds complex128"),
    "labels": (lambda: problem(data=LABELS), "Data must be numbers, but data is text.*Encode labels as integers"),
    "objects": (lambda: problem(data=LABELS.astype(object)), "Data must be numbers, but data is of type object"),
    "masked": (lambda: problem(data=np.ma.masked_array(np.arange(4.0))), "data is a masked array"),
    "agents": (lambda: problem(agents=4.0), "agents must be a positive integer, but it is 4.0"),
    "tuple": (lambda: problem(outer=lambda x, y, d: (x,)), "but outer returns a tuple of"),
    "nothing": (lambda: problem(outer=lambda x, y, d: None), "but outer returns nothing"),
    "solution": (lambda: problem(solution={"x": np.zeros(7)}), r"solution\['x'\] must look like x0"),
    "sample": (lambda: problem(sample=5), "sample must be a function or None, but it is 5"),
    "graph": (lambda: decibo.solve(PROBLEM, networkx.cycle_graph(4), METHOD), r"Use decibo.from_graph\(graph\)"),
    "no graph": (lambda: decibo.from_graph(5), "graph must be a networkx graph, but it is 5"),
    "method": (lambda: decibo.solve(PROBLEM, RING, decibo.ahead), "Call it with its settings"),
    "bytes": (lambda: decibo.ahead(alpha=b"1", gamma=0.1, lam=1.0), "alpha must be a positive, finite number"),
    "schedule": (
        lambda: decibo.ahead(alpha=lambda: 1, gamma=0.1, lam=1.0),
        r"function of the step, but alpha\(0\) raised",
    ),
    "difference": (lambda: decibo.methods.d_soba(alpha=0.1, beta=0.1, gamma=0.1, difference="a"), "difference must be"),
    "resume": (lambda: decibo.Checkpoints("folder", resume="yes"), "resume must be True or False"),
    "reference": (lambda: decibo.reference(None), "problem must be a decibo problem"),
    "periodic": (lambda: decibo.networks.periodic(5), "networks must be a list of networks, but it is 5"),
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
    with pytest.warns(UserWarning, match=r"lam = 1e\+08 is too large for float32.*Lower lam, or use double precision"):
        decibo.solve(single, RING, decibo.ahead_exact(alpha=0.01, gamma=0.1, lam=1e8), steps=1, progress=False)


def test_a_hundred_million_steps_begin_at_once():
    seen = []

    def stop(step, steps, latest):
        seen.append(step)
        if step:
            raise KeyboardInterrupt

    solution = decibo.solve(PROBLEM, RING, METHOD, steps=10**8, every=10, progress=stop)
    assert solution.status == "interrupted"
    assert seen[-1] < 10_000
