"""Values as text: numbers, bytes and times as people read them, and everything as JSON or CSV.

`format_number` is for the terminal, `typeset_number` for a page and `latex_number` for a paper.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TypeAlias

import numpy as np
from jax.core import Tracer

NONE = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"
PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"


def format_number(value: object) -> str:
    """A value in a few characters: 1,200 or 0.0312 or 4.56e-08; nothing for None."""
    if value is None:
        return ""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | np.integer):
        return f"{value:,}"
    array = np.asarray(value, dtype=float)
    if array.ndim:
        return f"{array.size} numbers"
    number = float(array)
    return f"{number:.2e}" if number and not 1e-2 <= abs(number) < 1e5 else f"{number:.4g}"


def typeset_number(value: float | None) -> str:
    """A number with a real minus sign, short, in powers of ten where it is small or large; a dash
    for none."""
    if value is None or math.isnan(value):
        return NONE
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e5:
        return f"{value:.4g}".replace("-", MINUS)
    digits, power = f"{value:.2e}".split("e")
    return f"{digits}e{int(power)}".replace("-", MINUS)


def latex_number(value: float | None) -> str:
    r"""A number for LaTeX: integers in full, others as 1.2 \times 10^{-5}; a dash for none."""
    if value is None or math.isnan(value):
        return "--"
    if math.isinf(value):
        return r"$\infty$" if value > 0 else r"$-\infty$"
    if value == int(value) and abs(value) < 1e6:
        return f"${int(value):,}$".replace(",", "{,}")
    if 1e-2 <= abs(value) < 1e4:
        return f"${value:.3g}$" if abs(value) < 1e3 else f"${value:,.0f}$".replace(",", "{,}")
    digits, power = f"{value:.1e}".split("e")
    return (
        f"$10^{{{int(power)}}}$" if digits == "1.0" else rf"${digits} \times 10^{{{int(power)}}}$"
    )


def plus_minus(mean: float, deviation: float) -> str:
    """A mean with its deviation, to the second digit of the deviation: 0.523 ± 0.031, (1.23 ±
    0.32)e-5."""
    if not (math.isfinite(mean) and math.isfinite(deviation)) or _is_tiny(deviation, mean):
        return f"{typeset_number(mean)} ± {typeset_number(deviation)}"
    power, digits = _to_second_digit(mean, deviation)
    both = " ± ".join(digits)
    return (both if power == 0 else f"({both})e{power}").replace("-", MINUS)


def latex_plus_minus(mean: float, deviation: float) -> str:
    r"""The same for LaTeX: $0.523 \pm 0.031$, $(1.23 \pm 0.32) \times 10^{-5}$."""
    if not (math.isfinite(mean) and math.isfinite(deviation)) or _is_tiny(deviation, mean):
        return rf"{latex_number(mean).rstrip('$')} \pm {latex_number(deviation).lstrip('$')}"
    power, digits = _to_second_digit(mean, deviation)
    thousands = [f"{float(number):,.0f}" if "." not in number else number for number in digits]
    both = r" \pm ".join(thousands).replace(",", "{,}")
    return f"${both}$" if power == 0 else rf"$({both}) \times 10^{{{power}}}$"


def _is_tiny(deviation: float, mean: float) -> bool:
    """Whether writing both numbers with the same digits would take too many."""
    return deviation < 1e-4 * abs(mean)


def _to_second_digit(mean: float, deviation: float) -> tuple[int, list[str]]:
    """A common power of ten, and both numbers divided by it, to the second digit of the
    deviation."""
    size = max(abs(mean), abs(deviation))
    power = 0 if size == 0 or 1e-2 <= size < 1e5 else math.floor(math.log10(size))
    scaled = [number / 10.0**power for number in (mean, deviation)]
    places = max(0, 1 - math.floor(math.log10(scaled[1]))) if deviation else 0
    return power, [f"{number:.{places}f}" for number in scaled]


def format_count(value: float) -> str:
    """A count: in full up to a hundred thousand, then with a prefix."""
    return f"{value:,.0f}" if abs(value) < 1e5 else _prefixed(value).replace(" k", " thousand")


def format_bytes(value: float) -> str:
    """A number of bytes, in powers of a thousand."""
    return f"{value:.0f} B" if abs(value) < 999.5 else _prefixed(value) + "B"


def format_seconds(seconds: float) -> str:
    """A duration, in the unit that suits it."""
    rounded = float(f"{seconds:.3g}")
    if rounded < 1:
        return f"{1e3 * rounded:.3g} ms"
    if rounded < 120:
        return f"{rounded:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def format_setting(value: object, digits: int = 6, *, literal: bool = False) -> str:
    """A setting of a method, an option of a problem or an entry of a configuration; functions by
    their name.

    With `literal`, True and None appear as in Python code; otherwise as yes and a dash.
    """
    if isinstance(value, np.ndarray | np.generic) or (
        hasattr(value, "ndim") and not isinstance(value, Tracer)
    ):
        value = np.asarray(value).tolist()
    if isinstance(value, bool) and not literal:
        return "yes" if value else "no"
    if value is None and not literal:
        return NONE
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    if isinstance(value, Mapping):
        return ", ".join(
            f"{name}={format_setting(item, digits, literal=literal)}"
            for name, item in value.items()
        )
    if isinstance(value, list | tuple):
        return ", ".join(format_setting(item, digits, literal=literal) for item in value)
    return _name(value) if callable(value) else str(value)


def format_array(values: object) -> str:
    """A vector on one line, its middle left out if it is long."""
    text = np.array2string(
        np.asarray(values), precision=4, threshold=8, edgeitems=3, separator=", "
    )
    return " ".join(text.split())


def plural(count: int, word: str) -> str:
    """The count with its noun: 3 runs, 1 run."""
    return f"{count:,} {word}" + ("" if count == 1 else "s")


def distinct(
    names: Iterable[str], form: str = "{} ({})", *, ignore_case: bool = False
) -> list[str]:
    """The names, numbered where one appears again: a, a (2), a (3)."""
    fold = str.casefold if ignore_case else str
    taken: set[str] = set()
    found = []
    for name in names:
        candidate = name
        count = 2
        while fold(candidate) in taken:
            candidate = form.format(name, count)
            count += 1
        taken.add(fold(candidate))
        found.append(candidate)
    return found


def listed(words: Sequence[str]) -> str:
    """Words as a sentence lists them: a, b and c."""
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def to_json(value: object, *, nonfinite_as_text: bool = False) -> Json:
    """The value as JSON can hold it: arrays become lists, functions their name, other objects their
    text.

    JSON has no word for numbers that are not finite: they become None, or text such as "inf" if
    that is asked for.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(float(value)) if nonfinite_as_text else None
    if isinstance(value, Mapping):
        return {
            str(name): to_json(item, nonfinite_as_text=nonfinite_as_text)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json(item, nonfinite_as_text=nonfinite_as_text) for item in value]
    if hasattr(value, "tolist"):  # numpy, jax, pandas
        return to_json(np.asarray(value).tolist(), nonfinite_as_text=nonfinite_as_text)
    return _name(value) if callable(value) else str(value)


def to_csv(columns: Mapping[str, Iterable[object]]) -> str:
    """Columns of equal length as CSV with a header; numbers in full, so that reading them gives the
    same numbers."""
    out = io.StringIO()
    broken = any(mark in name for name in columns for mark in "\r\n")
    header = csv.writer(
        out, lineterminator="\n", quoting=csv.QUOTE_ALL if broken else csv.QUOTE_MINIMAL
    )
    header.writerow(columns)
    lists = [
        column.tolist() if isinstance(column, np.ndarray) else column for column in columns.values()
    ]
    csv.writer(out, lineterminator="\n").writerows(zip(*lists, strict=True))
    return out.getvalue()


def from_csv(text: str) -> dict[str, np.ndarray]:
    """The columns of a CSV file that holds numbers: integers, booleans or floats.

    Raises ValueError, with the reason, if the text is not such a file.
    """
    rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    if not rows:
        raise ValueError("it is empty")
    if any(len(row) != len(rows[0]) for row in rows):
        raise ValueError("its rows are not equally long")
    if len(set(rows[0])) != len(rows[0]):
        raise ValueError("two of its columns have the same name")
    return {name: _column([row[k] for row in rows[1:]]) for k, name in enumerate(rows[0])}


def _column(cells: list[str]) -> np.ndarray:
    if cells and all(cell in ("True", "False") for cell in cells):
        return np.array([cell == "True" for cell in cells])
    try:
        return np.array([int(cell) for cell in cells], dtype=np.int64)
    except (ValueError, OverflowError):
        return np.array([float(cell) for cell in cells])


def _prefixed(value: float) -> str:
    rounded = float(f"{value:.3g}")
    size, prefix = next((entry for entry in PREFIXES if abs(rounded) >= entry[0]), (1.0, ""))
    return f"{rounded / size:.3g} {prefix}"


def _name(function: object) -> str:
    """The name of a function; where some of its arguments are fixed, as those of a schedule, with
    these numbers."""
    if not isinstance(function, partial):
        return getattr(function, "__name__", None) or type(function).__name__
    name = _name(function.func).lstrip("_")
    fixed = [*function.args, *function.keywords.values()]
    if not fixed or any(map(np.ndim, fixed)):
        return name
    parts = [
        format_setting(value, literal=True) for value in (function.args, function.keywords) if value
    ]
    return f"{name}({', '.join(parts)})"


def in_notebook(shown: object) -> str | None:
    """`_repr_html_` of whatever has a page: a small table, and a drawing. It is made above all
    rooms, so it is looked up by its name when a notebook asks."""
    try:
        html = import_module("decibo.report.notebook").html
    except ImportError:  # only the core is installed: a notebook shows the text
        return None
    return html(shown)
