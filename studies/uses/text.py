"""Whose text helps: other searches beside examples/text_sources.py, at equal gradients.

    python -m studies.uses.text [--large] [--gradients N] [--seeds N]

Three searches with small models after DoGE, DoReMi and RegMix, which have their idea, not the
authors' code, and the training of the large model while its weights are found. Each search chooses
one of three settings by the held-out loss on seed 0, and is judged on test pages with the others.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from text_sources import (
    COUNT,
    Size,
    adam,
    begin,
    contest,
    decay,
    falling,
    find,
    judged,
    losses,
    owners,
    report,
    tested,
    train,
)


@partial(jax.jit, static_argnums=(0, 1, 2))
def multiplied(
    size: Size,
    attention: str,
    steps: int,
    data: dict,
    reference: dict | None,
    eta: float,
    seed: int,
) -> jax.Array:
    """Weights that grow by e^(eta gain) in each step of a small model; their mean is the answer.

    The gain of a source is, after DoGE, how fast the held-out loss falls along its gradient, from
    a difference of its losses; with a reference, after DoReMi, by how much its losses exceed those
    of a model trained with equal weights.
    """
    start, order = jax.random.split(jax.random.key(seed))
    rate = falling(size.rate, steps)
    each = jax.vmap(partial(losses, size, attention), (None, 0))
    mean = lambda y, text: jnp.mean(each(y, text), axis=(1, 2))

    def step(k, carry):
        state, x, total = carry
        keys = jax.random.split(jax.random.fold_in(order, k))
        own, held_out = (
            jax.vmap(lambda rows, at: rows[at])(
                data[name], jax.random.randint(key, (COUNT, size.batch), 0, data[name].shape[1])
            )
            for name, key in zip(("text", "held_out"), keys, strict=True)
        )
        y, weights = state[0], jax.nn.softmax(x)
        if reference is None:
            slope = jax.grad(lambda y: jnp.mean(mean(y, held_out)))(y)
            length = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(slope)))
            e = 0.02 / (length + 1e-8)
            ahead, behind = (
                mean(jax.tree.map(lambda a, s, e=e: a + e * s, y, slope), own) for e in (e, -e)
            )
            gain = (ahead - behind) / (2 * e)
        else:
            gain = jnp.mean(jnp.maximum(each(y, own) - each(reference, own), 0), axis=(1, 2))
        slope = jax.grad(lambda y: weights @ mean(y, own) + decay(y))(y)
        return adam(size, state, slope, rate(k), k), x + eta * gain, total + weights

    zero = jnp.zeros(COUNT)
    return jax.lax.fori_loop(0, steps, step, (begin(size, start), zero, zero))[2] / steps


def regression(tried: np.ndarray, found: np.ndarray, seed: int) -> np.ndarray:
    """After RegMix: the loss as a smooth function of the weights (a Gaussian process), and the mean
    of the 100 weights for which it promises least among many drawn ones."""
    drawn = mixtures(20_000, seed)
    kernel = lambda a, b: np.exp(-2 * ((a[:, None] - b[None]) ** 2).sum(-1))
    normal = (found - found.mean()) / found.std()
    fit = np.linalg.solve(kernel(tried, tried) + 0.1 * np.eye(len(tried)), normal)
    return drawn[np.argsort(kernel(drawn, tried) @ fit)[:100]].mean(axis=0)


def mixtures(count: int, seed: int) -> np.ndarray:
    """Weights drawn at random, from nearly equal ones to nearly one source only."""
    draw = np.random.default_rng(seed)
    spread = np.exp(draw.uniform(np.log(0.1), np.log(5), (count, 1)))
    weights = draw.gamma(np.repeat(spread, COUNT, 1)) + 1e-9
    return weights / weights.sum(axis=1, keepdims=True)


# settings of each search, and gradients of the small model in a step
SEARCHES = {
    "bilevel, small model": ((6.0, 20.0, 60.0), 3),
    "after RegMix": ((16, 32, 64), 1),
    "after DoGE": ((0.1, 0.3, 1.0), 8 / 3),
    "after DoReMi": ((0.1, 0.3, 1.0), 7 / 3),
}


def search(name: str, setting: float, budget: float, small: Size, attention: str, data, seed: int):
    """Weights of the sources, for so many gradients of the small model."""
    steps = int(budget / SEARCHES[name][1])
    if name == "bilevel, small model":
        return find(small, attention, data, steps, seed, setting)[0]
    if name == "after RegMix":
        tried = mixtures(int(setting), seed)
        steps = max(steps // len(tried), 1)
        models = [train(small, attention, steps, data["text"], w, seed) for w in tried]
        found = [tested(small, attention, y, data["held_out"]) for y in models]
        return regression(tried, np.array(found), seed)
    reference = None
    if name == "after DoReMi":
        reference = train(small, attention, steps, data["text"], np.full(COUNT, 1 / COUNT), seed)
    return np.asarray(multiplied(small, attention, steps, data, reference, setting, seed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true", help="4.9 million weights, for a GPU")
    parser.add_argument("--gradients", type=int, default=600, help="for each row")
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    c = contest(options.large, options.gradients)
    data = owners(c.texts, c.large.length, 0)
    entrants = {}
    for name, (settings, _) in SEARCHES.items():
        found = {}
        for setting in settings:
            weights = search(name, setting, c.budget, c.small, c.attention, data, 0)
            y = train(c.small, c.attention, int(c.budget), data["text"], weights, 1000)
            found[setting] = tested(c.small, c.attention, y, data["held_out"])
        chosen = min(found, key=found.__getitem__)
        entrants[name] = lambda c, data, seed, name=name, chosen=chosen: search(
            name, chosen, c.budget, c.small, c.attention, data, seed
        )
    results = []
    for seed in range(1, options.seeds + 1):
        data = owners(c.texts, c.large.length, seed)
        rows, shares = judged(c, data, seed, entrants)
        weights, run = find(c.large, c.attention, data, c.gradients // 3, seed, 20.0)
        shares["bilevel, large model"] = weights
        y = jax.tree.map(lambda leaf: leaf.mean(axis=0), run.agents.z)
        test = c.texts["test"][: len(c.texts["test"]) // c.large.length * c.large.length]
        rows["bilevel, the model trained along"] = tested(c.large, c.attention, y, test)
        results.append((rows, shares))
    report(results)


if __name__ == "__main__":
    main()
