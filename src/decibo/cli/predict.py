"""decibo predict: what a fitted model says of the rows of a table."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.pipeline import Pipeline

from decibo.cli import terminal
from decibo.data.tables import read_table
from decibo.errors import InputError
from decibo.files import atomic_write
from decibo.sklearn import load


def predict(
    model: Path,
    table: Path,
    out: Path | None,
    silo: str | None,
    missing: Sequence[str] | None,
    as_json: bool,
) -> int:
    """A line for each row: the prediction, and the chance of each class if there are classes."""
    fitted = load(model)
    first = fitted.steps[0][1] if isinstance(fitted, Pipeline) else fitted
    last = fitted.steps[-1][1] if isinstance(fitted, Pipeline) else fitted
    names = getattr(first, "feature_names_in_", None)
    if not hasattr(last, "predict"):
        raise InputError(f"{model} holds {last!r}, which predicts nothing.")
    # A table may have more columns than the model, such as the one that is to be predicted.
    columns = None if names is None else list(names)
    own = read_table(table, columns=columns, silo=silo, missing=missing or ())
    groups = {} if silo is None else {"groups": own.groups}
    rows = own.X if names is not None else own.X.to_numpy()
    predicted = {"prediction": np.asarray(fitted.predict(rows, **groups)).tolist()}  # pyright: ignore
    if hasattr(last, "classes_"):
        chances = fitted.predict_proba(rows, **groups)  # pyright: ignore
        for label, chance in zip(last.classes_, chances.T, strict=True):  # pyright: ignore
            predicted[f"chance of {label}"] = np.round(chance, 6).tolist()
    if as_json:
        terminal.print_json(predicted)
        return 0
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([predicted, *zip(*predicted.values(), strict=True)])
    if out is None:
        print(text.getvalue(), end="")
    else:
        written = atomic_write(out, text.getvalue())
        terminal.say(f"{len(rows)} predictions in {terminal.path_of(written)}")
    return 0
