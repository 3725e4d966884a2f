"""Matched inner steps: ahead_exact is the implicit method by gradients alone, and lam drops out of
the step sizes."""

import numpy as np
import pytest

import decibo
from decibo import consensus, direction

RING = decibo.ring(10)


# the same functions: one program for every lam
LOOK = {name: lambda s, name=name: s.local[name] for name in "xyzv"}


def paths(problem, method, names):
    """These variables of every agent at every step."""
    measures = [(name, LOOK[name]) for name in names]
    history = decibo.solve(problem, RING, method, steps=300, every=1, measures=measures).history
    return [history[name] for name in names]


def ours(problem, lam):
    """x, c and w along ahead_exact."""
    x, y, z = paths(problem, decibo.ahead_exact(alpha=0.05, gamma=0.1, lam=lam), "xyz")
    return x, (y + z) / 2, lam * (y - z) / 2


def theirs(problem):
    """x, y and -v along the implicit method."""
    x, y, v = paths(
        problem, decibo.methods.sparkle_ed(alpha=0.05, beta=0.1, gamma=0.1, theta=None), "xyv"
    )
    return x, y, -v


def gaps(one, other):
    """The largest difference along the run, of x, c and w."""
    return [np.abs(a - b).max() for a, b in zip(one, other, strict=True)]


@pytest.mark.parametrize("lam", [1.0, 10.0, 1000.0])
def test_equal_to_the_implicit_method_at_every_step_for_a_quadratic_inner_level(lam):
    problem = decibo.problems.quadratic()
    x, c, w = ours(problem, lam)
    assert min(np.ptp(x), np.ptp(c), np.ptp(w)) > 0.1
    assert max(gaps((x, c, w), theirs(problem))) <= 1e-12 * max(lam, 10)


def test_equal_to_the_implicit_method_up_to_one_over_lam_squared_otherwise():
    problem = decibo.problems.quadratic(bend=0.1)
    exact = theirs(problem)
    lams = np.array([3.0, 10.0, 30.0, 100.0])
    found = np.array([gaps(ours(problem, lam), exact) for lam in lams])
    for column in found.T:  # x, c and w
        assert -2.15 <= np.polyfit(np.log(lams), np.log(column), 1)[0] <= -1.85


def largest_alpha(problem, make, low=1e-5, high=1e3, factor=1.25, steps=1500):
    """The largest alpha of a geometric grid from which |grad Phi| falls, by bisection."""

    def works(alpha):
        solution = decibo.solve(
            problem, RING, make(alpha), steps=steps, every=steps, measures=["stationarity"]
        )
        values = solution.history["stationarity"]
        return solution.status == "done" and bool(values[-1] <= values[0])

    grid = low * factor ** np.arange(int(np.log(high / low) / np.log(factor)))
    first, last = 0, len(grid) - 1
    if not works(grid[first]):
        return 0.0
    while last - first > 1:
        middle = (first + last) // 2
        first, last = (middle, last) if works(grid[middle]) else (first, middle)
    return float(grid[first])


@pytest.mark.slow
def test_the_largest_stable_alpha_does_not_depend_on_lam():
    problem = decibo.problems.quadratic(condition=10.0)
    largest = [
        largest_alpha(problem, lambda a, lam=lam: decibo.ahead_exact(alpha=a, gamma=0.1, lam=lam))
        for lam in (1.0, 100.0, 1e4)
    ]
    assert min(largest) > 0
    assert max(largest) / min(largest) < 2


@pytest.mark.slow
def test_with_the_timescales_apart_alpha_shrinks_like_one_over_lam():
    problem = decibo.problems.quadratic(condition=10.0)

    def make(lam):
        return lambda alpha: decibo.compose(
            direction.penalty(lam), consensus.exact_diffusion(), x=alpha, y=0.1 / (5 * lam), z=0.1
        )

    lams = np.array([30.0, 100.0, 300.0])
    largest = np.array([largest_alpha(problem, make(lam)) for lam in lams])
    assert (largest > 0).all()
    assert -1.2 <= np.polyfit(np.log(lams), np.log(largest), 1)[0] <= -0.8
