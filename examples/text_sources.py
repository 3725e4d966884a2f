"""Whose text helps? Eight owners of text train one language model together and find out.

Three owners have documentation in English, one has program code, and four have what harms:
documentation in which every letter stands for another one, documentation with its letters shuffled,
tables of numbers, and noise. Nobody shows their text to anybody. x holds one logit for each owner,
and y is a byte-level transformer:

    inner   g = sum over owners i of softmax(x)_i * loss_i(y) + decay/2 * |y|^2
    outer   f = loss of y on held-out documentation, of which every owner has a few pages
                + even * KL(softmax(x) | equal weights)

Without the last term owners whose text is equally good would share their weight by chance, and a
step that rests on one owner rests on fewer pages.

The text is made from Python's standard library: docstrings are documentation, and the rest is code.
With --large it is made from all installed packages, and the model has 25 million weights and
attention by a fused kernel, which has first derivatives only: methods with Hessians cannot run it
at all.

    python examples/text_sources.py [--large] [--steps N] [--seed N] [--json FILE] [--figure FILE]
"""

import argparse
import ast
import json
import random
import sysconfig
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import decibo
from decibo import consensus, direction, estimator, rule

SOURCES = ["library", "manuals", "guides", "code", "cipher", "shuffled", "tables", "noise"]
GOOD = [0, 1, 2]
BAD = [4, 5, 6, 7]


@dataclass(frozen=True)
class Size:
    """How large the example is."""

    layers: int
    width: int
    heads: int
    length: int  # of a sequence, in bytes
    batch: int  # sequences of every owner in a step
    megabytes: float  # of text for each owner
    steps: int
    rate: float  # of Adam for the weights
    rate_x: float  # of Adam for x
    even: float = 0.05  # nats by which a source must help more to get e times the weight
    clip: float = 10.0  # the longest gradient that an owner's minibatch may have; with 0 any


SMALL = Size(
    layers=1,
    width=32,
    heads=2,
    length=64,
    batch=4,
    megabytes=0.2,
    steps=600,
    rate=1e-2,
    rate_x=2e-2,
)
LARGE = Size(
    layers=8,
    width=512,
    heads=8,
    length=1024,
    batch=2,
    megabytes=4.0,
    steps=2000,
    rate=6e-4,
    rate_x=1e-2,
)


# Text


def corpus(megabytes: float, large: bool) -> dict[str, bytes]:
    """Documentation to train on, to hold out and to test with, and code; a file is in one of them
    only."""
    enough = {
        "train": 3 * megabytes,
        "valid": 0.4 * megabytes,
        "test": 0.4 * megabytes,
        "code": megabytes,
    }
    texts: dict[str, list[str]] = {part: [] for part in enough}
    sizes = dict.fromkeys(enough, 0)
    parts = ("train", "train", "train", "train", "train", "train", "valid", "test")
    with reader(large) as read:
        for path, (document, program) in read(python_files(large)):
            part = parts[zlib.crc32(path.name.encode()) % len(parts)]
            for where, text in ((part, document), ("code", program if part == "train" else "")):
                if sizes[where] <= 1e6 * enough[where]:
                    texts[where].append(text)
                    sizes[where] += len(text.encode())
            if all(sizes[where] > 1e6 * enough[where] for where in enough):
                break
    return {part: "\n\n".join(filter(None, found)).encode() for part, found in texts.items()}


@contextmanager
def reader(large: bool):
    """A function that goes through files and what is in them, in all processors where there are
    many files."""
    if not large:
        yield lambda files: ((path, contents(path)) for path in files)
        return
    with get_context("spawn").Pool() as pool:  # leaving ends what is still being read
        yield lambda files: zip(files, pool.imap(contents, files, chunksize=16), strict=True)


def python_files(large: bool) -> list[Path]:
    """Files of the standard library; with `large` those of all installed packages too, in an order
    that mixes them."""
    folders = [Path(sysconfig.get_path("stdlib"))] + (
        [Path(sysconfig.get_path("purelib"))] if large else []
    )
    skipped = {"test", "tests", "idlelib", "lib2to3", "_vendor"} | (
        set() if large else {"site-packages", "dist-packages"}
    )
    files = [
        path
        for folder in folders
        for path in sorted(folder.rglob("*.py"))
        if not skipped & set(path.parts)
    ]
    random.Random(0).shuffle(files)
    return files


def parsed(path: Path) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(path.read_text())
        except (SyntaxError, UnicodeDecodeError, ValueError, OSError, RecursionError):
            return ast.Module([], [])


def contents(path: Path) -> tuple[str, str]:
    """The documentation and the code of a file."""
    tree = parsed(path)
    return documentation(tree), code(tree)  # in this order: the second removes what the first reads


def documentation(tree: ast.Module) -> str:
    """The docstrings of a file that are more than a line."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
    return "\n\n".join(text for text in found if text and len(text) > 80)


def code(tree: ast.Module) -> str:
    """A file without its docstrings."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body:
            node.body = [part for part in body if not is_text(part)] or [ast.Pass()]  # type: ignore[attr-defined]
    try:
        return ast.unparse(tree)
    except (ValueError, RecursionError):
        return ""


def is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def owners(texts: dict[str, bytes], size: Size, seed: int) -> dict[str, np.ndarray]:
    """What every owner has: text of their own, and a few pages of held-out documentation."""
    draw = np.random.default_rng(seed)
    count = int(size.megabytes * 1e6)
    documents = np.frombuffer(texts["train"], np.uint8)
    share = min(count, len(documents) // 3)
    own = [documents[i * share : (i + 1) * share] for i in range(3)]
    own.append(np.frombuffer(texts["code"], np.uint8)[:count])
    own.append(cipher(draw)[own[0]])
    own.append(draw.permuted(windows(own[1], 64), axis=1).ravel())
    own.append(tables(count, draw))
    own.append(draw.integers(0, 256, count).astype(np.uint8))
    fewest = min(len(text) for text in own) // size.length
    held_out = windows(np.frombuffer(texts["valid"], np.uint8), size.length)
    held_out = held_out[: len(held_out) // len(own) * len(own)].reshape(len(own), -1, size.length)
    return {
        "text": np.stack([windows(text, size.length)[:fewest] for text in own]),
        "held_out": held_out,
        "owner": np.arange(len(own)),
    }


def windows(text: np.ndarray, length: int) -> np.ndarray:
    return text[: len(text) // length * length].reshape(-1, length)


def cipher(draw: np.random.Generator) -> np.ndarray:
    """A table that replaces every letter by another one."""
    table = np.arange(256, dtype=np.uint8)
    for first in b"aA":
        table[first : first + 26] = first + draw.permutation(26)
    return table


def tables(count: int, draw: np.random.Generator) -> np.ndarray:
    rows = (",".join(f"{v:.3f}" for v in draw.normal(size=8) * 100) for _ in range(count // 56))
    return np.frombuffer("\n".join(rows).encode(), np.uint8)[:count]


# Model


def transformer(size: Size, key: jax.Array) -> dict[str, jax.Array]:
    """The weights of all layers are stacked, so that a scan goes through them and one layer is
    compiled."""
    d = size.width
    keys = iter(jax.random.split(key, 6))
    normal = lambda *shape: 0.02 * jax.random.normal(next(keys), shape, jnp.float32)
    return {
        "bytes": normal(256, d),
        "places": normal(size.length, d),
        "qkv": normal(size.layers, d, 3 * d),
        "out": normal(size.layers, d, d) / (2 * size.layers) ** 0.5,
        "up": normal(size.layers, d, 4 * d),
        "down": normal(size.layers, 4 * d, d) / (2 * size.layers) ** 0.5,
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


def loss(size: Size, attention: str, y: dict[str, jax.Array], text: jax.Array) -> jax.Array:
    """Mean cross-entropy of the next byte, in nats."""
    logits = scores(size, attention, y, text)[:, :-1]
    chosen = jnp.take_along_axis(logits, text[:, 1:, None].astype(jnp.int32), axis=-1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - chosen)


# Problem


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


def owner_loss(size: Size, attention: str):
    """The loss of y on the text of one owner, whose gradient is bounded."""
    if not size.clip:
        return partial(loss, size, attention)
    return lambda y, text: loss(size, attention, bounded(size.clip, y), text)


def bilevel(size: Size, attention: str, data: dict[str, np.ndarray], seed: int) -> decibo.Problem:
    mean_loss = owner_loss(size, attention)

    def outer(x, y, d):
        shares = jax.nn.softmax(x)
        return mean_loss(y, d["held_out"]) + size.even * jnp.sum(
            shares * jnp.log(len(SOURCES) * shares)
        )

    def inner(x, y, d):
        # the mean over owners is then the weighted sum
        weight = jax.nn.softmax(x)[d["owner"]] * len(SOURCES)
        return weight * mean_loss(y, d["text"]) + decay(y)

    start = transformer(size, jax.random.key(seed))
    return decibo.Problem(
        outer, inner, data, jnp.zeros(len(SOURCES), jnp.float32), start, sample=drawn(size)
    )


def training(
    size: Size, attention: str, data: dict[str, np.ndarray], weights: np.ndarray, seed: int
) -> decibo.Problem:
    """Training with given weights of the sources: one level."""
    mean_loss = owner_loss(size, attention)
    objective = lambda y, d: d["weight"] * len(SOURCES) * mean_loss(y, d["text"]) + decay(y)
    weighted = data | {"weight": np.asarray(weights, np.float32)}
    start = transformer(size, jax.random.key(seed))
    return decibo.problems.single_level(objective, weighted, start, sample=drawn(size))


def decay(y: dict[str, jax.Array]) -> jax.Array:
    return 0.5e-5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(y))


def drawn(size: Size):
    """A minibatch of an owner: sequences of their own text and of held-out text."""

    def sample(d, key):
        pick = lambda rows, key: rows[jax.random.randint(key, (size.batch,), 0, rows.shape[0])]
        own, held_out = jax.random.split(key)
        return d | {"text": pick(d["text"], own), "held_out": pick(d["held_out"], held_out)}

    return sample


# Runs


def falling(rate: float, steps: int):
    """A step size that rises during the first tenth of the steps and falls to a tenth along half a
    cosine."""
    warm = max(steps // 10, 1)
    return lambda k: (
        rate
        * jnp.minimum((k + 1) / warm, 0.55 + 0.45 * jnp.cos(jnp.pi * jnp.minimum(k / steps, 1)))
    )


def optimiser(size: Size) -> rule.Rule:
    """What moves the weights of the model, in every run."""
    return rule.adam(falling(size.rate, size.steps), b2=0.99)


def weights_of(snapshot):
    """The weights of the sources."""
    return jax.nn.softmax(snapshot.x)


def tested(size: Size, attention: str, text: bytes, variable: str):
    """A measure: the loss on documentation that no run has seen, at the mean of a variable."""
    pages = jnp.asarray(windows(np.frombuffer(text, np.uint8), size.length)[:256])

    def test(snapshot):
        layout = snapshot.functions.x if variable == "x" else snapshot.functions.y
        y = layout.unravel(snapshot.mean(variable))
        parts = pages[: len(pages) // 8 * 8].reshape(8, -1, size.length)
        return jnp.mean(jax.lax.map(lambda part: loss(size, attention, y, part), parts))

    return ("test", test)


def solved(
    size: Size, problem: decibo.Problem, method: decibo.Algorithm, measures: list, seed: int
) -> decibo.Solution:
    """A run with twenty records. Each owner has five neighbours: on a ring it learns more
    slowly."""
    every = size.steps // 20
    network = decibo.networks.exponential(len(SOURCES))
    return decibo.solve(
        problem, network, method, steps=size.steps, every=every, measures=measures, seed=seed
    )


def find(size: Size, attention: str, data, test: bytes, lam: float, seed: int) -> decibo.Solution:
    """The weights of the sources, and a model trained along the way."""
    inner = optimiser(size)
    method = decibo.compose(
        direction.penalty(lam),
        consensus.atc_tracking(),
        estimator=estimator.minibatch(),
        x=rule.adam(falling(size.rate_x, size.steps)),
        y=inner,
        z=inner,
    )
    problem = bilevel(size, attention, data, seed)
    measures = [("weights", weights_of), tested(size, attention, test, "z")]
    return solved(size, problem, method, measures, seed)


def train(size: Size, attention: str, data, test: bytes, weights, seed: int) -> decibo.Solution:
    """The same model, steps and text with weights that do not change."""
    method = decibo.compose(
        direction.single(),
        consensus.atc_tracking(),
        estimator=estimator.minibatch(),
        x=optimiser(size),
        y=1e-3,
    )
    problem = training(size, attention, data, weights, seed)
    measures = [tested(size, attention, test, "x")]
    return solved(size, problem, method, measures, seed)


def compare(
    size: Size, attention: str, texts: dict[str, bytes], lam: float, seed: int
) -> Iterator[dict]:
    """Find the weights, then train with fixed ones; what was recorded so far, after each of the
    four runs.

    All runs have the same model, start, steps, text and optimiser. The weights found are the mean
    of the last quarter of the records, since minibatches keep them moving.
    """
    data = owners(texts, size, seed)
    found = find(size, attention, data, texts["test"], lam, seed)
    along = np.asarray(found.history["weights"])
    record = {
        "size": asdict(size),
        "steps": found.history["step"].tolist(),
        "weights": along.tolist(),
        "found": along[-max(len(along) // 4, 1) :].mean(axis=0).tolist(),
        "test": {},
        "seconds": {},
        "message": {},
    }
    runs = {
        "trained while finding": None,
        "oracle": np.isin(np.arange(len(SOURCES)), GOOD) / len(GOOD),
        "weights found": np.asarray(record["found"]),
        "equal weights": np.full(len(SOURCES), 1 / len(SOURCES)),
    }
    for name, fixed in runs.items():
        run = found if fixed is None else train(size, attention, data, texts["test"], fixed, seed)
        record["test"][name] = np.asarray(run.history["test"]).tolist()
        record["seconds"][name] = run.cost.seconds
        if not run.status.sound:
            record["message"][name] = run.message
        yield record


def report(record: dict) -> None:
    """What was found, as a table."""
    # a run that blew up has fewer records
    last = min(len(history) for history in record["test"].values()) - 1
    test = {name: history[last] for name, history in record["test"].items()}
    print(f"{'step':>6}" + "".join(f"{name:>9}" for name in SOURCES))
    rows = [*zip(record["steps"], record["weights"], strict=True)][::4]
    for step, weights in [*rows, ("found", record["found"])]:
        print(f"{step:>6}" + "".join(f"{weight:9.3f}" for weight in weights))
    for name, value in test.items():
        print(
            f"{name:24s} test loss {value:.3f}, {value / test['oracle'] - 1:+.1%} from the oracle's"
        )
    for name, message in record["message"].items():
        print(f"{name}: {message}")
    harmful = sum(record["found"][i] for i in BAD)
    print(
        f"the four harmful sources together have weight {harmful:.3f}, with equal weights"
        f" {len(BAD) / len(SOURCES):.3f}"
    )
    print("Look at: the last line. Nobody has seen the text of another owner.")


def draw(record: dict, path: str) -> None:
    """The weights and the losses along the run."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    for i, name in enumerate(SOURCES):
        left.plot(
            record["steps"],
            [row[i] for row in record["weights"]],
            "--" if i in BAD else "-",
            label=name,
        )
    left.set(
        xlabel="step", ylabel="weight of the source", ylim=(None, 1.2 * np.max(record["weights"]))
    )
    left.legend(ncols=4, fontsize=8, loc="upper center")  # above the curves
    for name, history in record["test"].items():
        right.plot(record["steps"][: len(history)], history, label=name)
    right.set(xlabel="step", ylabel="test loss, nats a byte")
    right.legend(fontsize=8)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--large", action="store_true", help="25 million weights, on a GPU")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--lam", type=float, default=4.0, help="the penalty")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", help="a file for everything that was recorded")
    parser.add_argument("--figure", help="a file for a picture of it, which needs matplotlib")
    options = parser.parse_args()
    size = LARGE if options.large else SMALL
    size = replace(size, steps=options.steps or size.steps)
    attention = "cudnn" if jax.default_backend() == "gpu" else "xla"
    texts = corpus(size.megabytes, options.large)
    count = sum(leaf.size for leaf in jax.tree.leaves(transformer(size, jax.random.key(0))))
    print(
        f"{count:,} weights, {size.megabytes} MB of text for each owner, attention by {attention}"
    )
    record: dict = {}
    for record in compare(size, attention, texts, options.lam, options.seed):
        *_, name = record["test"]
        print(f"{name}: {size.steps} steps in {record['seconds'][name]:.0f} s", flush=True)
        if options.json:  # nothing is lost if a later run takes too long
            Path(options.json).write_text(json.dumps(record))
    report(record)
    if options.figure:
        draw(record, options.figure)


if __name__ == "__main__":
    main()
