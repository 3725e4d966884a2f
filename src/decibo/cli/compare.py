"""decibo compare: several methods on the same problem and network, each in a run folder of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from decibo.cli import config as configuration
from decibo.cli import exits, outcome, processes
from decibo.cli import terminal as show
from decibo.cli.build import build, precision
from decibo.cli.choice import Choice
from decibo.cli.run import OUT, carry_out, write
from decibo.errors import InputError
from decibo.execute.solution import Solution, Status


def compare(path: Path, sets: Iterable[str], methods: Iterable[str], out: Path | None, as_json: bool) -> int:
    """Run them one after another. Everything is checked before the first one starts."""
    from decibo.runs.folder import check_target

    processes.begin()
    config = configuration.read(path, sets, methods)
    if not config.compare:
        raise InputError(
            f"{path}", "it names no methods to compare", "Give -a ahead_exact -a 'ahead[alpha=0.05,gamma=0.1,lam=20]'."
        )
    folder = out or OUT / f"{path.stem}-compare"
    labels = _labels(config.compare)
    places = {label: check_target(folder / _file_name(label)) for label in labels}
    runs: dict[str, Solution] = {}
    with precision(config), processes.interruptible():
        built = {label: build(replace(config, method=choice)) for label, choice in labels.items()}
        for label, (parts, full) in built.items():
            runs[label] = carry_out(parts, full)
            write(places[label], runs[label], parts, full, label)
            if runs[label].status is Status.interrupted:
                break
    if processes.first():
        _tell(runs, places, folder, as_json)
    codes = [outcome.exit_code(run) for run in runs.values()]
    return exits.INTERRUPTED if exits.INTERRUPTED in codes else max(codes)


def _tell(runs: dict[str, Solution], places: dict[str, Path], folder: Path, as_json: bool) -> None:
    if as_json:
        return show.as_json({"runs": [{"label": k} | outcome.as_dict(v, places[k]) for k, v in runs.items()]})
    outcome.show_compared(runs)
    others = {path.name for path in folder.iterdir() if path.is_dir()} - {place.name for place in places.values()}
    listed = " ".join(show.path_of(places[label]) for label in runs)  # where other runs lie beside these
    show.say(f"Written to {show.path_of(folder)}", f"Next: decibo report {listed if others else show.path_of(folder)}")
    return None


def _labels(methods: tuple[Choice, ...]) -> dict[str, Choice]:
    """Methods by how they were written; the same one twice is a mistake."""
    labels: dict[str, Choice] = {}
    for choice in methods:
        if choice.label in labels:
            raise InputError(f"{choice.where} {choice.label}", "it is there twice", "Name each method once.")
        labels[choice.label] = choice
    return labels


def _file_name(label: str) -> str:
    return re.sub(r"[^\w.=-]+", "_", label).strip("_")[:100]
