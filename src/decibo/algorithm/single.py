"""One-level methods, for sanity and for comparison with one-level libraries: only f counts.

On a problem made by `decibo.problems.single_level(objective, data, x0)` they minimise mean_i objective(x, d_i). All cost one
gradient of f. Names are the consensus strategies'.
"""

from __future__ import annotations

from decibo.algorithm import consensus, direction
from decibo.algorithm.algorithm import Algorithm, method
from decibo.algorithm.compose import compose
from decibo.algorithm.schedules import Rate, schedule


@method
def dgd(*, alpha: Rate) -> Algorithm:
    """Distributed gradient descent (Nedic & Ozdaglar 2009); S. Sends n + r numbers. Lands O(alpha) off."""
    return _single(consensus.dgd(), alpha)


@method
def gradient_tracking(*, alpha: Rate) -> Algorithm:
    """Gradient tracking (Nedic, Olshevsky & Shi 2017); S. Sends 2n + 2r numbers. Exact."""
    return _single(consensus.tracking(), alpha)


@method
def extra(*, alpha: Rate) -> Algorithm:
    """EXTRA (Shi, Ling, Wu & Yin 2015); S. Sends n + r numbers. Exact."""
    return _single(consensus.extra(), alpha)


@method
def exact_diffusion(*, alpha: Rate) -> Algorithm:
    """Exact diffusion (Yuan, Ying, Zhao & Sayed 2019); S. Sends n + r numbers. Exact."""
    return _single(consensus.exact_diffusion(), alpha)


def _single(by: consensus.Consensus, alpha: Rate) -> Algorithm:
    step = schedule("alpha", alpha)
    return compose(direction.single(), by, x=step, y=step)
