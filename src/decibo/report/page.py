"""One page about runs: HTML that needs nothing but itself."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from decibo.errors import InputError
from decibo.files import atomic_write
from decibo.report import sections as parts
from decibo.report.chart_data import payload
from decibo.report.networks import groups, networks
from decibo.report.palette import DARK, LIGHT
from decibo.report.summary import load
from decibo.runs.describe import versions


def report(folders: str | Path | Sequence[str | Path], out: str | Path = "report.html") -> Path:
    """Write one self-contained HTML page about the runs in these folders, and return its path.

    A folder that is no run itself but holds runs stands for all of them. The page loads nothing from anywhere; the
    same folders give the same page.
    """
    runs, path = load(folders), Path(out)
    if path.is_dir():
        raise InputError(f"{path}", "it is a folder", f"Give a file, such as {path / 'report.html'}.")
    view = parts.View.of(runs)
    script, alone = _file("curves.js"), len(groups(runs)) == 1
    pieces = {
        "hash": _hash(script),
        "css": _fill(_file("page.css"), {"light": _colours(LIGHT), "dark": _colours(DARK)}),
        "title": escape(parts.title(runs)),
        "lead": escape(parts.lead(runs)),
        "cards": parts.cards(view),
        "summary": parts.summary(view),
        "networks_title": "Network" if alone else "Networks",
        "networks_class": "nets alone" if alone else "nets",
        "networks": networks(runs, view.labels),
        "costs": parts.costs(view),
        "settings": parts.settings(view),
        "details": parts.details(view),
        "version": escape(versions()["decibo"]),
        "data": embedded(payload(view.runs, view.labels, view.measure)),
        "script": script,
    }
    return atomic_write(path, _fill(_file("page.html"), pieces))


def embedded(data: Any) -> str:
    """JSON that cannot end the script element it stands in, nor open a comment."""
    dumped = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return dumped.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _fill(template: str, pieces: Mapping[str, str]) -> str:
    """Put the pieces in their places; one pass, so that what is put in is never searched."""
    first, *rest = template.split("@@")
    return first + "".join(pieces[part] if k % 2 == 0 else part for k, part in enumerate(rest))


def _hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _colours(palette: Sequence[str]) -> str:
    return "  " + " ".join(f"--c{k}: {colour};" for k, colour in enumerate(palette))


def _file(name: str) -> str:
    return (files("decibo.report") / "templates" / name).read_text(encoding="utf-8")
