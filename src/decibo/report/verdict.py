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
PENALISED = ("ahead_exact", "fab")  # exact but for their penalty
FEWEST = 9  # records, to say anything about a trend
PLATEAU = "left a plateau"
EPSILON = {"float64": 2.2e-16, "float32": 1.2e-7}


@dataclass(frozen=True)
class RunVerdict:
    """Its kind (good, bad, floor or open), a title of a word or two, and a sentence."""

    kind: str
    title: str
    sentence: str


def judge(run: RunRecord, measure: str | None) -> RunVerdict:
    """The verdict on a run, from its status and the course of this measure."""
    if not run.sound:
        return RunVerdict("bad", run.status, run.message)
    if run.status == "converged":
        return RunVerdict("good", "converged", run.message)
    trend = _trend(run, measure) if measure in run.history else None
    trend = trend or RunVerdict("open", str(run.status), "Too few records to see a trend.")
    if run.status in ("interrupted", "stopped"):
        return RunVerdict("open", str(run.status), f"{run.message} {trend.sentence}")
    message = run.message.removeprefix(f"All {run.steps} steps done.").strip()
    return RunVerdict(trend.kind, trend.title, f"{trend.sentence} {message}".strip())


def judge_group(group: Group, measure: str | None) -> RunVerdict:
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
    listed = ", ".join(f"{count} {title}" for title, count in counts.items())
    title = middle.title if len(counts) == 1 else listed
    sentence = f"Seed {run.seed}, the median: {middle.sentence}" if run.sound else ""
    lost = [k for k, run in enumerate(group.runs) if not run.sound]
    if not lost:
        return RunVerdict(middle.kind, title, sentence)
    first = f"Seed {group.runs[lost[0]].seed} {group.runs[lost[0]].status}:"
    others = f" {len(lost)} of {len(group.runs)} seeds gave no answer." if len(lost) > 1 else ""
    reason = f"{first} {verdicts[lost[0]].sentence}{others} {sentence}".strip()
    return RunVerdict("bad", title, reason)


def _trend(run: RunRecord, measure: str | None) -> RunVerdict | None:
    """What the course of a measure tells; None if there are too few records."""
    name = str(measure)
    values = run.history[name].astype(float)
    if len(values) < FEWEST or not np.isfinite(values).all():
        return None
    first = float(values[0])
    last = float(values[-1])
    third = len(values) // 3
    before, after = (float(np.median(part)) for part in np.array_split(values[-third:], 2))
    zero = vanishes(name)
    # Squared errors at the level of rounding, relative to where they began, are zero.
    rounding = EPSILON.get(run.precision, 1e-3) ** 1.5
    if zero and 0 <= after <= rounding * max(first, float(values.max())):
        sentence = f"{name} is at {typeset_number(after)}: rounding error is all that is left."
        return RunVerdict("good", "solved", sentence)

    # A gradient that grew is a good sign where it was small at a start that was bad.
    if last > 10 * first > 0:
        began, peak, end = map(typeset_number, (first, float(values.max()), last))
        for objective in ("phi", "outer") if name in ("stationarity", "direction_norm") else ():
            course = run.history.get(objective, np.zeros(2))
            high = float(course[0])
            low = float(course[-1])
            if low < high - 0.01 * abs(high):
                fall = f"{objective} fell from {typeset_number(high)} to {typeset_number(low)}"
                path = f"{name} rose from {began} to {peak} and came to {end}"
                sentence = f"{fall}; {path}: the gradient was small where it began."
                return RunVerdict("open", PLATEAU, sentence)
        return RunVerdict("bad", "grew", f"{name} ended at {end}, above {began} at the start.")

    # A straight line through the last third is flat, or its slope is lost in the noise. Measures
    # that vanish are judged on a logarithmic scale, others relative to their range.
    end = values[-third:]
    span = float(np.ptp(values))
    logarithmic = zero and bool((end > 0).all())
    fitted = np.log(end) if logarithmic else end
    record = np.arange(third)
    slope, start = np.polyfit(record, fitted, 1)
    noise = float(np.std(fitted - start - slope * record))
    if abs(slope) * third > max(LEVEL if logarithmic else LEVEL / 10 * span, noise):
        since = f"since step {int(run.history['step'][-third]):,}"
        change = f"from about {typeset_number(before)} to about {typeset_number(after)} {since}"
        if after > before:
            return RunVerdict("open", "wavering", f"{name} no longer falls: it went {change}.")
        return RunVerdict(
            "open", "improving", f"{name} was still falling, {change}: more steps help."
        )

    # Since when everything has stayed near that level, and what would lower it.
    width = max(abs(after) if zero else LEVEL / 4 * span, 3 * float(np.std(end)))
    outside = np.flatnonzero(np.abs(values - after) > width)
    settled = int(min(outside[-1] + 1, len(values) - 1)) if len(outside) else 0
    since = int(run.history["step"][settled])
    level = f"{name} has stayed near {typeset_number(after)} since about step {since:,}"
    if not zero:
        return RunVerdict("good", "settled", f"{level}.")
    if after > 0.5 * first:
        began = f"it began at {typeset_number(first)}. Larger step sizes may move it."
        return RunVerdict("bad", "stuck", f"{level}; {began}")
    advice = "more steps will not lower it, smaller step sizes or an exact method may"
    if run.method["name"] in PENALISED and "lam" in run.method["settings"]:
        advice = "neither more nor smaller steps will lower it, a larger lam does, as far as"
        advice += " rounding allows"
    return RunVerdict("floor", "floor", f"{level}: {advice}.")
