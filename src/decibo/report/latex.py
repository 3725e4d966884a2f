"""A table of runs for a paper, in LaTeX with booktabs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from decibo.errors import InputError
from decibo.formatting import latex_number
from decibo.report.summary import AXES, TARGETS, all_measures, last, load, main_measure, names, per_step, reached
from decibo.runs.folder import RunRecord

SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    **{mark: "\\" + mark for mark in "&%$#_{}"},
}


def latex_table(
    folders: str | Path | Sequence[str | Path],
    *,
    measure: str | None = None,
    axis: str = "step",
    targets: Sequence[float] = TARGETS,
) -> str:
    r"""One row a run: where the measure ended, and what it took to bring it to fractions of its start.

    measure   by default the one that says most: stationarity if recorded
    axis      what to count: "step", "gradients", "bytes" or "seconds"

    The text needs \usepackage{booktabs}.
    """
    runs = load(folders)
    measure = _checked(runs, measure, axis)
    count = {"step": "Steps", "gradients": "Gradients", "bytes": "Bytes", "seconds": "Seconds"}[axis]
    columns = len(targets)
    head = [
        r"% \usepackage{booktabs}",
        rf"\begin{{tabular}}{{ll{'r' * (columns + 1)}}}",
        r"\toprule",
        rf" & & Final & \multicolumn{{{columns}}}{{c}}{{{count} to a fraction of the start}} \\",
        rf"\cmidrule(lr){{4-{columns + 3}}}",
        " & ".join(["Run", "Status", escaped(measure), *map(latex_number, targets)]) + r" \\",
        r"\midrule",
    ]
    rows = [_row(run, name, measure, axis, targets) for run, name in zip(runs, names(runs), strict=True)]
    return "\n".join([*head, *rows, r"\bottomrule", r"\end{tabular}", ""])


def escaped(text: str) -> str:
    """Text that LaTeX prints as it is; control characters become spaces."""
    return "".join(SPECIAL.get(mark, mark) if mark.isprintable() else " " for mark in text)


def _checked(runs: Sequence[RunRecord], measure: str | None, axis: str) -> str:
    known = all_measures(runs)
    chosen = main_measure(runs) if measure is None else measure
    if chosen not in known:
        rule = f"recorded are {', '.join(known)}" if known else "these runs recorded none"
        raise InputError(f"measure {chosen!r}", rule, "Use one of these.")
    if axis not in AXES:
        raise InputError(f"axis = {axis!r}", f"it must be one of {', '.join(AXES)}", "Use step.")
    return chosen


def _row(run: RunRecord, name: str, measure: str, axis: str, targets: Sequence[float]) -> str:
    price: Any = per_step(run)[axis]
    steps = reached(run, measure, targets)
    spent = [None if step is None or price is None else step * price for step in steps]
    return (
        " & ".join([escaped(name), escaped(run.status), latex_number(last(run, measure)), *map(latex_number, spent)])
        + r" \\"
    )
