"""A job file with [estimator]: this site's part in the fit, and what the fit would reveal of its
table, found before anything is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from decibo.data.encode import TEXT
from decibo.data.tables import read_table
from decibo.errors import InputError
from decibo.silo import estimators
from decibo.silo.consortium import Consortium, read_tables
from decibo.silo.identity import Identity
from decibo.silo.wire import Log, Wire
from decibo.sklearn.estimators import (
    SiloCox,
    SiloEstimator,
    SiloGLM,
    SiloLogisticRegression,
    SiloRidge,
)
from decibo.sklearn.stored import save
from decibo.sklearn.trust import SiloTrust, agreed_of
from decibo.validate import one_of, only_known

ESTIMATORS = {
    kind.__name__: kind for kind in (SiloLogisticRegression, SiloRidge, SiloGLM, SiloCox, SiloTrust)
}


def estimator_of(file: str, table: object) -> tuple[SiloEstimator | SiloTrust, str]:
    """The estimator that the table [estimator] of a job file names, and the column with its
    labels."""
    where = f"{file}, [estimator]"
    options = dict(table) if isinstance(table, dict) else {}
    kind = ESTIMATORS[one_of(f"{where}.name", options.pop("name", None), ESTIMATORS)]
    label = options.pop("label", None)
    if not isinstance(label, str):
        raise InputError(
            f"{where} must say which column has the labels.", 'Add label = "disease", for example.'
        )
    # the network and the checkpoints are those of the job and the site
    only_known(
        where,
        "parameter",
        options,
        set(kind().get_params()) - {"network", "checkpoint", "inverse_link"},
    )
    return kind(**options), label


def own_table(site: Identity, label: str) -> tuple[Any, np.ndarray]:
    """This site's samples and their labels, from the file that its own site.toml names."""
    if site.table is None:
        raise InputError(
            f"{site.folder / 'site.toml'} does not say where this site's samples are.",
            'Add table = "ours.csv", the path of a CSV or parquet file.',
        )
    own = read_table(
        site.folder / site.table,
        label=label,
        missing=site.missing,
        columns=site.columns,
        drop=site.drop,
    )
    assert own.y is not None  # since a column of labels was named
    return own.X, own.y


def fit_job(
    path: Path, site: Identity, *, log: Log, wire: Wire | None = None, same_programs: bool = False
) -> tuple[SiloEstimator | SiloTrust, Path, dict[str, Any]]:
    """Fit the estimator of a job file with the other sites on this site's own table; the model,
    where it is kept, and how well it does on this table.

    wire            what carries the messages, TLS by default
    same_programs   whether other versions of decibo are known to compute the same
    """
    model, label = estimator_of(path.name, read_tables(path)["estimator"])
    X, y = own_table(site, label)
    options = {"log": log, "wire": wire, "same_programs": same_programs}
    model.fit(X, y, silo=Consortium.at(path, site.folder, **options))
    score = "accuracy" if hasattr(model, "classes_") else "R^2"
    score = "concordance" if isinstance(model, SiloCox) else score
    fitted: Any = model  # score is that of scikit-learn's mixins
    own = {"rows": len(y), "columns": X.shape[1], score: float(fitted.score(X, y))}
    return model, save(model, site.folder / "models" / f"{path.stem}.json"), own


def preview(
    path: Path, site: Identity, log: Log, *, same_programs: bool = False
) -> tuple[Consortium, dict[str, str], dict[str, Any]]:
    """The sites of the job in a file; what this one compares with its neighbours; and what it would
    disclose: which columns hold numbers, text or gaps, and the categories and classes."""
    model, label = estimator_of(path.name, read_tables(path)["estimator"])
    X, y = own_table(site, label)
    columns = estimators.own_columns(X)
    labels = estimators.own_labels(model, y, columns)
    kinds = estimators.kinds_of(columns)
    words = lambda name: sorted({word for word in columns[name] if word is not None})
    more = agreed_of() if isinstance(model, SiloTrust) else {}
    consortium = Consortium.at(path, site.folder, log=log, same_programs=same_programs)
    own = {
        "columns": {name: kind or "numbers" for name, kind in kinds.items()},
        "categories": {name: words(name) for name, kind in kinds.items() if kind == TEXT},
        "classes": labels["classes"],
        "steps": model.get_params()["steps"],
    }
    return consortium, estimators.terms_of(model, columns) | more, own
