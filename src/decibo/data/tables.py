"""Tables on disk: CSV and parquet files with a silo column, or one file for each silo.

The first line of a CSV file names the columns. A column whose cells are all numbers, or missing,
holds numbers; any other one holds text. A column with both is refused, since a stray word in a
column of numbers is nearly always a mistake; errors name the file, the line and the column.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from decibo.data.dataset import Dataset, hold_out, numbered
from decibo.data.encode import Encoding, column_of
from decibo.errors import InputError, first_line, short
from decibo.errors import missing as missing_package
from decibo.files import read_file
from decibo.validate import a_path

if TYPE_CHECKING:
    from pandas import DataFrame

Source = str | Path | Sequence[str | Path] | Mapping[str, str | Path]
MISSING = ("", "?", "NA", "N/A", "nan", "NaN", "null", "None")


class Table(NamedTuple):
    """Rows of one or more silos: `X, y, groups = read_table(...)`.

    X        the columns, as a data frame: columns of numbers and of text, NaN where a value is
             missing
    y        the labels or targets, None if no column was named
    groups   the silo of each row
    """

    X: DataFrame
    y: np.ndarray | None
    groups: np.ndarray

    def __repr__(self) -> str:
        names, counts = np.unique(self.groups, return_counts=True)
        silos = ", ".join(f"{name} {count}" for name, count in zip(names, counts, strict=True))
        columns = ", ".join(map(str, self.X.columns))
        return f"Table({len(self.groups)} rows: {short(silos)}; columns: {short(columns)})"

    def dataset(self, test: float = 0.2, seed: int = 0, name: str = "table") -> Dataset:
        """A `Dataset` for the ready-made problems: encoded features, and labels +1 and -1 or
        integers from 0.

        A share of each class is for testing; the encoding is that of the training rows.
        """
        if self.y is None:
            raise InputError(
                "A dataset needs labels, but no column was named.", "Pass label= to read_table."
            )
        signs = numbered(self.y, np.unique(self.y))
        train, labels, held, test_labels = hold_out(np.arange(len(signs)), signs, test, seed)
        encoding = Encoding.fit(self.X.iloc[train], share=lambda value: [value])
        return Dataset(
            encoding(self.X.iloc[train]),
            labels,
            encoding(self.X.iloc[held]),
            test_labels,
            name,
            "from files",
            self.groups[train],
            self.groups[held],
            encoding.features,
        )


def read_table(
    source: Source,
    label: str | None = None,
    *,
    silo: str | None = None,
    missing: Iterable[str] = (),
    categories: Iterable[str] = (),
    columns: Iterable[str] | None = None,
    drop: Iterable[str] = (),
) -> Table:
    """CSV or parquet files as columns, labels and the silo of each row.

    source       a file; several, each of which is a silo, called by its name without ending; or
                 {silo: file}
    label        the column to predict; every row must have it
    silo         the column that names the silo of each row, if there is one
    missing      words that stand for a missing value, besides "", ?, NA, N/A, nan, null and None
    categories   columns of codes: numbers that are to be read as text
    columns      the columns to read besides label and silo; all if left out
    drop         columns to leave out; a file need not have them
    """
    files = _files(source)
    try:
        import pandas
    except ImportError as error:
        raise missing_package("pandas", "Reading tables", "table") from error
    absent = frozenset(MISSING) | frozenset(missing)
    coded = frozenset(categories)
    left_out = frozenset(drop)
    named = [name for name in (label, silo) if name is not None]
    wanted = None if columns is None else [*columns, *named]
    found: set[str] = set()
    frames: list[DataFrame] = []
    before: dict[str, np.ndarray] = {}
    groups: list[object] = []
    holds: dict[str, tuple[Path, bool]] = {}  # the first file with values; whether they are text
    for group, path in files.items():
        raw = _parquet(path, pandas) if path.suffix in (".parquet", ".pq") else _csv(path)
        found |= set(raw)
        for column in (*coded, *(wanted or named)):
            if column not in raw:
                raise InputError(
                    f"{path} has no column {column!r}. It has {short(', '.join(raw))}."
                )
        line = lambda row, path=path: f"{path}, line {row + 2}"
        read: dict[str, np.ndarray] = {}
        for name in raw if wanted is None else wanted:
            if name in left_out:
                continue
            cells = [None if isinstance(c, str) and c in absent else c for c in raw[name]]
            if name in coded or name == silo:  # in the words of the file; NaN is not itself
                text = [None if cell is None or cell != cell else str(cell) for cell in cells]
                read[name] = np.array(text, dtype=object)
            else:
                read[name] = column_of(name, [_number(cell) for cell in cells], line)
        for name in named:
            gaps = np.flatnonzero(pandas.isna(read[name]))
            if len(gaps):
                raise InputError(
                    f"Every row must have a value in column {name!r}, but {line(gaps[0])} has none"
                    f" ({len(gaps)} such rows)."
                )

        # The files must have the same columns, each with numbers in all files or text in all.
        first = next(iter(files.values()))
        if frames and (odd := sorted({*read} ^ {*before})):
            raise InputError(
                f"{first} and {path} must have the same columns, but differ in {short(odd)}.",
                "Leave columns out with drop=, or choose some with columns=.",
            )
        before = read
        for name, column in read.items():
            if pandas.isna(column).all():
                continue
            is_text = column.dtype == object
            there, was_text = holds.setdefault(name, (path, is_text))
            if was_text != is_text:
                text, other = (path, there) if is_text else (there, path)
                raise InputError(
                    f"Column {name!r} holds text in {text} and numbers in {other}.",
                    f"If the numbers are codes, pass categories=[{name!r}].",
                )
        frames.append(pandas.DataFrame(read))
        groups += [group] * len(frames[-1]) if silo is None else read[silo].tolist()
    if unknown := sorted(left_out - found):
        raise InputError(f"drop names {unknown[0]!r}, but no file has such a column.")
    whole = pandas.concat(frames, ignore_index=True)
    if silo is not None:
        whole.pop(silo)
    y = None
    if label is not None:  # words, integers or floats
        y = whole.pop(label).to_numpy()
        if y.dtype.kind not in "biuf":
            y = np.array(y.tolist())
        elif (y == np.round(y)).all():
            y = y.astype(np.int64)
    return Table(whole, y, np.array(groups))


def _files(source: Source) -> dict[str, Path]:
    """The file of each silo."""
    if isinstance(source, Mapping):
        return {str(name): a_path(f"The file of {name}", path) for name, path in source.items()}
    several = source if isinstance(source, Iterable) and not isinstance(source, str) else [source]
    paths = [a_path("source", path) for path in several]
    if not paths:
        raise InputError("There must be at least one file, but no path was passed.")
    names = [path.stem for path in paths]
    if len(set(names)) < len(names):
        raise InputError(
            "Each file is named after its silo, but two files have the same name:"
            f" {short(', '.join(names))}.",
            "Pass a dictionary {silo: file}.",
        )
    return dict(zip(names, paths, strict=True))


def _csv(path: Path) -> dict[str, list[object]]:
    try:
        text = read_file(path).decode("utf-8-sig")
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read as CSV in UTF-8: {first_line(error)}.") from error
    if not rows or not any(rows[1:]):
        raise InputError(f"{path} has no rows below its line of names.")
    head = [name.strip() for name in rows[0]]
    doubled = [name for name in head if head.count(name) > 1]
    if doubled:
        raise InputError(f"{path} has two columns called {doubled[0]!r}.")
    for line, row in enumerate(rows[1:], start=2):
        if len(row) != len(head):
            raise InputError(
                f"{path}, line {line} has {len(row)} cells, but the first line names {len(head)}"
                " columns."
            )
    return {name: [row[k].strip() for row in rows[1:]] for k, name in enumerate(head)}


def _parquet(path: Path, pandas: ModuleType) -> dict[str, list[object]]:
    try:
        frame = pandas.read_parquet(path)
    except ImportError as error:
        raise missing_package("pyarrow", "Reading parquet files", "table") from error
    except OSError as error:
        why = error.strerror or first_line(error)
        raise InputError(f"{path} cannot be read: {why}.") from error
    except Exception as error:  # whatever pyarrow finds wrong with the file
        raise InputError(f"{path} cannot be read as parquet: {first_line(error)}") from error
    if frame.empty:
        raise InputError(f"{path} has no rows.")
    return {str(name): frame[name].astype(object).tolist() for name in frame.columns}


def _number(cell: object) -> object:
    """A cell as a number, if it is one; infinite numbers and 1_000 stay words."""
    if not isinstance(cell, str):
        return cell
    try:
        value = float(cell)
    except ValueError:
        return cell
    return value if np.isfinite(value) and "_" not in cell else cell
