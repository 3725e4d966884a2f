"""Few-shot learning across owners: features that make new tasks easy, beside an ordinary classifier.

    DECIBO_DATA=my/data python -m studies.uses.few_shot        # --quick: one draw

MNIST in 7 x 7 pixels. Each of eight owners has 12 tasks, two of the digits 0 to 6 each, with 5
samples of each digit to fit a head and 10 to judge it. Inner level: the heads y of all tasks,
logistic regressions with a ridge on HIDDEN features tanh(s W + b); outer level: their loss on what
judges; x = (W, b). `ahead_exact()` as it comes, 1,000 steps on a ring. New tasks: two of 7, 8 and 9,
5 samples of each, judged on 200 others, 60 of them a draw.

Sceptics, whose heads have the same ridge: pixels; the principal components of all owners' samples;
and the features of an ordinary classifier of the digits 0 to 6 with the same hidden layer, by Adam on
the same samples in one place with the gradients of our run. Accuracy and log-loss, draws 20 to 24;
nothing was chosen.
"""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np

import decibo
from studies.uses.imbalance import images
from studies.uses.more import DRAWS, show

OWNERS, TASKS, SHOTS, JUDGES, HIDDEN, STEPS, RIDGE = 8, 12, 5, 10, 24, 1000, 0.01


def features(s, x):
    return jnp.tanh(s @ x["W"] + x["b"])


def losses(heads, F, t):
    s = jnp.einsum("...sp,...p->...s", F, heads[..., :-1]) + heads[..., -1:]
    return jax.nn.softplus(s) - t * s


def ridge(heads):
    return RIDGE * jnp.sum(heads[..., :-1] ** 2)


def outer(x, y, d):
    decay = 1e-4 * jnp.sum(x["W"] ** 2)
    return jnp.mean(losses(y[d["owner"]], features(d["judge"], x), d["judge_t"])) + decay


def inner(x, y, d):
    own = y[d["owner"]]
    fit = jnp.sum(jnp.mean(losses(own, features(d["shots"], x), d["shots_t"]), axis=-1))
    return fit + ridge(own) + 1e-3 * jnp.sum(y**2) / OWNERS


def tasks(random, X, t, digits, count, judges):
    """Samples and labels, 0 or 1, of tasks with two digits each."""
    of = {c: random.permutation(np.flatnonzero(t == c)) for c in digits}
    rows = []
    for _ in range(count):
        pair = random.choice(digits, 2, replace=False)
        rows.append(np.stack([random.choice(of[c], SHOTS + judges, replace=False) for c in pair]))
    rows = np.array(rows)  # (tasks, two digits, samples)
    half = lambda part: part.reshape(count, -1)
    labels = lambda n: np.tile(np.repeat([0.0, 1.0], n), (count, 1))
    shots, judge = half(rows[:, :, :SHOTS]), half(rows[:, :, SHOTS:])
    return X[shots], labels(SHOTS), X[judge], labels(judges), np.unique(rows)


@jax.jit
def heads(F, t):
    """Of tasks (tasks, samples, features), by Newton's method."""
    value = lambda h, F, t: jnp.mean(losses(h, F, t)) + ridge(h) + 1e-3 * h[-1] ** 2

    def one(F, t):
        step = lambda _, h: (
            h - jnp.linalg.solve(jax.hessian(value)(h, F, t), jax.grad(value)(h, F, t))
        )
        return jax.lax.fori_loop(0, 12, step, jnp.zeros(F.shape[1] + 1))

    return jax.vmap(one)(F, t)


def ordinary(X, t, x, gradients, seed):
    """The hidden layer of a softmax classifier, by Adam."""
    random = np.random.default_rng((seed, 20))
    y = {"x": x, "out": 0.1 * jnp.asarray(random.normal(size=(HIDDEN, 7))), "bias": jnp.zeros(7)}

    def value(y):
        s = features(X, y["x"]) @ y["out"] + y["bias"]
        logs = jax.nn.log_softmax(s)[jnp.arange(len(t)), t]
        return 1e-4 * jnp.sum(y["x"]["W"] ** 2) + 1e-4 * jnp.sum(y["out"] ** 2) - logs.mean()

    def step(k, state):
        y, m, v = state
        d = jax.grad(value)(y)
        m = jax.tree.map(lambda m, d: 0.9 * m + 0.1 * d, m, d)
        v = jax.tree.map(lambda v, d: 0.999 * v + 0.001 * d**2, v, d)
        scale = 0.01 * jnp.sqrt(1 - 0.999 ** (k + 1.0)) / (1 - 0.9 ** (k + 1.0))
        move = lambda y, m, v: y - scale * m / (jnp.sqrt(v) + 1e-8)
        return jax.tree.map(move, y, m, v), m, v

    zero = jax.tree.map(jnp.zeros_like, y)
    return jax.jit(lambda s: jax.lax.fori_loop(0, gradients, step, s))((y, zero, zero))[0]["x"]


def judged(seed):
    X, t, new, truth = images()
    X, new = X[:, :-1], new[:, :-1]
    random = np.random.default_rng((seed, 19))
    parts = [tasks(random, X, t, range(7), TASKS, JUDGES) for _ in range(OWNERS)]
    names = ("shots", "shots_t", "judge", "judge_t")
    data = {name: np.stack([part[i] for part in parts]) for i, name in enumerate(names)}
    W = random.normal(size=(X.shape[1], HIDDEN)) / np.sqrt(X.shape[1])
    x0 = {"W": W, "b": np.zeros(HIDDEN)}
    y0 = np.zeros((OWNERS, TASKS, HIDDEN + 1))
    made = decibo.Problem(outer, inner, data | {"owner": np.arange(OWNERS)}, x0, y0)
    run = decibo.solve(made, decibo.ring(OWNERS), steps=STEPS, measures=[], progress=False)
    rows = np.unique(np.concatenate([part[4] for part in parts]))
    start = jax.tree.map(jnp.asarray, x0)
    usual = ordinary(X[rows], t[rows], start, round(run.cost.gradients * STEPS), seed)
    mean = X[rows].mean(axis=0)
    turn = np.linalg.svd(X[rows] - mean, full_matrices=False)[2][:HIDDEN].T
    A, a, B, b, _ = tasks(random, new, truth, range(7, 10), 60, 100)
    found = {"accuracy": {}, "log-loss": {}}
    maps = {
        "pixels": lambda s: s,
        "principal components": lambda s: (s - mean) @ turn,
        "features at the start": lambda s: features(s, start),
        "ordinary classifier": lambda s: features(s, usual),
        "learned between owners": lambda s: features(s, run.x),
    }
    for name, of in maps.items():
        h = heads(jnp.asarray(of(A)), a)
        s = jnp.einsum("tsp,tp->ts", of(B), h[:, :-1]) + h[:, -1:]
        found["accuracy"][name] = float(jnp.mean((s > 0) == (b > 0)))
        found["log-loss"][name] = float(jnp.mean(losses(h, of(B), b)))
    return found


def main():
    draws = list(DRAWS)[: 1 if "--quick" in sys.argv else 5]
    show([judged(seed) for seed in draws])


if __name__ == "__main__":
    main()
