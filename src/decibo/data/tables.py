"""Tables on disk: CSV and parquet files with a silo column, or one file for each silo.

The first line of a CSV file names the columns. A column whose cells are all numbers, or missing,
holds numbers; any other one holds text. A column with both is refused, since a stray word in a
column of numbers is nearly always a mistake; errors name the file, the line and the column.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
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
Where = Callable[[int], str]  # a row, in words
MISSING = ("", "?", "NA", "N/A", "nan", "NaN", "null", "None")
GROUP = "\0silo"  # no column of a file is called that


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
        rows = np.arange(len(signs))[:, None]
        train, labels, held, test_labels = hold_out(rows, signs, test, seed)
        part = lambda chosen: self.X.iloc[chosen[:, 0]]
        encoding = Encoding.fit(part(train), share=lambda value: [value])
        return Dataset(
            encoding(part(train)),
            labels,
            encoding(part(held)),
            test_labels,
            name,
            "from files",
            groups=self.groups[train[:, 0]],
            test_groups=self.groups[held[:, 0]],
            columns=encoding.features,
        )


def read_table(
    source: Source,
    label: str | None = None,
    *,
    silo: str | None = None,
    missing: Iterable[str] = MISSING,
    categories: Iterable[str] = (),
    drop: Iterable[str] = (),
) -> Table:
    """CSV or parquet files as columns, labels and the silo of each row.

    source       a file; several, each of which is a silo, called by its name without ending; or
                 {silo: file}
    label        the column to predict; every row must have it
    silo         the column that names the silo of each row, if there is one
    missing      words that stand for a missing value
    categories   columns of codes: numbers that are to be read as text
    drop         columns to leave out
    """
    files = _files(source)
    try:
        import pandas
    except ImportError as error:
        raise missing_package("pandas", "Reading tables", "table") from error
    absent = frozenset(missing)
    coded = frozenset(categories)
    frames = []
    for name, path in files.items():
        raw = _parquet(path, pandas) if path.suffix in (".parquet", ".pq") else _csv(path)
        for column in (*coded, *drop, *(each for each in (label, silo) if each is not None)):
            if column not in raw:
                raise InputError(
                    f"{path} has no column {column!r}. It has {short(', '.join(raw))}."
                )
        where = lambda row, path=path: f"{path}, line {row + 2}"
        columns = {
            column: _typed(column, cells, absent, column in coded or column == silo, where)
            for column, cells in raw.items()
            if column not in set(drop)
        }
        for column in (each for each in (label, silo) if each is not None):
            _complete(column, columns[column], where)
        frame = pandas.DataFrame(columns)
        frame[GROUP] = name if silo is None else frame.pop(silo)
        frames.append((path, frame))
    _one_kind(frames, pandas.api.types.is_numeric_dtype)
    whole = pandas.concat([frame for _, frame in frames], ignore_index=True)
    groups = np.array(whole.pop(GROUP).tolist())
    y = None if label is None else _labels(whole.pop(label).to_numpy())
    return Table(whole, y, groups)


def _files(source: Source) -> dict[str, Path]:
    if isinstance(source, Mapping):
        return {str(name): a_path(f"The file of {name}", path) for name, path in source.items()}
    several = (
        list(source) if isinstance(source, Iterable) and not isinstance(source, str) else [source]
    )
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
        raise InputError(
            f"{path} cannot be read: {error.strerror or first_line(error)}."
        ) from error
    except Exception as error:  # whatever pyarrow finds wrong with the file
        raise InputError(f"{path} cannot be read as parquet: {first_line(error)}") from error
    if frame.empty:
        raise InputError(f"{path} has no rows.")
    return {str(name): frame[name].astype(object).tolist() for name in frame.columns}


def _typed(
    name: str, cells: list[object], absent: frozenset[str], as_text: bool, where: Where
) -> np.ndarray:
    """The cells as numbers or text, in the words of the file."""
    known = [None if isinstance(cell, str) and cell in absent else cell for cell in cells]
    if as_text:
        return np.array(
            [None if cell is None or cell != cell else str(cell) for cell in known], dtype=object
        )
    return column_of(name, [_number(cell) for cell in known], where)


def _number(cell: object) -> object:
    """A cell as a number, if it is one; infinite numbers and 1_000 stay words."""
    if not isinstance(cell, str):
        return cell
    try:
        value = float(cell)
    except ValueError:
        return cell
    return value if np.isfinite(value) and "_" not in cell else cell


def _complete(name: str, column: np.ndarray, where: Where) -> None:
    gaps = [row for row, value in enumerate(column.tolist()) if value is None or value != value]
    if gaps:
        raise InputError(
            f"Every row must have a value in column {name!r}, but {where(gaps[0])} has none"
            f" ({len(gaps)} such rows)."
        )


def _one_kind(frames: list[tuple[Path, DataFrame]], is_numeric: Callable[[object], bool]) -> None:
    """A column holds numbers in all files, or text in all."""
    first: dict[str, tuple[Path, bool]] = {}
    names = list(frames[0][1])
    for path, frame in frames:
        if sorted(frame) != sorted(names):
            odd = sorted({*frame} ^ {*names})
            raise InputError(
                f"{frames[0][0]} and {path} must have the same columns, but differ in {short(odd)}."
            )
        for name in frame:
            if name == GROUP or len(frame[name].dropna()) == 0:
                continue
            is_text = not is_numeric(frame[name].dtype)
            path_before, before = first.setdefault(name, (path, is_text))
            if before != is_text:
                text, other = (path, path_before) if is_text else (path_before, path)
                raise InputError(
                    f"Column {name!r} holds text in {text} and numbers in {other}.",
                    f"If the numbers are codes, pass categories=[{name!r}].",
                )


def _labels(values: np.ndarray) -> np.ndarray:
    """Labels as words, integers or floats."""
    if values.dtype.kind not in "biuf":
        return np.array(values.tolist())
    return values.astype(np.int64) if (values == np.round(values)).all() else values
