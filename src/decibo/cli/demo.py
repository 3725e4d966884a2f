"""decibo demo: ten silos tune the regularisation of a classifier together, and no image leaves its silo."""

from __future__ import annotations

from pathlib import Path

import decibo
from decibo.cli import terminal
from decibo.cli.errors import Exit
from decibo.cli.run import exit_code, interruptible, is_first
from decibo.formatting import format_bytes, format_seconds
from decibo.report import check_target, report, write_run

STEPS = 2000
METHODS = {
    "ahead, timescales apart": {"alpha": 10.0, "beta": 0.001, "gamma": 0.1, "lam": 20.0},
    "ahead, matched inner steps": {"alpha": 100.0, "gamma": 0.3, "lam": 20.0},
    "ahead_exact, automatic steps": None,
}
MEASURES = ["phi", "stationarity", "consensus_x", "consensus_y"]


def demo(out: Path, as_json: bool) -> Exit:
    """Solve it with AHEAD and with ahead_exact, write a page about the runs, and compare the results."""
    folders = {label: check_target(out / label.replace(", ", "-").replace(" ", "_")) for label in METHODS}
    visible = is_first() and not as_json
    dataset = decibo.data.digits()
    problem = decibo.problems.logistic_hyperparameters(dataset, agents=10, split="by_label", loss="mean", scale=16.0)
    network = decibo.networks.erdos_renyi(10, 0.4, seed=0)
    if visible:
        _introduce(problem, network)
    runs: dict[str, decibo.Solution] = {}
    accuracies: dict[str, float] = {}
    with interruptible():
        for label, settings in METHODS.items():
            method = decibo.ahead_exact() if settings is None else decibo.ahead(**settings)
            runs[label] = decibo.solve(problem, network, method, steps=STEPS, measures=MEASURES)
            write_run(folders[label], runs[label], problem, network, method, label=label)
            accuracy = decibo.problems.accuracy(runs[label].y, dataset.test_features, dataset.test_labels)
            accuracies[label] = float(accuracy)
            if visible:
                _row(label, runs[label], accuracies[label])
            if runs[label].status is decibo.Status.interrupted:
                break
    if is_first():
        page = report([folders[label] for label in runs], out / "report.html")
        if as_json:
            dicts = {
                label: terminal.run_as_dict(run, folders[label]) | {"test_accuracy": accuracies[label]}
                for label, run in runs.items()
            }
            terminal.print_json({"runs": dicts, "page": page})
        else:
            _close(list(runs.values())[-1].message, terminal.path_of(page))
    return max(exit_code(run) for run in runs.values())


def _introduce(problem: decibo.Problem, network: decibo.Network) -> None:
    spread = decibo.heterogeneity(problem)
    terminal.say(
        "Handwritten digits, 1 against 3, spread unequally over 10 silos.",
        f"{network!r}; heterogeneity b_f^2 = {spread.b_f2:.2g}, b_g^2 = {spread.b_g2:.2g}",
        "x: one regularisation weight for each pixel. y: the classifier. Silos exchange",
        "only x, y and z.",
        "",
    )
    first = float(decibo.reference(problem).phi(problem.x0))
    print(f"{'':29}{'validation':>11}{'test':>10}{'consensus':>11}{'sent':>8}{'time':>9}")
    print(f"{'':29}{'loss':>11}{'accuracy':>10}{'error x':>11}")
    print(f"{'start':29}{first:11.4f}", flush=True)


def _row(label: str, solution: decibo.Solution, accuracy: float) -> None:
    """A line as soon as a run is over, so that nobody waits in front of an empty screen."""
    phi = solution.history["phi"][-1]
    consensus = solution.history["consensus_x"][-1]
    sent = format_bytes(solution.cost.bytes_total)
    seconds = format_seconds(solution.cost.seconds)
    print(f"{label:29}{phi:11.4f}{accuracy:10.3f}{consensus:11.1e}{sent:>8}{seconds:>9}", flush=True)


def _close(message: str, page: str) -> None:
    terminal.say(
        "",
        message,
        "The step sizes of the first two were found by hand; ten times the alpha of the first diverges.",
        "",
        f"Open {page} in a browser: curves, network, costs; it needs no network.",
        "Next: docs/tutorial.md states a problem of your own in fifteen lines.",
    )
