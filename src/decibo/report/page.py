"""One page about runs: HTML that needs nothing but itself, made from the templates beside this file."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from pathlib import Path

from decibo.errors import InputError, missing
from decibo.files import atomic_write
from decibo.formatting import Json
from decibo.report.chart_data import chart_data
from decibo.report.figures import DARK, LIGHT
from decibo.report.sections import Page, page_sections
from decibo.report.summary import Folders, load, main_measure
from decibo.runs.describe import versions


def report(folders: Folders, out: str | Path = "report.html") -> Path:
    """Write one self-contained HTML page about the runs in these folders, and return its path.

    A folder that is not a run itself but contains runs stands for all of them. The page loads nothing from elsewhere;
    the same folders give the same page.
    """
    runs = load(folders)
    path = Path(out)
    if path.is_dir():
        raise InputError(f"A page must be a file, but {path} is a folder.", f"Try {path / 'report.html'}.")
    page = page_sections(runs)
    data = chart_data(runs, [run.label for run in page.runs], main_measure(runs))
    return atomic_write(path, _render(page, data))


def _render(page: Page, data: dict[str, Json]) -> str:
    """The page as HTML; whatever comes from a run is escaped by the templates."""
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise missing("Jinja2", "The page about runs", "report") from error
    environment = Environment(
        loader=FunctionLoader(_template), undefined=StrictUndefined, autoescape=True, trim_blocks=True
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    script = _template("curves.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("page.html").render(
        page=page,
        data=data,
        light=LIGHT,
        dark=DARK,
        script=Markup(script),
        script_hash=f"sha256-{digest}",
        version=versions()["decibo"],
    )


def _template(name: str) -> str:
    return (files("decibo.report") / "templates" / name).read_text(encoding="utf-8")
