import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decibo.data import by_group, by_label, dirichlet, iid, shards
from decibo.errors import InputError

pytestmark = pytest.mark.quick

signs = st.lists(st.sampled_from([-1.0, 1.0]), min_size=6, max_size=80).map(np.array)
agents = st.integers(1, 6)


def _no_sample_twice(parts, samples):
    every = np.concatenate(parts)
    assert len(np.unique(every)) == len(every)
    assert set(every) <= set(range(samples))


@given(signs, agents, st.integers(0, 5))
def test_iid_deals_all_samples_evenly(labels, m, seed):
    parts = iid(labels, m, seed=seed)
    _no_sample_twice(parts, len(labels))
    sizes = [len(part) for part in parts]
    assert sum(sizes) == len(labels)
    assert max(sizes) - min(sizes) <= 1


@given(signs, agents, st.integers(0, 5), st.floats(0.05, 20))
def test_dirichlet_uses_all_samples_and_leaves_nobody_empty(labels, m, seed, concentration):
    parts = dirichlet(labels, m, concentration, seed=seed)
    _no_sample_twice(parts, len(labels))
    assert sum(len(part) for part in parts) == len(labels)
    assert min(len(part) for part in parts) >= 1


@given(agents, st.integers(1, 12), st.integers(0, 5), st.data())
def test_by_label_keeps_sizes_and_ratios(m, size, seed, data):
    counts = data.draw(st.lists(st.integers(0, size), min_size=m, max_size=m))
    labels = np.repeat([1.0, -1.0], [sum(counts), m * size - sum(counts)])
    parts = by_label(labels, m, [count / size for count in counts], seed=seed)
    _no_sample_twice(parts, len(labels))
    assert [len(part) for part in parts] == [size] * m
    assert [int((labels[part] > 0).sum()) for part in parts] == counts


def test_by_label_takes_the_largest_size_that_fits():
    labels = np.repeat([1.0, -1.0], [5, 100])
    parts = by_label(labels, 4, [0.5] * 4)
    # Round half to even: 3 samples an agent would take 2 positives each, of which there are not
    # enough.
    assert [len(part) for part in parts] == [2] * 4


@pytest.mark.parametrize(
    "split", [iid, dirichlet, lambda labels, m, seed: by_label(labels, m, [0.5] * m, seed=seed)]
)
def test_the_seed_decides(split):
    labels = np.tile([1.0, -1.0], 30)
    first, again, other = (
        split(labels, 3, seed=1),
        split(labels, 3, seed=1),
        split(labels, 3, seed=2),
    )
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_samples_without_a_group_are_a_group_of_their_own():
    parts = by_group(np.array([1.0, np.nan, 1.0, np.nan]))
    assert [part.tolist() for part in parts] == [[0, 2], [1, 3]]


def test_by_group_and_shards():
    parts = by_group(np.array(["b", "a", "b"]))
    assert [list(part) for part in parts] == [[1], [0, 2]]
    stacked = shards(np.arange(6.0).reshape(3, 2), np.array([1.0, -1.0, 1.0]), parts)
    assert stacked["features"].shape == (2, 2, 2)
    assert stacked["weights"].tolist() == [[1, 0], [1, 1]]
    assert stacked["labels"].tolist() == [[-1, -1], [1, 1]]


LABELS = np.repeat([1.0, -1.0], [4, 20])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: iid(LABELS, 0), "agents must be a positive integer, but it is 0"),
        (lambda: iid(LABELS, 25), "24 samples"),
        (lambda: by_label(LABELS, 2, [0.5, 0.5], size=10), "there are 4 positive and 20 negative"),
        (lambda: by_label(LABELS, 10, [1.0] * 10), "there are 4 positive"),
        (lambda: by_label(LABELS, 2, [0.5, 1.5]), r"\[0, 1\]"),
        (lambda: dirichlet(LABELS, 2, 0.0), "concentration"),
        (lambda: shards(LABELS, LABELS, [np.array([], dtype=int)]), "at least one sample"),
    ],
)
def test_impossible_requests_are_explained(make, words):
    with pytest.raises(InputError, match=words):
        make()
