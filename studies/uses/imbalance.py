"""Adjustments of the loss for rare classes, learned between owners, beside their closed form.

    DECIBO_DATA=my/data python -m studies.uses.imbalance        # --quick: one draw

MNIST in 7 x 7 pixels, 0 the commonest digit with 300 samples, 9 the rarest with 15, dealt to eight
owners with Dirichlet(.5) shares of each class. Inner level: softmax regression whose scores are
moved by x, one number for each class, as in AutoBalance (NeurIPS 2021); outer level: the loss of
validation samples, a third of all, in which each class counts the same. `ahead_exact()` as it
comes, 1,000 steps on a ring.

Sceptics: no adjustment; logit adjustment (ICLR 2021) in closed form, x = tau log of the classes'
shares, tau 1 or the best of 21 on the validation samples, which takes fewer gradients than the run;
by each owner's own shares; and weights 1 / share. All are fitted once more on all samples.
Balanced accuracy and log-loss on 5,000 new samples, each class as often. Draws 20 to 24; nothing was
chosen.
"""

from __future__ import annotations

import os
import sys
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

import decibo
from studies.uses.more import DRAWS, show

OWNERS, CLASSES, STEPS, RIDGE = 8, 10, 1000, 1e-3
COUNTS = np.geomspace(300, 15, CLASSES).astype(int)


def loss(y, d, moved=0.0):
    """Of each row."""
    s = d["rows"] @ y + moved
    return jax.nn.logsumexp(s, axis=-1) - jnp.sum(d["t"] * s, axis=-1)


def outer(x, y, d):
    return d["judging"] @ loss(y, d)


def inner(x, y, d):
    return d["training"] @ loss(y, d, x) + RIDGE * jnp.sum(y**2)


@cache
def images():
    data = decibo.data.mnist(None, None, folder=os.environ["DECIBO_DATA"])
    pool = lambda rows: rows.reshape(-1, 7, 4, 7, 4).mean(axis=(2, 4)).reshape(-1, 49)
    ones = lambda rows: np.c_[4 * pool(rows), np.ones(len(rows))]
    return ones(data.features), data.labels, ones(data.test_features), data.test_labels


def drawn(seed):
    """Rows, labels, owners, and rows and labels to judge by."""
    X, t, new, truth = images()
    random = np.random.default_rng((seed, 17))
    first = lambda labels, c, n: random.permutation(np.flatnonzero(labels == c))[:n]
    rows = np.concatenate([first(t, c, n) for c, n in enumerate(COUNTS)])
    shares = random.dirichlet(np.full(OWNERS, 0.5), CLASSES)
    owner = np.array([random.choice(OWNERS, p=shares[c]) for c in t[rows]])
    held = np.concatenate([first(truth, c, 500) for c in range(CLASSES)])
    return X[rows], t[rows], owner, new[held], truth[held]


@jax.jit
def told(y, rows, t, moved, v):
    value = lambda y: v @ loss(y, {"rows": rows, "t": t}, moved) / v.sum() + RIDGE * jnp.sum(y**2)
    return jax.value_and_grad(value)(y)


def fitted(X, t, moved, v=None):
    """Softmax regression with moved scores, and weights of the rows."""
    one_hot = np.eye(CLASSES)[t]
    v = np.ones(len(t)) if v is None else v
    shape = (X.shape[1], CLASSES)

    def value(y):
        f, d = told(y.reshape(shape), X, one_hot, moved, v)
        return float(f), np.asarray(d, float).ravel()

    return minimize(value, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B").x.reshape(shape)


def judged(seed):
    X, t, owner, new, truth = drawn(seed)
    held = np.random.default_rng((seed, 18)).random(len(t)) < 1 / 3
    n = np.bincount(t, minlength=CLASSES)
    balanced = held / np.maximum(np.bincount(t[held], minlength=CLASSES), 1)[t] / CLASSES
    width = np.bincount(owner).max()
    data = {"rows": np.zeros((OWNERS, width, X.shape[1])), "t": np.zeros((OWNERS, width, CLASSES)),
            "training": np.zeros((OWNERS, width)), "judging": np.zeros((OWNERS, width))}  # fmt: skip
    columns = {"rows": X, "t": np.eye(CLASSES)[t], "judging": OWNERS * balanced,
               "training": OWNERS * ~held / (~held).sum()}  # fmt: skip
    for i in range(OWNERS):
        for name, column in columns.items():
            data[name][i, : (owner == i).sum()] = column[owner == i]
    made = decibo.Problem(outer, inner, data, np.zeros(CLASSES), np.zeros((X.shape[1], CLASSES)))
    run = decibo.solve(made, decibo.ring(OWNERS), steps=STEPS, measures=[], progress=False)
    prior = np.log(n / n.sum())
    own = np.array([np.bincount(t[owner == i], minlength=CLASSES) + 1 for i in range(OWNERS)])
    own = np.log(own / own.sum(axis=1, keepdims=True))[owner]

    def validated(tau):
        y = fitted(X[~held], t[~held], tau * prior)
        return float(balanced @ loss(y, {"rows": X, "t": np.eye(CLASSES)[t]}))

    tau = min(np.linspace(0, 2, 21), key=validated)
    models = {
        "no adjustment": fitted(X, t, 0 * prior),
        "closed form": fitted(X, t, prior),
        "closed form, tau": fitted(X, t, tau * prior),
        "each owner's shares": fitted(X, t, own),
        "weights": fitted(X, t, 0 * prior, (1 / n)[t]),
        "learned": fitted(X, t, np.asarray(run.x)),
    }
    test = {"rows": new, "t": np.eye(CLASSES)[truth]}
    right = lambda y: float(np.mean((new @ y).argmax(axis=1) == truth))
    return {
        "balanced accuracy": {name: right(y) for name, y in models.items()},
        "balanced log-loss": {name: float(loss(y, test).mean()) for name, y in models.items()},
    }


def main():
    draws = list(DRAWS)[: 1 if "--quick" in sys.argv else 5]
    show([judged(seed) for seed in draws])


if __name__ == "__main__":
    main()
