"""What came out of one run, for the terminal, for JSON and for a comparison."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from decibo.cli import exits
from decibo.cli import terminal as show
from decibo.execute.solution import Solution, Status


def exit_code(solution: Solution) -> int:
    """What the command ends with after this run."""
    return {Status.diverged: exits.DIVERGED, Status.interrupted: exits.INTERRUPTED}.get(solution.status, exits.RAN)


def last(solution: Solution) -> dict[str, Any]:
    """The last record of every measure."""
    return {name: solution.history[name][-1] for name in show.ordered(solution.history) if len(solution.history[name])}


def as_dict(solution: Solution, folder: Path | None) -> dict[str, Any]:
    """What --json prints for a run."""
    cost = solution.cost
    totals = {"gradients_total": cost.gradients_total, "bytes_total": cost.bytes_total}
    return {
        "status": str(solution.status),
        "message": solution.message,
        "steps": solution.steps,
        "seconds": cost.seconds,
        "method": repr(solution.method),
        "network": repr(solution.network),
        "last": last(solution),
        "cost": {**asdict(cost), **totals},
        "folder": None if folder is None else str(folder),
    }


def show_run(solution: Solution) -> None:
    """A table of measures, the first and the last record."""
    names = show.ordered(solution.history)
    rows = [(name, *(values[k] for k in (0, -1))) for name in names if len(values := solution.history[name])]
    steps = solution.history["step"]
    show.table(("measure", "start", f"step {int(steps[-1]):,}" if len(steps) else "end"), rows)
    cost = solution.cost
    show.say(
        solution.message,
        f"{cost.seconds:.1f} s; {cost.gradients_total:,} gradients, {show.amount(cost.bytes_total)} sent.",
    )


def show_compared(runs: dict[str, Solution]) -> None:
    """A line for each method, with the measures that are looked for first."""
    shared = [name for name in show.ordered(next(iter(runs.values())).history) if _everywhere(name, runs)][:2]
    rows = [
        (
            label,
            str(run.status),
            *(last(run).get(name) for name in shared),
            f"{run.cost.gradients_total:.1e}",
            show.amount(run.cost.bytes_total),
            f"{run.cost.seconds:.1f} s",
        )
        for label, run in runs.items()
    ]
    show.table(("method", "status", *shared, "gradients", "sent", "time"), rows, left=2)
    for label, run in runs.items():
        if run.status is Status.diverged:
            show.say(f"{label}: {run.message}")


def _everywhere(name: str, runs: dict[str, Solution]) -> bool:
    return all(name in run.history and np.ndim(run.history[name]) == 1 for run in runs.values())
