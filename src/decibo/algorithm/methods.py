"""The named methods that are a direction times a consensus strategy, a line each.

How sure we are of a rule: S read in the source, A the abstract confirms the ingredients and the equations are
recalled, R recalled, I inferred. `run` means that the rule was run with exact gradients on a heterogeneous
quadratic with known solution, which confirms where it lands, not that it is letter for letter the authors'.
Costs are for one agent and step; n and r are the sizes of x and y.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jax.tree_util import Partial

from decibo.algorithm import consensus, direction, prox
from decibo.algorithm.algorithm import Algorithm, method
from decibo.algorithm.compose import compose
from decibo.algorithm.schedules import Rate, Schedule, schedule
from decibo.automatic.steps import REST, automatic_steps


@method
def ahead(*, alpha: Rate, beta: Rate | None = None, gamma: Rate, lam: Rate) -> Algorithm:
    r"""AHEAD as published: penalty x dgd.

        (1)  z+ = W z - gamma g_y(x, z)
        (2)  y+ = W y - beta (f_y(x, y) + lam g_y(x, y))
        (3)  x+ = W x - alpha (f_x(x, y) + lam (g_x(x, y) - g_x(x, z)))

    alpha, beta, gamma are the step sizes of x, y and z, lam the penalty: numbers or functions of the step. Without
    beta the inner steps are matched, beta = gamma/lam, which lets alpha stay the same for every lam.
    Paper: Hessian-Free Distributed Bilevel Optimization via Penalization with Time-Scale Separation; S, run.
    Costs 1 + 2 gradients, sends n + 2r numbers. Lands O(step) off if the agents differ, plus O(1/lam).
    """
    alpha, gamma, lam = schedule("alpha", alpha), schedule("gamma", gamma), schedule("lam", lam)
    beta = Partial(_ratio, gamma, lam) if beta is None else schedule("beta", beta)
    return compose(direction.penalty(lam), consensus.dgd(), x=alpha, y=beta, z=gamma)


@method
def ahead_exact(*, alpha: Rate | None = None, gamma: Rate | None = None, lam: Rate = 100.0) -> Algorithm:
    r"""Symmetric penalty x exact diffusion with matched inner steps: AHEAD's cost, without its two errors.

        (1)  c = (y + z)/2
        (2)  d_y = g_y(x, y) + f_y(x, c)/lam,   d_z = g_y(x, z) - f_y(x, c)/lam
        (3)  d_x = f_x(x, c) + (lam/2) (g_x(x, y) - g_x(x, z))
        (4)  exact diffusion of x with step alpha, of y and z with step gamma

    This is the method we recommend. alpha is about 1/L_Phi, gamma about 1/L_g, and lam from 10 to 100 does for most
    problems: with matched steps it drops out of both. A step size that is not given is chosen by `solve`, and
    changed during the run if need be. docs/explanation/ahead_exact.md derives the method; run.
    Costs 1 + 2 gradients, sends n + 2r numbers. Lands O(1/lam^2) off, exact if g is quadratic.
    """
    controller = automatic_steps(alpha, gamma, lam)
    alpha = schedule("alpha", REST if alpha is None else alpha)
    gamma = schedule("gamma", REST if gamma is None else gamma)
    by = direction.symmetric_penalty(lam)
    return replace(compose(by, consensus.exact_diffusion(), x=alpha, y=gamma, z=gamma), controller=controller)


@method
def ahead_minimax(*, alpha: Rate, beta: Rate, gamma: Rate, lam: Rate) -> Algorithm:
    """AHEAD's minimax case, g = -f (eqs. minmax-z to minmax-x): minimax_penalty x dgd.

    With lam = 1, beta = gamma and equal starts x and z are those of `dgda`. Paper: as `ahead`; S.
    Costs 2 gradients of f, sends n + 2r numbers. Lands O(step) off if the agents differ.
    """
    return compose(
        direction.minimax_penalty(lam),
        consensus.dgd(),
        x=schedule("alpha", alpha),
        y=schedule("beta", beta),
        z=schedule("gamma", gamma),
    )


@method
def dgda(*, alpha: Rate, beta: Rate) -> Algorithm:
    """Distributed gradient descent ascent for g = -f: minimax x dgd. S.

    Costs 1 gradient of f, sends n + r numbers. Lands O(step) off if the agents differ.
    """
    return compose(direction.minimax(), consensus.dgd(), x=schedule("alpha", alpha), y=schedule("beta", beta))


@method
def gt_gda(*, alpha: Rate, beta: Rate) -> Algorithm:
    """Gradient descent ascent with gradient tracking for g = -f: minimax x tracking. S.

    Costs 1 gradient of f, sends 2n + 2r numbers. Exact.
    """
    return compose(direction.minimax(), consensus.tracking(), x=schedule("alpha", alpha), y=schedule("beta", beta))


@method
def dsgda_gt(*, alpha: Rate, beta: Rate, gamma: Rate, lam: Rate) -> Algorithm:
    """DSGDA-GT (Wang, Chen, Ma & Zhang 2024): penalty x tracking; I, run.

    The order of mixing and the scaling of d_y are not known to us; this is AHEAD's scaling with tracking.
    Costs 1 + 2 gradients, sends 2n + 4r numbers. Lands at the bias O(1/lam) of the penalty.
    """
    return compose(
        direction.penalty(lam),
        consensus.tracking(),
        x=schedule("alpha", alpha),
        y=schedule("beta", beta),
        z=schedule("gamma", gamma),
    )


@method
def fab(*, alpha: Rate, beta: Rate, gamma: Rate, lam: Rate) -> Algorithm:
    """FAB (2026): penalty x push-pull, for directed networks; A.

    Costs 1 + 2 gradients, sends 2n + 4r numbers. Lands at the bias O(1/lam) of the penalty.
    """
    return compose(
        direction.penalty(lam),
        consensus.push_pull(),
        x=schedule("alpha", alpha),
        y=schedule("beta", beta),
        z=schedule("gamma", gamma),
    )


@method
def sldbo(*, alpha: Rate, beta: Rate, gamma: Rate, radius: float | None = None) -> Algorithm:
    """SLDBO (Dong, Ma, Yang & Yin 2023): implicit x tracking; A, run.

    v may be kept in a ball of this radius, which must be at least C_fy/mu_g.
    Costs 1 + 1 gradients and one product each with H and J, sends 2n + 4r numbers. Exact.
    """
    return _implicit(consensus.tracking(), alpha, beta, gamma, None, radius=radius)


@method
def d_soba(
    *, alpha: Rate, beta: Rate, gamma: Rate, theta: Rate | None = 0.2, difference: float | None = None
) -> Algorithm:
    """D-SOBA (Kong et al. 2024): implicit x atc, x follows a moving average; A, run.

    difference   a number makes it the first-order variant: products by differences of two gradients of g
    All directions are taken at the old point, where the paper's moving average uses the new v.
    Costs 1 + 1 gradients and one product each with H and J (1 + 3 gradients with differences), sends n + 2r
    numbers. Lands O(step) off if the agents differ.
    """
    return _implicit(consensus.atc(), alpha, beta, gamma, theta, difference=difference)


@method
def sparkle_gt(*, alpha: Rate, beta: Rate, gamma: Rate, theta: Rate | None = 0.2) -> Algorithm:
    """SPARKLE-GT (Zhu et al. 2024): implicit x atc_tracking, moving average of the hypergradient; A, run.

    theta=None follows the hypergradient itself.
    Costs 1 + 1 gradients and one product each with H and J, sends 2n + 4r numbers. Exact.
    """
    return _implicit(consensus.atc_tracking(), alpha, beta, gamma, theta)


@method
def sparkle_extra(*, alpha: Rate, beta: Rate, gamma: Rate, theta: Rate | None = 0.2) -> Algorithm:
    """SPARKLE-EXTRA (Zhu et al. 2024): implicit x EXTRA, moving average of the hypergradient; A, run.

    Costs 1 + 1 gradients and one product each with H and J, sends n + 2r numbers. Exact.
    """
    return _implicit(consensus.extra(), alpha, beta, gamma, theta)


@method
def sparkle_ed(*, alpha: Rate, beta: Rate, gamma: Rate, theta: Rate | None = 0.2) -> Algorithm:
    """SPARKLE-ED (Zhu et al. 2024): implicit x exact diffusion, moving average of the hypergradient; A, run.

    Costs 1 + 1 gradients and one product each with H and J, sends n + 2r numbers. Exact.
    """
    return _implicit(consensus.exact_diffusion(), alpha, beta, gamma, theta)


@method
def lopa(*, alpha: Rate, beta: Rate, gamma: Rate, theta: Rate | None = 0.2, tracking: bool = False) -> Algorithm:
    """LoPA (Niu et al. 2023) for a PERSONALISED inner level: y and v stay local, only x is mixed; R, run.

    It solves another problem, y*_i(x) = argmin g_i(x, .): every agent has its own inner solution.
    Costs 1 + 1 gradients and one product each with H and J, sends n numbers (2n with tracking). Lands O(step) off
    its own solution with dgd, exact with tracking.
    """
    by = {
        "x": consensus.tracking() if tracking else consensus.dgd(),
        "y": consensus.local(),
        "v": consensus.local(),
    }
    return _implicit(by, alpha, beta, gamma, theta)


def _implicit(
    by: Any,
    alpha: Rate,
    beta: Rate,
    gamma: Rate,
    theta: Rate | None,
    radius: float | None = None,
    difference: float | None = None,
) -> Algorithm:
    return compose(
        direction.implicit(difference),
        by,
        average={} if theta is None else {"x": schedule("theta", theta)},
        prox={} if radius is None else {"v": prox.ball(radius)},
        x=schedule("alpha", alpha),
        y=schedule("beta", beta),
        v=schedule("gamma", gamma),
    )


def _ratio(one: Schedule, other: Schedule, k: Any) -> Any:
    return one(k) / other(k)
