"""One page about runs: its text, section by section, and the HTML that needs nothing but
itself.

Sections are plain text; the templates beside this file make HTML of them and escape it.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from decibo.errors import InputError, missing
from decibo.files import atomic_write, check_own
from decibo.formatting import (
    MINUS,
    NONE,
    format_bytes,
    format_count,
    format_seconds,
    format_setting,
    plural,
    typeset_number,
)
from decibo.report.chart_data import chart_data
from decibo.report.figures import DARK, LIGHT, distinct_networks, line_style
from decibo.report.group import Group, best, caption, grouped, with_spread
from decibo.report.network_svg import degrees, network_svg
from decibo.report.summary import (
    Folders,
    is_maximised,
    last_value,
    load_all,
    main_measure,
    spent,
    symbols,
)
from decibo.report.verdict import PLATEAU, judge, judge_group
from decibo.runs.folder import RunRecord, versions

GENERATOR = b'<meta name="generator" content="decibo">'


def report(folders: Folders, out: str | Path = "report.html", *, order: Sequence[str] = ()) -> Path:
    """Write one self-contained HTML page about the runs in these folders, and return its path.

    order   labels of the runs that come first

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
    groups = grouped(runs, order)
    page = page_sections(groups) | {"left_out": left_out}
    data = chart_data(groups, main_measure(runs))

    # Whatever comes from a run is escaped by the templates. The page's policy admits its own
    # script by the digest of it, and nothing else.
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
    text = environment.get_template("page.html").render(
        page=page,
        data=data,
        light=LIGHT,
        dark=DARK,
        script=Markup(script),
        script_hash=f"sha256-{digest}",
        version=versions()["decibo"],
    )
    return atomic_write(path, text)


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


def page_sections(groups: Sequence[Group]) -> dict[str, Any]:
    """What the template shows of these runs, by name: everything but the data of the chart."""
    records = [run for group in groups for run in group.runs]
    single = len(groups) == 1
    measure = main_measure(records)
    verdicts = [judge_group(group, measure) for group in groups]
    names = {name for record in records for name in record.measures}
    objective = "phi" if "phi" in names else "outer"

    # The title is the problem, or the problems.
    problems = list(dict.fromkeys(_spaced(record.problem["name"]) for record in records))
    shown = ", ".join(problems[:3]) + (", ..." if len(problems) > 3 else "")
    title = f"{len(records)} runs on {shown}"
    if single:
        seeds = f", {plural(len(records), 'seed')}" if len(records) > 1 else ""
        title = f"{records[0].label.strip() or shown} on {shown}{seeds}"
    releases = sorted({record.versions.get("decibo", "") for record in records} - {""})
    finished = max(record.finished for record in records)[:16].replace("T", " ")
    lead = f"Finished {finished} UTC, decibo {', '.join(releases)}."

    # A row for each group in every table: a few measures at the end (the main one, the objective,
    # and how far agents disagree), what a step costs (of what some run has), and the settings.
    ends = [measure, objective, "consensus_x"]
    ends = [name for name in dict.fromkeys(ends) if name is not None and name in names]
    counted = [name for name in STEP_COSTS if any(run.cost.get(name) for run in records)]
    settings = _settings(groups)
    runs = []
    for k, (group, verdict) in enumerate(zip(groups, verdicts, strict=True)):
        colour, dash = line_style(k)
        middle = group.middle(measure)
        network = group.first.network
        agents = network["agents"]
        whole = spent(middle)
        times = [middle.seconds, middle.cost.get("compiling"), middle.cost.get("measuring")]
        times = [NONE if each is None else format_seconds(each) for each in times]
        costs = [format_setting(middle.cost.get(name)) for name in counted]
        totals = format_count(whole["gradients"]), format_bytes(whole["bytes"]), *times
        heads = [STEP_COSTS[name] for name in counted]
        columns = zip((*heads, *TOTALS), (*costs, *totals), strict=True)
        text = group.first.method["text"]
        last = lambda name: with_spread(group.end(name)) if name in group.measures else NONE  # noqa: B023
        runs.append(
            {
                "label": group.legend,
                "colour": colour,
                "dash": dash,
                "method": text if text != group.label else "",  # with its settings
                "network": f"{_spaced(network['name'])} of {agents}" if agents > 1 else "alone",
                "verdict": verdict,
                "sign": SIGNS[verdict.kind],
                "steps": group.over(lambda run: f"{run.steps:,}"),
                "ends": [TableCell(name, last(name)) for name in ends],
                "costs": [TableCell(column, text) for column, text in columns],
                "settings": settings[k],
                "details": _details(middle, group, measure),
                "config": middle.source().strip(),
            }
        )

    # Cards: how it went, the best end, the network, what was sent.
    if single:
        of = f"after {plural(records[0].steps, 'step')}"
        of = f"{plural(len(records), 'seed')}: {groups[0].seeds}" if groups[0].several else of
        cards = [Card("Verdict", verdicts[0].title, of)]
    else:
        counted = Counter(judge(run, measure).title for run in records)
        counts = ", ".join(f"{count} {title}" for title, count in counted.items())
        of = f"of {len(groups)} settings: " if len(records) > len(groups) else ""
        cards = [Card("Runs", str(len(records)), f"{of}{counts}")]
    # Ends are compared by the main measure, but not by the gradient where it was small at the
    # start, or standing still would win. A group most of whose seeds gave no answer has no end.
    telling = measure
    if any(verdict.title == PLATEAU for verdict in verdicts):
        shared = [name for name in ("phi", "outer") if all(name in r.history for r in records)]
        telling = next(iter(shared), measure)
    able = [group for group in groups if group.sound and telling in group.measures]
    finals = [group.end(str(telling)) for group in able]
    if finals and any(end.mean == end.mean for end in finals):
        largest = is_maximised(str(telling))
        winner = (best(able, finals, largest) or [0])[0]
        title_of = "At the end" if single else f"{'Highest' if largest else 'Lowest'} at the end"
        note = symbols(str(telling)) if single else able[winner].label
        cards.append(Card(f"{title_of}: {telling}", with_spread(finals[winner]), note))
    networks = _drawn_networks(groups)
    if len(networks) == 1:
        network = networks[0][0].network
        rho = "" if network["rho"] is None else f", rho = {network['rho']:.4g}"
        size = f"{network['agents']:,} agents, {plural(network['links'], 'link')}{rho}"
        cards.append(Card("Network", _spaced(network["name"]), size))
    else:
        cards.append(Card("Networks", str(len(networks)), "drawn below"))
    sent = format_bytes(sum(spent(record)["bytes"] for record in records))
    time = format_seconds(sum(record.seconds for record in records))
    time = f"in {time} of steps" + ("" if len(records) == 1 else " altogether")
    cards.append(Card("Sent over all links", sent, time))

    return {
        "title": title,
        "lead": lead,
        "cards": cards,
        "runs": runs,
        "networks": _networks(groups),
        "bands": caption(groups, "quartiles"),  # what they are, if there are several seeds
    }


def _settings(groups: Sequence[Group]) -> list[list[TableCell]]:
    """The settings of every run; those in which all agree are grey."""
    rows = []
    for group in groups:
        row = {"method": group.first.method["name"]}
        for name in dict.fromkeys(name for run in group.runs for name in run.method["settings"]):
            row[name] = group.over(
                lambda run, n=name: format_setting(run.method["settings"].get(n))
            )
        row["seed"] = group.seeds or NONE
        row["steps"] = group.over(lambda run: f"{run.steps:,}")
        row["every"] = group.over(lambda run: NONE if run.every is None else f"{run.every:,}")
        rows.append(row)
    own = dict.fromkeys(name for row in rows for name in [*row][:-3])
    columns = [*own, "seed", "steps", "every"]
    values = {name: {row.get(name, NONE) for row in rows} for name in columns}
    style = lambda name: "same" if len(rows) > 1 and len(values[name]) == 1 else ""
    return [[TableCell(name, row.get(name, NONE), style(name)) for name in columns] for row in rows]


def _details(record: RunRecord, group: Group, measure: str | None) -> dict[str, str]:
    """Everything else that a folder holds, of the median seed; and how each seed ended."""
    problem = record.problem
    sizes = f", x of {problem.get('x')} and y of {problem.get('y')} numbers"
    details = {
        "method": record.method["text"],
        "problem": problem["name"] + (sizes if {"x", "y"} <= set(problem) else ""),
        "ended": f"{record.status}. {record.message}",
        "precision": record.precision,
        "made with": ", ".join(f"{name} {value}" for name, value in record.versions.items()),
        "finished": record.finished,
        "folder": record.folder.name or str(record.folder),
    }
    for run in group.runs if group.several else ():
        value = None if measure is None else last_value(run, measure)
        end = "" if value is None else f" {measure} {typeset_number(value)}."
        ended = f"{run.status} after {plural(run.steps, 'step')}.{end} {run.message}"
        details[f"seed {run.seed}"] = ended.strip()
    return details


def _networks(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Each network once, with what matters about it; of networks that the seed changes, that of the
    first seed."""
    group_of = {id(group.first): group for group in groups}
    sections = []
    for same in _drawn_networks(groups):
        network = same[0].network
        facts = {"agents": f"{network['agents']:,}", "links": f"{network['links']:,}"}
        neighbours = degrees(network)
        if neighbours is not None and neighbours.size:
            low, high = int(neighbours.min()), int(neighbours.max())
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
        drawing = network_svg(network)  # HTML, escaped
        name = _spaced(network["name"])
        sections.append({"name": name, "drawing": drawing, "facts": facts, "notes": notes})
    return sections


def _drawn_networks(groups: Sequence[Group]) -> list[list[RunRecord]]:
    """The runs by their networks; who is alone is drawn only if there is nothing else."""
    found = distinct_networks([group.first for group in groups])
    return [same for same in found if same[0].network["agents"] > 1] or found


def _spaced(name: str) -> str:
    """A name without underscores, so that lines can break in it."""
    return name.replace("_", " ")
