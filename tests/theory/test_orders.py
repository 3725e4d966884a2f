"""What the theorem's page says against the best known: powers of kappa, of the network and of m."""

from dataclasses import replace

import numpy as np
import pytest

import decibo
from decibo.theory import Constants, ahead_exact_steps, fine_constants
from studies.paper.corollaries import corollary1

pytestmark = pytest.mark.quick


def paper(kappa):
    """The constants of Assumptions 1, 2 and 4, with kappa = 1/mu_g."""
    return Constants(mu_g=1 / kappa, L_f1=1, L_g1=1, L_g2=1, C_fy=1, b_f=1, b_g=1)


def slopes(rows, at):
    """The powers of two quantities by which the columns of two rows differ."""
    return np.diff(np.log(rows), axis=0)[0] / np.log(at[1] / at[0])


def test_powers_of_kappa():
    """1/alpha = O(kappa^4), the start I_0^2 = O(kappa^5 |y_0 - y*|^2), F_1^(1/2) = O(kappa^(5/2)),
    from the paper's constants and with |w| <= V."""
    rows = []
    for kappa in (1e3, 1e5):
        fine = fine_constants(paper(kappa), L_g3=1.0)
        steps = ahead_exact_steps(fine, decibo.ring(1))
        start = steps.I_0(e_c=1.0, e_w=0.0) ** 2
        rows.append([1 / steps.alpha, start, steps.F(1.0, R=fine.V) ** 0.5])
    np.testing.assert_allclose(slopes(rows, (1e3, 1e5)), [4, 5, 2.5], atol=0.01)


def test_powers_of_the_network():
    """1/alpha and I_0^2 grow like 1/(1 - lambda_2), Theorem 1's 1/alpha too; its heterogeneity like
    1/(1 - rho)^2 at fixed steps."""
    c, rows, gaps = paper(2.0), [], []
    for agents in (80, 320):
        network = decibo.ring(agents)
        gaps.append(1 - np.sort(np.linalg.eigvalsh(network.W))[-2])
        steps = ahead_exact_steps(fine_constants(c), network)
        fixed = {"alpha": 1e-3, "beta": 1e-3, "gamma": 1e-3, "lam": 10.0}
        floor = decibo.theory.bound(replace(c, C_fy=0.0), network.rho, **fixed).heterogeneity
        start = steps.I_0(e_c=1.0, e_w=1.0) ** 2
        rows.append([1 / steps.alpha, start, 1 / corollary1(c, network.rho, 1).alpha, floor])
    np.testing.assert_allclose(slopes(rows, gaps), [-1, -1, -1, -2], atol=0.05)


def test_agents_enter_the_floor_only_by_the_bound_of_w():
    """With the R of Lemmas 4 and F the floor F grows like m^(1/2), its square like m; with |w_i| <= R
    known it does not. On a complete network sigma does not depend on m."""
    fine = fine_constants(paper(3.0), L_g3=1.0, C_f=1.0)
    steps = [ahead_exact_steps(fine, decibo.networks.complete(m)) for m in (4, 64)]
    assert steps[0].sigma == pytest.approx(steps[1].sigma)
    growth = slopes([[s.F(1.0) ** 2, s.F(1.0, R=1.0) ** 2, s.alpha] for s in steps], (4, 64))
    np.testing.assert_allclose(growth, [1, 0, 0], atol=1e-9)
