"""The page of a benchmark: what it says, block by block, as HTML beside the results and as Markdown
for the docs.

The first screen answers: which method should I use, when, and what does it cost me? Every sentence
and every number is computed from the results.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np

from decibo.errors import missing
from decibo.files import atomic_write, check_own
from decibo.formatting import format_number, format_seconds, listed, plural, typeset_number
from decibo.report.figures import DARK, LIGHT
from decibo.report.page import GENERATOR
from studies.bench import pictures
from studies.bench.entrants import entrants
from studies.bench.ranks import LEVEL, WITHIN, Costs, Standing, costs, standings, told_apart
from studies.bench.results import AXES, UNITS, Cell, shown
from studies.bench.suite import BUDGETS
from studies.bench.tasks import TASKS

TRIO = ("ahead_exact", "ahead_exact_auto", "ahead", "sparkle_ed")
SAME = (
    "For g quadratic in y, ahead_exact makes the steps of sparkle_ed with theta = 1, whatever lam"
    " is. Where it needs fewer steps there, the search found better settings for it: lam hardly"
    " matters, theta does, and both methods have the same number of tries."
)
ANSWERED = ("steps", "work", "bytes", "seconds")  # the axes of the first screen


@dataclass(frozen=True)
class Block:
    """A section: sentences, a table, a picture."""

    title: str
    sentences: list[str] = field(default_factory=list)
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    picture: str = ""
    after: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Made:
    """When, with what and how a benchmark was made."""

    command: str
    places: Sequence[str]
    seconds: float
    budget: str

    @property
    def sentence(self) -> str:
        """All of it in a few lines."""
        spent = f"{format_seconds(self.seconds)} of one process in all"
        return f"Made by `{self.command}` {listed(self.places)}; {spent}. {self.budget}"


def made_by(command: str, budget: str, cells: Sequence[Cell], planned: int = 0) -> Made:
    """What the cells say of when, with what and where they were made; `planned` is how many the
    budget has."""
    size = BUDGETS[budget]
    tried = (
        f"{size.search.rounds} x {size.search.settings} settings on"
        f" {plural(len(size.search.seeds), 'tuning seed')}"
    )
    text = f"Budget {budget}: {tried} for every method, judged on {size.seeds} other seeds."
    if len(cells) < planned:
        text += (
            f" {len(cells)} of {planned} cells are there; the others were not made in the time that"
            " there was."
        )
    return Made(
        command,
        _where(cells) or ["by an earlier version"],
        sum(cell.seconds for cell in cells),
        text,
    )


def _where(cells: Sequence[Cell]) -> list[str]:
    """When, with what and where: one entry for each machine and its software, whatever the number
    of processes."""
    groups: dict[tuple[str, str], set[int]] = {}
    for made in (cell.made for cell in cells if cell.made):
        processes, _, machine = made["hardware"].partition(" on ")
        when = "on {date} with {software}".format(**made)
        groups.setdefault((when, machine), set()).add(int(processes.split()[0]))
    spans = {place: sorted({min(counts), max(counts)}) for place, counts in groups.items()}
    return sorted(
        f"{when}; {' to '.join(map(str, span))} process{'es' * (span[-1] > 1)} on {machine}"
        for (when, machine), span in spans.items()
    )


def blocks(cells: Sequence[Cell]) -> list[Block]:
    """The page, block by block."""
    found = costs(cells)
    if not found.instances:
        return [Block("Nothing to rank yet", ["No task has been run by all of these methods."])]
    tables = {axis: standings(found, axis) for axis in AXES}
    return [
        _first(cells, found, tables),
        _when(cells),
        _trio(found, tables),
        _price(cells),
        _tuning(cells),
        *_ranks(tables, found),
        Block("Curves", [pictures.CURVES], picture="curves"),
        _by_task(cells),
        *_networks(cells),
        _ends(cells),
        _failures(cells),
        _settings(cells),
        _rules(cells),
    ]


def _first(cells: Sequence[Cell], found: Costs, tables: dict[str, list[Standing]]) -> Block:
    """A row for everything that a reader may have to pay for, or lack."""
    price = _step_costs(cells)
    free = [name for name, cost in price.items() if not cost["products"]]
    least = [
        name
        for name, share in zip(found.entrants, found.solved(), strict=True)
        if share >= 0.5 and name in price
    ]
    light = min(least, key=lambda name: price[name]["state"], default=None)
    fewest = [
        name
        for name in least
        if light is not None and price[name]["state"] <= 1.05 * price[light]["state"]
    ]
    asked: list[tuple[str, list[Standing]]] = [
        ("computing", tables["work"]),
        ("bandwidth", tables["bytes"]),
        ("rounds of communication", tables["steps"]),
        ("time, all agents on one machine", tables["seconds"]),
        ("second derivatives", _only(tables["work"], free)),
        ("memory: least of those that solve half", _only(tables["work"], fewest)),
        ("time to tune", _only(tables["work"], ["ahead_exact_auto"])),
    ]
    rows = [_row(what, table, price) for what, table in asked if table]
    sentences = [
        _advice(found, tables),
        (
            f"{_scope(cells, found)} A rank is 1 for the method that needs least to reach a target,"
            f" and the intervals have {100 * LEVEL:.0f} %. The last columns say what an agent does"
            f" in one step on {cells[0].task}; the numbers go to each neighbour. A product with"
            " second derivatives counts as two gradients, and so do H v and J v together, which"
            " are computed at once."
        ),
    ]
    head = (
        "if you are short of",
        "use",
        "or one with the same rank within the error",
        f"rank of {len(found.entrants)}",
        "solved",
    )
    return Block(
        "Which method should I use?", sentences, (*head, "a step costs", "sends", "keeps"), rows
    )


def _only(table: Sequence[Standing], names: Sequence[str]) -> list[Standing]:
    return [row for row in table if row.entrant in names]


def _row(
    what: str, table: Sequence[Standing], price: dict[str, dict[str, float]]
) -> tuple[str, ...]:
    """A line of the first table: the best of those that are left."""
    best = table[0]
    level = [row.entrant for row in table[1:] if not told_apart(best, row)]
    cost = price.get(best.entrant)
    costs_of = ("", "", "")
    if cost is not None:
        costs_of = (
            f"{format_number(cost['work'])} gradients",
            f"{format_number(cost['numbers'])} numbers",
            f"{format_number(cost['state'])} copies of (x, y)",
        )
    others = (
        ", ".join(level) if len(level) <= 3 else f"{', '.join(level[:3])} and {len(level) - 3} more"
    )
    return (
        what,
        f"**{best.entrant}**",
        others or "nobody",
        _with_interval(best),
        _percent(best.solved),
        *costs_of,
    )


def _step_costs(cells: Sequence[Cell]) -> dict[str, dict[str, float]]:
    """What a step costs everybody, on the first place."""
    place = cells[0].place
    return {cell.method: cell.cost for cell in cells if cell.place == place}


def _advice(found: Costs, tables: dict[str, list[Standing]]) -> str:
    """One paragraph for whoever reads nothing else."""
    work = tables["work"]
    best = work[0]
    level = [row.entrant for row in work[1:] if not told_apart(best, row)]
    rivals = f"; {listed(level)} cannot be told apart from it" if level else ""
    least = (
        "the least work of all"
        if best.median <= WITHIN
        else f"{best.median:.2g} times the least work"
    )
    spent = f", with {least} in the median" if best.solved else ""
    parts = [
        f"**Use `{best.entrant}` if you can tune it**: it has the best mean rank in work,"
        f" {best.rank:.1f} of {len(found.entrants)}{rivals}. It solves {_percent(best.solved)} of"
        f" the questions asked here{spent}."
    ]
    most = max(work, key=lambda row: row.solved)
    if most.solved > best.solved:
        parts.append(f"Most is solved by `{most.entrant}`, {_percent(most.solved)}.")
    auto = next((row for row in work if row.entrant == "ahead_exact_auto"), None)
    if auto is not None:
        place = 1 + work.index(auto)
        parts.append(
            "**If you cannot tune, use `ahead_exact()` without step sizes**, which finds them"
            f" while it runs: it comes {_ordinal(place)} of {len(work)}, against rivals that were"
            f" tuned for every task, and solves {_percent(auto.solved)}."
        )
    return " ".join(parts)


def _scope(cells: Sequence[Cell], found: Costs) -> str:
    places = dict.fromkeys((one.task, one.network) for one in found.instances)
    seeds = len({one.seed for one in found.instances})
    lost = len({cell.place for cell in cells}) - len(places)
    without = (
        f" {plural(lost, 'place')} that not everybody has run is left out." if lost == 1 else ""
    )
    without = (
        f" {plural(lost, 'place')} that not everybody has run are left out."
        if lost > 1
        else without
    )
    return (
        f"{plural(len(found.entrants), 'method')} on {plural(len(places), 'place')} (a task on a"
        f" network), {plural(seeds, 'seed')} and two targets each: {len(found.instances)}"
        f" questions.{without}"
    )


def _when(cells: Sequence[Cell]) -> Block:
    rows = []
    for kind in dict.fromkeys(cell.rule.kind for cell in cells):
        here = [cell for cell in cells if cell.rule.kind == kind]
        found = costs(here) if here else None
        if found is None or not found.instances:
            continue
        row = [kind]
        for axis in ANSWERED:
            table = standings(found, axis)
            level = [each.entrant for each in table if each.rank < table[0].rank + 0.5]
            row.append(", ".join(level[:3]))
        rows.append(row)
    heads = [f"least {axis}" for axis in ANSWERED]
    return Block(
        "When?",
        ["The best mean ranks for each kind of task, up to three within half a rank."],
        ["tasks", *heads],
        rows,
    )


def _trio(found: Costs, tables: dict[str, list[Standing]]) -> Block:
    """The honest answer, axis by axis: ranks among all, and question by question against the two
    rivals."""
    names = [name for name in TRIO if name in found.entrants]
    rivals = [name for name in ("sparkle_ed", "ahead") if {"ahead_exact", name} <= set(names)]
    duels = {
        rival: {axis: _duel(found, axis, "ahead_exact", rival) for axis in AXES} for rival in rivals
    }
    rows = []
    for axis in AXES:
        by_name = {row.entrant: row for row in tables[axis]}
        against = [duels[rival][axis].text for rival in rivals]
        rows.append([UNITS[axis], *(_with_interval(by_name[name]) for name in names), *against])
    solved = dict(zip(found.entrants, found.solved(), strict=True))
    rows.append(["solved", *(_percent(solved[name]) for name in names), *([""] * len(rivals))])
    sentences = [_answer(rival, duels[rival]) for rival in rivals]
    sentences.append(
        "Mean ranks among all methods; then in how many questions ahead_exact needs less : more"
        " than the other, and the median ratio of what they need where both get there."
    )
    after = [SAME] if {"ahead_exact", "sparkle_ed"} <= set(names) else []
    heads = [f"ahead_exact against {rival}" for rival in rivals]
    return Block(
        "ahead_exact, AHEAD and SPARKLE-ED on every axis",
        sentences,
        ["axis", *names, *heads],
        rows,
        after=after,
    )


class Duel(NamedTuple):
    """Two methods on one axis: in how many questions the first needs less and more, and the median
    ratio."""

    less: int
    more: int
    ratio: float

    @property
    def text(self) -> str:
        """As a table shows it."""
        return f"{self.less} : {self.more}" + (
            f", {self.ratio:.2f}" if np.isfinite(self.ratio) else ""
        )

    @property
    def winner(self) -> int:
        """1 if the first is ahead, twice as often as behind; -1 if it is behind; 0 if neither."""
        return int(self.less > 2 * self.more) - int(self.more > 2 * self.less)


def _duel(found: Costs, axis: str, ours: str, theirs: str) -> Duel:
    mine, other = (found.by_axis[axis][:, found.entrants.index(name)] for name in (ours, theirs))
    both = np.isfinite(mine) & np.isfinite(other) & (other > 0)
    ratio = float(np.median(mine[both] / other[both])) if both.any() else np.nan
    return Duel(int(np.sum(mine * WITHIN < other)), int(np.sum(other * WITHIN < mine)), ratio)


def _answer(rival: str, duels: dict[str, Duel]) -> str:
    """In words: on which axes ahead_exact is ahead of the rival, and on which not."""
    wins = {
        side: [axis for axis, duel in duels.items() if duel.winner == side] for side in (1, -1, 0)
    }
    parts = []
    if wins[1]:
        parts.append(f"`ahead_exact` is ahead in {listed(wins[1])}")
    if wins[-1]:
        parts.append(f"{'it' if parts else '`ahead_exact`'} is behind in {listed(wins[-1])}")
    if wins[0]:
        parts.append(f"neither is ahead in {listed(wins[0])}")
    return f"Against `{rival}`: {'; '.join(parts)}. Ahead means: twice as often as behind."


def _price(cells: Sequence[Cell]) -> Block:
    """What a step costs, on the first task that everybody shares."""
    names = list(dict.fromkeys(cell.method for cell in cells))
    place = next(iter(dict.fromkeys(cell.place for cell in cells)))
    here = {cell.method: cell for cell in cells if cell.place == place}
    about = {name: entrant.about for name, entrant in entrants().items()}
    rows = [
        (
            name,
            about.get(name, ""),
            *(
                format_number(here[name].cost[key])
                for key in ("outer_gradients", "inner_gradients", "products", "work")
            ),
            format_number(here[name].cost["numbers"]),
            format_number(here[name].cost["state"]),
            f"{1e6 * np.median([run.price['seconds'] for run in here[name].runs]):.0f}",
        )
        for name in names
        if name in here
    ]
    head = ("method", "what it is", "gradients of f", "of g", "products", "gradient-equivalents")
    return Block(
        "What does it cost me?",
        [
            f"One agent in one step on {place[0]}, {place[1]}. It sends the numbers to each"
            " neighbour, and keeps the copies of (x, y) between steps: its memory besides the"
            " data."
        ],
        (*head, "numbers sent", "copies", "microseconds, all agents"),
        rows,
    )


def _tuning(cells: Sequence[Cell]) -> Block:
    """How easily a search goes wrong, method by method."""
    rows = []
    for name in dict.fromkeys(cell.method for cell in cells):
        here = [cell for cell in cells if cell.method == name and cell.tried]
        if not here:
            continue
        tried = [not np.isfinite(row["score"]) for cell in here for row in cell.tried]
        edges = [any("edge" in note for note in cell.notes) for cell in here]
        lost = [not run.sound for cell in here for run in cell.runs]
        shares = [_percent(float(np.mean(each))) for each in (tried, edges, lost)]
        rows.append((name, str(len(here[0].settings)), *shares))
    text = (
        "Everybody had the same ranges, in units of the task, and the same number of tries. A"
        " setting diverges if it does so on one tuning seed; a search met an edge if its best lay"
        " at an end of its range, which was widened; and some settings that were best on the tuning"
        " seeds diverged on judging seeds."
    )
    head = (
        "method",
        "settings to tune",
        "tries that diverged",
        "searches that met an edge",
        "judged runs that diverged",
    )
    return Block("How hard is it to tune?", [text], head, rows)


def _ranks(tables: dict[str, list[Standing]], found: Costs) -> list[Block]:
    names = sorted(
        found.entrants, key=lambda name: {row.entrant: row.rank for row in tables["work"]}[name]
    )
    rows = []
    for name in names:
        by_axis = {axis: next(row for row in tables[axis] if row.entrant == name) for axis in AXES}
        first = by_axis["work"]
        rows.append(
            [
                name,
                *(_with_interval(by_axis[axis]) for axis in AXES),
                _percent(first.best),
                _percent(first.solved),
            ]
        )
    sentence = (
        f"Mean ranks with {100 * LEVEL:.0f} % intervals of a bootstrap over places and seeds. Best"
        " and solved are shares of the questions, best in gradient-equivalents. Costs within"
        f" {100 * (WITHIN - 1):.0f} % of each other are a tie, and methods that do not get there"
        " share the last ranks. Methods without products tie on that axis. Ranks in seconds depend"
        " on the machine and its load; all others are the same in every run."
    )
    return [
        Block("Ranks", [sentence], ["method", *AXES, "best", "solved"], rows),
        Block("Performance profiles", [pictures.PROFILES], picture="profiles"),
    ]


def _by_task(cells: Sequence[Cell]) -> Block:
    """Median gradient-equivalents to the hard target, place by place."""
    names = list(dict.fromkeys(cell.method for cell in cells))
    places = list(dict.fromkeys(cell.place for cell in cells))
    rows = []
    for place in places:
        here = [cell for cell in cells if cell.place == place]
        same_task = [cell for cell in cells if cell.task == place[0]]
        found = costs([*here, *(cell for cell in same_task if cell.place != place)], [place])
        hard = [
            k for k, one in enumerate(found.instances) if one.target == TASKS[place[0]].targets[1]
        ]
        row = [f"{place[0]}, {place[1]}"]
        medians = {
            name: _median(found.by_axis["work"][hard, k]) for k, name in enumerate(found.entrants)
        }
        here_names = {cell.method for cell in here}
        least = min((value for value in medians.values()), default=np.inf)
        for name in names:
            value = medians.get(name, np.inf)
            text = "never" if not np.isfinite(value) else f"{value:,.0f}"
            mark = np.isfinite(value) and value <= least * WITHIN
            row.append("" if name not in here_names else f"**{text}**" if mark else text)
        rows.append(row)
    sentence = (
        "Median over the seeds of the gradient-equivalents of all agents to the hard target; never:"
        " in fewer than half of the seeds."
    )
    return Block("Place by place", [sentence], ["place", *names], rows)


def _ends(cells: Sequence[Cell]) -> Block:
    """Everything that is judged, at the end."""
    names = ("stationarity", "phi", "gap", "consensus", "accuracy")
    rows = []
    for cell in cells:
        sound = [run.history for run in cell.runs if run.sound]
        numbers = [
            (
                (
                    "diverged"
                    if not sound
                    else typeset_number(float(np.median([each[name][-1] for each in sound])))
                )
                if name in cell.runs[0].history
                else ""
            )
            for name in names
        ]
        rows.append((f"{cell.task}, {cell.network}", cell.method, *numbers))
    sentence = (
        "Medians over the seeds that gave an answer, after the last step: the true squared"
        " hypergradient and objective, the gap of the lower level, the consensus error of x, and"
        " the accuracy on a test set where there is one."
    )
    return Block(
        "Where they end",
        [sentence],
        ("place", "method", "|grad Phi|^2", "Phi", "gap", "consensus", "accuracy"),
        rows,
    )


def _networks(cells: Sequence[Cell]) -> list[Block]:
    """Tasks without an exact reference, at equal work and at equal traffic: what the one that had
    least could spend."""
    rows = []
    for place in dict.fromkeys(cell.place for cell in cells if cell.rule.trained):
        here = [cell for cell in cells if cell.place == place]
        limits = {axis: _least_spent(here, axis) for axis in ("work", "bytes")}
        for cell in here:
            found = [_within(cell, axis, limit) for axis, limit in limits.items()]
            rows.append(
                (f"{place[0]}, {place[1]}", cell.method, *(text for pair in found for text in pair))
            )
    if not rows:
        return []
    text = (
        "A network has many minima, so there is no true hypergradient. These tasks are judged by"
        " the validation loss of a network that is trained anew with x, from the same start and in"
        " the same way for everybody. Here it stands with the test accuracy of the network that the"
        " method itself has trained, when every method has spent as much as the one that spends"
        " least in its run: medians over the seeds that gave an answer."
    )
    names = [
        f"{what} at equal {axis}"
        for axis in ("work", "bytes")
        for what in ("validation loss", "test accuracy")
    ]
    return [
        Block("Networks: where they are at equal cost", [text], ("place", "method", *names), rows)
    ]


def _least_spent(cells: Sequence[Cell], axis: str) -> float:
    """What the whole run of the cheapest method costs."""
    ended = [
        run.price[axis] * run.history["step"][-1]
        for cell in cells
        for run in cell.runs
        if run.sound
    ]
    return float(min(ended, default=np.inf))


def _within(cell: Cell, axis: str, limit: float) -> tuple[str, str]:
    """Validation loss and accuracy at the last record within the limit."""
    sound = [run for run in cell.runs if run.sound]
    if not sound:
        return "diverged", "diverged"
    places = [
        int(np.flatnonzero(run.history["step"] * run.price[axis] <= limit * 1.0001)[-1])
        for run in sound
    ]
    middle = lambda name: float(
        np.median([run.history[name][k] for run, k in zip(sound, places, strict=True)])
    )
    return typeset_number(middle("phi")), typeset_number(middle("accuracy"))


def _median(values: np.ndarray) -> float:
    """The median, infinite if half of the values are."""
    return float(np.sort(values)[len(values) // 2]) if len(values) else np.inf


def _failures(cells: Sequence[Cell]) -> Block:
    rows = []
    for cell in cells:
        lost = [str(run.seed) for run in cell.runs if not run.sound]
        edge = [note for note in cell.notes if "edge" in note or "diverged" in note]
        if lost or edge:
            rows.append(
                (
                    f"{cell.task}, {cell.network}",
                    cell.method,
                    ", ".join(lost) or "none",
                    "; ".join(edge),
                )
            )
    lost_runs = sum(not run.sound for cell in cells for run in cell.runs)
    total = sum(len(cell.runs) for cell in cells)
    sentence = (
        f"{lost_runs} of {total} judged runs diverged or failed. Notes of the searches: where the"
        " best lay at an edge, the range was widened."
    )
    return Block(
        "Failures, and searches that met an edge",
        [sentence],
        ("place", "method", "seeds lost", "search"),
        rows,
    )


def _settings(cells: Sequence[Cell]) -> Block:
    rows = [
        (
            f"{cell.task}, {cell.network}",
            cell.method,
            shown(cell.settings) or "none",
            str(len(cell.tried)),
        )
        for cell in cells
    ]
    return Block(
        "Tuned settings",
        [
            "Everything that was tried, with its score, is in tried.csv, beside the page that"
            " `decibo bench` writes."
        ],
        ("place", "method", "settings", "tried"),
        rows,
    )


def _rules(cells: Sequence[Cell]) -> Block:
    names = dict.fromkeys(cell.task for cell in cells)
    rows = [
        (
            name,
            TASKS[name].about,
            TASKS[name].judged,
            listed([f"{t:g}" for t in TASKS[name].targets]),
        )
        for name in names
    ]
    text = [
        (
            "Judged by the exact reference of the averaged problem. Stationarity is the squared"
            " norm of the true hypergradient at the mean x; its targets are fractions of its value"
            " at the start. Phi is the true objective; its targets are fractions of the difference"
            " between its start and the lowest value that any method reached with the same seed."
        ),
        (
            "Tuning: the same number of settings and steps for every method, on seeds that are not"
            " those of judging, in rounds that narrow around the best and widen at an edge. Methods"
            " without settings are not tuned."
        ),
    ]
    return Block("Tasks and rules", text, ("task", "what it is", "judged by", "targets"), rows)


def _with_interval(row: Standing) -> str:
    return f"{row.rank:.1f} [{row.low:.1f}, {row.high:.1f}]"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _ordinal(place: int) -> str:
    words = (
        "first",
        "second",
        "third",
        "fourth",
        "fifth",
        "sixth",
        "seventh",
        "eighth",
        "ninth",
        "tenth",
    )
    if place <= len(words):
        return words[place - 1]
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{place}{'th' if place % 100 in (11, 12, 13) else ends.get(place % 10, 'th')}"


# As Markdown, and as HTML


FURTHER = """## What reviewers ask for

The public reviews of a paper on decentralised bilevel optimisation (SUN-DSBO) list what they miss in this field.
Here it is:

* communication, memory and time of each method: [what does it cost me?](#what-does-it-cost-me), [ranks](#ranks)
* messages and gradients on the way to a given accuracy: [place by place](#place-by-place); bytes are in `runs.csv`
* whether the true lower level is solved, not only a surrogate: the gap in [where they end](#where-they-end)
* variants with EXTRA and exact diffusion: they take part
* sensitivity to the penalty: [how much does the penalty matter?](how-to/benchmark.md#how-much-does-the-penalty-matter)

## Repeat it, add to it

[Your method in the benchmark](how-to/benchmark.md) says how to run it, what is tuned, and how a method of
yours takes part. Steps are counted from the common start of all methods; tuning is not counted in any column. The raw
results are files of the folder that the command writes: `runs.csv` and `runs.parquet` with every record of every judged
run, `settings.csv`, `tried.csv`, and `cells/`."""


def markdown(page: Sequence[Block], made: Made) -> str:
    """The page of the docs; long tables are folded."""
    lines = ["# The benchmark", ""]
    for block in page:
        lines += [f"## {block.title}", ""]
        for sentence in block.sentences:
            lines += [sentence, ""]
        if block.picture:
            lines += [f"![{block.title}](figures/benchmark_{block.picture}.png)", ""]
        if block.rows:
            table = [_line(block.head), "|" + "---|" * len(block.head), *map(_line, block.rows)]
            folded = len(block.rows) > 20
            summary = f"<details markdown><summary>{len(block.rows)} rows</summary>"
            lines += [
                *([summary, ""] if folded else []),
                *table,
                *(["", "</details>"] if folded else []),
                "",
            ]
        for sentence in block.after:
            lines += [sentence, ""]
    made_here = [
        "## How it was made",
        "",
        made.sentence,
        "",
        "This page is rendered from the results; do not edit it.",
        "",
    ]
    return "\n".join([*lines, *made_here, FURTHER]) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def write_html(path: Path, page: Sequence[Block], made: Made, drawn: dict[str, bytes]) -> Path:
    """The page beside the results; it needs nothing but itself. A file of somebody else is never
    replaced."""
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise missing("Jinja2", "The page of a benchmark", "report") from error
    environment = Environment(undefined=StrictUndefined, autoescape=True, trim_blocks=True)
    environment.filters["marked"] = _marked
    style = environment.from_string(
        (files("decibo.report") / "templates" / "page.css").read_text(encoding="utf-8")
    )
    template = environment.from_string(
        (files("studies.bench") / "templates" / "bench.html").read_text(encoding="utf-8")
    )
    pictures64 = {name: base64.b64encode(content).decode() for name, content in drawn.items()}
    text = template.render(
        page=page, made=made, style=style.render(light=LIGHT, dark=DARK), pictures=pictures64
    )
    return atomic_write(check_own(path, GENERATOR), text)


def _marked(text: str) -> str:
    """A sentence or a cell of Markdown as HTML: escaped, with what is bold or code marked as
    such."""
    from markupsafe import Markup

    bold = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", html.escape(text))
    return Markup(re.sub(r"`(.+?)`", r"<code>\1</code>", bold))
