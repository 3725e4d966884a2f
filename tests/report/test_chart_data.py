"""The data of the chart."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decibo.report.chart_data import thinned

pytestmark = pytest.mark.quick


@given(st.integers(1, 50_000))
def test_thinning_keeps_both_ends_in_order(count):
    records = thinned(count)
    assert records[0] == 0
    assert records[-1] == count - 1
    assert (np.diff(records) > 0).all()
    assert len(records) <= min(count, 2000)
