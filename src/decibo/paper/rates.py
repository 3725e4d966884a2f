"""The rates of Corollaries 1 and 2, measured by decibo.paper.rate_study.                    [paper, section III]"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from decibo.paper import rate_study as rates
from decibo.paper.claims import Claim, Verdict, judge, judge_seeds, tally
from decibo.paper.result import Progress, Result, Size, Table, columns, quiet

PREDICTED = {1: -1 / 3, 2: -2 / 3}
SLACK = 0.02  # a fitted slope may be this much above the predicted one
EXPECTED = {"rho": "1/(1 - rho)^2", "b_f": "b_f^2", "b_g": "b_g^2", "kappa": "kappa^4"}


def run(size: Size, progress: Progress = quiet) -> Result:
    """Slopes on one problem, their range over several, and the effect of one quantity at a time."""
    Ks = size.of(rates.KS, rates.KS[:3], (30, 100))
    K = size.of(10_000, 2_000, 200)
    seeds = size.some(5, 3)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="lam = ")  # the rule's small lam at small K is what is measured
        curves = rates.slopes(Ks)
        progress(0.5)
        spread = rates.ranges(size.of(rates.KS[:3], rates.KS[:2], (30, 100)), seeds=seeds)
        progress(0.75)
        rows = rates.effects(K, seeds=range(min(4, len(seeds))))
    progress(1.0)
    return Result(
        name="rates",
        title="Corollaries 1 and 2: rates",
        data="random quadratic problems with known solution (no data set)",
        tables={"curves": _curves(curves), "ranges": _ranges(spread), "effects": _effects(rows)},
        claims=claims(curves, spread, rows),
        settings={
            "K": list(Ks),
            "steps": "the corollaries' powers of K with practical constants: " + str(rates.PRACTICAL[1]),
            "network": "ring of 6",
            "effects at K": K,
            "precision": "float64",
            "seeds": list(seeds),
        },
        notes=(
            "R(K) is the mean of |grad Phi(xbar)|^2 over K steps, a run of its own for each K.",
            "Steps that Theorem 1 admits are so small that hardly anything moves: their slope says nothing, and the "
            "slopes judged here are those of the same powers of K with practical constants in front.",
        ),
    )


def claims(
    curves: Sequence[rates.Curve], spread: Sequence[tuple[str, list[float]]], rows: Sequence[tuple[str, float, float]]
) -> tuple[Claim, ...]:
    """Each corollary's power of K, and the direction of each effect."""
    made = [_slope(c) for c in curves]
    for start, found in spread:
        below = [slope <= PREDICTED[1] + SLACK for slope in found]
        shown = ", ".join(f"{slope:+.2f}" for slope in found)
        said = f"Corollary 1 on other problems, start {start}: slope at most -1/3"
        made.append(Claim(said, f"{shown}: so in {tally(below)}", judge_seeds(below)))
    for name, low, high in rows:
        term = next(term for key, term in EXPECTED.items() if name.startswith(key))
        made.append(
            Claim(f"the error grows with {name} (bound: {term})", f"{low:.3g} -> {high:.3g}", judge(high > low))
        )
    return tuple(made)


def _slope(c: rates.Curve) -> Claim:
    which = int(c.name.split()[1].rstrip(","))
    said = f"{c.name}: R(K) falls like K^{'(-1/3)' if which == 1 else '(-2/3)'} or faster"
    measured = f"slope {c.slope:+.3f}"
    if "Theorem 1" in c.name:
        return Claim(said, measured, Verdict.open, "admitted steps are too small for anything to move")
    return Claim(said, measured, judge(c.slope <= PREDICTED[which] + SLACK))


def _curves(curves: Sequence[rates.Curve]) -> Table:
    return columns(
        [
            {"curve": c.name, "K": K, "R": R, "slope": c.slope, "admitted": int(r.admitted)} | r.settings
            for c in curves
            for K, R, r in zip(c.K, c.R, c.rules, strict=True)
        ]
    )


def _ranges(spread: Sequence[tuple[str, list[float]]]) -> Table:
    return columns([{"start": s, "problem": k, "slope": v} for s, found in spread for k, v in enumerate(found)])


def _effects(rows: Sequence[tuple[str, float, float]]) -> Table:
    return columns([{"quantity": name, "low": low, "high": high} for name, low, high in rows])
