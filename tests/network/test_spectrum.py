"""rho against closed forms, and the ways to compute it against each other."""

import numpy as np
import pytest

from decibo import networks as net
from decibo.network.weights import dense_spectrum, fourier_spectrum, lanczos_spectrum
from helpers.networks import ZOO

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("m", [3, 4, 5, 10, 51, 3000])
def test_rho_of_a_ring(m):
    assert net.ring(m).rho == pytest.approx(((1 + 2 * np.cos(2 * np.pi / m)) / 3) ** 2, abs=1e-12)


@pytest.mark.parametrize("name", ZOO)
def test_rho_is_the_norm(name):
    network = ZOO[name]
    expected = np.linalg.norm(network.W - 1 / network.agents, 2) ** 2
    assert network.rho == pytest.approx(expected, abs=1e-12)
    assert network.gap == 1 - network.rho


@pytest.mark.parametrize(
    "network", [net.ring(60), net.exponential(50), net.torus(6, 8), net.hypercube(6)], ids=repr
)
def test_three_ways_agree(network):
    fourier, dense = fourier_spectrum(network.shifts), dense_spectrum(network.weights)
    np.testing.assert_allclose(fourier, dense, atol=1e-12)
    np.testing.assert_allclose(lanczos_spectrum(network.weights), dense, atol=1e-9)


@pytest.mark.parametrize(
    "network",
    [net.erdos_renyi(300, 0.03, seed=0), net.grid(15, 20), net.star(200), net.complete(50)],
    ids=repr,
)
def test_lanczos_without_structure(network):
    np.testing.assert_allclose(
        lanczos_spectrum(network.weights), dense_spectrum(network.weights), atol=1e-8
    )


def test_rho_of_a_long_path():
    network = net.path(2_500)
    # All links of a path weigh 1/3, so that I - W is a third of its Laplacian.
    gap = 2 / 3 * (1 - np.cos(np.pi / network.agents))
    assert 1 - network.spectrum.high == pytest.approx(gap, rel=1e-4)
    assert network.spectrum.low == pytest.approx(-1 / 3, abs=1e-3)


def test_shifts_are_found():
    shifts = net.ring(7).circulant
    assert shifts is not None
    assert shifts.offsets == (0, 1, 6)
    assert shifts.weights == pytest.approx((1 / 3,) * 3)
    assert net.path(7).circulant is None
    assert net.torus(3, 4).circulant is None
    assert net.torus(3, 4).shifts is not None
    assert net.random_regular(10, 3, seed=1).circulant is None
    one_weight_differs = net.ring(4).W + 0.01 * np.array(
        [[1, -1, 0, 0], [-1, 1, 0, 0], [0] * 4, [0] * 4]
    )
    assert net.from_weights(one_weight_differs).circulant is None
