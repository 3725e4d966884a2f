"""Values as text, and back again where that is promised."""

import json
import math
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decibo.formatting import (
    MINUS,
    NONE,
    format_array,
    format_bytes,
    format_count,
    format_number,
    format_seconds,
    format_setting,
    from_csv,
    latex_number,
    plural,
    to_csv,
    to_json,
    typeset_number,
)

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "yes"),
        (np.False_, "no"),
        (1234567, "1,234,567"),
        (np.int32(-1200), "-1,200"),
        (0.0, "0"),
        (0.03125, "0.03125"),
        (4.56e-8, "4.56e-08"),
        (123456.0, "1.23e+05"),
        (jnp.float32(0.5), "0.5"),
        (math.nan, "nan"),
        (np.ones((2, 3)), "6 numbers"),
    ],
)
def test_numbers_on_the_terminal(value, text):
    assert format_number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, NONE),
        (math.nan, NONE),
        (math.inf, "∞"),
        (-math.inf, f"{MINUS}∞"),
        (0.0, "0"),
        (-0.25, f"{MINUS}0.25"),
        (1e-9, f"1.00e{MINUS}9"),
        (123456.0, "1.23e5"),
    ],
)
def test_numbers_on_a_page(value, text):
    assert typeset_number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999.7, "1 kB"),
        (1234, "1.23 kB"),
        (999_600, "1 MB"),
        (5e9, "5 GB"),
        (2e15, "2 PB"),
    ],
)
def test_bytes(value, text):
    assert format_bytes(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(12, "12"), (99_999, "99,999"), (123_456, "123 thousand"), (999_900, "1 M"), (2e9, "2 G")],
)
def test_counts(value, text):
    assert format_count(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 ms"),
        (0.444, "444 ms"),
        (0.9999, "1 s"),
        (61.5, "61.5 s"),
        (150, "2.5 min"),
        (9000, "2.5 h"),
    ],
)
def test_durations(value, text):
    assert format_seconds(value) == text


def falling(k):
    return 1 / (k + 1)


@pytest.mark.parametrize(
    ("value", "text", "literal"),
    [
        (True, "yes", "True"),
        (None, NONE, "None"),
        (0.1, "0.1", "0.1"),
        (np.float32(0.5), "0.5", "0.5"),
        (jnp.asarray(1e-3), "0.001", "0.001"),
        (falling, "falling", "falling"),
        (partial(falling), "falling", "falling"),
        (partial(falling, 0.5), "falling(0.5)", "falling(0.5)"),
        (partial(falling, k=2), "falling(k=2)", "falling(k=2)"),
        (partial(falling, np.zeros(3)), "falling", "falling"),
        ({"a": 1, "b": [True, 2.0]}, "a=1, b=yes, 2", "a=1, b=True, 2"),
        ("ring", "ring", "ring"),
    ],
)
def test_settings(value, text, literal):
    assert format_setting(value) == text
    assert format_setting(value, literal=True) == literal


def test_settings_that_are_traced_have_a_text():
    texts = []
    jax.jit(lambda alpha: texts.append(format_setting(alpha)) or alpha)(0.1)
    assert "Tracer" in texts[0]


def test_settings_are_rounded_on_request():
    assert format_setting(1 / 3, digits=3) == "0.333"


def test_long_vectors_lose_their_middle():
    assert format_array(jnp.array([1.0, 0.5])) == "[1. , 0.5]"
    assert format_array(np.arange(100)) == "[ 0, 1, 2, ..., 97, 98, 99]"


def test_plural():
    assert [plural(count, "run") for count in (0, 1, 1200)] == ["0 runs", "1 run", "1,200 runs"]


def test_json_of_everything():
    value = {
        "array": jnp.array([[1.0, jnp.nan]]),
        "scalar": np.float32(0.5),
        "function": falling,
        "path": Path("a/b"),
        "set": {3},
        4: (math.inf, None, True),
    }
    expected = {
        "array": [[1.0, None]],
        "scalar": 0.5,
        "function": "falling",
        "path": "a/b",
        "set": [3],
        "4": [None, None, True],
    }
    assert to_json(value) == expected
    assert to_json([math.inf, np.nan], nonfinite_as_text=True) == ["inf", "nan"]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(JSON)
def test_what_json_can_hold_stays_as_it_is(value):
    assert to_json(value) == value
    assert json.loads(json.dumps(to_json(value), allow_nan=False)) == value


COLUMN = st.lists(st.floats(), min_size=3, max_size=3) | st.lists(
    st.integers(-(2**60), 2**60), min_size=3, max_size=3
)


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=("Cs",))), COLUMN, min_size=1, max_size=4
    )
)
def test_csv_round_trip(columns):
    table = from_csv(to_csv({name: np.array(column) for name, column in columns.items()}))
    assert list(table) == list(columns)
    for name, column in columns.items():
        np.testing.assert_array_equal(table[name], column)


def test_csv_of_lists_and_booleans():
    assert to_csv({"a": [1, 2], "b,c": ["x", None]}) == 'a,"b,c"\n1,x\n2,\n'
    assert from_csv("a\nTrue\nFalse\n")["a"].dtype == bool


def test_columns_of_unequal_length_are_rejected():
    with pytest.raises(ValueError, match="zip"):
        to_csv({"a": [1, 2], "b": [1]})


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "--"), (1200, "$1{,}200$"), (1e-5, "$10^{-5}$"), (1.2e-5, r"$1.2 \times 10^{-5}$")],
)
def test_numbers_in_latex(value, text):
    assert latex_number(value) == text
