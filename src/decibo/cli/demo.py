"""The demo: ten silos tune the regularisation of a classifier together, and no image leaves its silo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

STEPS = 2000
METHODS = {
    "ahead, timescales apart": {"alpha": 10.0, "beta": 0.001, "gamma": 0.1, "lam": 20.0},
    "ahead, matched inner steps": {"alpha": 100.0, "gamma": 0.3, "lam": 20.0},
    "ahead_exact, automatic steps": None,
}


def main(out: Path = Path("out/demo"), as_json: bool = False) -> int:
    """Solve it with AHEAD and with ahead_exact, write a page about the runs, and show where they come out."""
    import decibo
    from decibo.cli import exits, outcome, processes
    from decibo.cli import terminal as show
    from decibo.report import check_target, report, write_run

    folders = {label: check_target(out / label.replace(", ", "-").replace(" ", "_")) for label in METHODS}
    processes.begin()
    shown = processes.first() and not as_json
    dataset = decibo.data.digits()
    problem = decibo.problems.logistic_hyperparameters(dataset, agents=10, split="by_label", loss="mean", scale=16.0)
    network = decibo.networks.erdos_renyi(10, 0.4, seed=0)
    if shown:
        _introduce(problem, network)
    told: dict[str, Any] = {}
    with processes.interruptible():
        for label, settings in METHODS.items():
            method = decibo.ahead_exact() if settings is None else decibo.ahead(**settings)
            measures = ["phi", "stationarity", "consensus_x", "consensus_y"]
            solution = decibo.solve(problem, network, method, steps=STEPS, measures=measures)
            write_run(folders[label], solution, problem, network, method, label=label)
            accuracy = decibo.problems.accuracy(solution.y, dataset.test_features, dataset.test_labels)
            told[label] = outcome.as_dict(solution, folders[label]) | {"test_accuracy": float(accuracy)}
            if shown:
                _row(label, solution, accuracy)
            if solution.status == "interrupted":
                break
    code = max(exits.INTERRUPTED if run["status"] == "interrupted" else exits.RAN for run in told.values())
    if processes.first():
        page = report([folders[label] for label in told], out / "report.html")
        _close(told, show.path_of(page)) if shown else show.as_json({"runs": told, "page": page})
    return code


def _introduce(problem: Any, network: Any) -> None:
    import decibo
    from decibo.cli import terminal as show

    spread = decibo.heterogeneity(problem)
    show.say(
        "Handwritten digits, 1 against 3, over 10 silos with unequal shares of both.",
        f"{network!r}; heterogeneity b_f^2 = {spread.b_f2:.2g}, b_g^2 = {spread.b_g2:.2g}",
        "x: one regularisation weight for each pixel. y: the classifier. Only x, y, z travel.",
        "",
    )
    first = float(decibo.reference(problem).phi(problem.x0))
    print(f"{'':29}{'validation':>11}{'test':>10}{'consensus':>11}{'sent':>8}{'time':>8}")
    print(f"{'':29}{'loss':>11}{'accuracy':>10}{'error x':>11}")
    print(f"{'start':29}{first:11.4f}", flush=True)


def _row(label: str, solution: Any, accuracy: Any) -> None:
    """A line as soon as it is known, so that nobody waits before an empty screen."""
    from decibo.cli import terminal as show

    phi, apart = (solution.history[name][-1] for name in ("phi", "consensus_x"))
    sent = show.amount(solution.cost.bytes_total)
    numbers = f"{phi:11.4f}{float(accuracy):10.3f}{apart:11.1e}{sent:>8}{solution.cost.seconds:6.1f} s"
    print(f"{label:29}{numbers}", flush=True)


def _close(told: dict[str, Any], page: str) -> None:
    from decibo.cli import terminal as show

    show.say(
        "",
        list(told.values())[-1]["message"],
        "The step sizes of the first two were found by hand; ten times the alpha of the first diverges.",
        "",
        f"Open {page} in a browser: curves, network, costs; it needs no network.",
        "Next: docs/tutorial.md states a problem of your own, in fifteen lines.",
    )
