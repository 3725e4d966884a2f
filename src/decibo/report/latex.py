"""A table of runs for a paper, in LaTeX with booktabs."""

from __future__ import annotations

from collections.abc import Sequence

from decibo.errors import InputError
from decibo.formatting import latex_number, latex_plus_minus
from decibo.report.group import grouped
from decibo.report.summary import TARGETS, Folders, all_measures, load, main_measure
from decibo.run.seeds import Spread
from decibo.validate import one_of

COUNTS = {
    "step": "Steps",
    "work": "Work",
    "gradients": "Gradients",
    "bytes": "Bytes",
    "seconds": "Seconds",
}
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
    r"""One row for each run: the final value of a measure, and the cost of reaching fractions of
    its start.

    measure   by default the most informative one: stationarity if recorded
    axis      what to count: "step", "work" (gradients, a product with second derivatives counting
              two), "gradients" alone, "bytes" or "seconds"

    Runs that differ in their seed only share a row: mean and standard deviation (n - 1), and how
    they ended. Numbers to which not all seeds contribute say how many do: those that gave an
    answer, or reached the target.

    The text needs \usepackage{booktabs}.
    """
    groups = grouped(load(folders))
    one_of("axis", axis, COUNTS)
    runs = [run for group in groups for run in group.runs]
    names = all_measures(runs)
    if not names:
        raise InputError("These runs recorded no measure to put into a table.")
    measure = main_measure(runs) if measure is None else measure
    measure = one_of("The recorded measure", measure, names)
    columns = len(targets)
    sizes = {len(group.runs) for group in groups}
    seeds = (
        [f"% mean and standard deviation over {min(sizes)} to {max(sizes)} seeds"]
        if max(sizes) > 1
        else []
    )
    seeds = [line.replace(f"{max(sizes)} to {max(sizes)}", str(max(sizes))) for line in seeds]
    head = [
        r"% \usepackage{booktabs}",
        *seeds,
        rf"\begin{{tabular}}{{ll{'r' * (columns + 1)}}}",
        r"\toprule",
        (
            rf" & & Final & \multicolumn{{{columns}}}{{c}}{{{COUNTS[axis]} to a fraction of the"
            r" start} \\"
        ),
        rf"\cmidrule(lr){{4-{columns + 3}}}",
        " & ".join(["Run", "Status", latex_escape(measure), *map(latex_number, targets)]) + r" \\",
        r"\midrule",
    ]
    rows = []
    for group in groups:
        costs = [group.cost_to(measure, axis, target) for target in targets]
        cells = map(_cell, [group.end(measure) if measure in group.measures else None, *costs])
        names = latex_escape(group.label), latex_escape(group.ended)
        rows.append(" & ".join([*names, *cells]) + r" \\")
    return "\n".join([*head, *rows, r"\bottomrule", r"\end{tabular}", ""])


def latex_escape(text: str) -> str:
    """Text that LaTeX prints as it is; control characters become spaces."""
    return "".join(SPECIAL.get(mark, mark) if mark.isprintable() else " " for mark in text)


def _cell(numbers: Spread | None) -> str:
    """A number; with several seeds its deviation, and how many seeds it is of, unless it is all."""
    if numbers is None or numbers.count == 0:
        return latex_number(None)
    of = "" if numbers.count == numbers.of else f" ({numbers.count}/{numbers.of})"
    alone = numbers.count == 1
    return (
        latex_number(numbers.mean) if alone else latex_plus_minus(numbers.mean, numbers.deviation)
    ) + of
