"""Owners with tables of their own: four hospitals, and occupations of a9a as eight owners."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

import decibo

OCCUPATIONS = slice(46, 60)  # columns of a9a
SIZES = (500, 400, 300, 300, 200, 150, 100, 60)


class Place(NamedTuple):
    """Training and test samples, labels 0 and 1, and who has them."""

    X: np.ndarray
    t: np.ndarray
    owner: np.ndarray
    test: np.ndarray
    test_t: np.ndarray
    test_owner: np.ndarray


def heart(seed):
    """486 patients of four hospitals to learn from, 254 to judge by; splits overlap."""
    d = decibo.data.heart_disease(seed)
    sick = lambda labels: (np.asarray(labels) > 0).astype(int)
    return Place(d.features, sick(d.labels), d.silos(), d.test_features, sick(d.test_labels),
                 d.silos(test=True))  # fmt: skip


@cache
def adult(name):
    """All rows of a9a or a9a.t, features and labels 0 or 1."""
    path = Path(os.environ["DECIBO_DATA"]) / name
    X, t = np.zeros((33000, 123)), []
    for row, line in enumerate(path.read_text().splitlines()):
        label, *rest = line.split()
        t.append(int(float(label) > 0))
        X[row, [int(cell.split(":")[0]) - 1 for cell in rest]] = 1
    return X[: len(t)], np.array(t)


def a9a(seed):
    """Eight occupations of different incomes and SIZES rows, in random order; columns that hardly
    vary are left out."""
    (X, t), (Xt, tt) = adult("a9a"), adult("a9a.t")
    random = np.random.default_rng((seed, 3))
    common = np.argsort(-X[:, OCCUPATIONS].sum(axis=0))[:8]
    rows, owner, new, new_owner = [], [], [], []
    for i, (column, size) in enumerate(zip(random.permutation(common), SIZES, strict=True)):
        has = lambda table, column=column: np.flatnonzero(table[:, OCCUPATIONS][:, column] > 0)
        rows.append(random.permutation(has(X))[:size])
        new.append(random.permutation(has(Xt))[: 2 * size])
        owner.append(np.full(len(rows[-1]), i))
        new_owner.append(np.full(len(new[-1]), i))
    rows, owner, new, new_owner = map(np.concatenate, (rows, owner, new, new_owner))
    keep = X[rows].std(axis=0) > 0.05
    return Place(X[rows][:, keep], t[rows], owner, Xt[new][:, keep], tt[new], new_owner)


def mnist(seed, rows=1200):
    """Digits 0 to 9 in 7 x 7 pixels, eight owners with equal shares."""
    with np.load(Path(os.environ["DECIBO_DATA"]) / "mnist7.npz") as arrays:
        X, t = arrays["X"], arrays["t"]
    random = np.random.default_rng((seed, 4))
    order = random.permutation(len(t))
    here, new = order[:rows], order[rows : rows + 2000]
    return Place(X[here], t[here], np.arange(rows) % 8, X[new], t[new], np.arange(2000) % 8)


def pack_mnist(folder):
    """mnist7.npz: MNIST's training images in 7 x 7 pixels, which `mnist` reads."""
    with np.load(Path(os.environ["DECIBO_DATA"]) / "mnist.npz") as arrays:
        names = {name.lower(): name for name in arrays.files}
        X, t = arrays[names["x_train"]], arrays[names["y_train"]]
    small = X[:10000].reshape(-1, 7, 4, 7, 4).mean(axis=(2, 4)).reshape(-1, 49) / 255
    np.savez_compressed(Path(folder) / "mnist7.npz", X=small.astype(np.float32), t=t[:10000])


def deal(place, count, seed):
    """Which samples were checked: `count` of each owner, at most half of its own, at random."""
    random = np.random.default_rng((seed, 5))
    checked = np.zeros(len(place.t), bool)
    for name in np.unique(place.owner):
        own = random.permutation(np.flatnonzero(place.owner == name))
        checked[own[: min(count, len(own) // 2)]] = True
    return checked


def turned(place, checked, wrong, seed):
    """Labels of which some unchecked ones are wrong: {owner: share}, or one share for all."""
    t, classes = place.t.copy(), place.t.max() + 1
    shares = wrong if isinstance(wrong, dict) else dict.fromkeys(np.unique(place.owner), wrong)
    for name, share in shares.items():
        random = np.random.default_rng((seed, 11, int(100 * share), len(str(name))))
        own = random.permutation(np.flatnonzero((place.owner == name) & ~checked))
        own = own[: round(share * len(own))]
        t[own] = (t[own] + random.integers(1, classes, len(own))) % classes
    return t
