"""Results on disk: CSV, JSON and figures, all of a folder or nothing of it."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from decibo.errors import InputError
from decibo.paper.result import Result, Table


def write(result: Result, folder: Path, figures: Callable[[Result, Path], list[Path]] | None = None) -> Path:
    """Everything about a result in folder/NAME, which is replaced as a whole; returns that folder."""
    target = folder / result.name
    with replacing(target) as place:
        for name, table in result.tables.items():
            (place / f"{name}.csv").write_text(as_csv(table))
        (place / f"{result.name}.json").write_text(as_json(result) + "\n")
        if figures is not None:
            figures(result, place)
    return target


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A new folder beside the target that takes its place at the end, and vanishes if anything goes wrong."""
    made = _parents(target.parent)
    place = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        yield place
        place.chmod(0o755)
        if target.exists():
            old = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.")) / "old"
            os.replace(target, old)
            os.replace(place, target)
            shutil.rmtree(old.parent)
        else:
            os.replace(place, target)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        for folder in made:
            folder.rmdir()
        raise


def writable(folder: Path) -> None:
    """Raise now rather than after an hour if a folder cannot be made or written to; leaves nothing behind."""
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    try:
        if not nearest.is_dir():
            raise NotADirectoryError(20, "is not a folder", str(nearest))
        tempfile.TemporaryDirectory(dir=nearest).cleanup()
    except OSError as error:
        raise InputError(
            f"cannot write to {folder} ({error.strerror})", "results need a folder", "Choose another with --out."
        ) from error


def as_csv(table: Table) -> str:
    """The columns as text; numbers in full, so that equal runs give equal files."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*(map(_cell, values.tolist()) for values in table.values()), strict=True))
    return out.getvalue()


def as_json(result: Result) -> str:
    """Claims, verdicts and settings."""
    return json.dumps(as_dict(result), indent=2)


def as_dict(result: Result) -> dict[str, Any]:
    """The same as plain Python, without the tables."""
    kept = {"name": result.name, "title": result.title, "data": result.data}
    claims = [asdict(claim) | {"verdict": str(claim.verdict)} for claim in result.claims]
    files = [f"{name}.csv" for name in result.tables]
    return kept | {"claims": claims, "settings": _plain(result.settings), "notes": list(result.notes), "tables": files}


def _parents(folder: Path) -> list[Path]:
    """Make a folder and those above it; returns those made, deepest first."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return missing


def _cell(value: Any) -> str:
    return repr(value) if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    return value
