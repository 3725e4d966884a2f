"""What was run, as JSON and TOML hold it."""

import math
import sys
import tomllib
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decibo.runs.folder import config_text, to_toml

pytestmark = pytest.mark.quick

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=10)
SCALARS = st.one_of(
    TEXT, st.booleans(), st.integers(-(2**62), 2**62), st.floats(allow_nan=False), st.dates()
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3)
)


@given(st.dictionaries(TEXT, VALUES, max_size=5))
def test_toml_is_read_again_by_the_standard_library(config):
    assert tomllib.loads(to_toml(config)) == config


def test_sections_numbers_and_nothing():
    config = {
        "a": {"b": {"c": np.float32(0.5), "d": np.int64(3)}, "e": None},
        "x": math.inf,
        "t": (1, "two"),
    }
    assert tomllib.loads(to_toml(config)) == {
        "a": {"b": {"c": 0.5, "d": 3}},
        "x": math.inf,
        "t": [1, "two"],
    }


def test_dataclasses():
    @dataclass
    class Config:
        steps: int = 3

    assert config_text(Config()) == "steps = 3\n"


def test_a_configuration_without_tomli_w_is_an_import_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "tomli_w", None)
    with pytest.raises(ImportError, match="tomli-w"):
        config_text({"steps": 3})
    assert config_text("steps = 3") == "steps = 3"  # text needs no writer


def test_what_utf8_cannot_hold_becomes_a_question_mark():
    assert tomllib.loads(to_toml({"\ud800": "a\udfff"})) == {"?": "a?"}
