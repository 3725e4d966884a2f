r"""The rates of Corollaries 1 and 2, measured.                                [paper, section III]

    (1)  R(K) = (1/K) sum over k < K of |grad Phi(xbar^k)|^2,   a run of its own for each K
    (2)  slope of log R over log K between the last two K;   predicted at most -1/3 and -2/3
    (3)  effect of one quantity at a time, low and high: of rho, b_f and b_g on where |grad Phi|^2
         settles (the initial term would hide them), of kappa on R(K)/|grad Phi(x0)|^2, with the
         rule's powers of kappa

The steps that Theorem 1 admits are so small that |grad Phi| hardly changes in 10^5 steps (one of
the curves shows it); the slopes are therefore measured with the same powers of K and practical
constants in front. A run starts far from x*, so that the initial term dominates. Nearer, the floors
C + B dominate; they fall like K^(-1/3) too, but with corrections of relative size 1/lam =
O(K^(-1/6)), so that slopes between 10^2 and 10^5 lie on either side of -1/3.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import decibo
from decibo.problems.minimax import minimax_quadratic
from decibo.report.figures import letter, new_figure
from decibo.theory.estimate import constants
from studies.paper.corollaries import StepRule, corollary1, corollary2
from studies.paper.experiment import (
    Claim,
    Progress,
    Result,
    Size,
    Verdict,
    judge,
    paragraphs,
    tally,
)
from studies.paper.plotting import COLOURS
from studies.paper.tables import block, columns, groups, join

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# for rules whose constants are all given
PLAIN = decibo.theory.Constants(mu_g=1, L_f1=1, L_g1=1, L_g2=0, C_fy=1, b_f=0, b_g=0)
DISTANCE = 10.0
KS = (100, 1000, 10_000, 100_000)
PRACTICAL = {"alpha": 1.0, "beta": 0.25, "gamma": 0.5, "lam": 2.0}
PREDICTED = {1: -1 / 3, 2: -2 / 3}
FRACTIONS = {1: "-1/3", 2: "-2/3"}
SLACK = 0.02  # a fitted slope may be this much above the predicted one


@dataclass(frozen=True)
class Curve:
    """R(K) for several K, (1), under the rule of a corollary."""

    corollary: int
    practical: bool
    distance: float
    K: tuple[int, ...]
    R: tuple[float, ...]
    rules: tuple[StepRule, ...]

    @property
    def slope(self) -> float:
        """(2): the corollaries are about large K."""
        return float(np.log(self.R[-1] / self.R[-2]) / np.log(self.K[-1] / self.K[-2]))

    @property
    def overall(self) -> float:
        """Of log R over log K by least squares, over all K."""
        return float(np.polyfit(np.log(self.K), np.log(self.R), 1)[0])

    @property
    def start(self) -> str:
        """Where the runs start, in words."""
        return f"start {self.distance:g} from x*" if self.distance else "start at x0"

    @property
    def name(self) -> str:
        """The corollary, the constants and the start, in words."""
        kind = "practical constants" if self.practical else "Theorem 1's constants"
        return f"Corollary {self.corollary}, {kind}, {self.start}"


class Effect(NamedTuple):
    """What is measured where one quantity is low and where it is high; `bound` is its part in the
    corollary's bound."""

    quantity: str
    bound: str
    low: float
    high: float


NOTES = """\
R(K) is the mean of |grad Phi(xbar)|^2 over the steps of a run of K steps.

The steps that Theorem 1 admits are so small that hardly anything moves, so their slope says
nothing. The slopes judged here are those of the same powers of K with practical constants in
front, between the last two K; a slope may be 0.02 above the predicted one.
"""


def run(size: Size, progress: Progress) -> Result:
    """Slopes on one problem, their range over several, and the effect of one quantity at a time."""
    Ks = size.pick(KS, KS[:3], (30, 100))
    K = size.pick(10_000, 2_000, 200)
    seeds = size.seed_range(5, 3)
    with warnings.catch_warnings():
        # the rule's small lam at small K is what is measured
        warnings.filterwarnings("ignore", message="lam = ")
        curves = slopes(Ks)
        progress(0.5)
        spread = ranges(size.pick(KS, KS[:2], (30, 100)), seeds=seeds)
        progress(0.75)
        changes = effects(K, seeds=range(min(4, len(seeds))))
    progress(1.0)
    return Result(
        name="rates",
        title="Corollaries 1 and 2: rates",
        data="random quadratic problems with known solution (no data set)",
        tables={
            "curves": columns(
                [
                    {"curve": curve.name, "K": K, "R": R, "slope": curve.slope}
                    | {"admitted": int(rule.admitted), **rule.settings}
                    for curve in curves
                    for K, R, rule in zip(curve.K, curve.R, curve.rules, strict=True)
                ]
            ),
            "ranges": join(
                [
                    block({"start": s}, problem=np.arange(len(v)), slope=np.array(v))
                    for s, v in spread
                ]
            ),
            "effects": columns([each._asdict() for each in changes]),
        },
        claims=claims(curves, spread, changes),
        settings={
            "K": list(Ks),
            "steps": "the corollaries' powers of K with practical constants: " + str(PRACTICAL),
            "network": "ring of 6",
            "effects at K": K,
            "precision": "float64",
            "seeds": list(seeds),
        },
        notes=paragraphs(NOTES),
    )


def quadratic_stationarity(s: decibo.Snapshot) -> jax.Array:
    """|grad Phi(xbar)|^2 where y*(x) has a closed form: no Newton steps, so that every step can be
    recorded."""
    inner_solution = s.functions.inner_solution
    assert inner_solution is not None

    def phi(vector: jax.Array) -> jax.Array:
        x = s.functions.x.unravel(vector)
        y = inner_solution(x, s.data)
        return jnp.mean(jax.vmap(lambda d: s.functions.outer(x, y, d))(s.data))

    return jnp.sum(jax.grad(phi)(s.mean("x")) ** 2)


def path(
    problem: decibo.Problem,
    network: decibo.Network,
    method: decibo.Algorithm,
    K: int,
    distance: float = 0.0,
) -> np.ndarray:
    """|grad Phi(xbar^k)|^2 for k < K, from x0 or this far from the solution; infinite if the run
    diverged."""
    start = None
    if distance and problem.solution:
        x = problem.x_layout.ravel(jax.tree.map(jnp.asarray, problem.solution["x"]))
        point = problem.x_layout.unravel(x + distance * jnp.full_like(x, x.size**-0.5))
        rows = lambda leaf: jnp.broadcast_to(leaf, (network.agents, *leaf.shape))
        start = {"x": jax.tree.map(rows, point)}
    measures = [("stationarity", quadratic_stationarity)]
    solution = decibo.solve(
        problem, network, method, steps=K, every=1, measures=measures, start=start, progress=False
    )
    return solution.history["stationarity"][:K] if solution.steps == K else np.full(K, np.inf)


def curve(
    problem: decibo.Problem,
    network: decibo.Network,
    corollary: int,
    *,
    Ks: Sequence[int] = KS,
    practical: bool = True,
    distance: float = DISTANCE,
) -> Curve:
    """R(K) under Corollary 1's or 2's rule, with practical constants or with those Theorem 1
    admits."""
    region = constants(problem, minimax=corollary == 2)
    first = PRACTICAL if practical else None
    rule = corollary1 if corollary == 1 else corollary2
    method = decibo.ahead if corollary == 1 else decibo.methods.ahead_minimax
    rules = tuple(rule(region, network.rho, K, first=first) for K in Ks)
    paths = [
        path(problem, network, method(**r.settings), K, distance)
        for r, K in zip(rules, Ks, strict=True)
    ]
    means = tuple(float(values.mean()) for values in paths)
    return Curve(corollary, practical, distance, tuple(Ks), means, rules)


def slopes(Ks: Sequence[int] = KS, agents: int = 6, seed: int = 0) -> list[Curve]:
    """Both corollaries on a ring: practical constants from afar and from x0, and Theorem 1's
    constants, (2)."""
    problems = {
        1: decibo.problems.quadratic(agents, 2, 2, seed=seed, condition=2.0),
        2: minimax_quadratic(agents, 2, 2, seed=seed, condition=2.0),
    }
    ways = ((True, DISTANCE), (True, 0.0), (False, DISTANCE))
    network = decibo.ring(agents)
    return [
        curve(problem, network, corollary, Ks=Ks, practical=practical, distance=distance)
        for corollary, problem in problems.items()
        for practical, distance in ways
    ]


def ranges(
    Ks: Sequence[int] = KS[:3], agents: int = 4, seeds: Iterable[int] = range(5)
) -> list[tuple[str, list[float]]]:
    """(start, fitted slopes of Corollary 1 for several random problems): how far one problem's
    slope can be trusted."""
    problems = [decibo.problems.quadratic(agents, 2, 2, seed=seed, condition=2.0) for seed in seeds]
    fit = lambda problem, far: curve(problem, decibo.ring(agents), 1, Ks=Ks, distance=far).slope
    starts = {f"{DISTANCE:g} from x*": DISTANCE, "x0": 0.0}
    return [(name, [fit(each, far) for each in problems]) for name, far in starts.items()]


def effects(K: int = 10_000, agents: int = 6, seeds: Iterable[int] = range(4)) -> list[Effect]:
    """The effect of rho, b_f, b_g and kappa, one at a time, as geometric means over seeds, (3)."""
    near = decibo.ring(agents)
    far = near.with_rho(0.95)
    make = lambda seed, condition=2.0: decibo.problems.quadratic(
        agents, 2, 2, seed=seed, condition=condition
    )
    base = lambda seed: settles(make(seed), near, K)
    wide = lambda seed, names: (base(seed), settles(far_apart(make(seed), names), near, K))
    sparse = lambda seed: (base(seed), settles(make(seed), far, K))
    stiff = lambda seed: _conditioned([make(seed, 1.5), make(seed, 6.0)], near, K)
    pairs: list[tuple[str, str, Callable[[int], Sequence[float]]]] = [
        (f"rho {near.rho:.2f} -> 0.95", "1/(1 - rho)^2", sparse),
        ("b_f x 10", "b_f^2", lambda seed: wide(seed, "pq")),
        ("b_g x 10", "b_g^2", lambda seed: wide(seed, "s")),
        ("kappa, condition 1.5 -> 6", "kappa^4", stiff),
    ]
    seeds = list(seeds)
    changes = []
    for quantity, bound, pair in pairs:
        low, high = np.exp(np.mean(np.log([pair(seed) for seed in seeds]), axis=0))
        changes.append(Effect(quantity, bound, float(low), float(high)))
    return changes


def far_apart(problem: decibo.Problem, names: str, factor: float = 10.0) -> decibo.Problem:
    """The same problem on average, with the agents' vectors further from their mean."""
    data = dict(problem.data)
    for name in names:
        centre = data[name].mean(axis=0)
        data[name] = centre + factor * (data[name] - centre)
    start = problem.x0, problem.y0
    known = problem.inner_solution
    return decibo.Problem(problem.outer, problem.inner, data, *start, inner_solution=known)


def settles(problem: decibo.Problem, network: decibo.Network, K: int) -> float:
    """Where |grad Phi|^2 settles: its mean over the last tenth of a run."""
    settings = corollary1(PLAIN, network.rho, K, first=PRACTICAL).settings
    return float(np.mean(path(problem, network, decibo.ahead(**settings), K)[-K // 10 :]))


def _conditioned(
    problems: Sequence[decibo.Problem], network: decibo.Network, K: int
) -> list[float]:
    """R(K)/|grad Phi(x0)|^2 with the rule's powers of kappa: alpha kappa^-3, beta kappa^-1, lam
    kappa."""
    kappas = [constants(problem).kappa for problem in problems]
    powers = {"alpha": -3, "beta": -1, "gamma": 0, "lam": 1}
    ratios = []
    for problem, kappa in zip(problems, kappas, strict=True):
        times = kappa / kappas[0]
        first = {name: value * times ** powers[name] for name, value in PRACTICAL.items()}
        settings = corollary1(PLAIN, network.rho, K, first=first).settings
        values = path(problem, network, decibo.ahead(**settings), K)
        ratios.append(float(np.mean(values) / values[0]))
    return ratios


def claims(
    curves: Sequence[Curve], spread: Sequence[tuple[str, list[float]]], changes: Sequence[Effect]
) -> tuple[Claim, ...]:
    """Each corollary's power of K, and the direction of each effect."""
    judged = [_slope(curve) for curve in curves]
    for start, fitted in spread:
        below = [bool(slope <= PREDICTED[1] + SLACK) for slope in fitted]
        listed = ", ".join(f"{slope:+.2f}" for slope in fitted)
        claim = f"Corollary 1 on other problems, start {start}: slope at most -1/3"
        judged.append(Claim(claim, f"{listed}: true for {tally(below)}", judge(*below)))
    for effect in changes:
        claim = f"the error grows with {effect.quantity} (bound: {effect.bound})"
        judged.append(
            Claim(claim, f"{effect.low:.3g} -> {effect.high:.3g}", judge(effect.high > effect.low))
        )
    for far in [curve for curve in curves if curve.corollary == 1 and curve.practical][:1]:
        # the other factor, O(n + r) a step, is in the experiment on remarks
        claim = "remark on complexity: O(eps^-3) steps until the mean of |grad Phi|^2 is eps"
        power = 1 / far.slope if far.slope < 0 else -np.inf
        least = 1 / (PREDICTED[1] + SLACK)
        judged.append(Claim(claim, f"eps^({power:.2f}), {far.start}", judge(power >= least)))
    return tuple(judged)


def _slope(curve: Curve) -> Claim:
    claim = f"{curve.name}: R(K) falls like K^({FRACTIONS[curve.corollary]}) or faster"
    last = f"K from {curve.K[-2]:,} to {curve.K[-1]:,}"
    measured = f"slope {curve.slope:+.3f} for {last}, {curve.overall:+.3f} over all K"
    if not curve.practical:
        return Claim(
            claim,
            measured,
            Verdict.open,
            "steps that Theorem 1 admits are too small for anything to move",
        )
    return Claim(claim, measured, judge(curve.slope <= PREDICTED[curve.corollary] + SLACK))


def draw(result: Result) -> Figure:
    """R(K) of both corollaries with the predicted slopes, and the slopes of other problems."""
    figure = new_figure(9.6, 3.2)
    axes = figure.subplots(1, 3)
    for ax, corollary in zip(axes, PREDICTED, strict=False):
        curves = list(groups(result.tables["curves"], "curve"))
        curves = [each for each in curves if each[0][0].startswith(f"Corollary {corollary}")]
        for k, ((name,), part) in enumerate(curves):
            label = name.split(", ", 1)[1].replace("practical constants, ", "")
            style = {"color": COLOURS[k], "markersize": 4, "label": label}
            ax.loglog(part["K"], part["R"], "os^"[k] + "-", **style)
            if k == 0:
                guide = part["R"][0] * (part["K"] / part["K"][0]) ** PREDICTED[corollary]
                ax.loglog(part["K"], guide, "k:", label=f"slope {FRACTIONS[corollary]}")
        ax.set(xlabel="K", ylabel="R(K)", ylim=(ax.get_ylim()[0] / 30, None))
        ax.legend(fontsize=6.5, loc="lower left")
    table = result.tables["ranges"]
    for k, ((start,), part) in enumerate(groups(table, "start")):
        x = np.full(len(part["slope"]), k)
        axes[2].plot(x, part["slope"], "o", color=COLOURS[k], alpha=0.7, label=start)
    axes[2].axhline(-1 / 3, color="k", linestyle=":", label="-1/3")
    axes[2].set(
        xticks=range(2), xticklabels=list(dict.fromkeys(table["start"].tolist())), xlim=(-0.5, 1.5)
    )
    axes[2].set(xlabel="start", ylabel="slope")
    letter(axes, ["Corollary 1", "Corollary 2", "Corollary 1, other problems"])
    return figure
