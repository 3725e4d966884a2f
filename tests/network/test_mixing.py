"""All kernels give W S, and one agent's view of it survives every transformation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from decibo import InputError
from decibo import networks as net
from decibo.network.mixing import AgentMix, Circulant, Dense, How, Mixing, Sparse, split_hubs
from helpers.networks import RULES, ZOO, connected_graphs, each_agent, rows

KEY = jax.random.key(0)
stacked = jax.jit(lambda mixing, S: mixing.stacked(S))  # one program, not one for each operation
largest = jax.jit(lambda mixing, S: mixing.exchange(S, How.LARGEST))


def kernels(network):
    return ["dense", "sparse"] + (["circulant"] if network.circulant else [])


@pytest.mark.parametrize("name", ZOO)
def test_kernels_agree(name):
    network = ZOO[name]
    S = rows(network.agents)
    for kernel in (None, *kernels(network)):
        mixed = stacked(network.mixing(kernel), S)
        np.testing.assert_allclose(mixed, network.W @ S, atol=1e-12)
        np.testing.assert_allclose(mixed.mean(axis=0), S.mean(axis=0), atol=1e-12)


@given(connected_graphs(), st.sampled_from(RULES), st.booleans())
def test_any_network_keeps_the_mean(graph, rule, dense):
    network = net.from_graph(graph, weights=rule)
    S = rows(network.agents)
    mixed = stacked(network.mixing("dense" if dense else "sparse"), S)
    np.testing.assert_allclose(mixed, network.W @ S, atol=1e-12)
    np.testing.assert_allclose(mixed.mean(axis=0), S.mean(axis=0), atol=1e-12)


@pytest.mark.parametrize("kernel", ["dense", "circulant", "sparse"])
def test_shapes_and_types_are_kept(kernel):
    mixing = net.ring(5).mixing(kernel)
    for shape, dtype in [
        ((5,), np.float32),
        ((5, 2), np.float64),
        ((5, 2, 3), jnp.bfloat16),
        ((5, 0), np.float32),
        ((5, 1), np.complex64),
    ]:
        mixed = mixing.stacked(jnp.ones(shape, dtype), 0, KEY)
        assert mixed.shape == shape
        assert mixed.dtype == dtype
        np.testing.assert_allclose(np.asarray(mixed, complex), 1, atol=1e-2)


def test_the_choice_of_kernel():
    assert isinstance(net.ring(10).mixing(), Dense)
    assert isinstance(net.ring(100).mixing(), Circulant)
    assert isinstance(net.path(100).mixing(), Sparse)
    assert isinstance(net.complete(100).mixing(), Dense)


def test_hubs_keep_a_star_cheap():
    mixing = net.star(1000).mixing("sparse")
    assert mixing.neighbours.shape == (1, 1000)
    assert mixing.hubs.tolist() == [0]
    assert split_hubs(np.array([3, 3, 3, 3]))[0] == 3
    assert split_hubs(np.array([0]))[0] == 0


def test_mixings_are_pytrees():
    for kernel in ("dense", "circulant", "sparse"):
        mixing = net.ring(5).mixing(kernel)
        traces = []

        @jax.jit
        def run(mixing, S):
            traces.append(1)  # noqa: B023
            return mixing.stacked(S, 0, KEY)

        for rho in (0.7, 0.8):
            other = net.ring(5, rho=rho)
            np.testing.assert_allclose(run(other.mixing(kernel), jnp.eye(5)), other.W, atol=1e-12)
        assert len(traces) == 1
        assert jax.tree.structure(mixing) == jax.tree.structure(net.ring(5).mixing(kernel))


@pytest.fixture(params=["ring", "broom", "one"])
def network(request):
    return ZOO[request.param]


def everybody(network, function, *stacks):
    """function(mix, own...) of each agent."""
    mix = AgentMix(network.mixing(), 0, KEY)
    return each_agent(lambda *own: function(mix, *own))(*stacks)


def test_mix_of_one_agent(network):
    S, W = rows(network.agents), network.W
    np.testing.assert_allclose(everybody(network, lambda mix, s: mix(s), S), W @ S, atol=1e-12)
    np.testing.assert_allclose(
        everybody(network, lambda mix, s: mix.push(s, bits=8), S), W @ S, atol=1e-12
    )
    tree = everybody(network, lambda mix, s: mix({"a": s[0], "b": (s, jnp.outer(s, s))}), S)
    np.testing.assert_allclose(tree["a"], W @ S[:, 0], atol=1e-12)
    np.testing.assert_allclose(tree["b"][0], W @ S, atol=1e-12)
    np.testing.assert_allclose(tree["b"][1], np.einsum("ij,ja,jb->iab", W, S, S), atol=1e-12)


def test_mix_of_what_all_agents_share(network):
    S = rows(network.agents)
    mixed = everybody(network, lambda mix, s: mix(jnp.arange(2.0)) + 0 * s[0], S)
    np.testing.assert_allclose(mixed, np.tile([0.0, 1.0], (network.agents, 1)), atol=1e-12)


def test_mix_in_compiled_loops(network):
    S, W = rows(network.agents), network.W
    W3S = W @ W @ W @ S

    def scanned(mix, s):
        return lax.scan(lambda s, k: (AgentMix(mix.mixing, k, KEY)(s), None), s, jnp.arange(3))[0]

    def counted(mix, s):
        return lax.fori_loop(0, 3, lambda k, s: mix(s), s)

    def until(mix, s):
        return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jax.jit(mix)(c[1])), (0, s))[
            1
        ]

    for loop in (scanned, counted, until):
        run = jax.jit(lambda S, loop=loop: everybody(network, loop, S))
        np.testing.assert_allclose(run(S), W3S, atol=1e-12)
    whole = jax.jit(
        lambda S: lax.fori_loop(0, 3, lambda k, S: everybody(network, lambda mix, s: mix(s), S), S)
    )
    np.testing.assert_allclose(whole(S), W3S, atol=1e-12)


def test_sweep_around_the_step(network):
    # as many step sizes as agents
    S, W, steps = rows(network.agents), network.W, jnp.arange(1.0, network.agents + 1)
    sweep = jax.jit(jax.vmap(lambda h: everybody(network, lambda mix, s: mix(h * s) + mix(h), S)))
    for h, mixed in zip(steps, sweep(steps), strict=True):
        np.testing.assert_allclose(mixed, h * (W @ S) + h, atol=1e-12)


def test_vmap_inside_the_step(network):
    S, W, scales = rows(network.agents), network.W, jnp.arange(1.0, 5.0)
    mixed = everybody(network, lambda mix, s: jax.vmap(lambda a: mix(a * s))(scales), S)
    np.testing.assert_allclose(mixed, np.einsum("r,ij,jn->irn", scales, W, S), atol=1e-12)


def test_a_mix_that_differs_between_agents_takes_the_right_row():
    network = ZOO["ring"]
    S = rows(network.agents)

    class Scaled(Mixing):
        def exchange(self, S, how, k=None, key=None):
            return k * S

    mixed = each_agent(lambda k, s: AgentMix(Scaled(), k, KEY)(s))(jnp.arange(9.0), S)
    np.testing.assert_allclose(mixed, np.arange(9.0)[:, None] * S, atol=1e-12)


def test_derivatives(network):
    S, W = rows(network.agents), network.W
    T = rows(network.agents + 1)[: network.agents]

    def square(S):
        return everybody(network, lambda mix, s: mix(s**2), S)

    value, tangent = jax.jvp(jax.jit(square), (S,), (T,))
    np.testing.assert_allclose(value, W @ S**2, atol=1e-12)
    np.testing.assert_allclose(tangent, W @ (2 * S * T), atol=1e-12)
    identity = np.eye(S.shape[1])
    jacobian = np.einsum("ij,ab,jb->iajb", W, identity, 2 * S)
    np.testing.assert_allclose(jax.jacfwd(square)(S), jacobian, atol=1e-12)
    np.testing.assert_allclose(
        jax.grad(lambda S: (T * square(S)).sum())(S), 2 * S * (W @ T), atol=1e-12
    )


def test_derivatives_inside_the_step(network):
    """Forward mode within an agent: a tangent that all agents share must not keep values from being
    mixed."""
    S, W = rows(network.agents), network.W
    one = jnp.ones(S.shape[1])
    value, tangent = everybody(network, lambda mix, s: jax.jvp(mix, (s,), (one,)), S)
    np.testing.assert_allclose(value, W @ S, atol=1e-12)
    np.testing.assert_allclose(tangent, np.ones_like(S), atol=1e-12)


def test_mix_outside_of_agents_is_rejected():
    mix = AgentMix(net.ring(3).mixing(), 0, KEY)
    for attempt in (lambda: mix(jnp.ones(2)), lambda: jax.vmap(mix)(jnp.ones((3, 2)))):
        with pytest.raises(InputError, match=r"no agent in particular.*axis_name.*stacked"):
            attempt()


def test_mix_costs_no_more_than_the_stacked_product():
    mixing = ZOO["ring"].mixing("dense")
    S = jnp.asarray(rows(9))
    program = jax.jit(each_agent(lambda s: AgentMix(mixing, 0, KEY)(s))).lower(S).as_text()
    assert program.count("dot_general") == 1
    assert "gather" not in program


@pytest.mark.parametrize("name", ZOO)
def test_the_largest_number_reaches_everybody_within_the_width(name):
    network = ZOO[name]
    S = rows(network.agents)
    near = (network.W != 0) | np.eye(network.agents, dtype=bool)
    expected = np.array([S[row].max(axis=0) for row in near])
    for kernel in kernels(network):
        mixing = network.mixing(kernel)
        np.testing.assert_array_equal(largest(mixing, S), expected)
        heard = S
        for _ in range(network.width):
            heard = np.asarray(largest(mixing, heard))
        assert (heard == S.max(axis=0)).all()
    if network.width > 1:  # and no sooner
        alone = np.eye(network.agents)
        for _ in range(network.width - 1):
            alone = np.asarray(largest(network.mixing(), alone))
        assert not (alone == 1).all()


def test_several_rounds_and_failing_links_reach_everybody_too():
    path = net.path(7)
    faster = net.chebyshev(path, 4)
    assert (path.width, faster.reach.width) == (6, 2)
    S = rows(7)
    assert (largest(faster.mixing(), largest(faster.mixing(), S)) == S.max(axis=0)).all()
    failing = net.failing(path, 0.4)
    heard = S
    for k in range(failing.width):
        key = jax.random.fold_in(KEY, k)
        heard = failing.mixing().exchange(heard, How.LARGEST, jnp.int32(k), key)
    assert (heard == S.max(axis=0)).all()
    assert failing.width > path.width


def test_a_step_that_was_not_told_about_the_network_says_so():
    with pytest.raises(InputError, match=r"NETWORK_CONSTANTS"):
        _ = AgentMix(net.ring(3).mixing(), 0, KEY).reach
