"""The least Phi of a task whose minimiser exists, and rivals that are solved exactly."""

import jax.numpy as jnp
import numpy as np
import pytest

from decibo import reference
from studies.bench import sceptic
from studies.bench.tasks import TASKS


def test_the_least_phi_is_below_that_of_other_penalties_and_far_penalties_cost():
    task = TASKS["l2-digits"]
    least = sceptic.least_of(task.make, 0)
    exact = reference(task.make(0))
    n = task.make(0).x_layout.size
    random = np.random.default_rng(0)
    for x in (np.zeros(n), np.full(n, -8.0), random.normal(size=n) * 3 - 5):
        assert float(exact.phi(jnp.asarray(x))) > least
    # without the prior the least is at infinity
    near, far = (float(exact.phi(jnp.full(n, x))) for x in (-10.0, -80.0))
    assert far > near + 0.1


@pytest.mark.parametrize("name", ["cleaning-30", "trust-heart"])
def test_clean_samples_alone_are_a_rival_that_beats_equal_weights(name):
    rows = sceptic.rows(TASKS[name], [0, 1])
    assert rows["validation samples alone"][1] > rows["equal weights"][1]


def test_one_penalty_is_the_best_of_its_grid():
    rows = sceptic.rows(TASKS["l2-heart"], [0])
    ((loss, right),) = rows.values()
    assert 0.4 < loss < 0.55
    assert 0.75 < right < 0.85
    assert sceptic.rows(TASKS["quadratic"], [0]) == {}
