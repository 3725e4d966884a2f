"""The rates of both corollaries in small, and the direction of each effect."""

import pytest

import decibo
from decibo.paper import rate_study as rates
from decibo.problems.minimax import minimax_quadratic
from decibo.problems.quadratic import quadratic

KS = (100, 1000, 10_000)


@pytest.mark.parametrize("seed", [0, 4])  # from x0 seed 0 has slope -0.26 in this range
@pytest.mark.parametrize(("corollary", "make", "slope"), [(1, quadratic, -1 / 3), (2, minimax_quadratic, -2 / 3)])
def test_slopes(corollary, make, slope, seed):
    found = rates.curve(make(4, 2, 2, condition=2.0, seed=seed), decibo.ring(4), corollary, Ks=KS)
    assert found.slope <= slope
    assert "slope -" in rates.table([found])


def test_theorem_1_admits_its_own_constants_but_nothing_moves():
    found = rates.curve(quadratic(4, 2, 2, condition=2.0), decibo.ring(4), 1, Ks=(10, 100), practical=False)
    assert all(rule.admitted for rule in found.rules)
    assert abs(found.slope) < 1e-3


def test_effects():
    for name, low, high in rates.effects(K=3000, m=5, seeds=(0, 1)):
        assert high > low, name
