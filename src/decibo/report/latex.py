"""A table of runs for a paper, in LaTeX with booktabs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from decibo.errors import InputError
from decibo.formatting import latex_number, latex_plus_minus
from decibo.report.group import best, grouped
from decibo.report.summary import TARGETS, Folders, all_measures, is_maximised, load, main_measure
from decibo.run.repeat import Spread, is_minimised
from decibo.validate import one_of

COUNTS = ("step", "work", "gradients", "bytes", "seconds")
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


SYMBOLS = {
    "stationarity": r"$\|\nabla\Phi\|^2$",
    "distance_x": r"$\|\bar x - x^*\|^2$",
    "distance_y": r"$\|\bar y - y^*\|^2$",
    "inner_error": r"$\|\bar y - y^*(\bar x)\|^2$",
    "phi": r"$\Phi(\bar x)$",
}


def latex_table(
    folders: Folders,
    *,
    measure: str | None = None,
    axis: str = "step",
    targets: Sequence[float] = TARGETS,
    order: Sequence[str] = (),
) -> str:
    r"""One row for each run: the final value of a measure, and the cost of reaching fractions of
    its start. The best of a column is bold, and targets that no run reached have no column.

    measure   by default the most informative one: stationarity if recorded
    axis      what to count: "step", "work" (gradients, a product with second derivatives counting
              two), "gradients" alone, "bytes" or "seconds"
    order     labels of the runs that come first

    Runs that differ in their seed only share a row: mean and standard deviation (n - 1), and how
    they ended. Numbers to which not all seeds contribute say how many do: those that gave an
    answer, or reached the target; they are not the best unless all rows are such.

    The text needs \usepackage{booktabs}.
    """
    groups = grouped(load(folders), order)
    one_of("axis", axis, COUNTS)
    runs = [run for group in groups for run in group.runs]
    names = all_measures(runs)
    if not names:
        raise InputError("These runs recorded no measure to put into a table.")
    measure = main_measure(runs) if measure is None else measure
    measure = one_of("The recorded measure", measure, names)

    # A column: its head, what it holds for each group, and whose numbers are the best.
    none = Spread(math.nan, math.nan, 0, 1)
    ends = [group.end(measure) if measure in group.measures else none for group in groups]
    comparable = is_maximised(measure) or is_minimised(measure)
    bold = best(groups, ends, is_maximised(measure)) if comparable else []
    columns = [(SYMBOLS.get(measure, latex_escape(measure)), ends, bold)]
    for target in targets:
        spent = [group.cost_to(measure, axis, target) for group in groups]
        if any(cost.count for cost in spent):
            digits, power = f"{target:.1e}".split("e")
            head = f"$10^{{{int(power)}}}$" if digits == "1.0" else latex_number(target)
            columns.append((head, spent, best(groups, spent)))
    reached = len(columns) - 1
    sizes = sorted({len(group.runs) for group in groups})
    seeds = f"{sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else str(sizes[-1])
    unit = "Steps" if axis == "step" else axis.capitalize()
    over = rf"\multicolumn{{{reached}}}{{c}}{{{unit} to a fraction of the start}}"
    lines = [
        r"% \usepackage{booktabs}",
        *([f"% mean and standard deviation over {seeds} seeds"] if sizes[-1] > 1 else []),
        rf"\begin{{tabular}}{{ll{'r' * len(columns)}}}",
        r"\toprule",
        *([rf" & & Final & {over} \\", rf"\cmidrule(lr){{4-{reached + 3}}}"] if reached else []),
        " & ".join(["Run", "Status", *(head for head, _, _ in columns)]) + r" \\",
        r"\midrule",
    ]
    for k, group in enumerate(groups):
        cells = [_cell(numbers[k], k in bold) for _, numbers, bold in columns]
        row = [latex_escape(group.label), latex_escape(group.ended), *cells]
        lines.append(" & ".join(row) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def latex_escape(text: str) -> str:
    """Text that LaTeX prints as it is; control characters become spaces."""
    return "".join(SPECIAL.get(mark, mark) if mark.isprintable() else " " for mark in text)


def _cell(numbers: Spread, bold: bool) -> str:
    """A number; with several seeds its deviation, and how many seeds it is of, unless it is all."""
    if numbers.count == 0:
        return latex_number(None)
    of = "" if numbers.count == numbers.of else f" ({numbers.count}/{numbers.of})"
    text = latex_number(numbers.mean)
    if numbers.count > 1:
        text = latex_plus_minus(numbers.mean, numbers.deviation)
    return (rf"$\mathbf{{{text.strip('$')}}}$" if bold and text[0] == "$" else text) + of
