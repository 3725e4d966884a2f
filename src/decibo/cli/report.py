"""decibo report: a page about runs and, on request, figures and a LaTeX table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from decibo import report as pages
from decibo.cli import terminal
from decibo.cli.errors import Exit


def report(
    folders: Sequence[Path],
    out: Path | None,
    figures: bool,
    latex: bool,
    measure: str | None,
    axis: str,
    band: str,
    as_json: bool,
) -> Exit:
    """Write what was requested and say where it is."""
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
    terminal.say(f"Open {terminal.path_of(page)} in a browser; it needs no network.")
    return Exit.RAN


def _place(folders: Sequence[Path], single: bool) -> Path:
    """Beside a single run, inside a folder of runs, and otherwise in out/."""
    if len(folders) > 1:
        return Path("out/report.html")
    folder = folders[0].absolute()
    return folder.with_name(f"{folder.name}.html") if single else folder / "report.html"
