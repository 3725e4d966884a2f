r"""How fast AHEAD is under the rules of Corollaries 1 and 2, measured.

    (1)  R(K) = (1/K) sum over k < K of |grad Phi(xbar^k)|^2,   a run of its own for each K, with the rule's steps
    (2)  slope of log R over log K by least squares;   predicted at most -1/3 (Corollary 1), -2/3 (Corollary 2)
    (3)  effect of one quantity at a time, low and high: of rho, b_f and b_g on where |grad Phi|^2 settles (the
         initial term would hide them), of kappa on R(K)/|grad Phi(x0)|^2, with the rule's powers of kappa

The steps that Theorem 1 admits are so small that |grad Phi| hardly changes in 10^5 steps (a row of the table shows
it), so that the slope is measured with the same powers of K and practical constants in front. A run starts far from
x*, so that the initial term leads. Nearer, the floors C + B lead; they fall like K^(-1/3) too, but with corrections
of relative size 1/lam = O(K^(-1/6)), so that slopes between 10^2 and 10^5 come out on either side of -1/3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from decibo.algorithm.methods import ahead, ahead_minimax
from decibo.execute.solve import solve
from decibo.measure.measures import Snapshot
from decibo.network.graphs import ring
from decibo.network.network import Network
from decibo.problem.problem import Problem
from decibo.problems.minimax import minimax_quadratic
from decibo.problems.quadratic import quadratic
from decibo.theory.constants import Constants
from decibo.theory.corollaries import Rule, corollary1, corollary2
from decibo.theory.estimate import constants

PLAIN = Constants(mu_g=1, L_f1=1, L_g1=1, L_g2=0, C_fy=1, b_f=0, b_g=0)  # for rules whose constants are all given
DISTANCE = 10.0
KS = (100, 1000, 10_000, 100_000)
PRACTICAL = {
    1: {"alpha": 1.0, "beta": 0.25, "gamma": 0.5, "lam": 2.0},
    2: {"alpha": 1.0, "beta": 0.25, "gamma": 0.5, "lam": 2.0},
}


@dataclass(frozen=True)
class Curve:
    """R(K) for several K, (1)."""

    name: str
    K: tuple[int, ...]
    R: tuple[float, ...]
    rules: tuple[Rule, ...]

    @property
    def slope(self) -> float:
        """(2)."""
        return float(np.polyfit(np.log(self.K), np.log(self.R), 1)[0])


def quadratic_stationarity(s: Snapshot) -> jax.Array:
    """|grad Phi(xbar)|^2 where y*(x) has a closed form: no Newton steps, so that every step can be recorded."""
    x = s.mean("x")
    assert s.functions.inner_solution is not None

    def phi(x: jax.Array) -> jax.Array:
        y = s.functions.inner_solution(s.functions.x.unravel(x), s.data)  # type: ignore[misc]
        values = jax.vmap(lambda d: s.functions.outer(s.functions.x.unravel(x), y, d))(s.data)
        return jnp.mean(values)

    return jnp.sum(jax.grad(phi)(x) ** 2)


def path(problem: Problem, network: Network, method: Any, K: int, distance: float = 0.0) -> np.ndarray:
    """|grad Phi(xbar^k)|^2 for k < K, from x0 or this far from the solution; infinite if the run diverged."""
    start = None
    if distance and problem.solution:
        x = problem.x_layout.ravel(jax.tree.map(jnp.asarray, problem.solution["x"]))
        one = problem.x_layout.unravel(x + distance * jnp.full_like(x, x.size**-0.5))
        start = {"x": jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (network.agents, *leaf.shape)), one)}
    measures = {"stationarity": quadratic_stationarity}
    run = solve(problem, network, method, steps=K, every=1, measures=measures, start=start, progress=False)
    return run.history["stationarity"][:K] if run.steps == K else np.full(K, np.inf)


def curve(
    problem: Problem,
    network: Network,
    corollary: int,
    *,
    Ks: Sequence[int] = KS,
    practical: bool = True,
    distance: float = DISTANCE,
) -> Curve:
    """R(K) under Corollary 1's or 2's rule, with practical constants or with those Theorem 1 admits."""
    known = constants(problem, minimax=corollary == 2)
    rules = tuple(rule(known, network.rho, K, corollary, practical) for K in Ks)
    method = ahead if corollary == 1 else ahead_minimax
    runs = [path(problem, network, method(**r.settings), K, distance) for r, K in zip(rules, Ks, strict=True)]
    kind = "practical constants" if practical else "Theorem 1's constants"
    kind += f", start {distance:g} from x*" if distance else ", start at x0"
    return Curve(f"Corollary {corollary}, {kind}", tuple(Ks), tuple(float(r.mean()) for r in runs), rules)


def rule(known: Constants, rho: float, K: float, corollary: int, practical: bool) -> Rule:
    """The rule of a corollary for K steps."""
    first = PRACTICAL[corollary] if practical else None
    return corollary1(known, rho, K, first=first) if corollary == 1 else corollary2(known, rho, K, first=first)


def slopes(Ks: Sequence[int] = KS, m: int = 6, seed: int = 0) -> list[Curve]:
    """Both corollaries on a ring: practical constants from afar and from x0, and Theorem 1's constants, (2)."""
    made = {1: quadratic(m, 2, 2, seed=seed, condition=2.0), 2: minimax_quadratic(m, 2, 2, seed=seed, condition=2.0)}
    ways = ((True, DISTANCE), (True, 0.0), (False, DISTANCE))
    return [curve(made[c], ring(m), c, Ks=Ks, practical=p, distance=d) for c in made for p, d in ways]


def ranges(Ks: Sequence[int] = KS[:3], m: int = 4, seeds: Iterable[int] = range(5)) -> list[tuple[str, list[float]]]:
    """(start, fitted slopes of Corollary 1 for several random problems): how far one problem's slope can be trusted."""
    problems = [quadratic(m, 2, 2, seed=seed, condition=2.0) for seed in seeds]
    starts = {f"{DISTANCE:g} from x*": DISTANCE, "x0": 0.0}
    return [(name, [curve(p, ring(m), 1, Ks=Ks, distance=d).slope for p in problems]) for name, d in starts.items()]


def effects(K: int = 10_000, m: int = 6, seeds: Iterable[int] = range(4)) -> list[tuple[str, float, float]]:
    """(quantity, value where it is low, value where it is high), geometric means over seeds, (3)."""
    plain, far = ring(m), ring(m).with_rho(0.95)
    names = {
        f"rho {plain.rho:.2f} -> 0.95": lambda s: (_tail(_made(m, s), plain, K), _tail(_made(m, s), far, K)),
        "b_f x 10": lambda s: (
            _tail(_made(m, s), plain, K),
            _tail(_spread(_made(m, s), "pq", 10.0), plain, K),
        ),
        "b_g x 10": lambda s: (
            _tail(_made(m, s), plain, K),
            _tail(_spread(_made(m, s), "s", 10.0), plain, K),
        ),
        "kappa, condition 1.5 -> 6": lambda s: _conditioned([_made(m, s, c) for c in (1.5, 6.0)], plain, K),
    }
    pairs = {name: np.exp(np.mean(np.log([pair(s) for s in seeds]), axis=0)) for name, pair in names.items()}
    return [(name, float(low), float(high)) for name, (low, high) in pairs.items()]


def _made(m: int, seed: int, condition: float = 2.0) -> Problem:
    return quadratic(m, 2, 2, seed=seed, condition=condition)


def _spread(problem: Problem, names: str, factor: float) -> Problem:
    """The same problem on average, with the agents' vectors further from their mean."""
    data = dict(problem.data)
    for name in names:
        centre = data[name].mean(axis=0)
        data[name] = centre + factor * (data[name] - centre)
    return Problem(problem.outer, problem.inner, data, problem.x0, problem.y0, inner_solution=problem.inner_solution)


def _tail(problem: Problem, network: Network, K: int) -> float:
    """Where |grad Phi|^2 settles: its mean over the last tenth of a run."""
    settings = corollary1(PLAIN, network.rho, K, first=PRACTICAL[1]).settings
    return float(np.mean(path(problem, network, ahead(**settings), K)[-K // 10 :]))


def _conditioned(problems: Sequence[Problem], network: Network, K: int) -> list[float]:
    """R(K)/|grad Phi(x0)|^2 with the rule's powers of kappa: alpha kappa^-3, beta kappa^-1, lam kappa."""
    kappas = [constants(problem).kappa for problem in problems]
    powers, found = {"alpha": -3, "beta": -1, "gamma": 0, "lam": 1}, []
    for problem, kappa in zip(problems, kappas, strict=True):
        first = {name: value * (kappa / kappas[0]) ** powers[name] for name, value in PRACTICAL[1].items()}
        seen = path(problem, network, ahead(**corollary1(PLAIN, network.rho, K, first=first).settings), K)
        found.append(float(np.mean(seen) / seen[0]))
    return found


def table(
    curves: Iterable[Curve],
    spread: Iterable[tuple[str, list[float]]] = (),
    rows: Iterable[tuple[str, float, float]] = (),
) -> str:
    """Curves, ranges and effects in words and numbers."""
    lines = ["mean of |grad Phi(xbar)|^2 over K steps, a run for each K", ""]
    for c in curves:
        lines.append(f"{c.name}: slope {c.slope:+.3f}; Theorem 1 admits them: {all(r.admitted for r in c.rules)}")
        for K, R, r in zip(c.K, c.R, c.rules, strict=True):
            steps = f"alpha {r.alpha:.2e}  beta {r.beta:.2e}  gamma {r.gamma:.2e}  lam {r.lam:.3g}"
            lines.append(f"  K = {K:>7,}  {R:.4e}   {steps}")
        lines.append("")
    for start, found in spread:
        listed = ", ".join(f"{slope:+.3f}" for slope in found)
        lines.append(f"Corollary 1 on five other problems, K up to 10,000, start {start}: slopes {listed}")
    for name, low, high in rows:
        lines.append(f"{name:<28} {low:.3e} -> {high:.3e}   {'worse' if high > low else 'NOT worse'}")
    return "\n".join(lines)
