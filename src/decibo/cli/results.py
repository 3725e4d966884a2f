"""What is shown of several runs: a line for each method, what a seed changed, and why runs came to
nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from decibo.cli import terminal
from decibo.cli.errors import Exit, without_numbers
from decibo.cli.solving import Done
from decibo.formatting import MINUS, format_bytes, format_seconds, listed, plural
from decibo.report.group import Group, grouped, with_spread
from decibo.report.summary import last_value, spent
from decibo.run.outcome import STILL
from decibo.runs.folder import RunRecord, read_run


def show(
    done: Done, folder: Path, as_json: bool, tuned: Mapping[str, object] | None = None
) -> None:
    """The methods with what they reached, how they ended, and what a seed changed."""
    records = [read_run(place) for place, _ in done.runs]
    groups = grouped(records)
    seeds = done.script.seeds
    several = seeds != [None]
    varied, fixed = [*done.script.varied, "the seed of solve"], done.script.fixed
    if as_json:
        settings = []
        for group in groups:
            measures = {}
            for name in group.measures:
                end = group.end(name)
                curve = group.band(name)
                names = ("median", "low", "high") if len(curve.step) else ()
                last = {part: getattr(curve, part)[-1] for part in names}
                measures[name] = asdict(end) | last
            settings.append(
                {
                    "label": group.label,
                    "seeds": [run.seed for run in group.runs],
                    "ended": dict(Counter(run.status for run in group.runs)),
                    "measures": measures,
                }
            )
        same = ("label", "seed", "status", "message", "steps", "seconds")
        runs = [
            {name: getattr(record, name) for name in same}
            | {
                "method": record.method["text"],
                "last": {name: last_value(record, name) for name in record.measures},
                "network": record.network["name"],
                "cost": record.cost | {f"{name}_total": n for name, n in spent(record).items()},
                "folder": str(record.folder),
            }
            for record in records
        ]
        terminal.print_json(
            {
                "seeds": seeds,
                "changed": varied,
                "fixed": fixed,
                "kept": done.kept,
                **({"tuned": tuned} if tuned else {}),
                "settings": settings,
                "runs": runs,
                "folder": str(folder),
            }
        )
        return
    _table(groups)
    if several:
        stays = f" {listed(fixed)} {'is' if len(fixed) == 1 else 'are'} the same." if fixed else ""
        terminal.say(
            f"{plural(len(seeds), 'seed')}: {groups[0].seeds}. A seed sets {listed(varied)}.{stays}"
        )
    ends = lambda group: [[last_value(r, name) for name in group.measures] for r in group.runs]
    if same := [g.label for g in groups if g.several and ends(g) == len(g.runs) * ends(g)[:1]]:
        remedy = (
            " make_problem(seed) in place of problem makes other data."
            if "problem" in fixed
            else ""
        )
        terminal.say(
            f"{listed(same)}: all seeds gave the same numbers, so nothing depends on the"
            f" seed.{remedy}"
        )
    if done.kept:
        terminal.say(
            f"{plural(done.kept, 'run')} of {len(done.runs)} had been made before and stayed."
        )
    still = [run for run in records if STILL in run.message and not several]
    terminal.say(*failures([run for run in records if not run.sound or run in still], several))
    own = {place for place, _ in done.runs}
    there = {path.parent for depth in ("*", "*/*") for path in folder.glob(f"{depth}/run.json")}
    if others := sorted(there - own):
        terminal.say(
            f"The folder also holds {others[0].relative_to(folder)}, of an earlier command:"
            " a report of the folder shows it, too."
        )
    place = terminal.path_of(folder)
    following = f"decibo report {place}{' --figures --latex table.tex' if several else ''}"
    if done.exit is Exit.INTERRUPTED:
        following = "the same command with --resume, which keeps what is complete"
    terminal.say(f"Written to {place}", f"Next: {following}")


def failures(runs: Sequence[RunRecord], several: bool) -> list[str]:
    """Why runs came to nothing: one paragraph for each reason, whatever its numbers, with the runs
    of each method and the message of the first."""
    kinds: dict[str, list[RunRecord]] = {}
    for run in runs:
        kinds.setdefault(run.status + without_numbers(run.message), []).append(run)
    said = []
    for same in kinds.values():
        first = same[0]
        of = f"{first.label}, seed {first.seed}" if several else first.label
        if len(same) == 1:
            said.append(f"{of}: {first.message}")
            continue
        counts = Counter(run.label for run in same)
        each = listed(
            [f"{label} ({count})" if several else label for label, count in counts.items()]
        )
        said.append(f"{len(same)} runs {first.status}: {each}. For example {of}: {first.message}")
    return said


def _table(groups: Sequence[Group]) -> None:
    """A line for each method, with the measures that are looked for first; others are named
    below."""
    several = any(group.several for group in groups)
    names = terminal.ordered(dict.fromkeys(name for group in groups for name in group.measures))
    shared = [name for name in names if all(name in group.measures for group in groups)]
    shared = shared[: 1 if several else 3 if shared[:3] == list(terminal.FIRST[:3]) else 2]
    rows = []
    for group in groups:
        work, sent = (
            float(np.mean([spent(run)[name] for run in group.runs])) for name in ("work", "bytes")
        )
        ends = [
            with_spread(group.end(name)).replace(MINUS, "-")
            if several
            else last_value(group.first, name)
            for name in shared
        ]
        # a label is broken at spaces
        label = group.label.replace(",", ", ").replace(",  ", ", ")
        time = format_seconds(float(np.mean([run.seconds for run in group.runs])))
        volume = [] if several else [format_bytes(sent)]
        rows.append((label, group.ended, *ends, f"{work:.1e}", *volume, time))
    volume = [] if several else ["sent"]
    head = ("method", "ended" if several else "status", *shared, "work", *volume, "time")
    terminal.table(head, rows, left=2, gap=1 if len(shared) > 1 else 2)
    lost = [group.label for group in groups if group.lost]
    if several and lost and len(lost) < len(groups):
        verb = "is" if len(lost) == 1 else "are"
        terminal.say(
            f"{listed(lost)} gave no answer with every seed, and {verb} behind the methods that"
            " did: a mean (k of n) is that of k seeds."
        )
    if others := [name for name in names if name not in shared]:
        terminal.say(
            f"Also recorded: {', '.join(others)}. --json prints them, and a report shows them."
        )
