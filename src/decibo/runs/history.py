"""The history of a run as a table: columns of numbers, as CSV or Parquet."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np

from decibo.errors import InputError
from decibo.files import encode
from decibo.formatting import from_csv, to_csv
from decibo.measure.cost import Cost

Table = dict[str, np.ndarray]

COSTS = ("step", "gradients", "bytes", "seconds")
KINDS = ("csv", "parquet")
WIDE = 8  # components of a measure that a page would still show one by one


def columns(history: Mapping[str, Any], cost: Cost) -> tuple[Table, list[str]]:
    """The table of a run, and the names of the measures worth a curve.

    gradients (all agents) and bytes (all links) are cumulative. seconds are the run's total, shared out equally over
    its steps: single steps are not timed. A measure with several components gets a column for each.
    """
    step = np.asarray(history["step"], dtype=np.int64)
    table: Table = {"step": step, "gradients": step * cost.gradients * cost.agents}
    table["bytes"] = step * cost.bytes * cost.links
    if cost.seconds > 0 and cost.steps > 0:
        table["seconds"] = step * (cost.seconds / cost.steps)
    shown: list[str] = []
    for name, values in history.items():
        if name == "step":
            continue
        parts = _components(name, np.asarray(values))
        for part, column in parts.items():
            free = _free(part, table)
            table[free] = column
            shown += [free] if len(parts) <= WIDE else []
    return table, shown


def as_bytes(table: Table, kind: str) -> bytes:
    """The file that holds the table."""
    return _parquet(table) if kind == "parquet" else encode(to_csv(table))


def from_bytes(content: bytes, kind: str) -> Table:
    """The table in a file; raises ValueError with the reason where there is none."""
    table = _from_parquet(content) if kind == "parquet" else from_csv(content.decode("utf-8"))
    if "step" not in table:
        raise ValueError("it has no column 'step'")
    if (np.diff(table["step"]) < 0).any() or not np.issubdtype(table["step"].dtype, np.integer):
        raise ValueError("its steps are not ascending whole numbers")
    return table


def check_kind(kind: str) -> str:
    """The kind, if it can be written here."""
    if kind not in KINDS:
        raise InputError(f"history = {kind!r}", f"it must be {' or '.join(KINDS)}", "Use csv.")
    if kind == "parquet":
        _pyarrow()
    return kind


def _components(name: str, values: np.ndarray) -> Table:
    if values.ndim <= 1:
        return {name: values}
    places = np.ndindex(*values.shape[1:])
    return {f"{name}[{','.join(map(str, place))}]": values[(slice(None), *place)] for place in places}


def _free(name: str, taken: Mapping[str, Any]) -> str:
    """The name, changed if a column has it already; the columns of costs are always theirs."""
    while name in taken or name in COSTS:
        name += " (measure)"
    return name


def _parquet(table: Table) -> bytes:
    pyarrow, parquet = _pyarrow()
    out = io.BytesIO()
    parquet.write_table(pyarrow.table({name: pyarrow.array(column) for name, column in table.items()}), out)
    return out.getvalue()


def _from_parquet(content: bytes) -> Table:
    pyarrow, parquet = _pyarrow()
    try:
        table = parquet.read_table(io.BytesIO(content))
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"it is no Parquet file ({error})") from error
    return {name: table[name].to_numpy() for name in table.column_names}


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InputError(
            "pyarrow is not installed", "Parquet needs it", "pip install 'decibo[table]', or use csv."
        ) from error
    return pyarrow, pyarrow.parquet
