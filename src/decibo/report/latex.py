"""A table of runs for a paper, in LaTeX with booktabs."""

from __future__ import annotations

from collections.abc import Sequence

from decibo.errors import InputError
from decibo.formatting import latex_number
from decibo.report.summary import (
    TARGETS,
    Folders,
    all_measures,
    cost_per_step,
    distinct_labels,
    last_value,
    load,
    main_measure,
    steps_to_targets,
)
from decibo.runs.folder import RunRecord
from decibo.validate import one_of

COUNTS = {"step": "Steps", "work": "Work", "gradients": "Gradients", "bytes": "Bytes", "seconds": "Seconds"}
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
    folders: Folders,
    *,
    measure: str | None = None,
    axis: str = "step",
    targets: Sequence[float] = TARGETS,
) -> str:
    r"""One row for each run: the final value of a measure, and the cost of reaching fractions of its start.

    measure   by default the most informative one: stationarity if recorded
    axis      what to count: "step", "work" (gradients, a product with second derivatives counting two), "gradients"
              alone, "bytes" or "seconds"

    The text needs \usepackage{booktabs}.
    """
    runs = load(folders)
    one_of("axis", axis, COUNTS)
    measure = _recorded(runs, measure)
    columns = len(targets)
    head = [
        r"% \usepackage{booktabs}",
        rf"\begin{{tabular}}{{ll{'r' * (columns + 1)}}}",
        r"\toprule",
        rf" & & Final & \multicolumn{{{columns}}}{{c}}{{{COUNTS[axis]} to a fraction of the start}} \\",
        rf"\cmidrule(lr){{4-{columns + 3}}}",
        " & ".join(["Run", "Status", latex_escape(measure), *map(latex_number, targets)]) + r" \\",
        r"\midrule",
    ]
    rows = [_row(run, label, measure, axis, targets) for run, label in zip(runs, distinct_labels(runs), strict=True)]
    return "\n".join([*head, *rows, r"\bottomrule", r"\end{tabular}", ""])


def latex_escape(text: str) -> str:
    """Text that LaTeX prints as it is; control characters become spaces."""
    return "".join(SPECIAL.get(mark, mark) if mark.isprintable() else " " for mark in text)


def _recorded(runs: Sequence[RunRecord], measure: str | None) -> str:
    names = all_measures(runs)
    if not names:
        raise InputError("These runs recorded no measure to put into a table.")
    return one_of("The recorded measure", main_measure(runs) if measure is None else measure, names)


def _row(run: RunRecord, label: str, measure: str, axis: str, targets: Sequence[float]) -> str:
    price = cost_per_step(run)[axis]
    steps = steps_to_targets(run, measure, targets)
    spent = [None if step is None or price is None else step * price for step in steps]
    numbers = map(latex_number, [last_value(run, measure), *spent])
    return " & ".join([latex_escape(label), latex_escape(run.status), *numbers]) + r" \\"
