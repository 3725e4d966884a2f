"""decibo report: a page, and if asked figures and a LaTeX table, from run folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from decibo.cli import terminal as show


def report(
    folders: Sequence[Path], out: Path | None, figures: bool, latex: bool, measure: str | None, axis: str, as_json: bool
) -> int:
    """Write what was asked for and say where it is."""
    from decibo import report as pages

    place = out or _place(folders, pages.is_run(folders[0]))
    written: dict[str, Any] = {}
    if latex:
        written["latex"] = pages.latex_table(list(folders), measure=measure, axis=axis)
    written["page"] = pages.report(list(folders), place)
    if figures:
        written["figures"] = pages.figures(list(folders), place.parent / f"{place.stem}-figures")
    if as_json:
        show.as_json(written)
        return 0
    if latex:
        print(written["latex"])
    for path in [written["page"], *written.get("figures", [])]:
        show.say(f"Written to {show.path_of(Path(path))}")
    show.say(f"Open {show.path_of(Path(written['page']))} in a browser; it needs no network.")
    return 0


def _place(folders: Sequence[Path], single: bool) -> Path:
    """Beside one run, inside a folder of runs, and otherwise in out/."""
    if len(folders) > 1:
        return Path("out/report.html")
    folder = folders[0].absolute()
    return folder.with_name(f"{folder.name}.html") if single else folder / "report.html"
