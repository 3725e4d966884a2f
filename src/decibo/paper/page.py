"""docs/reproduction.md: every figure, claim and setting on one page, written from results and never by hand."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from decibo.paper.claims import Verdict
from decibo.paper.report import as_dict
from decibo.paper.result import Result, Table

if TYPE_CHECKING:
    from decibo.paper.command import Done

COMMAND = "decibo reproduce all --out out/reproduction --docs docs"
GAPS = (
    "**W** is not specified in any experiment. Metropolis weights are used here; floors depend on the choice.",
    "**Where runs start** is not specified, and in Table I it decides which columns fail.",
    "**Step sizes of figures 2, 3 and 4**, the graphs of figure 2 and the splits of figure 3 are not specified.",
    "**How features are scaled** is not specified. Table I uses pixels between 0 and 1.",
    '"Spectral gap" in the experiments is rho = ||W - 11\'/m||^2; the gap is 1 - rho.',
    "In the algorithm box `w_ij z_i`, `w_ij y_i`, `w_ij x_i` mean `z_j`, `y_j`, `x_j`; the compact form is right.",
    "After Corollary 1, b_f is the heterogeneity of the outer and b_g that of the inner level.",
    "`u_g` in the condition on alpha is `mu_g`.",
    "`d_4` is printed with p_3 and needs p_2; C_2 and C_3 have two terms exchanged.",
    "The Lipschitz constant of grad Phi prints L_g2 where L_g1 is needed.",
    "In Table I the printed consensus error of z is smaller in column 5 than in column 8, against the text.",
)


def write(done: Sequence[Done], docs: Path, quick: bool) -> Path:
    """The page and its figures; a figure or page is replaced as a whole or not at all."""
    docs.mkdir(parents=True, exist_ok=True)
    (docs / "figures").mkdir(exist_ok=True)
    for one in done:
        _replace(docs / "figures" / f"{one.result.name}.png", (one.folder / f"{one.result.name}.png").read_bytes())
    path = docs / "reproduction.md"
    _replace(path, render(done, quick).encode())
    return path


def render(done: Sequence[Done], quick: bool) -> str:
    """The text of the page."""
    total = Counter(claim.verdict for one in done for claim in one.result.claims)
    seconds = sum(one.seconds for one in done)
    command = COMMAND + (" --quick" if quick else "")
    lines = [
        "# The paper, reproduced",
        "",
        f"Written by `{command}` in {max(1, round(seconds / 60))} minutes; do not edit. The same seeds give the same "
        "numbers, wall times aside. One experiment alone: `decibo reproduce table1`.",
        "",
        f"{sum(total.values())} claims: {', '.join(f'{total[verdict]} {_plural(verdict)}' for verdict in Verdict)}.",
        "",
        "| experiment | holds | does not hold | cannot be told |",
        "|---|---|---|---|",
    ]
    for one in done:
        found = Counter(claim.verdict for claim in one.result.claims)
        lines.append(
            f"| [{one.result.title}](#{_anchor(one.result.title)}) | "
            + " | ".join(str(found[v]) for v in Verdict)
            + " |"
        )
    lines += [
        "",
        "A claim about several seeds holds if it does in at least 4 of 5 of them (3 of 5 for the pattern of",
        "Table I), does not hold in at most 1 of 5, and cannot be told in between.",
        "",
    ]
    for one in done:
        lines += _section(one.result)
    lines += ["## What the paper leaves open or prints wrongly", "", *(f"* {gap}" for gap in GAPS), ""]
    return "\n".join(lines)  # fmt: skip


def _section(r: Result) -> list[str]:
    lines = [f"## {r.title}", "", f"Data: {r.data}.", "", f"![{r.title}](figures/{r.name}.png)", ""]
    lines += ["| the paper says | measured | verdict |", "|---|---|---|"]
    for claim in r.claims:
        measured = claim.measured + (f" ({claim.note})" if claim.note else "")
        lines.append(f"| {_cell(claim.paper)} | {_cell(measured)} | {claim.verdict} |")
    if r.name == "table1":
        lines += ["", *_table(r.tables["columns"])]
    if r.name == "fig4":
        lines += ["", "What a step of one agent costs:", "", *_table(r.tables["cost"])]
    lines += ["", *(f"* {_cell(note)}" for note in r.notes), "", "<details><summary>Settings</summary>", "", "```json"]
    return [*lines, json.dumps(as_dict(r)["settings"], indent=2), "```", "", "</details>", ""]


def _table(table: Table) -> list[str]:
    head = [name.replace("_", " ") for name in table]
    rows = zip(*(map(_number, values.tolist()) for values in table.values()), strict=True)
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(row)} |" for row in rows)]


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if np.isfinite(value) else "N.A."
    return str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


def _plural(verdict: Verdict) -> str:
    return {Verdict.holds: "hold", Verdict.fails: "do not hold", Verdict.open: "cannot be told"}[verdict]


def _anchor(title: str) -> str:
    return "".join(c for c in title.lower() if c.isalnum() or c in " -").replace(" ", "-")


def _replace(path: Path, content: bytes) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        (Path(folder) / path.name).write_bytes(content)
        shutil.move(Path(folder) / path.name, path)
