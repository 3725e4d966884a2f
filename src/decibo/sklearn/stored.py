"""Fitted models as a file of JSON: `save` and `load`. Nothing in it can be executed, unlike in a
pickle."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from decibo.data.encode import Encoding
from decibo.errors import CorruptedFileError, InputError
from decibo.files import atomic_write, check_own, read_checked
from decibo.formatting import to_json
from decibo.sklearn.encoder import SiloEncoder
from decibo.sklearn.estimators import SiloCox, SiloGLM, SiloLogisticRegression, SiloRidge
from decibo.sklearn.model import SiloClassifier
from decibo.sklearn.trust import SiloTrust

KIND = "decibo model"
FORMAT = 1
KNOWN = {
    known.__name__: known
    for known in (SiloEncoder, SiloLogisticRegression, SiloRidge, SiloGLM, SiloCox, SiloTrust)
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
    "personal_coef_",
    "personal_intercept_",
    "personal_silos_",
    "covariance_",
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
        if callable(getattr(step, "loss", None)):
            raise InputError(
                f"{step!r} has a loss that is a function, which JSON cannot hold.",
                "Use joblib for it.",
            )
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
    many = isinstance(model, SiloClassifier)
    model.intercept_ = np.array(step["intercept"]) if many else float(step["intercept"])  # pyright: ignore
    return model
