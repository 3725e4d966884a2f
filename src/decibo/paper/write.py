"""Results on disk: CSV, JSON and figures of each experiment, and docs/reproduction.md, a page about all of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from decibo.files import atomic_write, replace_folder
from decibo.formatting import to_csv, to_json
from decibo.paper.result import Outcome, Result, Table, Verdict

COMMAND = "decibo reproduce all --out out/reproduction --docs docs"
PLURAL = {Verdict.holds: "hold", Verdict.fails: "do not hold", Verdict.open: "are undecided"}
# Tables that are shown on the page, and the sentence above them.
SHOWN = {"table1": ("columns", ""), "fig4": ("cost", "What a step of one agent costs:")}


def write(result: Result, folder: Path, draw: Callable[[Result, Path], object] | None = None) -> Path:
    """Write everything about a result to folder/NAME, which is replaced as a whole; returns that folder."""
    target = folder / result.name
    with replace_folder(target) as draft:
        for name, table in result.tables.items():
            (draft / f"{name}.csv").write_text(to_csv(table))
        (draft / f"{result.name}.json").write_text(json.dumps(as_dict(result), indent=2) + "\n")
        if draw is not None:
            draw(result, draft)
    return target


def as_dict(result: Result) -> dict[str, object]:
    """A result as plain Python objects, without the numbers of its tables."""
    return {
        "name": result.name,
        "title": result.title,
        "data": result.data,
        "claims": [asdict(claim) | {"verdict": str(claim.verdict)} for claim in result.claims],
        "settings": to_json(result.settings),
        "notes": list(result.notes),
        "tables": [f"{name}.csv" for name in result.tables],
    }


def write_page(outcomes: Sequence[Outcome], docs: Path, quick: bool) -> Path:
    """Write the page and copy its figures."""
    for outcome in outcomes:
        name = f"{outcome.result.name}.png"
        atomic_write(docs / "figures" / name, (outcome.folder / name).read_bytes())
    return atomic_write(docs / "reproduction.md", page(outcomes, quick))


def page(outcomes: Sequence[Outcome], quick: bool) -> str:
    """The text of the page."""
    total = Counter(claim.verdict for outcome in outcomes for claim in outcome.result.claims)
    seconds = sum(outcome.seconds for outcome in outcomes)
    command = COMMAND + (" --quick" if quick else "")
    lines = [
        "# The paper, reproduced",
        "",
        f"Written by `{command}` in {max(1, round(seconds / 60))} minutes; do not edit. The same seeds give the same "
        "numbers, wall times aside. One experiment alone: `decibo reproduce table1`.",
        "",
        f"{sum(total.values())} claims: {', '.join(f'{total[verdict]} {PLURAL[verdict]}' for verdict in Verdict)}.",
        "",
        "| experiment | holds | does not hold | undecided |",
        "|---|---|---|---|",
    ]
    for outcome in outcomes:
        title = outcome.result.title
        counts = Counter(claim.verdict for claim in outcome.result.claims)
        cells = " | ".join(str(counts[verdict]) for verdict in Verdict)
        lines.append(f"| [{title}](#{_anchor(title)}) | {cells} |")
    lines += [
        "",
        "A claim about several seeds holds if it does for at least 4 of 5 of them (3 of 5 for the pattern of",
        "Table I), does not hold if it does for at most 1 of 5, and is undecided in between.",
        "What the paper leaves open or misprints is listed in the [errata](explanation/errata.md).",
        "",
    ]
    for outcome in outcomes:
        lines += _section(outcome.result)
    return "\n".join(lines)


def _section(result: Result) -> list[str]:
    lines = [
        f"## {result.title}",
        "",
        f"Data: {result.data}.",
        "",
        f"![{result.title}](figures/{result.name}.png)",
        "",
        "| the paper says | measured | verdict |",
        "|---|---|---|",
    ]
    for claim in result.claims:
        measured = claim.measured + (f" ({claim.note})" if claim.note else "")
        lines.append(f"| {_cell(claim.paper)} | {_cell(measured)} | {claim.verdict} |")
    if result.name in SHOWN:
        table, sentence = SHOWN[result.name]
        lines += ["", *([sentence, ""] if sentence else []), *_table(result.tables[table])]
    lines += ["", *(f"* {_cell(note)}" for note in result.notes)]
    lines += ["", "<details><summary>Settings</summary>", "", "```json"]
    return [*lines, json.dumps(to_json(result.settings), indent=2), "```", "", "</details>", ""]


def _table(table: Table) -> list[str]:
    head = [name.replace("_", " ") for name in table]
    rows = zip(*(map(_number, values.tolist()) for values in table.values()), strict=True)
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(row)} |" for row in rows)]


def _number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if np.isfinite(value) else "N.A."
    return str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


def _anchor(title: str) -> str:
    return "".join(c for c in title.lower() if c.isalnum() or c in " -").replace(" ", "-")
