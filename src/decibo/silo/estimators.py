r"""A fit with scikit-learn's interface in which every silo is a site: its table stays in its
process.

What all sites read before the fit: the parameters of the estimator, the names of the columns,
whether a column holds numbers or text and whether values are missing, the categories, the classes.
What neighbours add up: counts, sums and sums of squares (collectives.py: who learns what). Then the
run, as in join.py. No row is sent.

Everything is computed as in a fit of all silos in one process, sums in another order, and without
padding: a site's table has as many rows as it has samples, and a program of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import assert_all_finite, check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from decibo.data.encode import TEXT, Columns, Encoding, as_columns
from decibo.errors import InputError, short_repr
from decibo.formatting import listed
from decibo.silo.consortium import Consortium
from decibo.silo.joint_fit import JointFit, joint_fit

Silo = Consortium | str | Path


@dataclass(frozen=True, eq=False)
class SiteFit:
    """One site in a fit of all.

    fit        what the sites have agreed on so far, and the run
    rows       how many samples this site has
    everybody  how many all sites have together
    features   the samples of this site as numbers
    encoding   how they became numbers, if there was text or anything missing at any site
    """

    fit: JointFit
    rows: int
    everybody: int
    features: object
    encoding: Encoding | None


@contextmanager
def site_fit(
    model: BaseEstimator,
    silo: Silo | None,
    X: object,
    y: object,
    groups: object,
    agreed: Mapping[str, str] | None = None,
    more: Sequence[np.ndarray] = (),
) -> Iterator[SiteFit | None]:
    """This site's samples, once the sites have agreed; None if `silo` is None.

    agreed   more that all sites must agree on
    more     what belongs to this site's data besides X and y
    """
    if silo is None:
        yield None
        return
    consortium = Consortium.at(silo) if isinstance(silo, str | Path) else silo
    _check_silo(model, consortium, groups)
    columns = own_columns(X)
    labels = own_labels(model, y, columns)
    own = [*columns.values(), np.asarray(column_or_1d(y)), *more]
    with joint_fit(consortium, terms_of(model, columns) | dict(agreed or {}), own) as fit:
        sites = fit.collectives
        everyone = sites.share({"columns": kinds_of(columns), "labels": labels})
        _compare_labels(sites.names, [each["labels"] for each in everyone])
        encoding = None
        if any(kind for each in everyone for kind in each["columns"].values()):
            encoding = Encoding.fit(columns, sites.share, sites.total, sites.names.__getitem__)
        rows = len(next(iter(columns.values())))
        everybody = int(sites.total(rows))
        if everybody < 2:
            raise InputError(
                f"A fit needs two samples or more, but the sites have {everybody} together."
            )
        features = X if encoding is None else encoding(columns)
        yield SiteFit(fit, rows, everybody, features, encoding)


def _check_silo(model: BaseEstimator, silo: object, groups: object) -> None:
    if not isinstance(silo, Consortium) or not silo.site:
        raise InputError(
            "silo must be the path of a job file or a decibo.silo.Consortium with a site, but it is"
            f" {short_repr(silo)}.",
            'Pass silo="job.toml", for example.',
        )
    if groups is not None:
        raise InputError(
            "groups and silo were both passed, but a site has the samples of one silo, its own.",
            "Leave out groups; or leave out silo to fit all silos in this process.",
        )
    if jax.process_count() > 1:
        raise InputError(
            "A site is one process, but this is a run of several.",
            "Start fit(..., silo=...) without a launcher.",
        )
    parameters = model.get_params()
    if parameters["checkpoint"] is not None:
        raise InputError(
            "checkpoint was set, but a site keeps its checkpoints in its own folder.",
            "Leave out checkpoint; decibo.silo.Consortium(folder=...) chooses another place.",
        )
    state = parameters["random_state"]
    if state is not None and not isinstance(state, int | np.integer):
        raise InputError(
            "random_state must be an integer, so that all sites and a site that starts again draw"
            f" the same, but it is {short_repr(state)}."
        )


def terms_of(model: BaseEstimator, columns: Columns) -> dict[str, str]:
    """What sites compare with their neighbours before anything else; the network is that of the
    job."""
    apart = ("network", "checkpoint")
    parameters = {
        name: repr(value) for name, value in model.get_params().items() if name not in apart
    }
    return {"estimator": type(model).__name__, **parameters, "columns": ", ".join(columns)}


def own_columns(X: object) -> Columns:
    """The columns of this site's table, checked."""
    if isinstance(X, Mapping):
        raise InputError(
            "X must be a data frame or an array, but it is a mapping.", "Pass pandas.DataFrame(X)."
        )
    columns = as_columns(X)
    infinite = [
        name
        for name, column in columns.items()
        if column.dtype != object and np.isinf(column).any()
    ]
    if infinite:
        raise InputError(
            f"Column {infinite[0]!r} must hold finite numbers, but it has an infinite one."
        )
    if not len(next(iter(columns.values()))):
        raise InputError("A site needs at least one sample, but X has no rows.")
    return columns


def kinds_of(columns: Columns) -> dict[str, str]:
    """Whether a column holds text or gaps; nothing for numbers without gaps."""
    kind = lambda column: (
        TEXT if column.dtype == object else "gaps" if np.isnan(column).any() else ""
    )
    return {name: kind(column) for name, column in columns.items()}


def own_labels(model: BaseEstimator, y: object, columns: Columns) -> dict[str, Any]:
    """What others must know about this site's labels: whether they are numbers or text, and which
    classes there are."""
    labels = column_or_1d(y)
    check_consistent_length(next(iter(columns.values())), labels)
    assert_all_finite(labels, input_name="y")
    if getattr(model, "_estimator_type", None) == "regressor" or not hasattr(
        model, "predict_proba"
    ):
        return {"kind": "numbers", "classes": []}
    check_classification_targets(labels)
    classes = np.unique(labels)
    return {
        "kind": "numbers" if classes.dtype.kind in "biuf" else "text",
        "classes": classes.tolist(),
    }


def _compare_labels(names: list[str], everyone: list[dict[str, Any]]) -> None:
    """Labels of all sites must be of one kind, and no two classes may differ in capitals or spaces
    only."""
    kinds = [each["kind"] for each in everyone]
    where = {
        kind: [name for name, own in zip(names, kinds, strict=True) if own == kind]
        for kind in ("numbers", "text")
    }
    if all(where.values()):
        raise InputError(
            f"The classes are numbers at {listed(where['numbers'])} and text at"
            f" {listed(where['text'])}, but they must be the same everywhere."
        )
    known: dict[str, tuple[str, str]] = {}
    for name, each in zip(names, everyone, strict=True):
        for label in filter(lambda label: isinstance(label, str), each["classes"]):
            first = known.setdefault(" ".join(label.lower().split()), (label, name))
            if first[0] != label:
                raise InputError(
                    f"The class {first[0]!r} at {first[1]} and the class {label!r} at {name} differ"
                    " only in capitals or spaces, but a class must be called the same everywhere."
                )
