"""What the paper's figures share: colours safe for the colour-blind, and several seeds as a median
with a band."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from decibo.errors import missing
from decibo.files import atomic_write
from decibo.report.figures import STYLE, saved
from decibo.run.repeat import Course
from decibo.run.repeat import band as band_of
from decibo.run.solution import Status
from studies.paper.experiment import Result
from studies.paper.tables import Table, groups

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito
LINES = ("-", "--", "-.", ":")


def check_installed() -> None:
    """Raise now, and not after an hour, if matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise missing("matplotlib", "Drawing the paper's figures", "plot") from error


def save(draw: Callable[[Result], Figure], result: Result, folder: Path) -> list[Path]:
    """Draw a result and write NAME.png and NAME.pdf."""
    import matplotlib

    with matplotlib.rc_context(STYLE):  # type: ignore[arg-type]
        figure = draw(result)
        return [
            atomic_write(folder / f"{result.name}.{kind}", saved(figure, kind))
            for kind in ("png", "pdf")
        ]


def bands(
    ax: Axes,
    table: Table,
    by: str,
    x: str,
    y: str,
    *,
    label: Callable[..., str] = str,
    positive: bool = False,
    lines: Sequence[str] = ("-",),
) -> None:
    """For each value of `by` the median over seeds and the range from the 10th to the 90th
    percentile."""
    for k, ((key,), part) in enumerate(groups(table, by)):
        steps, values = over_seeds(part, x, y)
        if positive:
            values = np.maximum(values, 1e-33)
        band(ax, steps, values, COLOURS[k % len(COLOURS)], label(key), lines[k % len(lines)])


def band(
    ax: Axes,
    x: np.ndarray,
    rows: np.ndarray,
    colour: str,
    label: str | None,
    line: object = "-",
    alpha: float = 0.18,
) -> None:
    """The median of the rows as a line, with the range from the 10th to the 90th percentile unless
    alpha is 0."""
    courses = [Course(x, row, Status.done) for row in rows]
    # not minimised: where every run diverged there is nothing to draw
    step, low, middle, high = band_of(courses, "deciles", minimised=False)
    ax.plot(step, middle, linestyle=line, color=colour, label=label)  # type: ignore[arg-type]
    if alpha:
        ax.fill_between(step, low, high, color=colour, alpha=alpha, linewidth=0)


def over_seeds(part: Table, x: str, y: str) -> tuple[np.ndarray, np.ndarray]:
    """x, and a row of y for each seed."""
    each = [seed for _, seed in groups(part, "seed")]
    return each[0][x], np.stack([seed[y] for seed in each])
