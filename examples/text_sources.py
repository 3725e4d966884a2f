"""Whose text helps? Eight owners of text find out with a small model, then train a large one.

Three owners have documentation in English, one has program code, and four have what harms:
documentation in which every letter stands for another one, documentation with its letters shuffled,
tables of numbers, and noise. Nobody shows their text to anybody. Each has a few pages of held-out
documentation, on which the model is to be good. x holds one logit for each owner, and y is a
byte-level transformer of a tenth of the cost of the one that is wanted:

    inner   g = sum over owners i of softmax(x)_i * loss_i(y) + decay/2 * |y|^2
    outer   f = loss of y on the held-out pages + even * KL(softmax(x) | equal weights)

Then the large model is trained, each owner giving as many sequences of a batch as its weight says.
(Without the last term owners whose text is equally good would share their weight by chance.)

All rows have the same budget, counted in gradients of the large model on 32 sequences; a search
costs a sixth of it. If the owners of the held-out pages let the model train on them, no search is
needed: that row is in the table too. `python -m studies.uses.text` has other searches beside it.

The text is made from Python's standard library: docstrings are documentation, and the rest is code.
With --large it is made from all installed packages, and the model has 4.9 million weights.

    python examples/text_sources.py [--large] [--gradients N] [--seeds N]
"""

import argparse
import ast
import random
import sysconfig
import time
import warnings
import zlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import decibo
from decibo import consensus, direction, estimator, rule

SOURCES = ["library", "manuals", "guides", "code", "cipher", "shuffled", "tables", "noise"]
COUNT = len(SOURCES)
GOOD = np.array([1, 1, 1, 1, 0, 0, 0, 0])
REACH = 20.0  # how far a logit may go in all
EVEN = 0.05  # nats by which a source must help more to get e times the weight


@dataclass(frozen=True)
class Size:
    """How large a model is."""

    layers: int
    width: int
    heads: int
    length: int = 64  # of a sequence, in bytes
    batch: int = 4  # sequences of every owner in a step
    rate: float = 1e-2  # of Adam for the weights
    clip: float = 1.0  # the longest gradient that an owner's minibatch may have; with 0 any

    def flops(self) -> float:
        """Of a gradient, up to a factor."""
        weights = 12 * self.layers * self.width**2 + 256 * self.width
        return 6 * weights + 12 * self.layers * self.length * self.width


# the model that is wanted, and the small one
SMALL = Size(layers=2, width=64, heads=4), Size(layers=1, width=24, heads=2)
LARGE = (
    Size(layers=6, width=256, heads=4, length=256, rate=1e-3),
    Size(layers=2, width=128, heads=2, length=256, rate=1e-3),
)


# Text


def corpus(megabytes: float, large: bool) -> dict[str, np.ndarray]:
    """Documentation to train on, to hold out and to test with, and code; a file is in one of them
    only."""
    folders = [Path(sysconfig.get_path("stdlib"))]
    skipped = {"test", "tests", "idlelib", "lib2to3", "_vendor"}
    if large:
        folders.append(Path(sysconfig.get_path("purelib")))
    else:
        skipped |= {"site-packages", "dist-packages"}
    files = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    files = [path for path in files if not skipped & set(path.parts)]
    random.Random(0).shuffle(files)
    enough = {"train": 3.0, "valid": 0.4, "test": 0.4, "code": 1.0}
    found = dict.fromkeys(enough, b"")
    for path in files:
        document, program = contents(path)
        part = [*["train"] * 6, "valid", "test"][zlib.crc32(path.name.encode()) % 8]
        for name, text in ((part, document), ("code", program if part == "train" else "")):
            if len(found[name]) < 1e6 * megabytes * enough[name]:
                found[name] += text.encode() + b"\n\n"
        if all(len(found[name]) >= 1e6 * megabytes * enough[name] for name in enough):
            break
    return {name: np.frombuffer(text, np.uint8) for name, text in found.items()}


def contents(path: Path) -> tuple[str, str]:
    """The docstrings of a file that are more than a line, and the file without its docstrings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(path.read_text())
        except (SyntaxError, UnicodeDecodeError, ValueError, OSError, RecursionError):
            return "", ""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(tree) if isinstance(node, kinds)]
    texts = [ast.get_docstring(node) or "" for node in nodes]
    for node, text in zip(nodes, texts, strict=True):
        if text:
            node.body = node.body[1:] or [ast.Pass()]
    try:
        return "\n\n".join(text for text in texts if len(text) > 80), ast.unparse(tree)
    except (ValueError, RecursionError):
        return "", ""


def owners(texts: dict[str, np.ndarray], length: int, seed: int) -> dict[str, np.ndarray]:
    """What every owner has: text of their own, and a few pages of held-out documentation."""
    draw = np.random.default_rng(seed)
    share = len(texts["train"]) // 3
    own = [texts["train"][i * share : (i + 1) * share] for i in range(3)]
    letters = np.arange(256, dtype=np.uint8)
    for first in b"aA":
        letters[first : first + 26] = first + draw.permutation(26)
    table = "\n".join(
        ",".join(f"{v:.3f}" for v in row) for row in draw.normal(size=(share // 50, 8))
    )
    own += [
        texts["code"],
        letters[own[0]],
        draw.permuted(pages(own[1], 64), axis=1).ravel(),
        np.frombuffer(table.encode(), np.uint8),
        draw.integers(0, 256, share).astype(np.uint8),
    ]
    fewest = min(len(text) for text in own) // length
    held_out = pages(texts["valid"], length)
    return {
        "text": np.stack([pages(text, length)[:fewest] for text in own]),
        "held_out": held_out[: len(held_out) // COUNT * COUNT].reshape(COUNT, -1, length),
        "owner": np.arange(COUNT),
    }


def pages(text: np.ndarray, length: int) -> np.ndarray:
    return text[: len(text) // length * length].reshape(-1, length)


# Model


def transformer(size: Size, key: jax.Array) -> dict[str, jax.Array]:
    """The weights of all layers are stacked, so that a scan goes through them and one layer is
    compiled."""
    d = size.width
    keys = iter(jax.random.split(key, 6))
    normal = lambda *shape: 0.02 * jax.random.normal(next(keys), shape, jnp.float32)
    deep = (2 * size.layers) ** 0.5
    return {
        "bytes": normal(256, d),
        "places": normal(size.length, d),
        "qkv": normal(size.layers, d, 3 * d),
        "out": normal(size.layers, d, d) / deep,
        "up": normal(size.layers, d, 4 * d),
        "down": normal(size.layers, 4 * d, d) / deep,
        "scale": jnp.ones((size.layers, 2, d), jnp.float32),
        "last": jnp.ones(d, jnp.float32),
    }


def scores(size: Size, attention: str, y: dict[str, jax.Array], text: jax.Array) -> jax.Array:
    """The logits of the byte after each byte. Activations are bfloat16 on a GPU; weights and sums
    stay float32."""
    short = jnp.bfloat16 if jax.default_backend() == "gpu" else jnp.float32
    # so that gradients add up in float32
    h = (y["bytes"][text] + y["places"][: text.shape[-1]]).astype(short)
    y = jax.tree.map(lambda leaf: leaf.astype(short), y)

    def layer(h: jax.Array, w: dict[str, jax.Array]) -> tuple[jax.Array, None]:
        q, k, v = jnp.split(normed(h, w["scale"][0]) @ w["qkv"], 3, axis=-1)
        heads = lambda t: t.reshape(*t.shape[:-1], size.heads, -1)
        mixed = jax.nn.dot_product_attention(
            heads(q), heads(k), heads(v), is_causal=True, implementation=attention
        )
        h = h + mixed.reshape(h.shape) @ w["out"]
        return h + jax.nn.gelu(normed(h, w["scale"][1]) @ w["up"]) @ w["down"], None

    h, _ = jax.lax.scan(layer, h, {name: y[name] for name in ("qkv", "out", "up", "down", "scale")})
    return jnp.matmul(normed(h, y["last"]), y["bytes"].T, preferred_element_type=jnp.float32)


def normed(h: jax.Array, scale: jax.Array) -> jax.Array:
    size = jnp.mean(jnp.square(h.astype(jnp.float32)), axis=-1, keepdims=True)
    return h * jax.lax.rsqrt(size + 1e-6).astype(h.dtype) * scale


def losses(size: Size, attention: str, y: dict[str, jax.Array], text: jax.Array) -> jax.Array:
    """The cross-entropy of every next byte, in nats."""
    logits = scores(size, attention, y, text)[..., :-1, :]
    chosen = jnp.take_along_axis(logits, text[..., 1:, None].astype(jnp.int32), axis=-1)[..., 0]
    return jax.nn.logsumexp(logits, axis=-1) - chosen


# Find weights with decibo


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def bounded(longest: float, y: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """y, through which no gradient passes that is longer; one that is not finite counts as 0."""
    return y


def shortened(longest: float, _: None, slope: dict[str, jax.Array]) -> tuple[dict[str, jax.Array]]:
    length = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(slope)))
    finite = jnp.isfinite(length)
    factor = longest / jnp.maximum(length, longest)
    return (jax.tree.map(lambda leaf: jnp.where(finite, leaf * factor, 0.0), slope),)


bounded.defvjp(lambda longest, y: (y, None), shortened)


def bilevel(size: Size, attention: str, data: dict[str, np.ndarray], seed: int) -> decibo.Problem:
    def mean_loss(y, text):
        y = bounded(size.clip, y) if size.clip else y
        return jnp.mean(losses(size, attention, y, text))

    def outer(x, y, d):
        shares = jax.nn.softmax(x)
        return mean_loss(y, d["held_out"]) + EVEN * jnp.sum(shares * jnp.log(COUNT * shares))

    def inner(x, y, d):
        # the mean over owners is then the weighted sum
        return jax.nn.softmax(x)[d["owner"]] * COUNT * mean_loss(y, d["text"]) + decay(y)

    def sample(d, key):
        own, held_out = jax.random.split(key)
        pick = lambda rows, key: rows[jax.random.randint(key, (size.batch,), 0, rows.shape[0])]
        return d | {"text": pick(d["text"], own), "held_out": pick(d["held_out"], held_out)}

    start = transformer(size, jax.random.key(seed))
    return decibo.Problem(outer, inner, data, jnp.zeros(COUNT), start, sample=sample)


def decay(y: dict[str, jax.Array]) -> jax.Array:
    return 0.5e-5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(y))


def falling(rate: float, steps: int):
    """A step size that rises during the first tenth of the steps and falls to a tenth along half a
    cosine."""
    warm = max(steps // 10, 1)
    cosine = lambda k: 0.55 + 0.45 * jnp.cos(jnp.pi * jnp.minimum(k / steps, 1))
    return lambda k: rate * jnp.minimum((k + 1) / warm, cosine(k))


def find(
    size: Size, attention: str, data: dict[str, np.ndarray], steps: int, seed: int, reach: float
) -> tuple[np.ndarray, decibo.Solution]:
    """The weights of the sources, and the run.

    y and z have an Adam each, so that neither direction of the difference is stretched by what
    the other has learned: with one preconditioner for both it grew without bound on large models.

    reach   how far a logit may go in all
    """
    inner = rule.adam(falling(size.rate, steps), b2=0.99)
    method = decibo.compose(
        direction.penalty(2.0),
        consensus.atc_tracking(),
        estimator=estimator.minibatch(),
        x=rule.adam(falling(reach / steps, steps)),
        y=inner,
        z=inner,
    )
    found = decibo.solve(
        bilevel(size, attention, data, seed),
        decibo.networks.exponential(COUNT),  # five neighbours each: a ring learns more slowly
        method,
        steps=steps,
        every=max(steps // 20, 1),
        measures=[("weights", lambda snapshot: jax.nn.softmax(snapshot.x))],
        seed=seed,
    )
    along = np.asarray(found.history["weights"])
    return along[-max(len(along) // 4, 1) :].mean(axis=0), found  # minibatches keep them moving


# Train with given weights, and compare


def adam(size: Size, state: tuple, slope: dict[str, jax.Array], rate: jax.Array, k: jax.Array):
    """The next y, with its averages of slopes and squares."""
    (slope,) = shortened(size.clip, None, slope)
    y, first, second = state
    first = jax.tree.map(lambda m, s: 0.9 * m + 0.1 * s, first, slope)
    second = jax.tree.map(lambda v, s: 0.99 * v + 0.01 * s**2, second, slope)
    move = lambda y, m, v: (
        y - rate * (m / (1 - 0.9 ** (k + 1))) / (jnp.sqrt(v / (1 - 0.99 ** (k + 1))) + 1e-8)
    )
    return jax.tree.map(move, y, first, second), first, second


def begin(size: Size, key: jax.Array) -> tuple:
    y = transformer(size, key)
    zero = jax.tree.map(jnp.zeros_like, y)
    return y, zero, zero


@partial(jax.jit, static_argnums=(0, 1, 2))
def train(size: Size, attention: str, steps: int, text: jax.Array, weights: jax.Array, seed: int):
    """A model trained on sequences whose owners are drawn by the weights."""
    start, order = jax.random.split(jax.random.key(seed))
    rate = falling(size.rate, steps)

    def step(k, state):
        who, which = jax.random.split(jax.random.fold_in(order, k))
        shape = (COUNT * size.batch,)
        drawn = jax.random.categorical(who, jnp.log(weights + 1e-12), shape=shape)
        batch = text[drawn, jax.random.randint(which, shape, 0, text.shape[1])]
        slope = jax.grad(lambda y: jnp.mean(losses(size, attention, y, batch)) + decay(y))(state[0])
        return adam(size, state, slope, rate(k), k)

    return jax.lax.fori_loop(0, steps, step, begin(size, start))[0]


def tested(size: Size, attention: str, y: dict[str, jax.Array], text: np.ndarray) -> float:
    """The loss of a model on up to 256 pages."""
    rows = text.reshape(-1, size.length)
    rows = rows[:: max(len(rows) // 256, 1)][:256]
    return float(loss_on(size, attention, y, rows))


@partial(jax.jit, static_argnums=(0, 1))
def loss_on(size: Size, attention: str, y: dict[str, jax.Array], rows: jax.Array) -> jax.Array:
    return jnp.mean(jax.lax.map(lambda row: jnp.mean(losses(size, attention, y, row)), rows))


class Contest(NamedTuple):
    """The models, the text, and the gradients of the large model that each row may have."""

    large: Size
    small: Size
    attention: str
    texts: dict[str, np.ndarray]
    gradients: int

    @property
    def budget(self) -> float:
        """Gradients of the small model that a search may have."""
        return self.gradients / 6 * self.large.flops() / self.small.flops()

    def loss(self, weights: np.ndarray, steps: int, data: dict, seed: int) -> float:
        """On test pages, of the large model trained with these weights."""
        y = train(self.large, self.attention, steps, data["text"], weights, seed)
        return tested(self.large, self.attention, y, pages(self.texts["test"], self.large.length))


def contest(large: bool, gradients: int) -> Contest:
    sizes = LARGE if large else SMALL
    attention = "cudnn" if jax.default_backend() == "gpu" else "xla"
    made = Contest(*sizes, attention, corpus(4.0 if large else 0.2, large), gradients)
    count = sum(leaf.size for leaf in jax.tree.leaves(transformer(made.large, jax.random.key(0))))
    share = made.small.flops() / made.large.flops()
    print(f"{count:,} weights; a gradient of the small model costs {share:.2f} of it")
    return made


def bilevel_search(c: Contest, data: dict, seed: int) -> np.ndarray:
    return find(c.small, c.attention, data, int(c.budget / 3), seed, REACH)[0]


def judged(c: Contest, data: dict, seed: int, searches: dict) -> tuple[dict, dict]:
    """The test loss of each row, and the weights that each search finds."""
    N = c.gradients
    weights = {name: search(c, data, seed) for name, search in searches.items()}
    rows = {
        f"{name}, then its weights": c.loss(found, N - N // 6, data, seed)
        for name, found in weights.items()
    }
    held_out = data["held_out"].reshape(-1, c.large.length)
    held_out = np.resize(held_out, data["text"].shape[1:])
    nine = data | {"text": np.concatenate([data["text"], held_out[None]])}
    rows["equal weights"] = c.loss(np.full(COUNT, 1 / COUNT), N, data, seed)
    rows["oracle: the four that help"] = c.loss(GOOD / GOOD.sum(), N, data, seed)
    rows["the held-out pages as a ninth source"] = c.loss(np.full(9, 1 / 9), N, nine, seed)
    return rows, weights


def report(found: list[tuple[dict, dict]]) -> None:
    """Of `judged`, for each seed."""
    print(f"{'weight of':22s}" + "".join(f"{name:>9}" for name in SOURCES))
    for name in found[0][1]:
        mean = np.mean([weights[name] for _, weights in found], axis=0)
        print(f"{name:22s}" + "".join(f"{weight:9.3f}" for weight in mean))
    print("test loss, nats a byte, best first; with several seeds mean and standard error")
    losses = {name: [rows[name] for rows, _ in found] for name in found[0][0]}
    for name, values in sorted(losses.items(), key=lambda row: np.mean(row[1])):
        error = f" +- {np.std(values, ddof=1) / len(values) ** 0.5:.3f}" if len(values) > 1 else ""
        print(f"  {name:40s} {np.mean(values):.3f}{error}")
    print("Look at: how little weight harmful text has. The oracle knows which text helps, and the")
    print("ninth source is text that the searches may judge by, but not train on.")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--large", action="store_true", help="4.9 million weights, for a GPU")
    parser.add_argument("--gradients", type=int, default=600, help="for each row")
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    c = contest(options.large, options.gradients)
    found = []
    for seed in range(1, options.seeds + 1):
        begun = time.perf_counter()
        data = owners(c.texts, c.large.length, seed)
        found.append(judged(c, data, seed, {"bilevel, small model": bilevel_search}))
        print(f"seed {seed}: {time.perf_counter() - begun:.0f} s", flush=True)
    report(found)


if __name__ == "__main__":
    main()
