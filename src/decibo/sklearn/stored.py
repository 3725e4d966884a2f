"""Fitted models as a file of JSON: `save` and `load`. Nothing in it can be executed, unlike in a
pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from decibo.data.encode import Encoding
from decibo.data.tables import read_table
from decibo.errors import CorruptedFileError, InputError
from decibo.files import atomic_write, check_own, read_checked
from decibo.formatting import to_json
from decibo.silo.identity import Home
from decibo.silo.job import read_tables
from decibo.silo.member import Member
from decibo.silo.site_run import Say
from decibo.silo.wire import Wire
from decibo.sklearn.encoder import SiloEncoder
from decibo.sklearn.estimators import SiloLogisticRegression, SiloRidge
from decibo.sklearn.trust import SiloTrust
from decibo.validate import one_of, only_known

KIND = "decibo model"
FORMAT = 1
KNOWN = {
    known.__name__: known for known in (SiloEncoder, SiloLogisticRegression, SiloRidge, SiloTrust)
}
ARRAYS = (
    "coef_",
    "classes_",
    "penalty_",
    "trust_",
    "mean_",
    "scale_",
    "silos_",
    "feature_names_in_",
)
PLAIN = ("n_iter_", "n_features_in_")


def save(model: BaseEstimator, path: str | Path) -> Path:
    """Write a fitted model, or a pipeline of them, to a file of JSON; returns its path.

    What is saved is what predictions need: the run (`solution_`) and the network are left out.
    """
    steps = model.steps if isinstance(model, Pipeline) else [("model", model)]
    for _, step in steps:
        if type(step).__name__ not in KNOWN:
            raise InputError(
                f"Only {', '.join(KNOWN)} and pipelines of them can be saved as JSON, but this is"
                f" {step!r}.",
                "Use joblib for other models.",
            )
        check_is_fitted(step)
    content = {
        "kind": KIND,
        "format": FORMAT,
        "pipeline": isinstance(model, Pipeline),
        "steps": [
            {"name": name, "class": type(step).__name__, **_state(step)} for name, step in steps
        ],
    }
    return atomic_write(check_own(Path(path), KIND.encode()), json.dumps(content, indent=1) + "\n")


def load(path: str | Path) -> BaseEstimator:
    """The model in a file that `save` wrote, ready to predict."""
    try:
        content = json.loads(read_checked(Path(path)))
        if content["kind"] != KIND or content["format"] != FORMAT:
            raise InputError(
                f"{path} is not a model of format {FORMAT}.",
                "Load it with the version that wrote it.",
            )
        steps = [(step["name"], _restored(step)) for step in content["steps"]]
        return Pipeline(steps) if content["pipeline"] else steps[0][1]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        if isinstance(error, InputError):
            raise
        raise CorruptedFileError(
            f"{path} is not a model that decibo has saved ({error!r})."
        ) from error


def _state(step: BaseEstimator) -> dict[str, object]:
    """What a step has learned, as JSON; of its parameters those that JSON can hold."""
    plain = {
        name: value
        for name, value in step.get_params().items()
        if isinstance(value, str | int | float)
    }
    encoding = getattr(step, "encoding_", None)
    learned = (
        {name: getattr(encoding, name) for name in ("columns", "numbers", "words")}
        if encoding
        else None
    )
    if isinstance(step, SiloEncoder):
        return {"params": plain, "encoding": learned, "named": hasattr(step, "feature_names_in_")}
    arrays = {
        name: np.asarray(getattr(step, name)).tolist() for name in ARRAYS if hasattr(step, name)
    }
    numbers = {name: int(getattr(step, name)) for name in PLAIN}
    numbers |= {} if learned is None else {"encoding": learned}
    return to_json(
        {
            "params": plain,
            "arrays": arrays,
            "intercept": np.asarray(step.intercept_).tolist(),  # pyright: ignore
            **numbers,
        }
    )


def _restored(step: dict) -> BaseEstimator:
    model = KNOWN[step["class"]](**step["params"])
    if "encoding" in step:  # of a SiloEncoder, or of a site's table
        learned = step["encoding"]
        numbers = {
            name: (mean, deviation) for name, (mean, deviation) in learned["numbers"].items()
        }
        words = {name: tuple(found) for name, found in learned["words"].items()}
        model.encoding_ = Encoding(tuple(learned["columns"]), numbers, words)  # pyright: ignore
    if isinstance(model, SiloEncoder):
        model.n_features_in_ = len(model.encoding_.columns)
        if step["named"]:
            model.feature_names_in_ = np.array(model.encoding_.columns, dtype=object)
        return model
    for name, value in step["arrays"].items():
        setattr(model, name, np.array(value, dtype=object if name == "feature_names_in_" else None))
    for name in PLAIN:
        setattr(model, name, step[name])
    many = isinstance(model, SiloLogisticRegression)
    model.intercept_ = np.array(step["intercept"]) if many else float(step["intercept"])  # pyright: ignore
    return model


def estimator_of(file: str, table: object) -> tuple[SiloLogisticRegression | SiloRidge, str]:
    """The estimator that the table [estimator] of a job file names, and the column with its
    labels."""
    where = f"{file}, [estimator]"
    options = dict(table) if isinstance(table, dict) else {}
    name = one_of(
        f"{where}.name",
        options.pop("name", None),
        [kind for kind in KNOWN if kind != SiloEncoder.__name__],
    )
    label = options.pop("label", None)
    if not isinstance(label, str):
        raise InputError(
            f"{where} must say which column has the labels.", 'Add label = "disease", for example.'
        )
    # the job and the site have these
    parameters = sorted(set(KNOWN[name]().get_params()) - {"network", "checkpoint"})
    only_known(where, "parameter", options, parameters)
    return KNOWN[name](**options), label  # pyright: ignore


def own_table(site: Home, label: str) -> tuple[Any, np.ndarray]:
    """This site's samples and their labels, from the file that its own site.toml names."""
    if site.table is None:
        raise InputError(
            f"{site.folder / 'site.toml'} does not say where this site's samples are.",
            'Add table = "ours.csv", the path of a CSV or parquet file.',
        )
    own = read_table(site.folder / site.table, label=label)
    assert own.y is not None  # since a column of labels was named
    return own.X, own.y


def fit_job(
    path: Path, site: Home, *, say: Say, wire: Wire | None = None
) -> tuple[SiloLogisticRegression | SiloRidge, Path]:
    """Fit the estimator of a job file with the other sites on this site's own table; the model, and
    where it is kept.

    wire   what carries the messages, TLS by default
    """
    model, label = estimator_of(path.name, read_tables(path)["estimator"])
    X, y = own_table(site, label)
    model.fit(X, y, silo=Member.at(path, site.folder, say=say, wire=wire))
    return model, save(model, site.folder / "models" / f"{path.stem}.json")
