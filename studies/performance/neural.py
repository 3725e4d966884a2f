"""Where Hessian-free pays: time and memory of a step for every kind of direction and inner level.

    python -m studies.performance.neural [--models linear,mlp,cnn,transformer] [--lengths 1024,4096]
    [--attention fused,plain]
                                [--methods NAME,NAME] [--steps N] [--limit SECONDS] [--json F]

Four agents on a ring. The inner level is a linear classifier, a network with two hidden layers, the
convolutional network of examples/label_cleaning.py, or the byte-level transformer of
examples/text_sources.py (on a GPU 25 million weights, 8 layers in a scan, activations in bfloat16,
two sequences for each agent, with plain and fused attention). Each row compiles one step of a
method and times it. "Temporary" is what the compiled step needs besides its arguments and results,
"peak" all of it together, both as the compiler counts them; "less" is solve(memory="less"), one
gradient after the other, and "low" one gradient of one agent after the other. Methods with second
derivatives raise an error where a kernel has none, and that error is the row; so is running out of
memory.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import decibo
from decibo import compose, consensus, direction
from decibo.errors import first_line
from decibo.run import loop
from decibo.run.run import begin
from decibo.run.solve import prepare

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import label_cleaning
import text_sources

AGENTS = 4
CPU = text_sources.Size(layers=1, width=32, heads=2, batch=2, clip=0.0)
GPU = text_sources.Size(layers=8, width=512, heads=8, batch=2, clip=0.0)
STEPS = {"x": 1e-3, "y": 1e-2}
METHODS: dict[str, Callable[[], decibo.Algorithm]] = {
    "ahead_exact": lambda: decibo.ahead_exact(alpha=1e-3, gamma=1e-2, lam=10.0),
    "ahead": lambda: decibo.ahead(alpha=1e-3, gamma=1e-2, lam=10.0),
    "F2SA-2": lambda: compose(
        direction.penalty_p(10.0, 2), consensus.exact_diffusion(), **STEPS, z=1e-2
    ),
    "d_soba (difference)": lambda: compose(
        direction.implicit(1e-3), consensus.dgd(), average={"x": 0.9}, **STEPS, v=1e-2
    ),
    "sparkle_ed": lambda: compose(
        direction.implicit(), consensus.exact_diffusion(), average={"x": 0.2}, **STEPS, v=1e-2
    ),
    "sldbo": lambda: compose(direction.implicit(), consensus.tracking(), **STEPS, v=1e-2),
}
MEMORY = {" (less)": "less", " (low)": "low"}  # after the name of a method
# with transformers
SAVING = [name + suffix for name in ("ahead_exact", "sparkle_ed", "sldbo") for suffix in MEMORY]
# with all but the shortest sequences
LONG = ["ahead_exact", "ahead", "d_soba (difference)", "sparkle_ed", *SAVING[:4]]


def linear(side: int = 28, samples: int = 512) -> decibo.Problem:
    """Softmax regression with a logarithm of the penalty for each weight."""
    shape = (side * side, 10)
    score = lambda y, image: image.reshape(len(image), -1) @ y["weights"]
    return classifier(
        score,
        {"weights": jnp.zeros(shape, jnp.float32)},
        jnp.zeros(shape, jnp.float32),
        side,
        samples,
    )


def mlp(side: int = 28, samples: int = 128) -> decibo.Problem:
    """Two hidden layers of 256."""
    sizes = (side * side, 256, 256, 10)
    keys = jax.random.split(jax.random.key(0), 3)
    layers = [
        jax.random.normal(k, s, jnp.float32) / s[0] ** 0.5
        for k, s in zip(keys, pairwise(sizes), strict=True)
    ]

    def score(y: list[jax.Array], image: jax.Array) -> jax.Array:
        h = image.reshape(len(image), -1)
        for layer in y[:-1]:
            h = jnp.tanh(h @ layer)
        return h @ y[-1]

    return classifier(score, layers, jnp.zeros(3, jnp.float32), side, samples)


def cnn(side: int = 28, samples: int = 64) -> decibo.Problem:
    """Two convolutions and two layers."""
    y0 = label_cleaning.network(side, jax.random.key(0))
    return classifier(
        label_cleaning.scores, y0, jnp.zeros(len(jax.tree.leaves(y0)), jnp.float32), side, samples
    )


def classifier(score: Callable, y0, x0: jax.Array, side: int, samples: int) -> decibo.Problem:
    """Ten classes; x holds logarithms of penalties, one for each weight or for each layer."""
    draw = np.random.default_rng(0)
    image = draw.normal(size=(2, AGENTS, samples, side, side)).astype(np.float32)
    label = draw.integers(0, 10, (2, AGENTS, samples))

    def loss(y, part):
        logits = jax.nn.log_softmax(score(y, part["image"]))
        return -jnp.mean(jnp.take_along_axis(logits, part["label"][:, None], axis=1))

    def inner(x, y, d):
        leaves = jax.tree.leaves(y)
        weights = [x] if x.shape == leaves[0].shape else list(x)
        return loss(y, d["training"]) + 1e-3 * sum(
            jnp.sum(jnp.exp(w) * leaf**2) for w, leaf in zip(weights, leaves, strict=True)
        )

    halves = [{"image": image[i], "label": label[i]} for i in range(2)]
    data = {"training": halves[0], "validation": halves[1]}
    return decibo.Problem(lambda x, y, d: loss(y, d["validation"]), inner, data, x0, y0)


def transformer(size: text_sources.Size, attention: str) -> decibo.Problem:
    draw = np.random.default_rng(0)
    pages = lambda: draw.integers(0, 256, (AGENTS, size.batch, size.length)).astype(np.uint8)
    data = {"text": pages(), "held_out": pages(), "owner": np.arange(AGENTS)}
    made = text_sources.bilevel(size, attention, data, 0)
    return decibo.Problem(made.outer, made.inner, data, made.x0, made.y0)


def measure(problem: decibo.Problem, name: str, steps: int, repeats: int = 5) -> dict:
    """Milliseconds of a step, the best of several repeats, and what it needs of memory."""
    row: dict = {"method": name}
    memory = next((word for suffix, word in MEMORY.items() if name.endswith(suffix)), "normal")
    method = METHODS[name.removesuffix(f" ({memory})")]()
    try:
        options = {"steps": 1, "every": 1, "measures": ["consensus_x"], "memory": memory}
        setup = prepare(problem, decibo.ring(AGENTS), method, **options)
        state = begin(setup).agents
        begun = time.perf_counter()
        step = jax.jit(partial(loop.step, setup.program), donate_argnums=1)
        step = step.lower(setup.inputs, state, jnp.int32(0)).compile()
        row["compile_s"] = time.perf_counter() - begun
        needs = step.memory_analysis()
        row["temporary_GB"] = needs.temp_size_in_bytes / 1e9
        both = needs.argument_size_in_bytes + needs.output_size_in_bytes - needs.alias_size_in_bytes
        row["peak_GB"] = row["temporary_GB"] + both / 1e9
        row["state_GB"] = sum(leaf.nbytes for leaf in jax.tree.leaves(state)) / 1e9
        state = jax.block_until_ready(step(setup.inputs, state, jnp.int32(0)))
        taken = []
        for _ in range(repeats):
            begun = time.perf_counter()
            for k in range(steps):
                state = step(setup.inputs, state, jnp.int32(k))
            jax.block_until_ready(state)
            taken.append(1e3 * (time.perf_counter() - begun) / steps)
        row["ms"] = min(taken)
        if not all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(state)):
            row["error"] = "The state is not finite."
    except Exception as error:
        row["error"] = f"{type(error).__name__}: {first_line(error)}"
    return row


def cases(models: list[str], lengths: list[int], kernels: list[str], gpu: bool):
    """The names and problems to measure, with the methods for each."""
    small = {"linear": linear, "mlp": mlp, "cnn": cnn}
    for model in models:
        if model in small:
            yield model, small[model], list(METHODS)
            continue
        for length in lengths:
            size = replace(GPU if gpu else CPU, length=length)
            for kernel in kernels:
                attention = {"fused": "cudnn", "plain": "xla"}[kernel]
                names = [*METHODS, *SAVING] if length == min(lengths) else LONG
                yield f"{model} {length} {kernel}", partial(transformer, size, attention), names


def line(row: dict) -> str:
    start = f"{row['model']:24} {row['method']:22}"
    if "ms" not in row:
        needed = f"needs {row['temporary_GB']:.1f} GB; " if "temporary_GB" in row else ""
        return f"{start} {needed}{row['error'][:160]}"
    numbers = f"{start}{row['ms']:9.2f}" + "".join(
        f"{1e3 * row[name]:12.1f}" for name in ("temporary_GB", "peak_GB", "state_GB")
    )
    return f"{numbers}  {row['error']}" if "error" in row else numbers


def main() -> None:
    gpu = jax.default_backend() == "gpu"
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default="linear,mlp,cnn,transformer")
    parser.add_argument("--lengths", default="1024,4096" if gpu else "64")
    parser.add_argument("--attention", default="fused,plain" if gpu else "plain")
    parser.add_argument(
        "--methods", help="only these, as the table names them, separated by commas"
    )
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument(
        "--limit", type=float, default=math.inf, help="seconds after which no row is begun"
    )
    parser.add_argument("--json")
    options = parser.parse_args()
    about = {
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
        "python": platform.python_version(),
    }
    about |= {"decibo": decibo.__version__, "date": time.strftime("%Y-%m-%d")}
    print(", ".join(f"{key} {value}" for key, value in about.items()))
    print(
        f"{'inner level':24} {'method':22}{'ms':>9}{'temp. MB':>12}{'peak MB':>12}{'state MB':>12}",
        flush=True,
    )
    rows = []
    begun = time.perf_counter()
    lengths = [int(length) for length in options.lengths.split(",")]
    for model, make, found in cases(
        options.models.split(","), lengths, options.attention.split(","), gpu
    ):
        names = options.methods.split(",") if options.methods else found
        problem = make()
        for name in names:
            if time.perf_counter() - begun > options.limit:
                print(f"{model:24} {name:22} left out: {options.limit:g} s are over")
                continue
            rows.append({"model": model} | measure(problem, name, options.steps))
            print(line(rows[-1]), flush=True)
            jax.clear_caches()
            if options.json:  # nothing is lost if a later row takes too long
                Path(options.json).write_text(json.dumps({"about": about, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
