r"""decibo compare: several methods on the same problem and network, each in a run folder of its
own; with --tune, every one first tuned with the same number of tries.

A try is a run of all steps with every tuning seed. There are three rounds, each of which runs its
tries in one compiled program:

    (1)  the settings that were given, and a Latin hypercube from 1/WIDE to WIDE times these, on
         logarithmic scales: of all step sizes and penalties that are numbers
    (2)  the same around the best so far, SHRINK times as wide as the round before; as wide as
         before where the best lies within MARGIN of a boundary, so that the search leaves the range
    (3)  around smaller values, where everything diverged

The score of a setting is the area under its curve, so that fast and exact both count:

    (4)  the mean over records and tuning seeds of log10 max(v/v_0, FLOOR) for a measure v that
         vanishes at a solution, otherwise of v

and infinite if it diverges with one tuning seed. Tuning seeds are not those of the comparison.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import decibo
from decibo.cli import terminal
from decibo.cli.results import show
from decibo.cli.script import Choice, Script, by_folder, fitted, opened
from decibo.cli.solving import OUT, Task, is_first, judged, live_view, note, seed_list, solve_all
from decibo.formatting import format_setting, listed
from decibo.report.summary import vanishes
from decibo.run.solution import Status
from decibo.validate import integer

WIDE = 30.0
SHRINK = 0.4
MARGIN = 0.05
FLOOR = 1e-12
SEEDS = 2  # for tuning
LEAST = 6  # tries: fewer are not three rounds


def compare(
    path: Path,
    methods: Sequence[str] | None,
    steps: int | None,
    seeds: str | None,
    tune: int | None,
    out: Path | None,
    resumed: bool,
    as_json: bool,
) -> int:
    """Run all methods with all seeds, and show them beside each other."""
    with opened(path) as script:
        script = script.changed(steps=steps, seeds=seed_list(seeds))
        choices = script.compared(methods or ())
        several = script.settings.seeds is not None
        kind = f"compare{'-tuned' if tune else ''}{'-seeds' if several else ''}"
        folder = out or OUT / f"{path.stem}-{kind}"
        script = judged(script, script.build(script.seeds[0])[0])
        found: list[Tuned] = []
        if tune is not None:
            integer("--tune", tune, least=LEAST)
            found = tuned(script, choices, tune)
            choices = [each.choice for each in found]
            if is_first() and not as_json:
                cells = []
                for each in found:
                    best = [f"{name}={format_setting(v)}" for name, v in each.settings.items()]
                    cells.append((each.choice.label, ", ".join(best) or "as given", each.remark))
                terminal.table(("method", f"best of {tune}", "remark"), cells, left=3)
                numbers = listed([str(seed) for seed in _tuning_seeds(script)])
                terminal.say(
                    f"Tuned for {_measure(script)} with the seeds {numbers}, judged with others:",
                    "",
                )
        places = by_folder(choices, folder)
        tasks = [Task(choice.label, choice, places[choice.label]) for choice in choices]
        done = solve_all(script, tasks, resumed=resumed)
    if is_first():
        notes = {
            each.choice.label: {
                "settings": each.settings,
                "score": each.score,
                "remark": each.remark,
            }
            for each in found
        }
        show(done, folder, as_json, notes)
    return done.exit


class Tuned(NamedTuple):
    """What a search found: the method with its best settings, their score (4), and a remark."""

    choice: Choice
    settings: dict[str, float]
    score: float
    remark: str


def tuned(script: Script, choices: Sequence[Choice], tries: int) -> list[Tuned]:
    """Every method with the best of so many settings, each tried with the tuning seeds."""
    seeds = _tuning_seeds(script)
    built = [script.build(seed) for seed in seeds]
    measure = _measure(script)
    if is_first() and not script.varied:
        note(
            "nothing in the file depends on the seed, so methods are tuned on the data on which"
            " they are judged; make_problem(seed) makes other data."
        )
    found = []
    names = [choice.method.name for choice in choices]
    for choice in choices:
        # The label of a method that was given by its settings would name those before tuning.
        label = choice.label
        if choice.spec is not None and names.count(choice.method.name) == 1:
            label = choice.method.name
        given = {
            name: float(value)
            for name in choice.method.step_sizes
            if isinstance(value := choice.method.settings[name], int | float)
        }
        automatic = [
            name for name in ("alpha", "gamma") if choice.method.settings.get(name, 0) is None
        ]
        if automatic or not given:
            remark = "it finds its own step sizes" if automatic else "it has no number to tune"
            found.append(Tuned(Choice(label, choice.method, choice.spec), {}, np.nan, remark))
            continue
        centre = np.log(list(given.values()))
        half = np.full(len(given), np.log(WIDE))
        points = np.zeros((0, len(given)))
        tried: list[dict[str, float]] = []
        scores = np.zeros(0)
        rng = np.random.default_rng((tries, 29))
        for share in (tries - 2 * (tries // 3), tries // 3, tries // 3):
            # (1), (2): one point in each of `share` slices of every setting
            slices = np.stack([rng.permutation(share) for _ in given], axis=1)
            at = centre + half * (2 * (slices + rng.uniform(size=slices.shape)) / share - 1)
            if not len(points):
                at[0] = centre  # what was given is one of the tries
            # four digits: what tables show, and more than a search can resolve
            rows = [
                {
                    name: float(f"{np.exp(value):.4g}")
                    for name, value in zip(given, row, strict=True)
                }
                for row in at
            ]
            tried += rows
            points = np.concatenate([points, at])
            scores = np.concatenate([scores, _scores(script, choice, built, seeds, rows, measure)])
            best = points[int(np.argmin(scores))]
            if not np.isfinite(scores.min()):
                centre = centre - half  # (3)
                continue
            inside = np.abs(best - centre) < (1 - 2 * MARGIN) * half
            half = np.where(inside, SHRINK * half, half)
            centre = best
        best = points[int(np.argmin(scores))]
        settings = tried[int(np.argmin(scores))]
        remark = "" if np.isfinite(scores.min()) else "every setting diverged"
        edge = [
            name
            for k, name in enumerate(given)
            if len(points) > 1 and best[k] in (points[:, k].min(), points[:, k].max())
        ]
        if edge and not remark:
            remark = f"{listed(edge)} at the edge of what was tried: more tries may find better"
        method = choice.method.replace(**settings) if np.isfinite(scores.min()) else choice.method
        found.append(Tuned(Choice(label, method, choice.spec), settings, scores.min(), remark))
    return found


def _tuning_seeds(script: Script) -> list[int]:
    """Those after the seeds of the comparison."""
    judging = [seed for seed in script.seeds if seed is not None] or [script.settings.seed]
    return [max(judging) + 1 + k for k in range(SEEDS)]


def _measure(script: Script) -> str:
    """What is judged: the first that a reader looks for of what the file records."""
    listed = script.arguments(None)["measures"]
    names = [name for name in listed if isinstance(name, str) and name not in ("cheap", "all")]
    named = next(iter(terminal.ordered(names)), "outer")
    return "stationarity" if "all" in listed else named


def _scores(
    script: Script,
    choice: Choice,
    built: Sequence[tuple[decibo.Problem, object]],
    seeds: Sequence[int],
    rows: Sequence[dict[str, float]],
    measure: str,
) -> np.ndarray:
    """(4) of these settings."""
    steps = script.settings.steps
    total = np.zeros(len(rows))
    for (problem, network), seed in zip(built, seeds, strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about settings that are only tried
            ran = decibo.sweep(
                *fitted(problem, network, choice.method),
                rows,
                steps=steps,
                every=max(1, steps // 8),
                measures=[measure],
                start=script.arguments(seed)["start"],
                seeds=[seed],
                progress=live_view(),
            )
        if Status.interrupted in ran.status:
            raise KeyboardInterrupt
        values = np.asarray(ran.history[measure], float)
        with np.errstate(invalid="ignore", divide="ignore"):
            later = values[:, 1:]
            if vanishes(measure):
                later = np.log10(np.maximum(later / values[:, :1], FLOOR))
        lost = np.array([not status.sound for status in ran.status])
        total += np.where(lost, np.inf, later.mean(axis=1))
    return np.where(np.isfinite(total), total / len(seeds), np.inf)
