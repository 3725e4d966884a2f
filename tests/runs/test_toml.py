"""What is written as TOML is read again by the standard library."""

import math
import tomllib
from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from decibo.runs.toml import config_text, dumps

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=10)
SCALARS = st.one_of(TEXT, st.booleans(), st.integers(-(2**62), 2**62), st.floats(allow_nan=False), st.dates())
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))


@given(st.dictionaries(TEXT, VALUES, max_size=5))
def test_round_trip(config):
    assert tomllib.loads(dumps(config)) == config


def test_sections_numbers_and_nothing():
    config = {"a": {"b": {"c": np.float32(0.5), "d": np.int64(3)}, "e": None}, "x": math.inf, "t": (1, "two")}
    assert tomllib.loads(dumps(config)) == {"a": {"b": {"c": 0.5, "d": 3}}, "x": math.inf, "t": [1, "two"]}


def test_dataclasses():
    @dataclass
    class Config:
        steps: int = 3

    assert config_text(Config()) == "steps = 3\n"
