"""Runs of one setting with several seeds, as pages, figures and tables show them: as one.

Runs belong together if their folders name the same setting, their labels agree and their seeds
differ; a run that stands alone is a group of one. `decibo.run.repeat` defines what a group shows:
a curve is the median with a band, a number is mean and deviation, and seeds that failed are
counted, never left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from decibo.formatting import distinct, listed, plural, plus_minus, typeset_number
from decibo.report.summary import cost_per_step, last_value, starts_positive, steps_to_targets
from decibo.run.repeat import Band, Course, Spread, band, is_minimised, spread
from decibo.runs.folder import RunRecord
from decibo.validate import one_of


@dataclass(frozen=True, eq=False)
class Group:
    """The runs of one setting, by seed; `first` stands for what does not depend on the seed."""

    label: str
    runs: tuple[RunRecord, ...]

    @property
    def first(self) -> RunRecord:
        """The run with the smallest seed."""
        return self.runs[0]

    @property
    def several(self) -> bool:
        """Whether there is more than one seed."""
        return len(self.runs) > 1

    @property
    def sound(self) -> bool:
        """Whether more than half of the runs ended with an answer, so that the median is one."""
        return 2 * sum(run.sound for run in self.runs) > len(self.runs)

    @property
    def lost(self) -> int:
        """How many runs gave no answer."""
        return sum(not run.sound for run in self.runs)

    @property
    def legend(self) -> str:
        """The label, with the seeds that gave no answer."""
        lost = Counter(run.status for run in self.runs if not run.sound) if self.several else {}
        counts = [f"{count} of {len(self.runs)} seeds {how}" for how, count in lost.items()]
        return f"{self.label} ({', '.join(counts)})" if counts else self.label

    @property
    def ended(self) -> str:
        """How the runs ended, counted; the status of a single one."""
        counts = Counter(run.status for run in self.runs)
        listed = ", ".join(f"{count} {status}" for status, count in counts.items())
        return listed if self.several else self.first.status

    @property
    def seeds(self) -> str:
        """The seeds in words: 0 to 4, or 1, 3 and 7."""
        numbers = [run.seed for run in self.runs if run.seed is not None]
        if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[0] + len(numbers))):
            return f"{numbers[0]} to {numbers[-1]}"
        return listed(list(map(str, numbers))) if numbers else ""

    @property
    def measures(self) -> list[str]:
        """What all runs recorded."""
        names = self.first.measures
        return [name for name in names if all(name in run.measures for run in self.runs)]

    def band(self, measure: str, kind: str = "quartiles") -> Band:
        """The median and the band of a measure; a single run is its own band."""
        course = lambda run: Course(run.history["step"], run.history[measure], run.status)
        if not self.several:
            values = self.first.history[measure].astype(float)
            return Band(self.first.history["step"], values, values, values)
        return band(list(map(course, self.runs)), kind, is_minimised(measure))

    def end(self, measure: str) -> Spread:
        """The last value, over the seeds that gave an answer; of a single run whatever it is."""
        values = [last_value(run, measure) for run in self.runs]
        if not self.several:
            return Spread(np.nan if values[0] is None else values[0], 0.0, 1, 1)
        return spread(values, [run.sound for run in self.runs])

    def price(self, axis: str) -> float | None:
        """What a step costs on this axis: the mean over the seeds, None where it is not known."""
        prices = [cost_per_step(run)[axis] for run in self.runs]
        known = [price for price in prices if price is not None]
        return float(np.mean(known)) if known else None

    def cost_to(self, measure: str, axis: str, target: float) -> Spread:
        """What it cost to reach a fraction of the start, over the seeds that did."""
        prices = [cost_per_step(run)[axis] for run in self.runs]
        steps = [steps_to_targets(run, measure, [target])[0] for run in self.runs]
        pairs = zip(prices, steps, strict=True)
        spent = [None if None in pair else pair[0] * pair[1] for pair in pairs]  # type: ignore
        return spread(spent, [True] * len(spent))

    def reaches(self, measure: str) -> bool:
        """Whether the measure can be compared with its start in every run."""
        return all(starts_positive(run, measure) for run in self.runs)

    def middle(self, measure: str | None) -> RunRecord:
        """The run whose last value is the median; lost ones come last."""
        if measure is None:
            return self.first
        ends = [last_value(run, measure) if run.sound else None for run in self.runs]
        known = [np.inf if end is None or np.isnan(end) else end for end in ends]
        return self.runs[int(np.argsort(known, kind="stable")[(len(known) - 1) // 2])]

    def over(self, text: Callable[[RunRecord], str]) -> str:
        """The text of each run, once where all agree, otherwise from the first to the last in
        order of seeds."""
        words = list(dict.fromkeys(text(run) for run in self.runs))
        return words[0] if len(words) == 1 else ", ".join(words)


def grouped(runs: Iterable[RunRecord], order: Sequence[str] = ()) -> list[Group]:
    """Groups, first those whose labels `order` names, then in the order of their first runs; labels
    are numbered where two are the same."""
    members: dict[object, list[RunRecord]] = {}
    seen: Counter[object] = Counter()
    for k, run in enumerate(runs):
        if run.setting is None or run.seed is None:
            members[k] = [run]
            continue
        setting = (run.setting, run.label)
        again = seen[setting, run.seed]  # the same seed once more is another group
        seen[setting, run.seed] += 1
        members.setdefault((setting, again), []).append(run)
    by_seed = lambda run: -1 if run.seed is None else run.seed
    found = [tuple(sorted(group, key=by_seed)) for group in members.values()]
    labels = distinct(group[0].label.strip() or group[0].folder.name for group in found)
    groups = [Group(label, group) for label, group in zip(labels, found, strict=True)]
    first = [one_of("A label of order", label, labels) for label in order]
    return sorted(groups, key=lambda group: (*first, group.label).index(group.label))


def best(groups: Sequence[Group], ends: Sequence[Spread], largest: bool = False) -> list[int]:
    """Which of these numbers, one for each group, wins: not one of a group in which more seeds gave
    no answer than in another, however good its other seeds are. None wins alone."""
    if len(groups) == 1:
        return []

    def rank(k: int) -> tuple[float, ...]:
        return (ends[k].of - ends[k].count, -ends[k].mean if largest else ends[k].mean)

    least = min(group.lost for group in groups)
    fair = [k for k, end in enumerate(ends) if groups[k].lost == least and np.isfinite(end.mean)]
    return [k for k in fair if rank(k) == min(map(rank, fair))]


def with_spread(numbers: Spread) -> str:
    """A number as a page shows it: with its deviation, and how many seeds it is of unless it is
    all."""
    some = 0 < numbers.count < numbers.of
    of = f" ({numbers.count} of {numbers.of})" if some else ""
    if numbers.count > 1:
        return plus_minus(numbers.mean, numbers.deviation) + of
    return typeset_number(numbers.mean) + of


def caption(groups: Sequence[Group], kind: str) -> str:
    """What lines and bands are, in words; nothing if every group is a single run."""
    sizes = sorted({len(group.runs) for group in groups})
    if sizes[-1] == 1:
        return ""
    many = plural(sizes[-1], "seed") if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]} seeds"
    percent = {"quartiles": "25 % to 75 %", "deciles": "10 % to 90 %"}
    ends = f"{percent[kind]} quantile" if kind in percent else "smallest to largest value"
    return f"Lines: median of {many}. Bands: {ends}."
