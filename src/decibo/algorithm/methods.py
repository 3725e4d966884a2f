"""The named methods that are a direction times a consensus strategy, a line each.

Costs are for one agent and step: gradients of f + gradients of g, and products with H = d2 g/dy dy
and J = d2 g/dx dy. What it sends goes to each neighbour; n and r are the sizes of x and y.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import cast

import jax.numpy as jnp
from jax.tree_util import Partial

from decibo.algorithm import consensus, direction, estimator, prox
from decibo.algorithm.algorithm import ABSTRACT, READ, RUN, Algorithm, method
from decibo.algorithm.automatic import automatic
from decibo.algorithm.compose import compose
from decibo.algorithm.estimator import Estimator
from decibo.algorithm.rule import Move, Rule, StepSize, as_rule, heavy_ball, is_rule, plain
from decibo.algorithm.schedules import Rate, Step, Weight, matched, polynomial
from decibo.errors import InputError
from decibo.pytree import Tree, Vector

OLD_OR_NEW = (
    "Whether x follows the new moving average, as here, or the old one, as D-SOBA's, was not found."
)

# direction x consensus


@method(
    provenance=(
        "The method of this library, derived in docs/explanation/methods.md. Its penalty is"
        " F2SA-2's (Chen, Li, Chayti & Zhang 2026) with f halfway between y and z; for g quadratic"
        f" in y its steps are those of SPARKLE-ED (Zhu et al. 2024) without moving average. {RUN}"
    )
)
def ahead_exact(
    *,
    alpha: StepSize | None = None,
    gamma: StepSize | None = None,
    lam: Rate | None = None,
    momentum: float | None = None,
) -> Algorithm:
    r"""AHEAD without its two errors, at the same cost: symmetric penalty x exact diffusion, with
    matched inner steps.

        (1)  c = (y + z)/2
        (2)  d_y = g_y(x, y) + f_y(x, c)/lam,   d_z = g_y(x, z) - f_y(x, c)/lam
        (3)  d_x = f_x(x, c) + (lam/2) (g_x(x, y) - g_x(x, z))
        (4)  exact diffusion of x with step alpha, of y and z with step gamma

    This is the method we recommend.

    alpha   step size of x, limited by 1/L_Phi and by the time that y and z need to follow, about
            1/(gamma mu_g) steps; docs/explanation/theorem.md proves how small is enough
    gamma   step size of y and z, about 1/L_g
    lam     penalty, 100 where step sizes are given: with matched steps it drops out of both. 10 to
            100 suits most problems. Where the agents find the step sizes, each also finds a lam of
            its own at every step, so that y and z are close to each other in any units
    momentum   of y and z, the same for both: they follow moving averages of d_y and d_z with this
               weight of the past.
            With b, gamma may grow to 2 (1 + b)/((1 - b) L_g): for an inner level of condition
            number kappa it takes about sqrt(kappa) steps instead of kappa

    Without alpha or gamma the agents find the step sizes themselves while they run
    (decibo.algorithm.automatic), with momentum for c and w = lam (y - z)/2 in place of y and z and
    gradient tracking for x: a quarter of a gradient of g more, and it sends n + 7 numbers more.

    Cost: 1 + 2 gradients; sends n + 2r numbers.
    Lands: O(1/lam^2) from the solution; exact if g is quadratic in y.
    """
    if alpha is None or gamma is None:
        if momentum is not None:
            raise InputError(
                "momentum goes with given step sizes only.", "Pass alpha and gamma too."
            )
        along = direction.centred_penalty(lam)
        return automatic(along, plain("alpha", alpha), plain("gamma", gamma))
    along = direction.symmetric_penalty(100.0 if lam is None else lam)
    inner = gamma if momentum is None else heavy_ball(cast("Rate", plain("gamma", gamma)), momentum)
    composed = compose(along, consensus.exact_diffusion(), x=alpha, y=inner, z=inner)
    if lam is None:
        composed = replace(composed, settings={"lam": 100.0})
    return composed if any(map(is_rule, (alpha, inner))) else _covered(composed, "Theorem B")


@method(
    provenance=(
        "Our combination: the penalty of ahead_exact with c and w for y and z, and the tracking of"
        " Pu (2020) on an undirected network; the opening of the paper was read. No theorem covers"
        f" agents that do not wait. {RUN}"
    )
)
def ahead_free(*, alpha: StepSize, gamma: StepSize, lam: Rate = 100.0) -> Algorithm:
    r"""AHEAD without its two errors for agents that do not wait for each other: centred penalty x
    robust_tracking.

        (1)  y = c + w/lam,   z = c - w/lam
        (2)  d_c = (g_y(x, y) + g_y(x, z))/2,   d_w = (lam/2) (g_y(x, y) - g_y(x, z)) + f_y(x, c)
        (3)  d_x = f_x(x, c) + (lam/2) (g_x(x, y) - g_x(x, z))
        (4)  robust tracking of x with step alpha, of c and w with step gamma

    It stays exact if agents are slow, restart or forget, and if messages are late or lost:
    `decibo.networks.asynchronous` simulates that. In lockstep ahead_exact sends half as much.

    alpha   step size of x
    gamma   step size of c and w, below 1/L_g: half of what ahead_exact allows
    lam     penalty; 10 to 100 suits most problems

    Cost: 1 + 2 gradients; sends 2n + 4r numbers.
    Lands: O(1/lam^2) from the solution; exact if g is quadratic in y.
    """
    return compose(
        direction.centred_penalty(lam), consensus.robust_tracking(), x=alpha, c=gamma, w=gamma
    )


@method(provenance=f"{READ} {RUN}")
def ahead(
    *, alpha: StepSize, beta: StepSize | None = None, gamma: StepSize, lam: Rate
) -> Algorithm:
    r"""AHEAD as published: penalty x dgd.

        (1)  z+ = W z - gamma g_y(x, z)
        (2)  y+ = W y - beta (f_y(x, y) + lam g_y(x, y))
        (3)  x+ = W x - alpha (f_x(x, y) + lam (g_x(x, y) - g_x(x, z)))

    Niu, Xu, Sun, Chai & Chen, Hessian-Free Distributed Bilevel Optimization via Penalization with
    Time-Scale Separation, IEEE Transactions on Automatic Control, arXiv 2412.11218.

    alpha, beta, gamma   step sizes of x, y and z; without beta the inner steps are matched, beta =
                         gamma/lam, which lets alpha stay the same for every lam
    lam                  penalty

    Cost: 1 + 2 gradients; sends n + 2r numbers.
    Lands: O(step) from the solution if the agents differ, plus O(1/lam).
    """
    if beta is None and is_rule(gamma):
        raise InputError(
            "With a rule for gamma there is no matched step size gamma/lam of y.", "Pass beta too."
        )
    inner = matched(None, cast("Rate", gamma), lam) if beta is None else beta
    along = compose(direction.penalty(lam), consensus.dgd(), x=alpha, y=inner, z=gamma)
    return along if any(map(is_rule, (alpha, beta, gamma))) else _covered(along, "Theorem 1")


@method(provenance=READ)
def ahead_minimax(*, alpha: StepSize, beta: StepSize, gamma: StepSize, lam: Rate) -> Algorithm:
    """AHEAD's minimax case for g = -f (equations minmax-z to minmax-x): minimax_penalty x dgd.

    With lam = 1, beta = gamma and equal starts, x and z are those of `dgda`. The paper is that of
    `ahead`.

    alpha, beta, gamma   step sizes of x, y and z
    lam                  penalty

    Cost: 2 gradients of f; sends n + 2r numbers.
    Lands: O(step) from the solution if the agents differ.
    """
    along = compose(direction.minimax_penalty(lam), consensus.dgd(), x=alpha, y=beta, z=gamma)
    return _covered(along, "Corollary 2")


@method(provenance=READ)
def dgda(*, alpha: StepSize, beta: StepSize) -> Algorithm:
    """Distributed gradient descent ascent for g = -f: minimax x dgd.

    alpha, beta   step sizes of x and y

    Cost: 1 gradient of f; sends n + r numbers.
    Lands: O(step) from the solution if the agents differ.
    """
    return compose(direction.minimax(), consensus.dgd(), x=alpha, y=beta)


@method(provenance=READ)
def gt_gda(*, alpha: StepSize, beta: StepSize) -> Algorithm:
    """Gradient descent ascent with gradient tracking for g = -f: minimax x tracking.

    alpha, beta   step sizes of x and y

    Cost: 1 gradient of f; sends 2n + 2r numbers.
    Lands: exact.
    """
    return compose(direction.minimax(), consensus.tracking(), x=alpha, y=beta)


@method(
    provenance=f"{ABSTRACT} A summary with equations agrees, with gamma = lam times their step."
)
def fab(*, alpha: StepSize, beta: StepSize, gamma: StepSize, lam: Rate) -> Algorithm:
    """FAB (2026), for directed networks: penalty x push-pull.

    alpha, beta, gamma   step sizes of x, y and z
    lam                  penalty

    Cost: 1 + 2 gradients; sends 2n + 4r numbers.
    Lands: O(1/lam) from the solution, the bias of the penalty.
    """
    return compose(direction.penalty(lam), consensus.push_pull(), x=alpha, y=beta, z=gamma)


@method(
    provenance=(
        "Ours, after two others. The direction is MEHA's (Liu et al. 2024), whose rule was read in"
        " the authors' code: there t, x and y move one after another, each with what is new. The"
        " pairs with tracking and with dgd are SUN-DSBO-GT and -SE (Ma et al. 2026) as far as"
        " abstract and public reviews say."
    )
)
def moreau(
    *,
    alpha: StepSize,
    beta: StepSize,
    gamma: StepSize,
    c: Rate | None = None,
    proximity: Weight = 1.0,
    tracking: bool = True,
) -> Algorithm:
    """The Moreau-envelope penalty x tracking, for an inner level that may be non-convex.

    alpha, beta, gamma   step sizes of x, y and t
    c                    penalty, (k + 1)^0.25 unless given
    proximity            parameter of the Moreau envelope
    tracking             whether to track gradients; otherwise the consensus is dgd

    Cost: 1 + 2 gradients; sends 2n + 4r numbers, n + 2r without tracking.
    Lands: O(1/c) from the solution, which falls as slowly as c grows; plus O(step) without
    tracking.
    """
    along = direction.moreau(polynomial(1.0, 0.25) if c is None else c, proximity)
    return compose(
        along, consensus.tracking() if tracking else consensus.dgd(), x=alpha, y=beta, t=gamma
    )


@method(provenance=f"{ABSTRACT} {RUN}")
def sldbo(
    *, alpha: StepSize, beta: StepSize, gamma: StepSize, radius: float | None = None
) -> Algorithm:
    """SLDBO (Dong, Ma, Yang & Yin 2023): implicit x tracking.

    alpha, beta, gamma   step sizes of x, y and v
    radius               v is kept in a ball of this radius, at least C_fy/mu_g, as the authors
                         always do; None leaves the projection out

    Cost: 1 + 1 gradients, one product each with H and J; sends 2n + 4r numbers.
    Lands: exact.
    """
    return _implicit(consensus.tracking(), alpha, beta, gamma, None, radius=radius)


@method(
    provenance=(
        f"{READ} With theta=None it is the paper's recursion (9), with theta Algorithm 1; but"
        f" `difference` is divided by the size of v, which the authors' is not. {RUN}"
    )
)
def d_soba(
    *,
    alpha: StepSize,
    beta: StepSize,
    gamma: StepSize,
    theta: Weight | None = 0.2,
    difference: float | None = None,
) -> Algorithm:
    """D-SOBA (Kong et al. 2024): implicit x atc, where x follows a moving average.

    alpha, beta, gamma   step sizes of x, y and v
    theta                weight of the new hypergradient in the moving average, of which x follows
                         the old value; None follows the hypergradient directly
    difference           a number makes it the first-order variant: products by differences of two
                         gradients of g

    Cost: 1 + 1 gradients, one product each with H and J (1 + 3 gradients with differences); sends n
    + 2r numbers.
    Lands: O(step) from the solution if the agents differ.
    """
    outer = alpha if theta is None else _delayed(alpha)
    return _implicit(consensus.atc(), outer, beta, gamma, theta, difference=difference)


@method(provenance=f"{ABSTRACT} {OLD_OR_NEW} {RUN}")
def sparkle_gt(
    *, alpha: StepSize, beta: StepSize, gamma: StepSize, theta: Weight | None = 0.2
) -> Algorithm:
    """SPARKLE-GT (Zhu et al. 2024): implicit x atc_tracking, where x follows a moving average.

    alpha, beta, gamma   step sizes of x, y and v
    theta                weight of the new hypergradient in the moving average; None follows it
                         directly

    Cost: 1 + 1 gradients, one product each with H and J; sends 2n + 4r numbers.
    Lands: exact.
    """
    return _implicit(consensus.atc_tracking(), alpha, beta, gamma, theta)


@method(provenance=f"{ABSTRACT} {OLD_OR_NEW} {RUN}")
def sparkle_extra(
    *, alpha: StepSize, beta: StepSize, gamma: StepSize, theta: Weight | None = 0.2
) -> Algorithm:
    """SPARKLE-EXTRA (Zhu et al. 2024): implicit x EXTRA, where x follows a moving average.

    alpha, beta, gamma   step sizes of x, y and v
    theta                weight of the new hypergradient in the moving average; None follows it
                         directly

    Cost: 1 + 1 gradients, one product each with H and J; sends n + 2r numbers.
    Lands: exact.
    """
    return _implicit(consensus.extra(), alpha, beta, gamma, theta)


@method(provenance=f"{ABSTRACT} {OLD_OR_NEW} {RUN}")
def sparkle_ed(
    *, alpha: StepSize, beta: StepSize, gamma: StepSize, theta: Weight | None = 0.2
) -> Algorithm:
    """SPARKLE-ED (Zhu et al. 2024): implicit x exact diffusion, where x follows a moving average.

    alpha, beta, gamma   step sizes of x, y and v
    theta                weight of the new hypergradient in the moving average; None follows it
                         directly

    Cost: 1 + 1 gradients, one product each with H and J; sends n + 2r numbers.
    Lands: exact.
    """
    along = _implicit(consensus.exact_diffusion(), alpha, beta, gamma, theta)
    return _covered(along, "Theorem B") if theta is None else along


@method(
    provenance=f"{READ} The authors draw samples; both their variants are here, LG and GT. {RUN}"
)
def lopa(
    *,
    alpha: StepSize,
    beta: StepSize,
    gamma: StepSize,
    theta: Weight = 0.4,
    tau: float = 0.4,
    tracking: bool = False,
) -> Algorithm:
    """LoPA (Niu et al. 2023) for a PERSONALISED inner level: y and v stay local, only x is mixed.

    It solves another problem, y*_i(x) = argmin g_i(x, .): every agent has its own inner solution.

    alpha, beta, gamma   step sizes of x, y and v
    theta                weight of the new hypergradient in the moving average, of which x follows
                         the old value
    tau                  x moves this part of the way, x+ = (1 - tau) x + tau (W x - alpha u); the
                         authors' experiments have tau = theta = .4
    tracking             whether u tracks the moving averages of all agents (LoPA-GT) or is the
                         agent's own (LoPA-LG)

    Cost: 1 + 1 gradients, one product each with H and J; sends n numbers, 2n with tracking.
    Lands: O(step) from its own solution; exact with tracking.
    """
    strategies = {
        "x": consensus.relaxed(consensus.tracking() if tracking else consensus.dgd(), tau),
        "y": consensus.local(),
        "v": consensus.local(),
    }
    return _implicit(strategies, _delayed(alpha), beta, gamma, theta)


# direction x estimator x consensus


@method(
    provenance=(
        f"{READ} The authors' code is for one agent, where this is the same method, except that one"
        " number j chooses the batches of both levels while the code draws two. Gradient tracking"
        " is our addition."
    )
)
def saba(*, alpha: StepSize, beta: StepSize, gamma: StepSize) -> Algorithm:
    """SABA (Dagreou, Ablin, Vaiter & Moreau 2022): implicit x tracking with SAGA, on one agent or
    several.

    The problem needs a fixed list of batches, `sample=decibo.data.Batches(count)`.

    alpha, beta, gamma   step sizes of x, y and v

    Cost: 1 + 1 gradients, one product each with H and J, all on one batch; sends 2n + 4r numbers.
    Lands: exact.
    """
    return _implicit(consensus.tracking(), alpha, beta, gamma, None, estimator=estimator.saga())


@method(
    provenance=(
        f"{READ} The authors' code is for one agent, where this is the same method, except that"
        " minibatches are drawn as the problem says. Gradient tracking is our addition."
    )
)
def srba(*, alpha: StepSize, beta: StepSize, gamma: StepSize, period: int = 100) -> Algorithm:
    """SRBA (Dagreou, Moreau, Vaiter & Ablin 2024): implicit x tracking with SARAH, on one agent or
    several.

    alpha, beta, gamma   step sizes of x, y and v
    period               full gradients once in so many steps; the authors use half of the steps of
                         one pass

    Cost: 2 + 2 gradients, two products each with H and J on a minibatch, or half of that on all
    data; sends 2n + 4r numbers.
    Lands: exact.
    """
    return _implicit(
        consensus.tracking(), alpha, beta, gamma, None, estimator=estimator.sarah(period)
    )


# One level, for sanity and for comparison with one-level libraries: only f counts. On a problem
# made by `decibo.problems.single_level(objective, data, x0)` they minimise mean_i objective(x,
# d_i).


@method(provenance=READ)
def dgd(*, alpha: StepSize) -> Algorithm:
    """Distributed gradient descent (Nedic & Ozdaglar 2009), for one level: only f counts.

    alpha   step size

    Cost: 1 gradient of f; sends n + r numbers.
    Lands: O(alpha) from the solution if the agents differ.
    """
    return compose(direction.single(), consensus.dgd(), x=alpha, y=alpha)


@method(provenance=READ)
def gradient_tracking(*, alpha: StepSize) -> Algorithm:
    """Gradient tracking (Nedic, Olshevsky & Shi 2017), for one level: only f counts.

    alpha   step size

    Cost: 1 gradient of f; sends 2n + 2r numbers.
    Lands: exact.
    """
    return compose(direction.single(), consensus.tracking(), x=alpha, y=alpha)


@method(provenance=READ)
def extra(*, alpha: StepSize) -> Algorithm:
    """EXTRA (Shi, Ling, Wu & Yin 2015), for one level: only f counts.

    alpha   step size

    Cost: 1 gradient of f; sends n + r numbers.
    Lands: exact.
    """
    return compose(direction.single(), consensus.extra(), x=alpha, y=alpha)


@method(provenance=READ)
def exact_diffusion(*, alpha: StepSize) -> Algorithm:
    """Exact diffusion (Yuan, Ying, Zhao & Sayed 2019), for one level: only f counts.

    alpha   step size

    Cost: 1 gradient of f; sends n + r numbers.
    Lands: exact.
    """
    return compose(direction.single(), consensus.exact_diffusion(), x=alpha, y=alpha)


def _delayed(step: StepSize) -> Rule:
    """The same steps along what the variable would have followed a step before, 0 at first."""
    inside = as_rule("alpha", step)
    memory = Partial(_with_zeros, inside.start)
    return replace(inside, start=memory, step=Partial(_behind, inside.step), name="delayed")


def _with_zeros(start: Callable[[Tree], Tree], s: Vector) -> Tree:
    return jnp.zeros_like(s), start(s)


def _behind(step: Callable[..., Move], memory: Tree, s: Vector, d: Vector, k: Step) -> Move:
    old, inside = memory
    inside, u, h = step(inside, s, old, k)
    return (d, inside), u, h


def _implicit(
    strategies: consensus.Consensus | Mapping[str, consensus.Consensus],
    alpha: StepSize,
    beta: StepSize,
    gamma: StepSize,
    theta: Weight | None,
    *,
    radius: float | None = None,
    difference: float | None = None,
    estimator: Estimator | None = None,
) -> Algorithm:
    return compose(
        direction.implicit(difference),
        strategies,
        estimator=estimator,
        average={} if theta is None else {"x": theta},
        prox={} if radius is None else {"v": prox.ball(radius)},
        x=alpha,
        y=beta,
        v=gamma,
    )


def _covered(method: Algorithm, theorem: str) -> Algorithm:
    return replace(method, theory=method.theory._replace(theorem=theorem))
