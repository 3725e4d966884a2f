"""Where methods land on a heterogeneous quadratic (ring of 10, double precision), as the docstrings
say."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import decibo
from decibo import consensus, direction
from helpers.variants import daily

RING = decibo.ring(10)
QUADRATIC = decibo.problems.quadratic()
BENT = decibo.problems.quadratic(bend=0.05)
A, G = 0.05, 0.1


def lands(problem, method, steps=10_000, network=RING):
    """|grad Phi(xbar)| after many steps."""
    solution = decibo.solve(
        problem, network, method, steps=steps, measures=["stationarity"], every=steps
    )
    assert solution.status == "done"
    return float(np.sqrt(solution.history["stationarity"][-1]))


EXACT = {
    "sldbo": decibo.methods.sldbo(alpha=A, beta=G, gamma=G),
    "sldbo in a ball": decibo.methods.sldbo(alpha=A, beta=G, gamma=G, radius=50.0),
    "sparkle_gt": decibo.methods.sparkle_gt(alpha=A, beta=G, gamma=G),
    "sparkle_extra": decibo.methods.sparkle_extra(alpha=A, beta=G, gamma=G),
    "sparkle_ed": decibo.methods.sparkle_ed(alpha=A, beta=G, gamma=G),
    "implicit x push_pull": decibo.compose(
        direction.implicit(), consensus.push_pull(), x=0.02, y=0.05, v=0.05
    ),
    "mixed strategies": decibo.compose(
        direction.implicit(),
        {"x": consensus.exact_diffusion(), "y": consensus.tracking(), "v": consensus.extra()},
        x=A,
        y=G,
        v=G,
    ),
    "ahead_free lam=100": decibo.methods.ahead_free(alpha=A, gamma=G, lam=100.0),
    "ahead_exact lam=1": decibo.ahead_exact(alpha=A, gamma=G, lam=1.0),
    "ahead_exact lam=10": decibo.ahead_exact(alpha=A, gamma=G, lam=10.0),
    "ahead_exact lam=100": decibo.ahead_exact(alpha=A, gamma=G, lam=100.0),
}


@pytest.mark.parametrize(
    "name", daily(EXACT, "sparkle_ed", "implicit x push_pull", "ahead_exact lam=10")
)
def test_exact_methods_land_on_the_solution(name):
    assert lands(QUADRATIC, EXACT[name]) <= 1e-9


def test_push_pull_is_exact_on_a_directed_network():
    method = decibo.compose(direction.implicit(), consensus.push_pull(), x=0.01, y=0.03, v=0.03)
    assert lands(QUADRATIC, method, network=decibo.networks.directed_exponential(10)) <= 1e-9


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(
            lambda h: decibo.methods.d_soba(alpha=h, beta=h, gamma=h), marks=pytest.mark.slow
        ),
        lambda h: decibo.ahead(alpha=h, gamma=h, lam=1e6),
    ],
    ids=["d_soba", "ahead"],
)
def test_floors_of_plain_strategies_shrink_linearly_with_the_step(make):
    steps = np.array([0.02, 0.01, 0.005])
    floors = np.array([lands(QUADRATIC, make(h), steps=20_000) for h in steps])
    slope = np.polyfit(np.log(steps), np.log(floors), 1)[0]
    assert 0.85 <= slope <= 1.15


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(
            lambda lam: decibo.compose(
                direction.penalty(lam), consensus.tracking(), x=A, y=G / lam, z=G
            ),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            lambda lam: decibo.methods.fab(alpha=A, beta=G / lam, gamma=G, lam=lam),
            marks=pytest.mark.slow,
        ),
        lambda lam: decibo.compose(
            direction.penalty(lam), consensus.exact_diffusion(), x=A, y=G / lam, z=G
        ),
    ],
    ids=["penalty x tracking", "fab", "penalty x exact_diffusion"],
)
def test_the_bias_of_the_penalty_shrinks_like_one_over_lam(make):
    lams = np.array([30.0, 100.0, 300.0, 1000.0])
    biases = np.array([lands(BENT, make(lam)) for lam in lams])
    slope = np.polyfit(np.log(lams), np.log(biases), 1)[0]
    assert -1.1 <= slope <= -0.9


def test_the_bias_of_the_symmetric_penalty_shrinks_like_one_over_lam_squared():
    lams = np.array([3.0, 10.0, 30.0, 100.0])
    biases = np.array([lands(BENT, decibo.ahead_exact(alpha=A, gamma=G, lam=lam)) for lam in lams])
    slope = np.polyfit(np.log(lams), np.log(biases), 1)[0]
    assert -2.1 <= slope <= -1.9
    same_steps = lands(BENT, decibo.ahead(alpha=A, gamma=G, lam=100.0))
    assert same_steps >= 1e5 * biases[-1]


@pytest.mark.parametrize(
    ("method", "bound"),
    [
        (decibo.methods.lopa(alpha=A, beta=G, gamma=G, tracking=True), 1e-9),
        # the ridge is 6e-10 at the end
        (
            decibo.compose(
                direction.implicit(ridge=decibo.schedules.polynomial(1.0, -4.0, delay=50.0)),
                {"x": consensus.tracking(), "y": consensus.local(), "v": consensus.local()},
                x=A,
                y=G,
                v=G,
            ),
            1e-8,
        ),
    ],
    ids=["lopa", "ridge"],
)
def test_personalised_methods_solve_their_own_problem(method, bound):
    """y*_i(x) = argmin g_i(x, .), so grad = mean_i f_x - J_i H_i^-1 f_y at y*_i."""
    solution = decibo.solve(QUADRATIC, RING, method, steps=10_000, every=10_000)
    total = 0.0
    for i in range(10):
        data = {name: leaf[i : i + 1] for name, leaf in QUADRATIC.data.items()}
        alone = decibo.Problem(QUADRATIC.outer, QUADRATIC.inner, data, QUADRATIC.x0, QUADRATIC.y0)
        total = total + decibo.reference(alone).grad(solution.x) / 10
    assert np.linalg.norm(total) <= bound


def test_the_papers_example_is_solved_by_exact_diffusion_at_the_papers_steps():
    """Squared error of xbar after 1500 steps: at most 1e-11, against 7e-3 to 1.1e-2 of AHEAD."""
    problem, network = decibo.problems.synthetic(), decibo.networks.erdos_renyi(10, 0.7, seed=0)
    steps = {"x": 7e-4, "y": 1e-3, "z": 1e-2}
    for seed in range(3):
        options = {
            "steps": 1500,
            "every": 1500,
            "measures": ["distance_x"],
            "start": decibo.random_start(seed),
        }
        exact = decibo.compose(direction.penalty(20.0), consensus.exact_diffusion(), **steps)
        assert decibo.solve(problem, network, exact, **options).history["distance_x"][-1] <= 1e-11
        plain = decibo.ahead(alpha=7e-4, beta=1e-3, gamma=1e-2, lam=20.0)
        assert (
            5e-3
            <= decibo.solve(problem, network, plain, **options).history["distance_x"][-1]
            <= 1.2e-2
        )


@pytest.mark.parametrize("network", [RING, decibo.networks.path(10)], ids=["ring", "path"])
@pytest.mark.parametrize(
    ("name", "bound"), [("sparkle_extra", 1e-12), ("ahead_exact lam=100", 1e-10)]
)
def test_single_precision_stays_at_the_solution(name, bound, network):
    """The mean of the memory is 0 for good: rounded step by step, it led exact diffusion to 2e-7
    and on."""
    problem = decibo.problems.quadratic(heterogeneity=3.0)
    single = lambda tree: jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), tree)
    problem = replace(
        problem, data=single(problem.data), x0=single(problem.x0), y0=single(problem.y0)
    )
    solution = decibo.solve(
        problem, network, EXACT[name], steps=30_000, measures=["distance_x"], every=3_000
    )
    assert solution.x.dtype == jnp.float32
    assert solution.history["distance_x"][2:].max() <= bound
