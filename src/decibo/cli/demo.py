"""decibo demo: four hospitals learn one model together, and no record leaves its hospital.

What each hospital achieves alone, what they achieve together, and what all records in one place
would give, on the same patients; then what happens if one hospital swaps sick and healthy by
mistake, who notices, and what can be done. A hospital alone is the same problem with no patients in
the other three, so that one compiled program serves all runs.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

import decibo
from decibo.cli import terminal
from decibo.cli.solving import code_of, is_first
from decibo.data.dataset import Dataset
from decibo.data.split import by_group, shards
from decibo.formatting import format_bytes, format_seconds
from decibo.measure.measures import Snapshot
from decibo.parallel.collectives import average
from decibo.report import check_target, report, write_run
from decibo.sklearn import losses, silos
from decibo.sklearn.trust import Audit, SiloTrust

STEPS = 2000
SPLITS = (43, *range(1, 10))  # the first one is FLamby's
TOGETHER = "together, with decibo"
POOLED = "all records in one place, if allowed"
FOLDS = 4
# patients of a hospital, padding included: one shape, and one compiled program, for all runs
SIZE = 256
SWAPPED = "Budapest"
CHECKED = 30
# Means of five seeds, from flamby/results of https://github.com/owkin/FLamby (edacf54), for the
# split of seed 43.
PUBLISHED = {
    "FedAvg": 0.748,
    "FedProx": 0.748,
    "Scaffold": 0.748,
    "FedAdam": 0.779,
    "Cyclic": 0.785,
    "pooled": 0.795,
}


class Trial(NamedTuple):
    """A model of one or all hospitals, judged on new patients."""

    problem: decibo.Problem
    solution: decibo.Solution
    accuracy: float


def demo(out: Path, as_json: bool) -> int:
    """Both tables, and the page."""
    splits = [decibo.data.heart_disease(seed) for seed in SPLITS]
    data = splits[0]
    groups, counts = np.unique(data.silos(), return_counts=True)
    names = [str(name) for name in groups]
    network = replace(decibo.ring(len(names)), labels=tuple(names))
    choices = {f"{names[k]} alone": [names[k]] for k in np.argsort(-counts)} | {TOGETHER: names}
    folders = {
        label: check_target(out / label.replace(", ", "-").replace(" ", "_")) for label in choices
    }
    say = terminal.say if is_first() and not as_json else lambda *lines: None
    say(
        "Who has heart disease? Four hospitals want one model from the records of all,",
        f"and no record may leave its hospital. {len(data.labels)} patients to learn from, "
        f"{len(data.test_labels)} new.",
        "",
    )
    first: dict[str, Trial] = {}
    scores: dict[str, list[float]] = {}

    def row(text: str, width: int, shares: list[float], before: str = "") -> None:
        """A line as soon as it is known."""
        if is_first() and not as_json:
            print(f"{text}{before}{shares[0]:12.3f}{_mean(shares):>{width}}", flush=True)

    if is_first() and not as_json:
        print(f"{'':38}{'patients':>9}{'correct on the 254 new ones':>31}")
        print(f"{'':38}{'':>9}{'this split':>12}{f'mean of {len(SPLITS)} splits':>19}", flush=True)
    for label, chosen in choices.items():
        if label == TOGETHER:
            scores[POOLED] = [pooled(split) for split in splits]
            row(f"{POOLED:38}", 19, scores[POOLED], f"{len(data.labels):9}")
        trials = [learn(split, network, chosen) for split in splits]
        first[label] = trials[0]
        problem, solution, _ = trials[0]
        over = network
        if label != TOGETHER:  # the others, with no patients, are not there
            over = decibo.complete(1)
            sent = {"messages": 0, "numbers": 0, "bytes": 0}
            cost = replace(solution.cost, agents=1, links=0, **sent)
            solution = replace(solution, cost=cost)
        write_run(folders[label], solution, problem, over, label=label)
        scores[label] = [trial.accuracy for trial in trials]
        patients = int(np.isin(data.silos(), chosen).sum())
        row(f"{label:38}", 19, scores[label], f"{patients:9}")
    solution = first[TOGETHER].solution
    published = ", ".join(f"{name} {share:.3f}" for name, share in PUBLISHED.items())
    say(
        "",
        "Published by FLamby (NeurIPS 2022) for this split, means of five seeds:",
        f"{published}.",
        "A share of 254 patients has a standard error of 0.025. Together minus one place, "
        f"over {len(SPLITS)} splits: {_mean(np.subtract(scores[TOGETHER], scores[POOLED]))}.",
        f"No step size was chosen by hand: {solution.steps} steps,"
        f" {format_seconds(solution.cost.seconds)}. In a step a hospital sends"
        f" {format_bytes(solution.cost.bytes)} to each neighbour, and never a record.",
        "",
    )
    mistakes = [mistaken(split, network) for split in splits]

    # What one hospital's mistake costs, and who is asked about it.
    ways = {
        "nobody notices": [found.nothing for found in mistakes],
        "only the checked records train": [found.checked_alone for found in mistakes],
        "each hospital weighs as far as it can be trusted": [found.trust for found in mistakes],
    }
    asked = sum(SWAPPED in each.asked for each in mistakes)
    honest = sum(bool(set(each.asked) - {SWAPPED}) for each in mistakes)
    say(
        f"One hospital, {SWAPPED}, enters sick and healthy the wrong way round, and {CHECKED}"
        " records of each were read a second time. Who is it? On this split:",
        "",
    )
    if is_first() and not as_json:
        print(mistakes[0].audit)
    say(
        "",
        f"Over {len(mistakes)} splits the audit asks {SWAPPED} in {asked}, and an"
        f" honest hospital in {honest}. Correct on new patients:",
    )
    for label, shares in ways.items():
        row(f"{label:50}", 18, shares)
    if is_first():
        page = report(list(reversed(folders.values())), out / "report.html")
        say(
            "",
            f"Open {terminal.path_of(page)} in a browser: curves, network, costs.",
            "Next: docs/how-to/owners.md has your own tables, docs/tutorial.md your own problem.",
        )
        by = "FLamby, NeurIPS 2022, means of five seeds"
        found = {
            "splits": SPLITS,
            "accuracy": scores,
            "published": {"by": by, "accuracy": PUBLISHED},
            "mistaken": {
                "hospital": SWAPPED,
                "accuracy": ways,
                "asked": [each.asked for each in mistakes],
                "audit": [entry._asdict() for entry in mistakes[0].audit],
            },
            "runs": {
                label: terminal.run_as_dict(trial.solution, folders[label])
                for label, trial in first.items()
            },
            "page": page,
        }
        if as_json:
            terminal.print_json(found)
    return max(code_of(trial.solution.status) for trial in first.values())


def _mean(values: Sequence[float] | np.ndarray) -> str:
    """A mean with its standard error."""
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.3f}"


# Alone, together, pooled


def learn(data: Dataset, network: decibo.Network, chosen: Sequence[str]) -> Trial:
    """The model of the chosen hospitals, as `SiloLogisticRegression` learns it; the others have no
    patients."""
    names = np.unique(data.silos())
    rows = [
        np.flatnonzero(data.silos() == name) if name in chosen else np.zeros(0, int)
        for name in names
    ]
    kept = np.concatenate(rows)
    starts = np.cumsum([0, *map(len, rows)])
    parts = [np.arange(a, b) for a, b in pairwise(starts)]
    features = data.features[kept]
    sick = (data.labels[kept] > 0).astype(float)
    census = silos.alone(names, parts)
    scale = silos.agreed_scale(census, features)
    fold = silos.dealt(census, np.c_[scale(features), sick], FOLDS, seed=0)
    stacked = silos.stacked(census, scale(features), sick[:, None], fold, FOLDS, SIZE)
    new = shards(scale(data.test_features), data.test_labels > 0, by_group(data.silos(test=True)))
    width = stacked["features"].shape[2] - new["features"].shape[2]
    stacked["new_features"] = np.pad(new["features"], ((0, 0), (0, 0), (0, width)))
    stacked["new_targets"] = new["labels"][..., None].astype(float)
    stacked["new"] = new["weights"] * len(names) / len(data.test_labels)
    problem = silos.problem_of(
        census, stacked, losses.log_loss, name="heart disease in four hospitals"
    )
    solution = decibo.solve(
        problem,
        network,
        decibo.ahead_exact(),
        steps=STEPS,
        every=10,
        measures=[correct_on_new_patients, loss_on_new_patients, silos.residual],
        until={"residual": 1e-3},
        progress=False,
    )
    return Trial(problem, solution, float(solution.history["correct_on_new_patients"][-1]))


def pooled(data: Dataset) -> float:
    """The accuracy of scikit-learn's `LogisticRegressionCV` on the records of all hospitals in one
    place."""
    from sklearn.linear_model import LogisticRegressionCV

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # about defaults of scikit-learn's own
        model = LogisticRegressionCV(solver="newton-cholesky").fit(data.features, data.labels)
    return float(model.score(data.test_features, data.test_labels))


def loss_on_new_patients(s: Snapshot) -> jax.Array:
    """The mean log-loss of the common model on the test patients of all hospitals."""
    own = lambda d: d["new"] @ losses.log_loss(_predicted(s, d), d["new_targets"])
    return average(jax.vmap(own)(s.here))


def correct_on_new_patients(s: Snapshot) -> jax.Array:
    """The share of the test patients of all hospitals that the common model gets right."""
    own = lambda d: (
        d["new"] @ ((_predicted(s, d) > 0) == (d["new_targets"] > 0))[:, 0].astype(d["new"].dtype)
    )
    return average(jax.vmap(own)(s.here))


def _predicted(s: Snapshot, d: dict[str, jax.Array]) -> jax.Array:
    """Scores of a hospital's test patients by the answer, the last of the models."""
    return d["new_features"] @ s.y["coef"][-1] + s.y["intercept"][-1]


# Which hospital harms


class Mistake(NamedTuple):
    """One hospital enters labels the wrong way round: correct on new patients with what is done
    about it, and whom the audit asks."""

    nothing: float
    checked_alone: float
    trust: float
    audit: Audit

    @property
    def asked(self) -> list[str]:
        """The hospitals whose labels should be looked at."""
        return [str(row.silo) for row in self.audit if row.verdict == "ask"]


def mistaken(data: Dataset, network: decibo.Network) -> Mistake:
    """SWAPPED turns the labels of all its records round, and CHECKED records of each hospital, at
    most half of them, are read a second time."""
    names = np.unique(data.silos()).tolist()
    checked = np.zeros(len(data.labels), dtype=bool)
    for rows in by_group(data.silos()):
        some = np.random.default_rng(0).permutation(rows)
        checked[some[: min(CHECKED, len(rows) // 2)]] = True
    entered = np.where(data.silos() == SWAPPED, -data.labels, data.labels)
    labels = np.where(checked, data.labels, entered)
    model = SiloTrust(network=network, random_state=0).fit(
        data.features, labels, data.silos(), checked, first=entered
    )

    def right(rows: np.ndarray) -> float:
        """The accuracy if these records train."""
        some = {
            "features": data.features[rows],
            "labels": labels[rows],
            "groups": data.silos()[rows],
        }
        return learn(replace(data, **some), network, names).accuracy

    return Mistake(
        right(np.ones_like(checked)),
        right(checked),
        float(model.score(data.test_features, data.test_labels)),
        model.audit(),
    )
