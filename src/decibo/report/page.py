"""One page about runs: what it says, section by section, and the HTML that needs nothing but itself.

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
from decibo.report.network_svg import degrees, network_svg
from decibo.report.summary import Folders, distinct_labels, last_value, load_all, main_measure, symbols
from decibo.report.verdict import PLATEAU, Verdict, judge
from decibo.runs.folder import RunRecord, versions

GENERATOR = b'<meta name="generator" content="decibo">'


def report(folders: Folders, out: str | Path = "report.html") -> Path:
    """Write one self-contained HTML page about the runs in these folders, and return its path.

    A folder that is not a run itself but contains runs stands for all of them. The page loads nothing from elsewhere;
    the same folders give the same page. Damaged and unfinished runs are left out, and the page says so. A file that is
    not such a page is never replaced.
    """
    runs, left_out = load_all(folders)
    path = Path(out)
    if path.is_dir():
        raise InputError(f"A page must be a file, but {path} is a folder.", f"Try {path / 'report.html'}.")
    check_own(path, GENERATOR)
    page = replace(page_sections(runs), left_out=left_out)
    data = chart_data(runs, [run.label for run in page.runs], main_measure(runs))
    return atomic_write(path, _render(page, data))


def _render(page: Page, data: dict[str, Json]) -> str:
    """The page as HTML; whatever comes from a run is escaped by the templates."""
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise missing("Jinja2", "The page about runs", "report") from error
    environment = Environment(
        loader=FunctionLoader(_template), undefined=StrictUndefined, autoescape=True, trim_blocks=True
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
SIGNS = {"good": "✓", "bad": "✕", "floor": NONE, "open": "…"}  # for those who cannot see a badge's colour


class Card(NamedTuple):
    """One of the first things anybody wants to know."""

    title: str
    value: str
    note: str


class Cell(NamedTuple):
    """A cell of a table under its column; `style` is a class of the stylesheet."""

    column: str
    text: str
    style: str = ""


@dataclass(frozen=True, eq=False)
class RunSection:
    """One run in all tables of the page.

    colour, dash   the line it is drawn with
    method         the method with its settings, unless the label says it already
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
    ends: list[Cell]
    costs: list[Cell]
    settings: list[Cell]
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
    left_out: list[str] = field(default_factory=list)  # a sentence for each


def page_sections(records: Sequence[RunRecord]) -> Page:
    """The sections of the page about these runs."""
    labels = distinct_labels(records)
    measure = main_measure(records)
    verdicts = [judge(record, measure) for record in records]
    ends = _shown_measures(records, measure)
    settings = _settings(records)
    runs = []
    for k, (record, label, verdict) in enumerate(zip(records, labels, verdicts, strict=True)):
        colour, dash = line_style(k)
        section = RunSection(
            label=label,
            colour=colour,
            dash=dash,
            method=record.method["text"] if record.method["text"] != label else "",
            network=f"{_spaced(record.network['name'])} of {record.network['agents']}",
            verdict=verdict,
            sign=SIGNS[verdict.kind],
            steps=f"{record.steps:,}",
            ends=[Cell(name, typeset_number(last_value(record, name))) for name in ends],
            costs=_costs(record),
            settings=settings[k],
            details=_details(record),
            config=(record.config or "").strip(),
        )
        runs.append(section)
    cards = _cards(records, labels, measure, verdicts)
    return Page(_title(records), _lead(records), cards, runs, _networks(records, labels))


def _title(records: Sequence[RunRecord]) -> str:
    """The problem, or the problems."""
    problems = list(dict.fromkeys(_spaced(record.problem["name"]) for record in records))
    shown = ", ".join(problems[:3]) + (", ..." if len(problems) > 3 else "")
    return f"{records[0].label.strip() or shown} on {shown}" if len(records) == 1 else f"{len(records)} runs on {shown}"


def _lead(records: Sequence[RunRecord]) -> str:
    """When, and with which version."""
    releases = sorted({record.versions.get("decibo", "") for record in records} - {""})
    finished = max(record.finished for record in records)[:16].replace("T", " ")
    return f"Finished {finished} UTC, decibo {', '.join(releases)}."


def _cards(
    records: Sequence[RunRecord], labels: Sequence[str], measure: str | None, verdicts: Sequence[Verdict]
) -> list[Card]:
    single = len(records) == 1
    if single:
        cards = [Card("Verdict", verdicts[0].title, f"after {plural(records[0].steps, 'step')}")]
    else:
        counts = Counter(verdict.title for verdict in verdicts)
        cards = [Card("Runs", str(len(records)), ", ".join(f"{count} {title}" for title, count in counts.items()))]
    telling = _telling_measure(records, measure, verdicts)
    lowest = _lowest(records, labels, telling)
    if telling and lowest:
        title = "At the end" if single else "Lowest at the end"
        value, label = lowest
        cards.append(Card(f"{title}: {telling}", typeset_number(value), symbols(telling) if single else label))
    groups = distinct_networks(records)
    if len(groups) == 1:
        network = records[0].network
        rho = "" if network["rho"] is None else f", rho = {network['rho']:.4g}"
        size = f"{network['agents']:,} agents, {plural(network['links'], 'link')}{rho}"
        cards.append(Card("Network", _spaced(network["name"]), size))
    else:
        cards.append(Card("Networks", str(len(groups)), "drawn below"))
    sent = format_bytes(sum(_bytes(record) for record in records))
    spent = format_seconds(sum(record.seconds for record in records))
    cards.append(Card("Sent over all links", sent, f"in {spent} of steps" + ("" if single else " altogether")))
    return cards


def _costs(record: RunRecord) -> list[Cell]:
    """What a step costs in every currency, and the whole run."""
    cells = [Cell(column, format_setting(record.cost.get(name))) for name, column in STEP_COSTS.items()]
    gradients = format_count(record.cost["gradients"] * record.cost["agents"] * record.steps)
    times = [record.seconds, record.cost.get("compiling"), record.cost.get("measuring")]
    seconds = [NONE if each is None else format_seconds(each) for each in times]
    totals = (gradients, format_bytes(_bytes(record)), *seconds)
    return cells + [Cell(column, total) for column, total in zip(TOTALS, totals, strict=True)]


def _settings(records: Sequence[RunRecord]) -> list[list[Cell]]:
    """The settings of every run; those in which all agree are grey."""
    rows = []
    for record in records:
        row = {"method": record.method["name"]}
        row |= {name: format_setting(value) for name, value in record.method["settings"].items()}
        row["seed"] = format_setting(record.seed)
        row["steps"] = f"{record.steps:,}"
        row["every"] = NONE if record.every is None else f"{record.every:,}"
        rows.append(row)
    own = dict.fromkeys(name for record in records for name in record.method["settings"])
    columns = list(dict.fromkeys(["method", *own, "seed", "steps", "every"]))
    agreed = {name for name in columns if len(rows) > 1 and len({row.get(name) for row in rows}) == 1}
    return [[Cell(name, row.get(name, NONE), "same" if name in agreed else "") for name in columns] for row in rows]


def _details(record: RunRecord) -> dict[str, str]:
    """Everything else that a folder says."""
    problem = record.problem
    size = f", x of {problem.get('x')} and y of {problem.get('y')} numbers" if {"x", "y"} <= set(problem) else ""
    return {
        "method": record.method["text"],
        "problem": problem["name"] + size,
        "ended": f"{record.status}. {record.message}",
        "precision": record.precision,
        "made with": ", ".join(f"{name} {value}" for name, value in record.versions.items()),
        "finished": record.finished,
        "folder": record.folder.name or str(record.folder),
    }


def _networks(records: Sequence[RunRecord], labels: Sequence[str]) -> list[NetworkSection]:
    """Each network once, with what matters about it."""
    label_of = dict(zip(map(id, records), labels, strict=True))
    sections = []
    for group in distinct_networks(records):
        network = group[0].network
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
        if len(group) < len(records):
            notes.append(f"Used by {', '.join(label_of[id(record)] for record in group)}.")
        sections.append(NetworkSection(_spaced(network["name"]), network_svg(network), facts, notes))
    return sections


def _shown_measures(records: Sequence[RunRecord], measure: str | None) -> list[str]:
    """A few measures for the summary: the main one, the objective, and how far agents disagree."""
    names = {name for record in records for name in record.measures}
    wanted = [measure, "phi" if "phi" in names else "outer", "consensus_x"]
    return [name for name in dict.fromkeys(wanted) if name is not None and name in names]


def _telling_measure(records: Sequence[RunRecord], measure: str | None, verdicts: Sequence[Verdict]) -> str | None:
    """The measure to compare ends by: not the gradient where it was small at the start, or standing still would win."""
    plateau = any(verdict.title == PLATEAU for verdict in verdicts)
    objective = next((name for name in ("phi", "outer") if all(name in run.history for run in records)), None)
    return objective if plateau and objective else measure


def _lowest(records: Sequence[RunRecord], labels: Sequence[str], measure: str | None) -> tuple[float, str] | None:
    """The lowest final value of a measure, and which run it belongs to."""
    if measure is None:
        return None
    ends = [
        (value, label)
        for record, label in zip(records, labels, strict=True)
        if record.sound and (value := last_value(record, measure)) is not None and value == value
    ]
    return min(ends, default=None)


def _bytes(record: RunRecord) -> float:
    return record.cost["bytes"] * record.cost["links"] * record.steps


def _spaced(name: str) -> str:
    """A name without underscores, so that lines can break in it."""
    return name.replace("_", " ")
