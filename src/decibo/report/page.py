"""One page about runs: its text, section by section, and the HTML that needs nothing but
itself.

Sections are plain text; the templates beside this file make HTML of them and escape it.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from decibo.errors import InputError, missing
from decibo.files import atomic_write, check_own
from decibo.formatting import (
    MINUS,
    NONE,
    Json,
    format_bytes,
    format_count,
    format_seconds,
    format_setting,
    plural,
    typeset_number,
)
from decibo.report.chart_data import chart_data
from decibo.report.figures import DARK, LIGHT, distinct_networks, line_style
from decibo.report.group import Group, caption, grouped, with_spread
from decibo.report.network_svg import degrees, network_svg
from decibo.report.summary import Folders, last_value, load_all, main_measure, symbols
from decibo.report.verdict import PLATEAU, Verdict, judge, judge_group
from decibo.runs.folder import RunRecord, versions

GENERATOR = b'<meta name="generator" content="decibo">'


def report(folders: Folders, out: str | Path = "report.html") -> Path:
    """Write one self-contained HTML page about the runs in these folders, and return its path.

    A folder that is not a run itself but contains runs stands for all of them. The page loads
    nothing from elsewhere; the same folders give the same page. Runs that differ in their seed only
    are one line, with a band. Damaged and unfinished runs are left out, and the page names them. A
    file that is not such a page is never replaced.
    """
    runs, left_out = load_all(folders)
    path = Path(out)
    if path.is_dir():
        raise InputError(
            f"A page must be a file, but {path} is a folder.", f"Try {path / 'report.html'}."
        )
    check_own(path, GENERATOR)
    groups = grouped(runs)
    page = replace(page_sections(groups), left_out=left_out)
    data = chart_data(groups, main_measure(runs))
    return atomic_write(path, _render(page, data))


def _render(page: Page, data: dict[str, Json]) -> str:
    """The page as HTML; whatever comes from a run is escaped by the templates."""
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise missing("Jinja2", "The page about runs", "report") from error
    environment = Environment(
        loader=FunctionLoader(_template),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    script = _template("curves.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("page.html").render(
        page=page,
        data=data,
        light=LIGHT,
        dark=DARK,
        script=Markup(script),
        script_hash=f"sha256-{digest}",
        version=versions()["decibo"],
    )


def _template(name: str) -> str:
    return (files("decibo.report") / "templates" / name).read_text(encoding="utf-8")


STEP_COSTS = {
    "outer_gradients": "gradients of\u00a0f",
    "inner_gradients": "gradients of\u00a0g",
    "hessian_products": "Hessian products",
    "jacobian_products": "Jacobian products",
    "work": "work, in\u00a0gradients",
    "messages": "messages",
    "numbers": "numbers",
    "bytes": "bytes",
}
TOTALS = (
    "gradients, in\u00a0all",
    "bytes, in\u00a0all",
    "time of\u00a0steps",
    "time of\u00a0compiling",
    "time of\u00a0measures",
)
# for those who cannot see a badge's colour
SIGNS = {"good": "✓", "bad": "✕", "floor": NONE, "open": "…"}


class Card(NamedTuple):
    """A fact at the top of the page."""

    title: str
    value: str
    note: str


class TableCell(NamedTuple):
    """A cell of a table under its column; `style` is a class of the stylesheet."""

    column: str
    text: str
    style: str = ""


@dataclass(frozen=True, eq=False)
class RunSection:
    """One run in all tables of the page.

    colour, dash   the line it is drawn with
    method         the method with its settings, unless it is the label
    ends           the final values of a few measures
    """

    label: str
    colour: int
    dash: str
    method: str
    network: str
    verdict: Verdict
    sign: str
    steps: str
    ends: list[TableCell]
    costs: list[TableCell]
    settings: list[TableCell]
    details: dict[str, str]
    config: str


class NetworkSection(NamedTuple):
    """One network: a drawing (HTML, escaped), a few numbers and remarks."""

    name: str
    drawing: str
    facts: dict[str, str]
    notes: list[str]


@dataclass(frozen=True, eq=False)
class Page:
    """Everything on the page but the data of its chart."""

    title: str
    lead: str
    cards: list[Card]
    runs: list[RunSection]
    networks: list[NetworkSection]
    bands: str = ""  # what lines and bands are, if there are several seeds
    left_out: list[str] = field(default_factory=list)  # a sentence for each


def page_sections(groups: Sequence[Group]) -> Page:
    """The sections of the page about these runs."""
    records = [run for group in groups for run in group.runs]
    measure = main_measure(records)
    verdicts = [judge_group(group, measure) for group in groups]
    ends = _shown_measures(records, measure)
    settings = _settings(groups)
    runs = []
    for k, (group, verdict) in enumerate(zip(groups, verdicts, strict=True)):
        colour, dash = line_style(k)
        middle = group.middle(measure)
        network = group.first.network
        section = RunSection(
            label=group.legend,
            colour=colour,
            dash=dash,
            method=group.first.method["text"] if group.first.method["text"] != group.label else "",
            network=f"{_spaced(network['name'])} of {network['agents']}",
            verdict=verdict,
            sign=SIGNS[verdict.kind],
            steps=group.over(lambda run: f"{run.steps:,}"),
            ends=[TableCell(name, _ending(group, name)) for name in ends],
            costs=_costs(middle),
            settings=settings[k],
            details=_details(middle) | _by_seed(group, measure),
            config=middle.source().strip(),
        )
        runs.append(section)
    cards = _cards(groups, measure, verdicts)
    return Page(
        _title(groups), _lead(records), cards, runs, _networks(groups), caption(groups, "quartiles")
    )


def _ending(group: Group, measure: str) -> str:
    """The last value; with several seeds mean and deviation of those that gave an answer, and how
    many they are."""
    if measure not in group.measures:
        return NONE
    return with_spread(group.end(measure))


def _by_seed(group: Group, measure: str | None) -> dict[str, str]:
    """How each seed ended, if there are several; what is above it then is that of the median
    seed."""
    if not group.several:
        return {}
    lines = {}
    for run in group.runs:
        value = None if measure is None else last_value(run, measure)
        end = "" if value is None else f" {measure} {typeset_number(value)}."
        lines[f"seed {run.seed}"] = (
            f"{run.status} after {plural(run.steps, 'step')}.{end} {run.message}".strip()
        )
    return lines


def _title(groups: Sequence[Group]) -> str:
    """The problem, or the problems."""
    records = [run for group in groups for run in group.runs]
    problems = list(dict.fromkeys(_spaced(record.problem["name"]) for record in records))
    shown = ", ".join(problems[:3]) + (", ..." if len(problems) > 3 else "")
    if len(groups) == 1:
        seeds = f", {plural(len(records), 'seed')}" if len(records) > 1 else ""
        return f"{records[0].label.strip() or shown} on {shown}{seeds}"
    return f"{len(records)} runs on {shown}"


def _lead(records: Sequence[RunRecord]) -> str:
    """When, and with which version."""
    releases = sorted({record.versions.get("decibo", "") for record in records} - {""})
    finished = max(record.finished for record in records)[:16].replace("T", " ")
    return f"Finished {finished} UTC, decibo {', '.join(releases)}."


def _cards(groups: Sequence[Group], measure: str | None, verdicts: Sequence[Verdict]) -> list[Card]:
    records = [run for group in groups for run in group.runs]
    single = len(groups) == 1
    if single:
        ends = f"after {plural(records[0].steps, 'step')}"
        cards = [
            Card(
                "Verdict",
                verdicts[0].title,
                f"{plural(len(records), 'seed')}: {groups[0].seeds}" if groups[0].several else ends,
            )
        ]
    else:
        titles = Counter(judge(run, measure).title for run in records)
        counts = ", ".join(f"{count} {title}" for title, count in titles.items())
        seeds = f"of {len(groups)} settings: " if len(records) > len(groups) else ""
        cards = [Card("Runs", str(len(records)), f"{seeds}{counts}")]
    telling = _telling_measure(records, measure, verdicts)
    lowest = _lowest(groups, telling)
    if telling and lowest:
        title = "At the end" if single else "Lowest at the end"
        cards.append(
            Card(
                f"{title}: {telling}",
                _ending(lowest, telling),
                symbols(telling) if single else lowest.label,
            )
        )
    networks = distinct_networks([group.first for group in groups])
    if len(networks) == 1:
        network = records[0].network
        rho = "" if network["rho"] is None else f", rho = {network['rho']:.4g}"
        size = f"{network['agents']:,} agents, {plural(network['links'], 'link')}{rho}"
        cards.append(Card("Network", _spaced(network["name"]), size))
    else:
        cards.append(Card("Networks", str(len(networks)), "drawn below"))
    sent = format_bytes(sum(_bytes(record) for record in records))
    spent = format_seconds(sum(record.seconds for record in records))
    cards.append(
        Card(
            "Sent over all links",
            sent,
            f"in {spent} of steps" + ("" if len(records) == 1 else " altogether"),
        )
    )
    return cards


def _costs(record: RunRecord) -> list[TableCell]:
    """What a step costs in every currency, and the whole run."""
    cells = [
        TableCell(column, format_setting(record.cost.get(name)))
        for name, column in STEP_COSTS.items()
    ]
    gradients = format_count(record.cost["gradients"] * record.cost["agents"] * record.steps)
    times = [record.seconds, record.cost.get("compiling"), record.cost.get("measuring")]
    seconds = [NONE if each is None else format_seconds(each) for each in times]
    totals = (gradients, format_bytes(_bytes(record)), *seconds)
    return cells + [TableCell(column, total) for column, total in zip(TOTALS, totals, strict=True)]


def _settings(groups: Sequence[Group]) -> list[list[TableCell]]:
    """The settings of every run; those in which all agree are grey."""
    rows = []
    for group in groups:
        row = {"method": group.first.method["name"]}
        for name in dict.fromkeys(name for run in group.runs for name in run.method["settings"]):
            row[name] = group.over(
                lambda run, name=name: format_setting(run.method["settings"].get(name))
            )
        row["seed"] = group.seeds or NONE
        row["steps"] = group.over(lambda run: f"{run.steps:,}")
        row["every"] = group.over(lambda run: NONE if run.every is None else f"{run.every:,}")
        rows.append(row)
    own = dict.fromkeys(
        name for group in groups for run in group.runs for name in run.method["settings"]
    )
    columns = list(dict.fromkeys(["method", *own, "seed", "steps", "every"]))
    agreed = {
        name for name in columns if len(rows) > 1 and len({row.get(name) for row in rows}) == 1
    }
    return [
        [TableCell(name, row.get(name, NONE), "same" if name in agreed else "") for name in columns]
        for row in rows
    ]


def _details(record: RunRecord) -> dict[str, str]:
    """Everything else that a folder holds."""
    problem = record.problem
    size = (
        f", x of {problem.get('x')} and y of {problem.get('y')} numbers"
        if {"x", "y"} <= set(problem)
        else ""
    )
    return {
        "method": record.method["text"],
        "problem": problem["name"] + size,
        "ended": f"{record.status}. {record.message}",
        "precision": record.precision,
        "made with": ", ".join(f"{name} {value}" for name, value in record.versions.items()),
        "finished": record.finished,
        "folder": record.folder.name or str(record.folder),
    }


def _networks(groups: Sequence[Group]) -> list[NetworkSection]:
    """Each network once, with what matters about it; of networks that the seed changes, that of the
    first seed."""
    group_of = {id(group.first): group for group in groups}
    sections = []
    for same in distinct_networks([group.first for group in groups]):
        network = same[0].network
        facts = {"agents": f"{network['agents']:,}", "links": f"{network['links']:,}"}
        neighbours = degrees(network)
        if neighbours is not None and neighbours.size:
            low = int(neighbours.min())
            high = int(neighbours.max())
            facts["neighbours"] = str(low) if low == high else f"{low} to {high}"
        if network["rho"] is not None:
            facts["rho"] = f"{network['rho']:.4g}"
            facts[f"1 {MINUS} rho"] = f"{1 - network['rho']:.4g}"
        notes = ["Directed: arrows go to the agent that receives."] if network["directed"] else []
        users = [group_of[id(record)] for record in same]
        if len(users) < len(groups):
            notes.append(f"Used by {', '.join(group.label for group in users)}.")
        if any(len(distinct_networks(group.runs)) > 1 for group in users):
            notes.append(f"Seed {same[0].seed}; other seeds have other links.")
        sections.append(
            NetworkSection(_spaced(network["name"]), network_svg(network), facts, notes)
        )
    return sections


def _shown_measures(records: Sequence[RunRecord], measure: str | None) -> list[str]:
    """A few measures for the summary: the main one, the objective, and how far agents disagree."""
    names = {name for record in records for name in record.measures}
    wanted = [measure, "phi" if "phi" in names else "outer", "consensus_x"]
    return [name for name in dict.fromkeys(wanted) if name is not None and name in names]


def _telling_measure(
    records: Sequence[RunRecord], measure: str | None, verdicts: Sequence[Verdict]
) -> str | None:
    """The measure to compare ends by: not the gradient where it was small at the start, or standing
    still would win."""
    plateau = any(verdict.title == PLATEAU for verdict in verdicts)
    objective = next(
        (name for name in ("phi", "outer") if all(name in run.history for run in records)), None
    )
    return objective if plateau and objective else measure


def _lowest(groups: Sequence[Group], measure: str | None) -> Group | None:
    """The group with the lowest final value of a measure, if its median is an answer."""
    if measure is None:
        return None
    ends = {
        k: group.end(measure).mean
        for k, group in enumerate(groups)
        if group.sound and measure in group.measures
    }
    finite = {k: value for k, value in ends.items() if value == value}
    return groups[min(finite, key=lambda k: finite[k])] if finite else None


def _bytes(record: RunRecord) -> float:
    return record.cost["bytes"] * record.cost["links"] * record.steps


def _spaced(name: str) -> str:
    """A name without underscores, so that lines can break in it."""
    return name.replace("_", " ")
