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
needed: that row is in the table too. --compare adds the training of the large model while weights
are found, and three searches with small models after DoGE, DoReMi and RegMix, which have their
idea, not the authors' code. Each search chooses one of three settings by the held-out loss on seed
0, and is judged on test pages with the other seeds.

The text is made from Python's standard library: docstrings are documentation, and the rest is code.
With --large it is made from all installed packages, and the model has 4.9 million weights.

    python examples/text_sources.py [--compare] [--large] [--gradients N] [--seeds N]
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

import jax
import jax.numpy as jnp
import numpy as np

import decibo
from decibo import consensus, direction, estimator, rule

SOURCES = ["library", "manuals", "guides", "code", "cipher", "shuffled", "tables", "noise"]
COUNT = len(SOURCES)
GOOD = np.array([1, 1, 1, 1, 0, 0, 0, 0])
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


# Train with given weights, and the searches to compare with


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


def tested(size: Size, attention: str, y: dict[str, jax.Array], text: np.ndarray) -> float:
    """The loss of a model on up to 256 pages."""
    rows = text.reshape(-1, size.length)
    rows = rows[:: max(len(rows) // 256, 1)][:256]
    return float(loss_on(size, attention, y, rows))


@partial(jax.jit, static_argnums=(0, 1))
def loss_on(size: Size, attention: str, y: dict[str, jax.Array], rows: jax.Array) -> jax.Array:
    return jnp.mean(jax.lax.map(lambda row: jnp.mean(losses(size, attention, y, row)), rows))


def compare(options: argparse.Namespace) -> None:
    """All rows, on all seeds."""
    large, small = LARGE if options.large else SMALL
    attention = "cudnn" if jax.default_backend() == "gpu" else "xla"
    texts = corpus(4.0 if options.large else 0.2, options.large)
    test, N = pages(texts["test"], large.length), options.gradients
    budget = N / 6 * large.flops() / small.flops()
    count = sum(leaf.size for leaf in jax.tree.leaves(transformer(large, jax.random.key(0))))
    print(f"{count:,} weights; a gradient of the small model costs {N / 6 / budget:.2f} of it")
    rows: dict[str, list[float]] = {}
    shares: dict[str, list[np.ndarray]] = {}

    def trained(name, weights, steps, data, seed):
        """Train the large model and note its loss."""
        y = train(large, attention, steps, data["text"], weights, seed)
        rows.setdefault(name, []).append(tested(large, attention, y, test))

    chosen = {name: settings[1] for name, (settings, _) in [*SEARCHES.items()][:1]}
    for name, (settings, _) in SEARCHES.items() if options.compare else ():
        data = owners(texts, large.length, 0)
        found = {}
        for setting in settings:
            weights = search(name, setting, budget, small, attention, data, 0)
            y = train(small, attention, int(budget), data["text"], weights, 1000)
            found[setting] = tested(small, attention, y, data["held_out"])
        chosen[name] = min(found, key=found.__getitem__)
    for seed in range(1, options.seeds + 1):
        data = owners(texts, large.length, seed)
        begun = time.perf_counter()
        for name, setting in chosen.items():
            weights = search(name, setting, budget, small, attention, data, seed)
            shares.setdefault(name, []).append(weights)
            trained(f"{name}, then its weights", weights, N - N // 6, data, seed)
        trained("equal weights", np.full(COUNT, 1 / COUNT), N, data, seed)
        trained("oracle: the four that help", GOOD / GOOD.sum(), N, data, seed)
        held_out = data["held_out"].reshape(-1, large.length)
        held_out = np.resize(held_out, data["text"].shape[1:])
        nine = data | {"text": np.concatenate([data["text"], held_out[None]])}
        trained("the held-out pages as a ninth source", np.full(9, 1 / 9), N, nine, seed)
        if options.compare:
            weights, run = find(large, attention, data, N // 3, seed, 20.0)
            shares.setdefault("bilevel, large model", []).append(weights)
            y = jax.tree.map(lambda leaf: leaf.mean(axis=0), run.agents.z)
            rows.setdefault("bilevel, the model trained along", []).append(
                tested(large, attention, y, test)
            )
        print(f"seed {seed}: {time.perf_counter() - begun:.0f} s", flush=True)
    report(rows, shares)


def report(rows: dict[str, list[float]], shares: dict[str, list[np.ndarray]]) -> None:
    print(f"{'weight of':22s}" + "".join(f"{name:>9}" for name in SOURCES))
    for name, weights in shares.items():
        print(f"{name:22s}" + "".join(f"{weight:9.3f}" for weight in np.mean(weights, axis=0)))
    print("test loss, nats a byte, best first; with several seeds mean and standard error")
    for name, values in sorted(rows.items(), key=lambda row: np.mean(row[1])):
        error = f" +- {np.std(values, ddof=1) / len(values) ** 0.5:.3f}" if len(values) > 1 else ""
        print(f"  {name:40s} {np.mean(values):.3f}{error}")
    print("Look at: how little weight harmful text has. The oracle knows which text helps, and the")
    print("ninth source is text that the searches may judge by, but not train on.")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--compare", action="store_true", help="with all searches")
    parser.add_argument("--large", action="store_true", help="4.9 million weights, for a GPU")
    parser.add_argument("--gradients", type=int, default=600, help="for each row")
    parser.add_argument("--seeds", type=int, default=2)
    compare(parser.parse_args())


if __name__ == "__main__":
    main()
