"""Gradients that come with a problem, objectives without second derivatives, and who refuses
them."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import decibo
from decibo.algorithm.algorithm import CATALOG, Algorithm
from decibo.data import Batches
from decibo.integrations import host
from decibo.measure.cost import examine, first_step
from decibo.pytree import one_of
from decibo.run.fingerprint import same_programs
from decibo.run.solve import examined

AGENTS = 4
METHOD = decibo.ahead_exact(alpha=0.05, gamma=0.1)
QUADRATIC = decibo.problems.quadratic(agents=AGENTS)


def f(x, y, d):
    return 0.5 * x @ d["P"] @ x + x @ d["B"] @ y + 0.5 * y @ d["A"] @ y + d["p"] @ x + d["q"] @ y


def f_gradient(x, y, d):
    return d["P"] @ x + d["B"] @ y + d["p"], d["B"].T @ x + d["A"] @ y + d["q"]


def g(x, y, d):
    return 0.5 * y @ d["H"] @ y + x @ d["J"] @ y + d["s"] @ y


def g_gradient(x, y, d):
    return d["J"] @ y, d["H"] @ y + d["J"].T @ x + d["s"]


def problem_of(outer, inner, outer_gradient, inner_gradient):
    gradients = {"outer_gradient": outer_gradient, "inner_gradient": inner_gradient}
    return decibo.Problem(outer, inner, QUADRATIC.data, QUADRATIC.x0, QUADRATIC.y0, **gradients)


ON_HOST = problem_of(
    host.value(f), host.value(g), host.gradient(f_gradient), host.gradient(g_gradient)
)


def run(problem, method=METHOD, **settings):
    return decibo.solve(
        problem, decibo.ring(AGENTS), method, **{"steps": 30, "measures": ["outer"]} | settings
    )


@pytest.fixture(scope="module")
def plain():
    return run(QUADRATIC)


def test_gradients_on_the_host_take_the_same_steps(plain):
    end = run(ON_HOST)
    np.testing.assert_allclose(end.agents.x, plain.agents.x, rtol=0, atol=1e-12)
    np.testing.assert_allclose(end.history["outer"], plain.history["outer"], rtol=0, atol=1e-12)


@dataclass(frozen=True, eq=False)
class OnDevice:
    """A gradient from elsewhere that takes arrays where they are, and remembers how often."""

    function: Callable
    seen: list
    on_device: bool = True

    def __call__(self, x, y, d):
        like = tuple(jax.ShapeDtypeStruct(part.shape, part.dtype) for part in (x, y))
        return host.on_all(self.function, like, x, y, d, on_device=self.direct)

    def direct(self, x, y, d):
        assert all(isinstance(part, jax.Array) for part in (x, y))
        self.seen.append(len(x))
        # JAX may be called here, unlike back from a compiled program
        return jax.vmap(self.function)(x, y, d)


def test_a_step_in_pieces_takes_the_same_steps(plain, tmp_path):
    """The host runs the steps; records and checkpoints are as ever."""
    seen = []
    problem = problem_of(
        host.value(f), host.value(g), OnDevice(f_gradient, seen), OnDevice(g_gradient, seen)
    )
    run(problem, steps=12, every=3, checkpoint=decibo.Checkpoints(tmp_path))
    end = run(problem, every=3, checkpoint=decibo.Checkpoints(tmp_path, resume=True))
    assert seen == [AGENTS] * 3 * 30  # three gradients in each step, of all agents
    np.testing.assert_allclose(end.agents.x, plain.agents.x, rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        end.history["outer"], plain.history["outer"][::3], rtol=0, atol=1e-12
    )
    del seen[:]
    whole = run(problem, memory="less")  # gradients inside a branch: the compiled loop calls back
    assert not seen
    np.testing.assert_allclose(whole.agents.x, plain.agents.x, rtol=0, atol=1e-12)


def test_gradients_on_the_host_for_all_agents_at_once():
    calls = []

    def together(x, y, d):
        calls.append(x.shape)
        return np.einsum("anm,am->an", d["J"], y), (
            np.einsum("anm,am->an", d["H"], y) + np.einsum("anm,an->am", d["J"], x) + d["s"]
        )

    gradient = jax.jit(jax.vmap(host.gradient(together, together=True)))
    X, Y = np.ones((AGENTS, 3)), np.arange(4.0) * np.ones((AGENTS, 4))
    in_x, in_y = gradient(X, Y, QUADRATIC.data)
    wanted = [
        g_gradient(X[i], Y[i], jax.tree.map(lambda leaf, i=i: np.asarray(leaf[i]), QUADRATIC.data))
        for i in range(4)
    ]
    np.testing.assert_allclose(in_x, [one for one, _ in wanted], atol=1e-14)
    np.testing.assert_allclose(in_y, [one for _, one in wanted], atol=1e-14)
    assert calls == [(AGENTS, 3)]


def test_a_sweep_maps_over_runs_and_agents(plain):
    ring = decibo.ring(AGENTS)
    both = decibo.sweep(
        ON_HOST, ring, METHOD, {"alpha": [0.02, 0.05]}, steps=30, every=30, measures=["outer"]
    )
    np.testing.assert_allclose(both.history["outer"][1, -1], plain.history["outer"][-1], atol=1e-12)
    assert abs(both.history["outer"][0, -1] - plain.history["outer"][-1]) > 1e-4


@pytest.mark.parametrize(
    ("gradient", "words"),
    [
        (lambda x, y, d: x, "must return the pair"),
        (
            lambda x, y, d: (x, x),
            r"in y that inner_gradient returns must look like y0, that is \(4,\), but it is \(3,\)",
        ),
        (lambda x, y, d: d["nothing"], "raised KeyError"),
        (3.0, "must be a function or None"),
    ],
)
def test_a_gradient_of_the_wrong_shape_is_rejected(gradient, words):
    with pytest.raises(decibo.InputError, match=words):
        problem_of(f, g, f_gradient, gradient)


def test_what_the_host_returns_is_checked():
    wrong = host.gradient(lambda x, y, d: (x, x))
    with pytest.raises(Exception, match=r"must return arrays of the shapes .*\(4,\)"):
        jax.block_until_ready(wrong(QUADRATIC.x0, QUADRATIC.y0, {}))
    with pytest.raises(decibo.InputError, match="A function"):
        host.value(3.0)


def test_wrong_gradients_are_found():
    assert decibo.check_problem(ON_HOST)
    flipped = problem_of(
        f, g, f_gradient, lambda x, y, d: (-(d["J"] @ y), d["H"] @ y + d["J"].T @ x + d["s"])
    )
    with pytest.raises(decibo.ConformanceError, match=r"fails 1 of 5 checks:\n  inner in x"):
        decibo.check_problem(flipped)


def test_gradients_in_jax_have_second_derivatives(plain):
    """Products come from the gradient that was given, so that methods with second derivatives work
    too."""
    opaque = host.value(g)
    given = problem_of(f, opaque, f_gradient, g_gradient)
    method = decibo.methods.sldbo(alpha=0.05, beta=0.1, gamma=0.1)
    end = run(given, method, steps=10, every=10, measures=["phi"])
    exact = decibo.reference(QUADRATIC)
    np.testing.assert_allclose(end.history["phi"][-1], exact.phi(end.x), atol=1e-10)


# An inner level with a layer whose backward pass is a kernel: no derivative of it is known.
@jax.custom_vjp
def kernel(rows, slopes):
    """What a fused backward pass computes."""
    return rows * slopes


kernel.defvjp(lambda rows, slopes: (rows * slopes, None), lambda _, slopes: (slopes, slopes))


@jax.custom_vjp
def layer(rows):
    """A fused layer with first derivatives only."""
    return jnp.tanh(rows)


layer.defvjp(
    lambda rows: (jnp.tanh(rows), rows),
    lambda rows, slopes: (kernel(1 - jnp.tanh(rows) ** 2, slopes),),
)


def objectives(activation):
    def outer(x, y, d):
        return jnp.mean((activation(d["rows"] @ y) - d["checked"]) ** 2) + 0.1 * jnp.sum(x**2)

    def inner(x, y, d):
        return jnp.mean((activation(d["rows"] @ y) - d["targets"]) ** 2) + 0.5 * jnp.sum(
            jnp.exp(x) * y**2
        )

    return outer, inner


fused_outer, fused_inner = objectives(layer)
unfused_outer, unfused_inner = objectives(jnp.tanh)


@pytest.fixture(scope="module")
def fused():
    random = np.random.default_rng(0)
    shapes = {"rows": (AGENTS, 6, 3), "targets": (AGENTS, 6), "checked": (AGENTS, 6)}
    data = {name: random.normal(size=shape) for name, shape in shapes.items()}
    return decibo.Problem(
        fused_outer, fused_inner, data, np.zeros(3), np.zeros(3), sample=Batches(2)
    )


def an_example(name):
    """The method with some numbers for what it must be given."""
    parameters = inspect.signature(CATALOG[name]).parameters.values()
    return CATALOG[name](**{each.name: 0.1 for each in parameters if each.default is each.empty})


@pytest.mark.parametrize("name", CATALOG)
def test_every_method_takes_a_fused_kernel_or_refuses_it(name, fused):
    method = an_example(name)
    one, start = one_of(fused.data), one_of(fused.start_rows(AGENTS))
    counted = examine(fused.functions, one, start, method.core)  # traces no derivatives
    declared = decibo.capabilities.Need.SECOND_DERIVATIVES in method.needs
    assert counted.products == declared
    if declared:
        wanted = (
            rf"{method.name} needs products with second derivatives .* JAX says .*"
            r" decibo\.ahead_exact\(\)"
        )
        with pytest.raises(decibo.InputError, match=wanted):
            examined(fused, method, fused.functions, fused.data)
    else:
        examined(fused, method, fused.functions, fused.data)
        first_step(fused.functions, one, start, method.core)  # raises if a derivative is missing
    assert (counted.cost.products > 0) == declared


def test_a_fused_kernel_is_refused_before_anything_is_compiled(fused, monkeypatch):
    monkeypatch.setattr("decibo.run.loop.values", lambda *_: pytest.fail("compiled"))
    implicit = decibo.methods.sldbo(alpha=0.1, beta=0.1, gamma=0.1)
    for start in (
        lambda: run(fused, implicit),
        lambda: decibo.sweep(fused, decibo.ring(AGENTS), implicit, {"alpha": [1e-2]}),
    ):
        with pytest.raises(decibo.InputError, match="sldbo needs products"):
            start()
    with pytest.raises(
        decibo.InputError, match=r"The measure 'phi' needs products .* Record 'direction_norm'"
    ):
        run(fused, measures=["phi"])
    with pytest.raises(decibo.InputError, match="The exact reference needs products"):
        decibo.reference(fused).phi(fused.x0)
    for constants in (fused, ON_HOST):
        with pytest.raises(decibo.InputError, match="derivatives"):
            decibo.theory.constants(constants)


def test_a_fused_kernel_is_solved_and_all_measures_are_those_that_exist(fused):
    end = run(fused, every=15, measures=["all"])
    assert "phi" not in end.history
    assert {"outer", "gap", "direction_norm"} < set(end.history)
    unfused = decibo.Problem(unfused_outer, unfused_inner, fused.data, fused.x0, fused.y0)
    assert np.abs(end.x).max() > 1e-3
    np.testing.assert_allclose(end.agents.x, run(unfused).agents.x, rtol=0, atol=1e-12)


def test_a_method_of_ones_own_is_looked_into(fused):
    """Nothing is declared: what it asks for is found by tracing."""
    init = lambda oracle, mix, start: {"x": start["x"], "y": start["y"]}

    def step(oracle, mix, s, k, key):
        return {"x": s["x"] - oracle.jacobian(s["x"], s["y"], s["y"]), "y": mix(s["y"])}

    own = Algorithm(init, step, view=lambda state: state, name="mine")
    with pytest.raises(decibo.InputError, match="mine needs products"):
        examined(fused, own, fused.functions, fused.data)
    harmless = Algorithm(init, lambda oracle, mix, s, k, key: mix(s), view=lambda state: state)
    examined(fused, harmless, fused.functions, fused.data)


def test_problems_on_the_host_never_count_as_the_same_program():
    """What a function of the host computes is not looked into, so two of them may differ."""
    other = problem_of(host.value(f), host.value(lambda x, y, d: 2 * g(x, y, d)), None, None)
    assert not same_programs(ON_HOST, ON_HOST)
    assert same_programs(problem_of(f, g, None, g_gradient), problem_of(f, g, None, g_gradient))
    assert not same_programs(problem_of(f, g, None, g_gradient), QUADRATIC)
    assert other.outer == ON_HOST.outer
