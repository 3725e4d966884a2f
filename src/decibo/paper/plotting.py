"""Figures from the tables of a result: several seeds as a median line with a band, safe for the colour-blind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from decibo.paper.result import Result, Table, groups
from decibo.report.figures import STYLE, plotting

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito


def draw(result: Result, folder: Path) -> list[Path]:
    """Write NAME.png and NAME.pdf."""
    from decibo.paper.draw import DRAWINGS

    plt = plotting()
    with plt.rc_context(STYLE):
        figure = DRAWINGS[result.name](plt, result)
        paths = [folder / f"{result.name}.{kind}" for kind in ("png", "pdf")]
        for path in paths:
            extra = {"CreationDate": None} if path.suffix == ".pdf" else {"Software": None}
            figure.savefig(path, metadata=extra)
        plt.close(figure)
    return paths


def bands(
    ax: Any,
    table: Table,
    by: str,
    x: str,
    y: str,
    *,
    label: Callable[[Any], str] = str,
    colours: dict[Any, str] | None = None,
    positive: bool = False,
    styles: tuple[str, ...] = ("-",),
) -> None:
    """For each value of `by` the median over seeds and the range from the 10th to the 90th percentile."""
    for k, ((key,), part) in enumerate(groups(table, by)):
        at, values = over_seeds(part, x, y)
        if positive:
            values = np.maximum(values, 1e-33)
        middle, low, high = spread(values)
        colour = (colours or {}).get(key, COLOURS[k % len(COLOURS)])
        ax.plot(at, middle, styles[k % len(styles)], color=colour, label=label(key))
        ax.fill_between(at, low, high, color=colour, alpha=0.18, linewidth=0)


def over_seeds(part: Table, x: str, y: str) -> tuple[np.ndarray, np.ndarray]:
    """x, and one row of y for each seed."""
    rows = [(one[x], one[y]) for _, one in groups(part, "seed")]
    return rows[0][0], np.stack([values for _, values in rows])


def spread(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Median, 10th and 90th percentile of the rows."""
    some = np.isfinite(rows).any(axis=0)  # where every run diverged there is nothing to draw
    low, middle, high = np.full((3, rows.shape[1]), np.nan)
    low[some], middle[some], high[some] = np.nanpercentile(rows[:, some], (10, 50, 90), axis=0)
    return middle, low, high
