"""decibo report: a page about runs and, on request, figures and a LaTeX table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from decibo import report as pages
from decibo.cli import terminal
from decibo.cli.errors import Exit
from decibo.cli.options import Json


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Run folders, or folders of them.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="The page to write.")
    ] = None,
    figures: Annotated[
        bool, typer.Option("--figures", help="Also write figures as PNG and PDF.")
    ] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Also print a LaTeX table.")] = False,
    measure: Annotated[
        str | None, typer.Option(help="The measure of the figures and the LaTeX table.")
    ] = None,
    axis: Annotated[
        str, typer.Option(help="Unit of the table: step, work, gradients, bytes, seconds.")
    ] = "step",
    band: Annotated[
        str, typer.Option(help="Of several seeds in figures: quartiles or range.")
    ] = "quartiles",
    as_json: Json = False,
) -> int:
    """Write one page about runs, for any browser.

    Runs that differ in their seed only are one line with a band, and one row
    with mean and standard deviation.

    \b
    Examples:
      decibo report out/mine-compare
      decibo report out/first out/second --figures --latex
    """
    place = out or _place(folders, pages.is_run(folders[0]))
    written: dict[str, object] = {}
    if latex:
        written["latex"] = pages.latex_table(list(folders), measure=measure, axis=axis)
    page = pages.report(list(folders), place)
    drawings = []
    if figures:
        chosen = None if measure is None else [measure]
        drawings = pages.figures(
            list(folders), place.parent / f"{place.stem}-figures", measures=chosen, band=band
        )
    written["page"] = page
    if figures:
        written["figures"] = drawings
    if as_json:
        terminal.print_json(written)
        return Exit.RAN
    if latex:
        print(written["latex"])
    for path in (page, *drawings):
        terminal.say(f"Written to {terminal.path_of(path)}")
    terminal.say(f"Open {terminal.path_of(page)} in a browser (works offline).")
    return Exit.RAN


def _place(folders: Sequence[Path], single: bool) -> Path:
    """Beside a single run, inside a folder of runs, and otherwise in out/."""
    if len(folders) > 1:
        return Path("out/report.html")
    folder = folders[0].absolute()
    return folder.with_name(f"{folder.name}.html") if single else folder / "report.html"
