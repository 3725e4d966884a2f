"""The parts of the page that need no script: summary, costs, settings. Everything from a run is escaped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from decibo.formatting import NONE, format_bytes, format_count, format_seconds, format_setting, plural, typeset_number
from decibo.report.html import Cell, badge, mark, named, quiet, spaced, table
from decibo.report.networks import groups
from decibo.report.summary import last, main_measure, names, words
from decibo.report.verdict import PLATEAU, Verdict, judge
from decibo.runs.folder import RunRecord


@dataclass(frozen=True, eq=False)
class View:
    """The runs with what is said about them."""

    runs: Sequence[RunRecord]
    labels: list[str]
    measure: str | None
    verdicts: list[Verdict]

    @classmethod
    def of(cls, runs: Sequence[RunRecord]) -> View:
        """Labels made different, the measure to judge by, and a verdict on each run."""
        measure = main_measure(runs)
        return cls(runs, names(runs), measure, [judge(run, measure) for run in runs])


def title(runs: Sequence[RunRecord]) -> str:
    """The problem, or the problems."""
    problems = list(dict.fromkeys(spaced(run.problem["name"]) for run in runs))
    shown = ", ".join(problems[:3]) + (", ..." if len(problems) > 3 else "")
    return f"{runs[0].label.strip() or shown} on {shown}" if len(runs) == 1 else f"{len(runs)} runs on {shown}"


def lead(runs: Sequence[RunRecord]) -> str:
    """When, and with what."""
    made = sorted({run.versions.get("decibo", "") for run in runs} - {""})
    return f"Finished {max(run.finished for run in runs)[:16].replace('T', ' ')} UTC, decibo {', '.join(made)}."


def cards(view: View) -> str:
    """The first things anybody wants to know."""
    runs = view.runs
    ended = Counter(verdict.title for verdict in view.verdicts)
    told = [("Runs", str(len(runs)), ", ".join(f"{count} {name}" for name, count in ended.items()))]
    if len(runs) == 1:
        told = [("Verdict", view.verdicts[0].title, f"after {plural(runs[0].steps, 'step')}")]
    measure = _telling(view)
    best = _best(view, measure)
    if best:
        name = "At the end" if len(runs) == 1 else "Lowest at the end"
        told += [(f"{name}: {measure}", typeset_number(best[0]), words(str(measure)) if len(runs) == 1 else best[1])]
    found = groups(view.runs)
    first = found[0][0].network
    rho = "" if first["rho"] is None else f", rho = {first['rho']:.4g}"
    more = f"{first['agents']:,} agents, {plural(first['links'], 'link')}{rho}"
    told += (
        [("Network", spaced(first["name"]), more)]
        if len(found) == 1
        else [("Networks", str(len(found)), "drawn below")]
    )
    sent, spent = sum(_bytes(run) for run in runs), sum(run.seconds for run in runs)
    told += [
        (
            "Sent over all links",
            format_bytes(sent),
            f"in {format_seconds(spent)}" + (" altogether" if len(runs) > 1 else ""),
        )
    ]
    return "".join(
        f'<div class="card"><b>{escape(a)}</b><strong>{escape(b)}</strong><span>{escape(c)}</span></div>'
        for a, b, c in told
    )


def summary(view: View) -> str:
    """A row for each run: what it was and how it ended."""
    head: list[Cell] = ["Run", "Network", "Verdict", ("n", "Steps")]
    shown = _shown_measures(view)
    head += [("n", escape(name)) for name in shown]
    rows = []
    for k, (run, label, verdict) in enumerate(zip(view.runs, view.labels, view.verdicts, strict=True)):
        row: list[Cell] = [
            named(k, label) + quiet(run.method["text"] if run.method["text"] != label else ""),
            escape(f"{spaced(run.network['name'])} of {run.network['agents']}"),
            ("verdict", badge(verdict) + f"<p>{escape(verdict.sentence)}</p>"),
            ("n", f"{run.steps:,}"),
        ]
        rows.append(row + [("n", escape(typeset_number(last(run, name)))) for name in shown])
    return table(head, rows)


def costs(view: View) -> str:
    """What a step costs in every currency, and the whole run."""
    columns = {
        "outer_gradients": "gradients of\u00a0f",
        "inner_gradients": "gradients of\u00a0g",
        "hessian_products": "Hessian products",
        "jacobian_products": "Jacobian products",
        "messages": "messages",
        "numbers": "numbers",
        "bytes": "bytes",
    }
    head: list[Cell] = ["Run", *(("n", name) for name in columns.values())]
    head += [("n", f"{name}, in\u00a0all") for name in ("gradients", "bytes", "time")]
    rows = []
    for k, (run, label) in enumerate(zip(view.runs, view.labels, strict=True)):
        each: list[Cell] = [("n", escape(format_setting(run.cost.get(name)))) for name in columns]
        total = run.cost["gradients"] * run.cost["agents"] * run.steps
        each += [("n", format_count(total)), ("n", format_bytes(_bytes(run))), ("n", format_seconds(run.seconds))]
        rows.append([named(k, label), *each])
    return table(head, rows)


def settings(view: View) -> str:
    """The settings of every run; those in which all agree are grey."""
    told = [_settings(run) for run in view.runs]
    own = dict.fromkeys(name for run in view.runs for name in run.method["settings"])
    columns = list(dict.fromkeys(["method", *own, "seed", "steps", "every"]))
    agreed = {name for name in columns if len({each.get(name) for each in told}) == 1 and len(told) > 1}
    rows = [
        [named(k, label), *(("same" if name in agreed else "", escape(each.get(name, NONE))) for name in columns)]
        for k, (label, each) in enumerate(zip(view.labels, told, strict=True))
    ]
    return table(["Run", *map(escape, columns)], rows)


def details(view: View) -> str:
    """Everything else that a folder says, folded."""
    return "".join(_detail(k, run, label) for k, (run, label) in enumerate(zip(view.runs, view.labels, strict=True)))


def _settings(run: RunRecord) -> dict[str, str]:
    own = {name: format_setting(value) for name, value in run.method["settings"].items()}
    every = NONE if run.every is None else f"{run.every:,}"
    return {
        "method": run.method["name"],
        **own,
        "seed": format_setting(run.seed),
        "steps": f"{run.steps:,}",
        "every": every,
    }


def _detail(k: int, run: RunRecord, label: str) -> str:
    problem = run.problem
    size = f", x of {problem.get('x')} and y of {problem.get('y')} numbers" if {"x", "y"} <= set(problem) else ""
    told = {
        "method": run.method["text"],
        "problem": problem["name"] + size,
        "ended": f"{run.status}. {run.message}",
        "precision": run.precision,
        "made with": ", ".join(f"{name} {value}" for name, value in run.versions.items()),
        "finished": run.finished,
        "folder": run.folder.name or str(run.folder),
    }
    listed = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in told.items())
    config = f"<pre>{escape(run.config.strip())}</pre>" if run.config else ""
    return f"<details><summary>{mark(k)}{escape(label)}</summary><dl>{listed}</dl>{config}</details>"


def _shown_measures(view: View) -> list[str]:
    """A few measures for the summary: the main one, how far agents disagree, and the objective."""
    known = {name for run in view.runs for name in run.measures}
    wanted = [view.measure, "phi" if "phi" in known else "outer", "consensus_x"]
    return [name for name in dict.fromkeys(wanted) if name is not None and name in known]


def _telling(view: View) -> str | None:
    """The measure to compare ends by: not the gradient where it was small at the start, or standing still would win."""
    plateau = any(verdict.title == PLATEAU for verdict in view.verdicts)
    other = next((name for name in ("phi", "outer") if all(name in run.history for run in view.runs)), None)
    return other if plateau and other else view.measure


def _best(view: View, measure: str | None) -> tuple[float, str] | None:
    ended = [
        (value, label)
        for run, label in zip(view.runs, view.labels, strict=True)
        if measure and run.status != "diverged" and (value := last(run, measure)) is not None and value == value
    ]
    return min(ended, default=None)


def _bytes(run: RunRecord) -> float:
    return run.cost["bytes"] * run.cost["links"] * run.steps
