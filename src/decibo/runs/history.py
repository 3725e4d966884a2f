"""The history of a run as a table: steps, costs and measures in columns, as CSV or Parquet."""

from __future__ import annotations

import io
from collections.abc import Container, Mapping
from types import ModuleType
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from decibo.errors import missing
from decibo.files import encode
from decibo.formatting import from_csv, to_csv
from decibo.measure.cost import Cost
from decibo.validate import one_of

Table: TypeAlias = dict[str, np.ndarray]

COSTS = ("step", "gradients", "bytes", "seconds")
FORMATS = ("csv", "parquet")
WIDE = 8  # components of a measure that a page still shows one by one


def history_table(history: Mapping[str, ArrayLike], cost: Cost) -> tuple[Table, list[str]]:
    """The table of a run, and the names of the measures worth a curve.

    gradients (all agents) and bytes (all links) are cumulative. seconds are the total of the run, shared out equally
    over its steps, since single steps are not timed. A measure with several components gets a column for each.
    """
    step = np.asarray(history["step"], dtype=np.int64)
    table: Table = {
        "step": step,
        "gradients": step * cost.gradients * cost.agents,
        "bytes": step * cost.bytes * cost.links,
    }
    if cost.seconds > 0 and cost.steps > 0:
        table["seconds"] = step * (cost.seconds / cost.steps)
    shown: list[str] = []
    for name, values in history.items():
        if name == "step":
            continue
        components = _components(name, np.asarray(values))
        for component, column in components.items():
            free = _free_name(component, table)
            table[free] = column
            if len(components) <= WIDE:
                shown.append(free)
    return table, shown


def encode_table(table: Table, file_format: str) -> bytes:
    """The content of the file that holds the table."""
    return _to_parquet(table) if file_format == "parquet" else encode(to_csv(table))


def decode_table(content: bytes, file_format: str) -> Table:
    """The table in a file; raises ValueError, with the reason, if there is none."""
    table = _from_parquet(content) if file_format == "parquet" else from_csv(content.decode("utf-8"))
    if "step" not in table:
        raise ValueError("it has no column 'step'")
    if (np.diff(table["step"]) < 0).any() or not np.issubdtype(table["step"].dtype, np.integer):
        raise ValueError("its steps are not ascending integers")
    return table


def check_format(file_format: str) -> str:
    """The format, if it can be written here."""
    one_of("history", file_format, FORMATS)
    if file_format == "parquet":
        _pyarrow()
    return file_format


def _components(name: str, values: np.ndarray) -> Table:
    if values.ndim <= 1:
        return {name: values}
    indices = np.ndindex(*values.shape[1:])
    return {f"{name}[{','.join(map(str, index))}]": values[(slice(None), *index)] for index in indices}


def _free_name(name: str, taken: Container[str]) -> str:
    """The name, changed if a column has it already; the names of costs are reserved."""
    while name in taken or name in COSTS:
        name += " (measure)"
    return name


def _to_parquet(table: Table) -> bytes:
    pyarrow, parquet = _pyarrow()
    out = io.BytesIO()
    parquet.write_table(pyarrow.table({name: pyarrow.array(column) for name, column in table.items()}), out)
    return out.getvalue()


def _from_parquet(content: bytes) -> Table:
    pyarrow, parquet = _pyarrow()
    try:
        table = parquet.read_table(io.BytesIO(content))
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"it is not a Parquet file ({error})") from error
    return {name: table[name].to_numpy() for name in table.column_names}


def _pyarrow() -> tuple[ModuleType, ModuleType]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise missing("pyarrow", "A history in Parquet", "table") from error
    return pyarrow, pyarrow.parquet
