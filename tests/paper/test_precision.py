"""Experiments choose their own precision."""

import jax
import numpy as np

from decibo.paper import suite
from decibo.paper.result import Size


def test_precision_does_not_depend_on_the_caller():
    found = []
    for flag in (True, False):
        with jax.enable_x64(flag):
            found.append(suite.run("fig1", {}, Size(seeds=1, tiny=True)).tables["curves"]["distance_x"])
    assert found[0].dtype == np.float64
    np.testing.assert_array_equal(*found)
