"""Heart disease: the patients of four real hospitals, in the package.

The files are those of the UCI repository (CC BY 4.0; heart/LICENSE names their creators). What is
made of them is what FLamby makes of them (https://github.com/owkin/FLamby, fed_heart_disease), so
that numbers can be compared with published ones: columns 10 to 12, which most patients lack, are
left out, then all patients with a missing value; 740 remain. Kind of chest pain and
electrocardiogram become indicators of all values but the first, 13 features in all. Two thirds of
each hospital are for training, with the shares of both classes that the hospital has. FLamby's
split is that of scikit-learn's train_test_split(random_state=43), and `stratified` draws the same
without it.
"""

from __future__ import annotations

from importlib.resources import files

import numpy as np

from decibo.data.dataset import Dataset
from decibo.validate import seed as check_seed

FLAMBY = 43  # the seed of its split
TRAINED = 0.66  # the share of a hospital's patients
SOURCE = "UCI (Janosi, Steinbrunn, Pfisterer & Detrano 1988), CC BY 4.0"
HOSPITALS = {
    "Cleveland": "processed.cleveland.data",
    "Budapest": "processed.hungarian.data",
    "Switzerland": "processed.switzerland.data",  # Zurich and Basel
    "Long Beach": "processed.va.data",
}
KEPT: tuple[str, ...] = (  # the first ten of fourteen columns
    "age",
    "sex",
    "chest pain",
    "blood pressure",
    "cholesterol",
    "blood sugar",
    "ECG",
    "heart rate",
    "angina",
    "ST depression",
)
# their values but the first
CODED: dict[str, tuple[int, ...]] = {"chest pain": (2, 3, 4), "ECG": (1, 2)}
PLAIN = [name for name in KEPT if name not in CODED]


def heart_disease(seed: int = FLAMBY) -> Dataset:
    """Who has heart disease: 740 patients of four hospitals, 13 features; sick is +1, healthy -1.

    `groups` and `test_groups` name the hospital of each patient. The seed draws which two thirds of
    each hospital are for training; 43 is the split for which FLamby has published results. Shipped
    with decibo: needs no download.
    """
    check_seed(seed)
    train, test = [], []
    for hospital, name in HOSPITALS.items():
        text = (files("decibo.data") / "heart" / name).read_text(encoding="ascii")
        records = [line.split(",") for line in text.split()]
        kept = [[*record[: len(KEPT)], record[13]] for record in records]
        cells = np.array([record for record in kept if "?" not in record], dtype=float)
        raw = dict(zip(KEPT, cells.T, strict=False))
        coded = [raw[column] == value for column, values in CODED.items() for value in values]
        features = np.stack([*(raw[column] for column in PLAIN), *coded], axis=1).astype(float)
        labels = np.where(cells[:, -1] > 0, 1.0, -1.0)
        for part, rows in zip((train, test), stratified(labels > 0, TRAINED, seed), strict=True):
            part.append((features[rows], labels[rows], np.full(len(rows), hospital)))
    features, labels, groups = map(np.concatenate, zip(*train, strict=True))
    test_features, test_labels, test_groups = map(np.concatenate, zip(*test, strict=True))
    centre = features.mean(axis=0)  # sums over the hospitals; the test part stays unseen
    width = features.std(axis=0)
    parts = (features - centre) / width, labels, (test_features - centre) / width, test_labels
    codes = [f"{name} {value}" for name, values in CODED.items() for value in values]
    columns = (*PLAIN, *codes)
    return Dataset(*parts, "heart disease", SOURCE, groups, test_groups, columns)


def stratified(labels: np.ndarray, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(training rows, test rows): what scikit-learn's train_test_split draws with stratify=labels.

    With two members of a class or fewer, rows are drawn whatever their class, as FLamby does.
    """
    random = np.random.RandomState(seed)
    number = np.unique(labels, return_inverse=True)[1]
    counts = np.bincount(number)
    samples = len(labels)
    size = int(share * samples)
    held = samples - size
    if counts.min() <= 2 or len(counts) < 2:
        order = random.permutation(samples)
        return np.sort(order[held:]), np.sort(order[:held])
    members = np.split(np.argsort(number, kind="stable"), np.cumsum(counts)[:-1])
    takes = _shared_out(size, counts, random)
    _shared_out(held, counts - takes, random)  # draws what scikit-learn draws here
    orders = [random.permutation(count) for count in counts]
    train = [own[order[:take]] for own, order, take in zip(members, orders, takes, strict=True)]
    test = [own[order[take:]] for own, order, take in zip(members, orders, takes, strict=True)]
    return np.sort(np.concatenate(train)), np.sort(np.concatenate(test))


def _shared_out(total: int, counts: np.ndarray, random: np.random.RandomState) -> np.ndarray:
    """The total in proportion to the counts, in whole numbers; ties are broken by chance."""
    exact = counts / counts.sum() * total
    shares = np.floor(exact)
    rest = exact - shares
    left = int(total - shares.sum())
    for value in np.unique(rest)[::-1] if left else ():
        tied = np.flatnonzero(rest == value)
        chosen = random.choice(tied, size=min(len(tied), left), replace=False)
        shares[chosen] += 1
        left -= len(chosen)
        if left == 0:
            break
    return shares.astype(int)
