"""Measures against values written by hand, and which of them a method has."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import decibo
from decibo import consensus, direction
from helpers.twin import problem

pytestmark = pytest.mark.quick

LAM = 5.0
METHOD = decibo.ahead(alpha=0.02, beta=0.01, gamma=0.05, lam=LAM)


def penalty(twin, i, x, y, z):
    return twin.f_x(i, x[i], y[i]) + LAM * (twin.g_x(i, x[i], y[i]) - twin.g_x(i, x[i], z[i]))


def symmetric(twin, i, x, y, z):
    c = (y[i] + z[i]) / 2
    return twin.f_x(i, x[i], c) + LAM / 2 * (twin.g_x(i, x[i], y[i]) - twin.g_x(i, x[i], z[i]))


def implicit(twin, i, x, y, v):
    return twin.f_x(i, x[i], y[i]) - twin.J(i, x[i], y[i], v[i])


def test_measures_are_what_they_say():
    ours, twin = problem("vector", 5)
    start = decibo.random_start(3)
    solution = decibo.solve(
        ours, decibo.networks.path(5), METHOD, steps=3, start=start, measures=["all"]
    )
    x, y, z = (np.asarray(getattr(solution.agents, name)) for name in "xyz")
    spread = lambda rows: sum(np.sum((row - rows.mean(axis=0)) ** 2) for row in rows)
    data = [jax.tree.map(lambda leaf, i=i: leaf[i], ours.data) for i in range(5)]
    f = np.mean([ours.outer(x[i], y[i], data[i]) for i in range(5)])
    g = np.mean([ours.inner(x[i], y[i], data[i]) for i in range(5)])
    h = np.mean([ours.inner(x[i], z[i], data[i]) for i in range(5)])
    exact = decibo.reference(ours)
    wanted = {"outer_local": f, "inner_local": g, "gap": g - h, "phi": exact.phi(x.mean(axis=0))}
    wanted["outer"] = np.mean([ours.outer(solution.x, solution.y, each) for each in data])
    wanted["inner"] = np.mean([ours.inner(solution.x, solution.y, each) for each in data])
    wanted |= {
        f"consensus_{name}": spread(rows) for name, rows in zip("xyz", (x, y, z), strict=True)
    }
    wanted["stationarity"] = np.sum(exact.grad(x.mean(axis=0)) ** 2)
    wanted["inner_error"] = np.sum((y.mean(axis=0) - exact.y(x.mean(axis=0))) ** 2)
    wanted["direction_norm"] = np.sum(
        np.mean([penalty(twin, i, x, y, z) for i in range(5)], axis=0) ** 2
    )
    for name, value in wanted.items():
        np.testing.assert_allclose(solution.history[name][-1], value, rtol=1e-9, err_msg=name)
    assert set(wanted) == set(solution.history) - {"step"}


def test_agents_that_only_fit_their_own_data_do_not_look_good():
    """With hardly any link each agent fits its own d_i, and only the loss of their mean, the
    answer, shows it."""
    d = jnp.arange(5.0)
    apart = decibo.networks.from_weights(np.eye(5) * 0.9999 + 0.0001 * decibo.ring(5).W)
    ours = decibo.Problem(
        lambda x, y, d: (y - d) ** 2 + x**2, lambda x, y, d: (y - x - d) ** 2, d, 0.1, 0.0
    )
    method = decibo.ahead_exact(alpha=0.01, gamma=0.1, lam=20.0)
    solution = decibo.solve(ours, apart, method, steps=500, measures=["outer", "outer_local"])
    assert solution.history["outer_local"][-1] < 0.01
    np.testing.assert_allclose(
        solution.history["outer"][-1], np.mean((solution.y - d) ** 2) + solution.x**2
    )
    assert solution.history["outer"][-1] > 1.9


def test_a_users_measure_sees_means_agents_data_and_step():
    ours, _ = problem("nested", 4)
    traced = []

    def mine(snapshot):
        traced.append(snapshot.step)
        return jnp.stack(
            [
                snapshot.x["a"][0],
                snapshot.agents.y["u"][2, 0, 1],
                snapshot.data["b"][0, 0],
                snapshot.step,
            ]
        )

    solution = decibo.solve(
        ours, decibo.ring(4), METHOD, steps=4, every=2, measures=[mine, "outer"]
    )
    np.testing.assert_allclose(
        solution.history["mine"][-1],
        [solution.x["a"][0], solution.agents.y["u"][2, 0, 1], ours.data["b"][0, 0], 4],
    )
    assert solution.history["mine"].shape == (3, 4)
    assert len(traced) == 1  # exact measures take long to trace


@pytest.mark.parametrize(
    ("along", "by_hand", "third"),
    [
        (direction.penalty(LAM), penalty, "z"),
        (direction.symmetric_penalty(LAM), symmetric, "z"),
        (direction.implicit(), implicit, "v"),
    ],
    ids=["penalty", "symmetric_penalty", "implicit"],
)
def test_direction_norm_is_the_mean_direction_of_x_squared(along, by_hand, third):
    """On a path, whose agents differ after three steps, and with a user's own composition."""
    ours, twin = problem("vector", 4)
    method = decibo.compose(along, consensus.atc(), **dict.fromkeys(along.variables, 0.02))
    solution = decibo.solve(
        ours,
        decibo.networks.path(4),
        method,
        steps=3,
        start=decibo.random_start(1),
        measures=["direction_norm"],
    )
    rows = [np.asarray(getattr(solution.agents, name)) for name in ("x", "y", third)]
    mean = np.mean([by_hand(twin, i, *rows) for i in range(4)], axis=0)
    np.testing.assert_allclose(solution.history["direction_norm"][-1], mean @ mean, rtol=1e-12)


def test_direction_norm_follows_a_penalty_that_grows():
    """At the next step's lam."""
    ours, twin = problem("vector", 4)
    method = decibo.ahead(
        alpha=0.02, beta=0.01, gamma=0.05, lam=lambda k: jnp.where(k < 3, 1.0, LAM)
    )
    solution = decibo.solve(
        ours, decibo.networks.path(4), method, steps=3, start=decibo.random_start(1)
    )
    rows = [np.asarray(getattr(solution.agents, name)) for name in "xyz"]
    mean = np.mean([penalty(twin, i, *rows) for i in range(4)], axis=0)
    np.testing.assert_allclose(solution.history["direction_norm"][-1], mean @ mean, rtol=1e-12)


def test_a_method_without_a_direction_has_no_direction_norm():
    ours, _ = problem("vector", 1)
    method = decibo.methods.bome(alpha=0.01, gamma=0.1)
    solution = decibo.solve(ours, decibo.complete(1), method, steps=1)
    assert "direction_norm" not in solution.history
    with pytest.raises(decibo.InputError, match="direction_norm"):
        decibo.solve(ours, decibo.complete(1), method, steps=1, measures=["direction_norm"])


def test_the_answer_is_what_the_direction_declares():
    """y and z sit on both sides of y*(x), and the answer is their mean, which no run can start
    from."""
    ours, _ = problem("vector", 4)
    method = decibo.ahead_exact(alpha=0.02, gamma=0.05, lam=LAM)
    solution = decibo.solve(ours, decibo.ring(4), method, steps=2, measures=["inner_error"])
    assert (method.answer, METHOD.answer) == ("c", "y")
    np.testing.assert_array_equal(solution.agents.c, (solution.agents.y + solution.agents.z) / 2)
    np.testing.assert_allclose(solution.y, np.mean(solution.agents.c, axis=0), rtol=1e-15)
    with pytest.raises(decibo.InputError, match=r"\bc\b.*x, y, z"):
        decibo.solve(
            ours, decibo.ring(4), method, steps=2, start={"c": np.zeros((4, ours.y0.size))}
        )
