"""The history of a run as a table, written and read."""

import sys

import numpy as np
import pytest

from decibo.measure.cost import Cost
from decibo.run.solution import history_table
from decibo.runs.folder import check_format, decode_table, encode_table

pytestmark = pytest.mark.quick


def test_the_columns_of_costs_are_cumulative():
    cost = Cost(
        outer_gradients=1, inner_gradients=2, bytes=72, agents=4, links=8, steps=10, seconds=2.0
    )
    table, shown = history_table({"step": [0, 5, 10], "phi": [3.0, 2.0, 1.0]}, cost)
    assert shown == ["phi"]
    assert {name: column.tolist() for name, column in table.items()} == {
        "step": [0, 5, 10],
        "work": [0, 60, 120],
        "gradients": [0, 60, 120],
        "products": [0, 0, 0],
        "bytes": [0, 2880, 5760],
        "seconds": [0.0, 1.0, 2.0],
        "phi": [3.0, 2.0, 1.0],
    }


@pytest.mark.parametrize("file_format", ["csv", "parquet"])
def test_integers_booleans_and_floats_come_back_as_such(file_format):
    table = {
        "step": np.arange(3),
        "flag": np.array([True, False, True]),
        "phi": np.array([0.1, np.nan, np.inf]),
    }
    result = decode_table(encode_table(table, file_format), file_format)
    for name, column in table.items():
        assert result[name].dtype == column.dtype
        np.testing.assert_array_equal(result[name], column)


def test_parquet_without_pyarrow_is_an_import_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"decibo\[table\]"):
        check_format("parquet")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"a,b\n1,2\n", "no column 'step'"),
        (b"step,a\n0,1\n1\n", "equally long"),
        (b"step,a\n0,red\n", "could not convert"),
        (b"step,a\n5,1\n2,1\n", "ascending"),
        (b"step,step\n5,1\n6,1\n", "same name"),
        (b"step\n\xff\n", "decode"),
    ],
)
def test_files_without_a_table_are_rejected(content, message):
    with pytest.raises(ValueError, match=message):
        decode_table(content, "csv")


def test_a_file_that_is_not_parquet_is_rejected():
    with pytest.raises(ValueError, match="not a Parquet file"):
        decode_table(b"step,a\n", "parquet")
