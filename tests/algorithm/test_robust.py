"""robust_tracking: where it rests, how large its steps may be, and that nothing it remembers can
break that."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import decibo
from decibo import consensus, direction, prox, rule

PATH = decibo.networks.path(6)
TARGETS = np.array([[3.0], [0.0], [1.0], [-2.0], [4.0], [0.0]])  # their mean is 1


def outer(x, y, d):
    return d["L"] * jnp.sum((x - d["b"]) ** 2) / 2


def inner(x, y, d):
    return jnp.sum(y**2) / 2


def valley(L=1.0):
    """One level, f_i = L (x - b_i)^2/2, whose curvature is L at every agent."""
    data = {"L": np.full(6, L), "b": TARGETS}
    return decibo.Problem(outer, inner, data, np.zeros(1), np.zeros(1))


def run(method, problem=None, steps=600, network=PATH):
    problem = valley() if problem is None else problem
    return decibo.solve(problem, network, method, steps=steps, every=steps, measures=["rest"])


def tracked(h, **options):
    return decibo.compose(direction.single(), consensus.robust_tracking(), x=h, y=h, **options)


def test_steps_are_stable_below_one_over_the_curvature_and_not_above():
    """The mean follows l^2 - l + h L = 0, whose roots have modulus sqrt(h L) once they are
    complex."""
    below, above = (run(tracked(share / 8.0), valley(8.0), steps=3000) for share in (0.95, 1.05))
    np.testing.assert_allclose(below.agents.x, 1.0, atol=1e-9)
    assert below.history["rest"][-1] <= 1e-9
    # atc_tracking and exact diffusion are stable up to 2
    assert np.abs(above.agents.x - 1.0).max() > 1.0
    half = decibo.compose(direction.single(), consensus.atc_tracking(), x=1.05 / 8.0, y=0.1)
    np.testing.assert_allclose(
        decibo.solve(valley(8.0), PATH, half, steps=3000).agents.x, 1.0, atol=1e-9
    )


def test_any_memory_leads_to_the_same_point():
    """The memory c of one agent is set to 1000, that of another to 0, in the middle of a run."""
    method = tracked(0.2)
    state = run(method, steps=50).state
    p, c = state.memory[0]
    c = {name: rows.at[2].set(1000.0).at[4].set(0.0) for name, rows in c.items()}
    problem = valley()
    inputs = problem.data, state._replace(memory=((p, c),))

    @jax.jit
    def after(data, state):
        mixing = PATH.mixing()
        mix = decibo.network.mixing.AgentMix(mixing, 0, None)
        one = lambda d, s: method.step(
            decibo.problem.problem.Oracle(problem.functions, d), mix, s, 0, None
        )
        step = lambda _, s: jax.vmap(one, axis_name="agents")(data, s)
        return jax.lax.fori_loop(0, 2000, step, state)

    end = after(*inputs)
    np.testing.assert_allclose(end.variables.x, 1.0, atol=1e-9)
    assert jax.vmap(method.core.rest)(end).max() <= 1e-9


def test_the_total_grows_where_a_bound_is_active_and_the_answer_stays():
    bounded = tracked(0.2, prox={"x": prox.box(high=0.5)})
    early, late = (run(bounded, steps=steps) for steps in (600, 1200))
    np.testing.assert_allclose(late.agents.x, 0.5, atol=1e-12)
    total = lambda solution: float(jnp.mean(solution.state.memory[0][1]["x"]))
    # the mean direction at the bound is 0.5 - 1
    assert total(late) - total(early) == pytest.approx(600 * -0.5)


def test_adaptive_rules_see_the_tracked_direction():
    method = tracked(rule.amsgrad(0.05))
    np.testing.assert_allclose(run(method, steps=4000).agents.x, 1.0, atol=1e-8)
