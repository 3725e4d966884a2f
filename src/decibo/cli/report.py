"""decibo report: a page about runs and, on request, figures and a LaTeX table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from decibo import report as pages
from decibo.cli import terminal
from decibo.cli.errors import Exit
from decibo.errors import InputError
from decibo.files import atomic_write


def report(
    folders: Sequence[Path],
    out: Path | None,
    latex: Path | None,
    figures: bool,
    measure: str | None,
    size: str | None,
    font: float | None,
    log: bool,
    order: str | None,
    as_json: bool,
) -> int:
    """Write what was asked for, and tell where it is."""
    drawn = {"--measure": measure and latex is None, "--size": size, "--font": font, "--log": log}
    unused = [name for name, value in drawn.items() if value and not figures]
    if unused:
        raise InputError(
            f"{' and '.join(unused)} would change nothing, since no figures are written.",
            "Add --figures" + (", or --latex FILE." if unused == ["--measure"] else "."),
        )
    # Beside a single run, inside a folder of runs, and otherwise in out/.
    folder = folders[0].absolute()
    place = folder / "report.html"
    if pages.is_run(folder):
        place = folder.with_name(f"{folder.name}.html")
    place = out or (place if len(folders) == 1 else Path("out/report.html"))
    inches = re.fullmatch(r"([\d.]+)[x,*]([\d.]+)", size or "3.6x2.5")
    if inches is None:
        raise InputError(f"--size must be inches as 3.3x2.4, but it is {size}.")
    labels = [] if order is None else re.split(r",\s*(?![^\[(]*[\])])", order)

    table = "" if latex is None else pages.latex_table(folders, measure=measure, order=labels)
    page = pages.report(folders, place, order=labels)
    written = [page]
    if latex is not None and str(latex) != "-":
        written.append(atomic_write(latex, table))
    if figures:
        written += pages.figures(
            folders,
            place.parent / f"{place.stem}-figures",
            measures=None if measure is None else [measure],
            size=(float(inches[1]), float(inches[2])),
            font=font,
            log=log,
            order=labels,
        )
    if as_json:
        drawings = [path for path in written if path.suffix in (".png", ".pdf")]
        found = {"latex": table} if latex is not None else {}
        terminal.print_json(found | {"page": page} | ({"figures": drawings} if figures else {}))
    elif str(latex) == "-":
        print(table)  # and nothing else, so that it can be piped
    else:
        for path in written:
            terminal.say(f"Written to {terminal.path_of(path)}")
        terminal.say(f"Open {terminal.path_of(page)} in a browser (works offline).")
    return Exit.RAN
