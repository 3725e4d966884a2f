"""Frames that a site may get: noise, numbers, and words of all kinds."""

import numpy as np
from hypothesis import strategies as st

from decibo.silo.frame import Kind, pack
from helpers.sites import JOB

FRAMES = st.one_of(
    st.binary(max_size=200),
    st.builds(
        lambda kind, sender, step, call, numbers: pack(kind, JOB, sender, step, call, numbers=np.array(numbers)),
        st.just(Kind.DATA), st.integers(0, 3), st.integers(0, 40), st.integers(0, 5), st.lists(st.floats(), max_size=6),
    ),
    st.builds(
        lambda kind, sender, step, words: pack(kind, JOB, sender, step, words=words),
        st.sampled_from([kind for kind in Kind if kind is not Kind.DATA]), st.integers(0, 3), st.integers(0, 40),
        st.dictionaries(
            st.sampled_from(["waiting", "first", "status", "why", "received", "newest", "steps", "share", "wanted"]),
            st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False),
                         lambda inner: st.lists(inner, max_size=3), max_leaves=5),
            max_size=4,
        ),
    ),
)  # fmt: skip
