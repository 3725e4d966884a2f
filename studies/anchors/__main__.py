r"""Tables that others have printed, each with the row of what a sceptic would do instead.

    DECIBO_DATA=my/data python -m studies.anchors linear ten-linear      # or mlp, ten-mlp, a9a, ijcnn1
    python -m studies.anchors --results studies/results                  # all that is in out/anchors

    linear, mlp   V-PBGD (Shen and Chen, ICML 2023), Table 2: MNIST, 5,000 training samples of which
                  half have their label drawn anew, 5,000 clean validation samples, 10,000 for
                  testing; a linear model, and one with a hidden layer of 300. ten-...: ten agents on
                  a ring with a tenth each. Theirs are one agent.
    a9a, ijcnn1   MDBO (Gao, Gu and Thai, AISTATS 2023): one penalty for each feature, 8 agents on a
                  ring; validation accuracy, as they print it, and that on the test set

Our rows are the untuned default, `ahead_exact()` with steps that it finds, on the whole of each
agent's samples. The sceptic of the cleaning tables trains on the clean validation samples alone,
and then again together with the training samples with which that model agrees; penalties are 1e-3.
That of the penalties has ONE for all features, the best of a grid on the validation samples.
D-SOBA's Fig. 3 needs Fashion-MNIST, which is not computed here.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import decibo
from decibo.data.dataset import Dataset
from studies.machine import in_words, machine

OUT = Path(os.environ.get("OUT", "out")) / "anchors"
PRINTED = {
    "linear": {
        "RHG": "87.64 / 89.71",
        "BOME": "87.09 / 89.83",
        "G-PBGD": "90.09 / 90.82",
        "IAPTT-GM": "90.44 / 91.89",
        "V-PBGD": "90.48 ± .13 / 91.99",
    },
    "mlp": {
        "RHG": "87.50",
        "BOME": "87.42",
        "G-PBGD": "92.17",
        "IAPTT-GM": "91.72",
        "V-PBGD": "94.58 ± .08",
    },
    "a9a": {"MDBO": "81.5"},
    "ijcnn1": {"MDBO": "90.5"},
}
CLEANING = ("linear", "mlp")
HIDDEN = 300
RIDGE = 1e-3


def sizes(quick):
    return (500, 500, 1000) if quick else (5000, 5000, 10000)


def scores(y, features):
    """Of the linear model, or of the one with a hidden layer."""
    if isinstance(y, dict):
        return jax.nn.sigmoid(features @ y["in"] + y["bias"]) @ y["out"] + y["ends"]
    return jnp.einsum("sp,cp->sc", features, jax.lax.optimization_barrier(y.T))


def entropy(y, samples):
    logs = jax.nn.log_softmax(scores(y, samples["features"]))
    return -jnp.take_along_axis(logs, samples["labels"][:, None], axis=1)[:, 0]


def outer(x, y, d):
    return d["validation"]["weights"] @ entropy(y, d["validation"])


def inner(x, y, d):
    samples = d["training"]
    trust = samples["weights"] * jax.nn.sigmoid(x[samples["index"]])
    size = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(y))
    return trust @ entropy(y, samples) + jnp.mean(samples["ridge"]) * size / 2


def start(kind, seed):
    if kind == "linear":
        return np.zeros((785, 10))
    rng = np.random.default_rng((seed, 61))
    return {
        "in": rng.normal(size=(784, HIDDEN)) / np.sqrt(784),
        "bias": np.zeros(HIDDEN),
        "out": rng.normal(size=(HIDDEN, 10)) / np.sqrt(HIDDEN),
        "ends": np.zeros(10),
    }


def digits(kind, agents, seed, quick):
    """The problem, with labels drawn anew, and the test set."""
    training, validation, test = sizes(quick)
    whole = decibo.data.mnist(None, None)
    order = np.random.default_rng((seed, 1)).permutation(len(whole.labels))
    rows = order[: training + validation]
    ones = lambda X: np.c_[X, np.ones(len(X))] if kind == "linear" else X
    X, Xt = ones(whole.features[rows]), ones(whole.test_features[:test])
    data = Dataset(X, whole.labels[rows], Xt, whole.test_labels[:test], "mnist", whole.source)
    # drawn anew, a tenth is right by chance: 45 % are wrong
    made = decibo.problems.hyper_cleaning(
        data,
        agents,
        corruption=0.45,
        ridge=RIDGE,
        training=training,
        validation=validation,
        seed=seed,
    )
    problem = replace(made, outer=outer, inner=inner, y0=start(kind, seed), name=f"{kind} cleaning")
    wrong = decibo.problems.hyper_cleaning_mask(made)
    return problem, data, wrong


def pooled(part):
    """The samples of all agents in one place, without padding."""
    real = np.asarray(part["weights"]) > 0
    return np.asarray(part["features"])[real], np.asarray(part["labels"])[real]


def trained(kind, X, t, seed, steps):
    """Adam on the mean loss of all rows with a penalty of 1e-3: what anybody would do."""
    samples = {"features": jnp.asarray(X, jnp.float32), "labels": jnp.asarray(t)}
    f = lambda y: (
        jnp.mean(entropy(y, samples))
        + RIDGE / 2 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(y))
    )
    y = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), start(kind, seed))
    zero = jax.tree.map(jnp.zeros_like, y)

    def step(k, state):
        y, m, v = state
        g = jax.grad(f)(y)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, v, g)
        rate = 0.005 * (1 - k / steps)
        move = lambda y, m, v: (
            y
            - rate * (m / (1 - 0.9 ** (k + 1.0))) / (jnp.sqrt(v / (1 - 0.999 ** (k + 1.0))) + 1e-8)
        )
        return jax.tree.map(move, y, m, v), m, v

    return jax.jit(lambda s: jax.lax.fori_loop(0, steps, step, s))((y, zero, zero))[0]


def cleaning(kind, agents, seed, quick, steps):
    problem, data, wrong = digits(kind, agents, seed, quick)
    features = jnp.asarray(data.test_features, jnp.float32)
    labels = jnp.asarray(data.test_labels)
    right = lambda y: jnp.mean(jnp.argmax(scores(y, features), axis=1) == labels)

    def accuracy(s):
        return right(s.y)

    began = time.time()
    solution = decibo.solve(
        problem,
        decibo.ring(agents) if agents > 1 else decibo.complete(1),
        steps=steps,
        every=max(steps // 5, 1),
        measures=[accuracy],
        progress=False,
    )
    found = np.asarray(solution.x) < 0
    hit = np.sum(found & wrong)
    f1 = 2 * hit / max(found.sum() + wrong.sum(), 1)
    curve = [round(100 * float(a), 2) for a in solution.history["accuracy"]]
    row = {
        "ours": 100 * float(right(solution.y)),
        "f1": 100 * float(f1),
        "curve": curve,
        "seconds": time.time() - began,
        "ms a step": 1e3 * solution.cost.seconds / max(solution.steps, 1),
    }
    X, t = pooled(problem.data["validation"])
    S, noisy = pooled(problem.data["training"])
    clean = trained(kind, X, t, seed, steps)
    row["clean alone"] = 100 * float(right(clean))
    agree = np.asarray(jnp.argmax(scores(clean, jnp.asarray(S, jnp.float32)), axis=1)) == noisy
    both = trained(kind, np.r_[X, S[agree]], np.r_[t, noisy[agree]], seed, steps)
    row["clean and agreeing"] = 100 * float(right(both))
    index = np.asarray(problem.data["training"]["index"])
    index = index[np.asarray(problem.data["training"]["weights"]) > 0]
    hit = np.sum(~agree & wrong[index])
    row["f1 of agreeing"] = float(100 * 2 * hit / (np.sum(~agree) + wrong.sum()))
    equal = trained(kind, np.r_[X, S], np.r_[t, noisy], seed, steps)
    row["all, equal weights"] = 100 * float(right(equal))
    return row


def penalties(name, agents, seed, quick, steps):
    from sklearn.linear_model import LogisticRegression

    from studies.bench import material

    data = material.drawn(name, seed, 1000 if quick else 20000)
    problem = decibo.problems.logistic_hyperparameters(
        data, agents, loss="mean", scaled=True, floor=0.01, seed=seed
    )
    began = time.time()
    solution = decibo.solve(problem, decibo.ring(agents), steps=steps, measures=[], progress=False)
    held = pooled(problem.data["validation"])
    share = lambda w, X, t: 100 * float(np.mean((X @ w > 0) == (np.asarray(t) > 0)))
    w = np.asarray(solution.y)
    new = data.test_features, data.test_labels
    row = {"ours": share(w, *held), "ours, test": share(w, *new), "seconds": time.time() - began}
    S, t = pooled(problem.data["training"])
    fits = [
        LogisticRegression(C=c, fit_intercept=False, max_iter=300).fit(S, t > 0)
        for c in np.geomspace(1e-4, 1e3, 15)
    ]
    best = max(fits, key=lambda fit: share(fit.coef_[0], *held))
    row["one penalty"] = share(best.coef_[0], *held)
    row["one penalty, test"] = share(best.coef_[0], *new)
    row["the commoner class"] = 100 * float(max(np.mean(held[1] > 0), np.mean(held[1] <= 0)))
    return row


def page(folder):
    """Markdown of all that is there."""
    lines = ["# Tables that others have printed", "", __doc__.strip().splitlines()[0], ""]
    for file in sorted(OUT.glob("*.json")):
        kept = json.loads(file.read_text())
        kind = file.stem.removeprefix("ten-")
        lines += [f"## {file.stem}", "", f"{kept['words']}", "", "| | |", "|---|---|"]
        lines += [f"| {who}, as printed | {what} |" for who, what in PRINTED[kind].items()]
        rows = kept["rows"]
        for key in [key for key in rows[0] if key != "curve"]:
            values = np.array([row[key] for row in rows])
            spread = f" ± {values.std(ddof=1):.2f}" if len(rows) > 1 else ""
            lines.append(f"| {key} | {values.mean():.2f}{spread} |")
        lines += ["", f"Measured {in_words(kept['machine'])}.", ""]
    names = [name for kind in PRINTED for name in (kind, f"ten-{kind}" if kind in CLEANING else "")]
    absent = [name for name in names if name and not (OUT / f"{name}.json").exists()]
    lines += [f"Not run: {', '.join(absent)}.", ""] if absent else []
    (folder / "anchors.md").write_text("\n".join(lines))
    everything = {file.stem: json.loads(file.read_text()) for file in sorted(OUT.glob("*.json"))}
    (folder / "anchors.json").write_text(json.dumps(everything, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--quick", action="store_true", help="a tenth of the samples")
    parser.add_argument("--results", type=Path)
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    for name in options.names:
        kind = name.removeprefix("ten-")
        rows = []
        for seed in range(options.seeds):
            if kind in CLEANING:
                agents = 10 if name.startswith("ten-") else 1
                rows.append(cleaning(kind, agents, seed, options.quick, options.steps))
            else:
                rows.append(penalties(kind, 8, seed, options.quick, options.steps))
            print(name, seed, rows[-1], flush=True)
        words = f"seeds: {options.seeds}, steps: {options.steps}"
        words += ", a tenth of the samples" if options.quick else ""
        kept = {"words": words, "rows": rows, "machine": machine()}
        (OUT / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n")
    if options.results:
        page(options.results)


if __name__ == "__main__":
    main()
