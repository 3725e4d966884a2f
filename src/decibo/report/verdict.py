"""How a run went, in plain words."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from decibo.formatting import typeset_number
from decibo.report.group import Group
from decibo.report.summary import vanishes
from decibo.runs.folder import RunRecord

# a measure that changes by less than this fraction over the last third of a run has levelled off
LEVEL = 0.1
PENALISED = ("ahead_exact", "dsgda_gt")  # exact but for their penalty
FEWEST = 9  # records, to say anything about a trend
PLATEAU = "left a plateau"
EPSILON = {"float64": 2.2e-16, "float32": 1.2e-7}


@dataclass(frozen=True)
class Verdict:
    """Its kind (good, bad, floor or open), a title of a word or two, and a sentence."""

    kind: str
    title: str
    sentence: str


def judge(run: RunRecord, measure: str | None) -> Verdict:
    """The verdict on a run, from its status and the course of this measure."""
    if not run.sound:
        return Verdict("bad", run.status, run.message)
    if run.status == "converged":
        return Verdict("good", "converged", run.message)
    trend = _trend(run, measure) if measure in run.history else None
    trend = trend or Verdict("open", str(run.status), "Too few records to see a trend.")
    if run.status == "interrupted":
        return Verdict("open", "interrupted", f"{run.message} {trend.sentence}")
    message = run.message.removeprefix(f"All {run.steps} steps done.").strip()
    return Verdict(trend.kind, trend.title, f"{trend.sentence} {message}".strip())


def judge_group(group: Group, measure: str | None) -> Verdict:
    """The verdict on the runs of one setting: that of the median seed, after a count if the seeds
    do not agree.

    One seed without an answer is enough for a bad verdict, with the reason.
    """
    verdicts = [judge(run, measure) for run in group.runs]
    if not group.several:
        return verdicts[0]
    run = group.middle(measure)
    middle = verdicts[group.runs.index(run)]
    counts = Counter(verdict.title for verdict in verdicts)
    title = (
        middle.title
        if len(counts) == 1
        else ", ".join(f"{count} {title}" for title, count in counts.items())
    )
    sentence = f"Seed {run.seed}, the median: {middle.sentence}" if run.sound else ""
    lost = [
        (run, verdict) for run, verdict in zip(group.runs, verdicts, strict=True) if not run.sound
    ]
    if not lost:
        return Verdict(middle.kind, title, sentence)
    run, verdict = lost[0]
    others = f" {len(lost)} of {len(group.runs)} seeds gave no answer." if len(lost) > 1 else ""
    return Verdict(
        "bad", title, f"Seed {run.seed} {run.status}: {verdict.sentence}{others} {sentence}".strip()
    )


def _trend(run: RunRecord, measure: str | None) -> Verdict | None:
    name = str(measure)
    step = run.history["step"]
    values = run.history[name].astype(float)
    if len(values) < FEWEST or not np.isfinite(values).all():
        return None
    first = float(values[0])
    third = len(values) // 3
    before, after = (float(np.median(part)) for part in np.array_split(values[-third:], 2))
    zero = vanishes(name)
    if zero and 0 <= after <= _rounding_level(run) * max(first, float(values.max())):
        return Verdict(
            "good",
            "solved",
            f"{name} is at {typeset_number(after)}: rounding error is all that is left.",
        )
    if values[-1] > max(first, 0) * 10 and first > 0:
        fall = _objective_fall(run) if name in ("stationarity", "direction_norm") else ""
        if fall:
            peak = typeset_number(float(values.max()))
            last = typeset_number(float(values[-1]))
            path = f"{name} rose from {typeset_number(first)} to {peak} and came to {last}"
            return Verdict(
                "open", PLATEAU, f"{fall}; {path}: the gradient was small where it began."
            )
        return Verdict(
            "bad",
            "grew",
            f"{name} ended at {typeset_number(values[-1])}, above {typeset_number(first)} at the"
            " start.",
        )
    if _level(values, third, zero):
        width = max(
            abs(after) if zero else LEVEL / 4 * float(np.ptp(values)),
            3 * float(np.std(values[-third:])),
        )
        since = int(step[_settled_since(values, after, width)])
        return _level_verdict(name, after, since, first, zero, _floor_advice(run))
    return _moving_verdict(name, before, after, int(step[-third]))


def _objective_fall(run: RunRecord) -> str:
    """By how much the outer objective fell, in words; empty if it did not."""
    for name in ("phi", "outer"):
        if name in run.history:
            first, last = (float(run.history[name][at]) for at in (0, -1))
            if last < first - 0.01 * abs(first):
                return f"{name} fell from {typeset_number(first)} to {typeset_number(last)}"
    return ""


def _level(values: np.ndarray, third: int, zero: bool) -> bool:
    """Whether a straight line through the last third is flat, or its slope is lost in the noise.

    Measures that vanish are judged on a logarithmic scale, others relative to their range.
    """
    end = values[-third:]
    if zero and (end > 0).all():
        end = np.log(end)
        share = LEVEL
    else:
        share = LEVEL / 10 * float(np.ptp(values))
    record = np.arange(third)
    slope, start = np.polyfit(record, end, 1)
    noise = float(np.std(end - start - slope * record))
    return abs(slope) * third <= max(share, noise)


def _floor_advice(run: RunRecord) -> str:
    """What lowers the floor of this method: its penalty, if its consensus is exact, otherwise its
    step sizes."""
    if run.method["name"] in PENALISED and "lam" in run.method["settings"]:
        return (
            "neither more nor smaller steps will lower it, a larger lam does, as far as rounding"
            " allows"
        )
    return "more steps will not lower it, smaller step sizes or an exact method may"


def _level_verdict(
    name: str, value: float, since: int, first: float, zero: bool, advice: str
) -> Verdict:
    level = f"{name} has stayed near {typeset_number(value)} since about step {since:,}"
    if not zero:
        return Verdict("good", "settled", f"{level}.")
    if value > 0.5 * first:
        return Verdict(
            "bad",
            "stuck",
            f"{level}; it began at {typeset_number(first)}. Larger step sizes may move it.",
        )
    return Verdict("floor", "floor", f"{level}: {advice}.")


def _moving_verdict(name: str, before: float, after: float, since: int) -> Verdict:
    change = (
        f"from about {typeset_number(before)} to about {typeset_number(after)} since step {since:,}"
    )
    if after > before:
        return Verdict("open", "wavering", f"{name} no longer falls: it went {change}.")
    return Verdict("open", "improving", f"{name} was still falling, {change}: more steps help.")


def _settled_since(values: np.ndarray, level: float, width: float) -> int:
    """The first record from which everything stays within this width of the level."""
    outside = np.flatnonzero(np.abs(values - level) > width)
    return int(min(outside[-1] + 1, len(values) - 1)) if len(outside) else 0


def _rounding_level(run: RunRecord) -> float:
    """The size of a squared error, relative to where it began, when only rounding error is left."""
    return EPSILON.get(run.precision, 1e-3) ** 1.5
