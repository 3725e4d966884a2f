"""The page of a benchmark: which method should I use, when, and what does it cost me?

Every sentence and every number is computed from the results. `blocks` computes the sections,
`write_html` makes the page beside the raw results, and `publish` what the repository keeps: the
tables as CSV and a Markdown page with the short ones.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from decibo.errors import missing
from decibo.files import atomic_write, check_own
from decibo.formatting import format_number, format_seconds, listed, plural, to_csv, typeset_number
from decibo.report.figures import DARK, LIGHT
from decibo.report.page import GENERATOR
from studies.bench import pictures, sceptic
from studies.bench.methods import all_methods
from studies.bench.ranks import LEVEL, WITHIN, Costs, Standing, costs, standings
from studies.bench.storage import AXES, UNITS, Result, Run, shown
from studies.bench.suite import BUDGETS
from studies.bench.tasks import TASKS

TEMPLATES = Path(__file__).parent / "templates"
SHORT = 20  # rows of a table that Markdown shows and HTML does not fold
ANSWERED = ("steps", "work", "bytes", "seconds")  # the axes of the first screen
TRIO = ("ahead_exact", "ahead_exact_auto", "ahead", "sparkle_ed")
SAME = (
    "For g quadratic in y, ahead_exact makes the steps of sparkle_ed with theta = 1, whatever lam"
    " is. Where it needs fewer steps there, the search found better settings for it: lam hardly"
    " matters, theta does, and both methods have the same number of tries."
)


@dataclass(frozen=True)
class Block:
    """A section: sentences, a table, a picture."""

    title: str
    sentences: list[str] = field(default_factory=list)
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    picture: str = ""
    after: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The title as the name of a file."""
        return re.sub(r"\W+", "_", re.split("[:,]", self.title.lower())[0]).strip("_")


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


def made_by(command: str, budget: str, results: Sequence[Result], planned: int = 0) -> Made:
    """What the results say of when, with what and where they were made; `planned` is how many the
    budget has."""
    size = BUDGETS[budget]
    seeds = plural(len(size.search.seeds), "tuning seed")
    text = (
        f"Budget {budget}: {size.search.rounds} x {size.search.settings} settings on {seeds} for"
        f" every method, judged on {size.seeds} other seeds."
    )
    if len(results) < planned:
        text += (
            f" {len(results)} of {planned} results are available; the time did not suffice for the"
            " others."
        )
    # one entry for each machine and its software, whatever the number of processes
    groups: dict[tuple[str, str], list[int]] = {}
    for made in (result.made for result in results if result.made):
        processes, _, machine = made["hardware"].partition(" on ")
        when = "on {date} with {software}".format(**made)
        groups.setdefault((when, machine), []).append(int(processes.split()[0]))
    places = []
    for (when, machine), counts in sorted(groups.items()):
        span = " to ".join(map(str, sorted({min(counts), max(counts)})))
        places.append(f"{when}; {span} process{'es' * (max(counts) > 1)} on {machine}")
    seconds = sum(result.seconds for result in results)
    return Made(command, places or ["by an earlier version"], seconds, text)


def blocks(results: Sequence[Result]) -> list[Block]:
    """The page, block by block."""
    found = costs(results)
    if not found.instances:
        return [Block("Nothing to rank yet", ["No task has been run by all of these methods."])]
    tables = {axis: standings(found, axis) for axis in AXES}
    return [
        _first(results, found, tables),
        _when(results),
        _trio(found, tables),
        _price(results),
        _tuning(results),
        _ranks(tables, found),
        Block("Performance profiles", [pictures.PROFILES], picture="profiles"),
        Block("Curves", [pictures.CURVES], picture="curves"),
        _by_task(results),
        *_networks(results),
        _ends(results),
        _failures(results),
        _settings(results),
        _rules(results),
    ]


# Which method should I use?


def _first(results: Sequence[Result], found: Costs, tables: dict[str, list[Standing]]) -> Block:
    """A row for everything that a reader may be short of."""
    work = tables["work"]
    price = {each.method: each.cost for each in results if each.scenario == results[0].scenario}
    first_order = [name for name, cost in price.items() if not cost["products"]]
    half = [name for name, share in found.solved().items() if share >= 0.5 and name in price]
    least = min((price[name]["state"] for name in half), default=0.0)
    light = [name for name in half if price[name]["state"] <= 1.05 * least]
    only = lambda names: [row for row in work if row.method in names]
    asked: list[tuple[str, list[Standing]]] = [
        ("computing", work),
        ("bandwidth", tables["bytes"]),
        ("rounds of communication", tables["steps"]),
        ("time, all agents on one machine", tables["seconds"]),
        ("second derivatives", only(first_order)),
        ("memory: least of those that solve half", only(light)),
        ("time to tune", only(["ahead_exact_auto"])),
    ]
    rows = []
    for what, table in asked:
        if not table:
            continue
        best = table[0]
        level = [row.method for row in table[1:] if best.overlaps(row)]
        also = ", ".join(level[:3]) + (f" and {len(level) - 3} more" if len(level) > 3 else "")
        cost = price.get(best.method, {})
        spent = [
            f"{format_number(cost[name])} {unit}" if cost else ""
            for name, unit in (
                ("work", "gradients"),
                ("numbers", "numbers"),
                ("state", "copies of (x, y)"),
            )
        ]
        numbers = (also or "none", _with_interval(best), _percent(best.solved))
        rows.append((what, f"**{best.method}**", *numbers, *spent))
    sentences = [
        _advice(found, work),
        (
            f"{_scope(results, found)} A rank is 1 for the method that needs least to reach a"
            f" target, and the intervals have {100 * LEVEL:.0f} %. The last columns say what an"
            f" agent does in one step on {results[0].task}; the numbers go to each neighbour. A"
            " product with second derivatives counts as two gradients, and so do H v and J v"
            " together, which are computed at once."
        ),
    ]
    head = (
        "if you are short of",
        "use",
        "or one with the same rank within the error",
        f"rank of {len(found.methods)}",
        "solved",
        "a step costs",
        "sends",
        "stores",
    )
    return Block("Which method should I use?", sentences, head, rows)


def _advice(found: Costs, work: list[Standing]) -> str:
    """One paragraph for readers of nothing else."""
    best = work[0]
    level = [row.method for row in work[1:] if best.overlaps(row)]
    also = f"; {listed(level)} cannot be distinguished from it" if level else ""
    least = "the least" if best.median <= WITHIN else f"{best.median:.2g} times the least"
    spent = f", with {least} work of all in the median" if best.solved else ""
    parts = [
        f"**Use `{best.method}` if you can tune it**: it has the best mean rank in work,"
        f" {best.rank:.1f} of {len(found.methods)}{also}. It solves {_percent(best.solved)} of"
        f" the instances of this benchmark{spent}."
    ]
    most = max(work, key=lambda row: row.solved)
    if most.solved > best.solved:
        parts.append(f"`{most.method}` solves most, {_percent(most.solved)}.")
    auto = [row.method for row in work].index("ahead_exact_auto") if _has_auto(work) else None
    if auto is not None:
        parts.append(
            "**If you cannot tune, use `ahead_exact()` without step sizes**, which finds them"
            f" while it runs: it comes {_ordinal(1 + auto)} of {len(work)}, against methods that"
            f" were tuned for every task, and solves {_percent(work[auto].solved)}."
        )
    return " ".join(parts)


def _has_auto(table: Iterable[Standing]) -> bool:
    return any(row.method == "ahead_exact_auto" for row in table)


def _scope(results: Sequence[Result], found: Costs) -> str:
    scenarios = {(one.task, one.network) for one in found.instances}
    seeds = len({one.seed for one in found.instances})
    lost = len({result.scenario for result in results}) - len(scenarios)
    verb = "is" if lost == 1 else "are"
    without = (
        f" {plural(lost, 'other')} that not every method has run {verb} left out." if lost else ""
    )
    return (
        f"{plural(len(found.methods), 'method')} on {len(scenarios)} tasks on networks,"
        f" {plural(seeds, 'seed')} and two targets each: {len(found.instances)}"
        f" instances.{without}"
    )


def _when(results: Sequence[Result]) -> Block:
    rows = []
    for kind in dict.fromkeys(result.rule.kind for result in results):
        found = costs([result for result in results if result.rule.kind == kind])
        if found.instances:
            tables = [standings(found, axis) for axis in ANSWERED]
            close = [
                [each.method for each in table if each.rank < table[0].rank + 0.5]
                for table in tables
            ]
            rows.append([kind, *(", ".join(names[:3]) for names in close)])
    sentence = "The best mean ranks for each kind of task, up to three within half a rank."
    return Block("When?", [sentence], ["tasks", *(f"least {axis}" for axis in ANSWERED)], rows)


class Duel(NamedTuple):
    """Two methods on one axis: in how many instances the first needs less and more, and the median
    ratio."""

    less: int
    more: int
    ratio: float

    @classmethod
    def of(cls, mine: np.ndarray, other: np.ndarray) -> Duel:
        """From the costs of both, instance by instance."""
        both = np.isfinite(mine) & np.isfinite(other) & (other > 0)
        ratio = float(np.median(mine[both] / other[both])) if both.any() else np.nan
        return cls(int(np.sum(mine * WITHIN < other)), int(np.sum(other * WITHIN < mine)), ratio)

    @property
    def text(self) -> str:
        """As a table shows it."""
        ratio = f", {self.ratio:.2f}" if np.isfinite(self.ratio) else ""
        return f"{self.less} : {self.more}{ratio}"

    @property
    def winner(self) -> int:
        """1 if the first is ahead, twice as often as behind; -1 if it is behind; 0 if neither."""
        return int(self.less > 2 * self.more) - int(self.more > 2 * self.less)


def _trio(found: Costs, tables: dict[str, list[Standing]]) -> Block:
    """Axis by axis: ranks among all, and instance by instance against two other methods."""
    names = [name for name in TRIO if name in found.methods]
    rivals = [name for name in ("sparkle_ed", "ahead") if {"ahead_exact", name} <= set(names)]
    duels = {
        rival: {
            axis: Duel.of(found.of(axis, "ahead_exact"), found.of(axis, rival)) for axis in AXES
        }
        for rival in rivals
    }
    rows = []
    for axis in AXES:
        by_name = {row.method: row for row in tables[axis]}
        ranks = [_with_interval(by_name[name]) for name in names]
        rows.append([UNITS[axis], *ranks, *(duels[rival][axis].text for rival in rivals)])
    solved = found.solved()
    rows.append(["solved", *(_percent(solved[name]) for name in names), *([""] * len(rivals))])
    sentences = [
        *(_answer(rival, duels[rival]) for rival in rivals),
        "Mean ranks among all methods; then in how many instances ahead_exact needs less : more"
        " than the other, and the median ratio of what they need where both get there.",
    ]
    after = [SAME] if {"ahead_exact", "sparkle_ed"} <= set(names) else []
    head = ["axis", *names, *(f"ahead_exact against {rival}" for rival in rivals)]
    title = "ahead_exact, AHEAD and SPARKLE-ED on every axis"
    return Block(title, sentences, head, rows, after=after)


def _answer(rival: str, duels: Mapping[str, Duel]) -> str:
    """In words: on which axes ahead_exact is ahead of the other method, and on which not."""
    parts = []
    for side, words in ((1, "{} is ahead in"), (-1, "{} is behind in"), (0, "neither is ahead in")):
        axes = [axis for axis, duel in duels.items() if duel.winner == side]
        if axes:
            parts.append(f"{words.format('it' if parts else '`ahead_exact`')} {listed(axes)}")
    return f"Against `{rival}`: {'; '.join(parts)}. Ahead means: twice as often as behind."


# What does it cost me?


def _price(results: Sequence[Result]) -> Block:
    """What a step costs, on the first task."""
    task, network = results[0].scenario
    about = {name: method.about for name, method in all_methods().items()}
    counted = ("outer_gradients", "inner_gradients", "products", "work", "numbers", "state")
    rows = []
    for result in results:
        if result.scenario == (task, network):
            micros = 1e6 * np.median([run.price["seconds"] for run in result.runs])
            numbers = [format_number(result.cost[name]) for name in counted]
            rows.append((result.method, about.get(result.method, ""), *numbers, f"{micros:.0f}"))
    sentence = (
        f"One agent in one step on {task}, {network}. It sends the numbers to each neighbour, and"
        " stores the copies of (x, y) between steps: its memory besides the data."
    )
    head = ("method", "what it is", "gradients of f", "of g", "products", "gradient-equivalents")
    last = ("numbers sent", "copies", "microseconds, all agents")
    return Block("What does it cost me?", [sentence], (*head, *last), rows)


def _tuning(results: Sequence[Result]) -> Block:
    """How easily a search goes wrong, method by method."""
    rows = []
    for name in dict.fromkeys(result.method for result in results):
        here = [result for result in results if result.method == name and result.tried]
        if here:
            shares = [
                [not np.isfinite(row["score"]) for result in here for row in result.tried],
                [any("boundary" in note for note in result.notes) for result in here],
                [not run.sound for result in here for run in result.runs],
            ]
            percents = [_percent(float(np.mean(each))) for each in shares]
            rows.append((name, str(len(here[0].settings)), *percents))
    text = (
        "All methods had the same ranges, in units of the task, and the same number of tries. A"
        " setting diverges if it does so on one tuning seed; a search met a boundary if its best"
        " lay at an end of its range, which was widened; and some settings that were best on the"
        " tuning seeds diverged on judging seeds."
    )
    head = (
        "method",
        "settings to tune",
        "tries that diverged",
        "searches that met a boundary",
        "judged runs that diverged",
    )
    return Block("How hard is it to tune?", [text], head, rows)


def _ranks(tables: dict[str, list[Standing]], found: Costs) -> Block:
    by_name = {axis: {row.method: row for row in tables[axis]} for axis in AXES}
    rows = []
    for first in tables["work"]:
        each = [_with_interval(by_name[axis][first.method]) for axis in AXES]
        rows.append([first.method, *each, _percent(first.best), _percent(first.solved)])
    sentence = (
        f"Mean ranks with {100 * LEVEL:.0f} % intervals of a bootstrap over tasks on networks and"
        " seeds. Best and solved are shares of the instances, best in gradient-equivalents. Costs"
        f" within {100 * (WITHIN - 1):.0f} % of each other are a tie, and methods that do not get"
        " there share the last ranks. Methods without products tie on that axis. Ranks in seconds"
        " depend on the machine and its load; all others are the same in every run."
    )
    return Block("Ranks", [sentence], ["method", *AXES, "best", "solved"], rows)


# Task by task


def _by_task(results: Sequence[Result]) -> Block:
    """Median gradient-equivalents to the hard target on every task and network."""
    names = list(dict.fromkeys(result.method for result in results))
    rows = []
    for scenario in dict.fromkeys(result.scenario for result in results):
        task, network = scenario
        # the lowest Phi of a task is that over all of its networks
        found = costs([result for result in results if result.task == task], [scenario])
        hard = [one.target == TASKS[task].targets[1] for one in found.instances]
        here = {result.method for result in results if result.scenario == scenario}
        medians = {name: _median(found.of("work", name)[hard]) for name in here}
        least = min(medians.values())
        row = [f"{task}, {network}"]
        for name in names:
            value = medians.get(name, np.inf)
            text = f"{value:,.0f}" if np.isfinite(value) else "never"
            bold = np.isfinite(value) and value <= least * WITHIN
            row.append("" if name not in here else f"**{text}**" if bold else text)
        rows.append(row)
    sentence = (
        "Median over the seeds of the gradient-equivalents of all agents to the hard target; never:"
        " in fewer than half of the seeds."
    )
    return Block("Task by task", [sentence], ["task, network", *names], rows)


def _median(values: np.ndarray) -> float:
    """The median, infinite if half of the values are."""
    return float(np.sort(values)[len(values) // 2]) if len(values) else np.inf


def _over_seeds(result: Result, value: Callable[[Run], float]) -> str:
    """The median over the seeds that gave an answer."""
    found = [value(run) for run in result.runs if run.sound]
    return typeset_number(float(np.median(found))) if found else "diverged"


def _spent(run: Run, axis: str) -> np.ndarray:
    return run.history["step"] * run.price[axis]


def _networks(results: Sequence[Result]) -> list[Block]:
    """Tasks without an exact reference, at equal work and at equal traffic: the budget of the
    method that used least."""
    rows = []
    for scenario in dict.fromkeys(result.scenario for result in results if result.rule.trained):
        here = [result for result in results if result.scenario == scenario]
        limit = {
            axis: min(
                (_spent(run, axis)[-1] for result in here for run in result.runs if run.sound),
                default=np.inf,
            )
            for axis in ("work", "bytes")
        }

        def within(run: Run, axis: str, name: str, limit: dict[str, float] = limit) -> float:
            last = np.flatnonzero(_spent(run, axis) <= limit[axis] * 1.0001)[-1]
            return float(run.history[name][last])

        for result in here:
            texts = [
                _over_seeds(result, lambda run, a=axis, n=name: within(run, a, n))
                for axis in limit
                for name in ("phi", "accuracy")
            ]
            rows.append((", ".join(scenario), result.method, *texts))
    if not rows:
        return []
    text = (
        "A network has many minima, so there is no true hypergradient. These tasks are judged by"
        " the validation loss of a network that is retrained with x, always from the same start and"
        " in the same way. The table has it with the test accuracy of the network that the method"
        " itself has trained, when every method has used as much as the one that uses least in its"
        " run: medians over the seeds that gave an answer."
    )
    head = [
        f"{what} at equal {axis}"
        for axis in ("work", "bytes")
        for what in ("validation loss", "test accuracy")
    ]
    title = "Networks: where they are at equal cost"
    return [Block(title, [text], ("task, network", "method", *head), rows)]


def _ends(results: Sequence[Result]) -> Block:
    """Everything that is judged, at the end."""
    names = ("stationarity", "phi", "gap", "consensus", "accuracy", "loss")
    rows = []
    for result in results:
        ends = [
            _over_seeds(result, lambda run, n=name: float(run.history[n][-1]))
            if name in result.runs[0].history
            else ""
            for name in names
        ]
        rows.append((", ".join(result.scenario), result.method, *ends))
    for name in dict.fromkeys(result.task for result in results):
        seeds = [run.seed for run in next(r for r in results if r.task == name).runs]
        for rival, (loss, right) in sceptic.rows(TASKS[name], seeds).items():
            rows.append(
                (name, f"{rival} (a sceptic)", "", "", "", "", f"{right:.3g}", f"{loss:.3g}")
            )
    sentence = (
        "Medians over the seeds that gave an answer, after the last step: the true squared"
        " hypergradient and objective, the gap of the lower level, the consensus error of x, and"
        " the accuracy and the log-loss on a test set where there is one. A sceptic solves something"
        " simpler exactly, on the same samples in one place."
    )
    head = ("task, network", "method", "|grad Phi|^2", "Phi", "gap", "consensus", "accuracy")
    head = (*head, "held-out loss")
    return Block("Where they end", [sentence], head, rows)


def _failures(results: Sequence[Result]) -> Block:
    rows = []
    for result in results:
        lost = ", ".join(str(run.seed) for run in result.runs if not run.sound)
        notes = [note for note in result.notes if "boundary" in note or "diverged" in note]
        if lost or notes:
            name = ", ".join(result.scenario)
            rows.append((name, result.method, lost or "none", "; ".join(notes)))
    lost_runs = sum(not run.sound for result in results for run in result.runs)
    total = sum(len(result.runs) for result in results)
    sentence = (
        f"{lost_runs} of {total} judged runs diverged or failed. Notes of the searches: where the"
        " best lay at a boundary, the range was widened."
    )
    head = ("task, network", "method", "seeds lost", "search")
    return Block("Failures, and searches that met a boundary", [sentence], head, rows)


def _settings(results: Sequence[Result]) -> Block:
    rows = [
        (
            ", ".join(result.scenario),
            result.method,
            shown(result.settings) or "none",
            str(len(result.tried)),
        )
        for result in results
    ]
    sentence = (
        "Everything that was tried, with its score, is in tried.csv, beside the page that `python"
        " -m studies.bench` writes."
    )
    return Block(
        "Tuned settings", [sentence], ("task, network", "method", "settings", "tried"), rows
    )


def _rules(results: Sequence[Result]) -> Block:
    rows = []
    for name in dict.fromkeys(result.task for result in results):
        task = TASKS[name]
        rows.append((name, task.about, task.judged, listed([f"{t:g}" for t in task.targets])))
    text = [
        (
            "Judged by the exact reference of the averaged problem. Stationarity is the squared"
            " norm of the true hypergradient at the mean x; its targets are fractions of its value"
            " at the start. Phi is the true objective; its targets are fractions of the difference"
            " between its start and the least, by an exact solver for l2 selection, elsewhere the"
            " lowest value that any method reached with the same seed."
        ),
        (
            "Tuning: the same number of settings and steps for every method, on seeds that are not"
            " those of judging, in rounds that narrow around the best and widen at a boundary."
            " Methods without settings are not tuned."
        ),
    ]
    return Block("Tasks and rules", text, ("task", "what it is", "judged by", "targets"), rows)


def _with_interval(row: Standing) -> str:
    return f"{row.rank:.1f} [{row.low:.1f}, {row.high:.1f}]"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _ordinal(number: int) -> str:
    words = [
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
    ]
    if number <= len(words):
        return words[number - 1]
    teens = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


# As HTML beside the results, and as Markdown with CSV for the repository


def write_html(path: Path, page: Sequence[Block], made: Made, drawn: dict[str, bytes]) -> Path:
    """A page that needs no other file. A file that decibo did not write is never replaced."""
    from importlib.resources import files

    css = (files("decibo.report") / "templates" / "page.css").read_text(encoding="utf-8")
    images = {name: base64.b64encode(content).decode() for name, content in drawn.items()}
    style = _rendered(css, light=LIGHT, dark=DARK)
    template = (TEMPLATES / "bench.html").read_text(encoding="utf-8")
    text = _rendered(template, page=page, made=made, style=style, pictures=images, short=SHORT)
    return atomic_write(check_own(path, GENERATOR), text)


def publish(folder: Path, page: Sequence[Block], made: Made, drawn: Mapping[str, bytes]) -> Path:
    """benchmark.md in this folder, with every table as CSV in benchmark/, and pictures in
    figures/."""
    for block in page:
        if block.rows:
            plain = [
                [cell.replace("**", "").replace("`", "") for cell in row] for row in block.rows
            ]
            columns = dict(zip(block.head, map(list, zip(*plain, strict=True)), strict=True))
            atomic_write(folder / "benchmark" / f"{block.name}.csv", to_csv(columns))
    for name, content in drawn.items():
        atomic_write(folder / "figures" / f"benchmark_{name}.png", content)
    template = (TEMPLATES / "benchmark.md").read_text(encoding="utf-8")
    text = _rendered(template, escape=False, page=page, made=made, short=SHORT)
    return atomic_write(folder / "benchmark.md", text)


def _rendered(template: str, escape: bool = True, **values: object) -> str:
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise missing("Jinja2", "The page of a benchmark", "report") from error
    environment = Environment(
        undefined=StrictUndefined, autoescape=escape, trim_blocks=True, keep_trailing_newline=True
    )
    environment.filters["marked"] = _marked
    environment.filters["cells"] = lambda row: " | ".join(cell.replace("|", "\\|") for cell in row)
    return environment.from_string(template).render(**values)


def _marked(text: str) -> str:
    """Markdown as HTML: escaped, with what is bold or code marked as such."""
    from markupsafe import Markup

    bold = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", html.escape(text))
    return Markup(re.sub(r"`(.+?)`", r"<code>\1</code>", bold))
