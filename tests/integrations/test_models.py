"""Parameters of flax, equinox and haiku as they are: x0 and y0 are pytrees, and steps keep their structure."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import decibo

AGENTS = 2


def linen():
    nn = pytest.importorskip("flax.linen")
    model = nn.Sequential([nn.Dense(4, param_dtype=float), nn.tanh, nn.Dense(1, param_dtype=float)])
    return model.init(jax.random.key(0), jnp.ones((1, 3))), model.apply


def nnx():
    nnx = pytest.importorskip("flax.nnx")
    graph, start = nnx.split(nnx.Linear(3, 1, rngs=nnx.Rngs(0), param_dtype=float))
    return start, lambda y, rows: nnx.merge(graph, y)(rows)


def equinox():
    eqx = pytest.importorskip("equinox")
    model = eqx.nn.MLP(3, 1, 4, 1, key=jax.random.key(0))
    start, static = eqx.partition(model, eqx.is_inexact_array)
    return start, lambda y, rows: jax.vmap(eqx.combine(y, static))(rows)


def haiku():
    hk = pytest.importorskip("haiku")
    model = hk.without_apply_rng(hk.transform(lambda rows: hk.nets.MLP([4, 1])(rows)))
    return model.init(jax.random.key(0), jnp.ones((1, 3))), model.apply


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("library", [linen, nnx, equinox, haiku])
def test_a_library_of_models_keeps_its_parameters(library):
    start, apply = library()

    def loss(x, y, d):
        return jnp.mean((apply(y, d["rows"])[:, 0] - d["values"]) ** 2)

    def inner(x, y, d):
        return loss(x, y, d) + jnp.exp(x) * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(y))

    random = np.random.default_rng(0)
    data = {"rows": random.normal(size=(AGENTS, 5, 3)), "values": random.normal(size=(AGENTS, 5))}
    problem = decibo.Problem(loss, inner, data, -3.0, start)
    method = decibo.ahead_exact(alpha=0.05, gamma=0.05, lam=10.0)
    end = decibo.solve(problem, decibo.complete(AGENTS), method, steps=20, measures=["inner"])
    assert jax.tree.structure(end.y) == jax.tree.structure(start)
    assert end.history["inner"][-1] < end.history["inner"][0]
    assert apply(end.y, data["rows"][0]).shape == (5, 1)
