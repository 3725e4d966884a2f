"""Find wrong labels with a convolutional network, across clients whose images stay where they are.

Eight clients have images, and four in ten of their labels are wrong. Each client has had a few more
images checked by hand. x holds one logit of trust for each training image, y is a convolutional
network:

    inner   g = mean over training images j of sigmoid(x_j) * loss_j(y) + decay/2 * |y|^2
    outer   f = mean loss of y on the checked images

Both levels use minibatches and Adam. A network that fits any labels needs a small penalty: y and z
then differ by what the checked images say and not by chance. Last, a fresh network is trained on
the labels that are trusted.

    python examples/label_cleaning.py [--fashion FOLDER] [--seeds N] [--json FILE]

Without FOLDER the images are the digits of scikit-learn. FOLDER holds the four files of
Fashion-MNIST; Debian's package dataset-fashion-mnist puts them into
/usr/share/datasets/fashion-mnist.
"""

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import decibo
from decibo import compose, consensus, direction, estimator, rule

CLIENTS = 8
WRONG = 0.4
DECAY = 1e-4


@dataclass(frozen=True)
class Size:
    """How large the example is."""

    training: int  # images of each client
    checked: int
    steps: int  # of the bilevel run
    training_steps: int  # of every run with given labels
    rate: float  # of Adam for the network
    rate_x: float  # of Adam for x
    lam: float = 2.0


DIGITS = Size(training=150, checked=15, steps=400, training_steps=400, rate=3e-3, rate_x=0.1)
FASHION = Size(training=2000, checked=50, steps=6000, training_steps=3000, rate=1e-3, rate_x=0.1)


def images(folder: str | None) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Size]:
    """Training images and labels, test images and labels, and the size of the example."""
    if folder:
        found = decibo.data.idx(folder)
        square = lambda features: np.asarray(features, np.float32).reshape(-1, 28, 28)
        return (
            square(found.features),
            found.labels,
            square(found.test_features),
            found.test_labels,
            FASHION,
        )
    from sklearn.datasets import load_digits

    features, labels = load_digits(return_X_y=True)
    features = features.astype(np.float32).reshape(-1, 8, 8) / 16
    order = np.random.default_rng(0).permutation(len(labels))
    features, labels = features[order], labels[order]
    return features[:-400], labels[:-400], features[-400:], labels[-400:], DIGITS


def clients(
    features: np.ndarray, labels: np.ndarray, size: Size, seed: int
) -> tuple[dict, np.ndarray]:
    """What the clients have, and the true labels of their training images."""
    draw = np.random.default_rng(seed)
    rows = draw.permutation(len(labels))[: CLIENTS * (size.training + size.checked)].reshape(
        CLIENTS, -1
    )
    trained, checked = rows[:, : size.training], rows[:, size.training :]
    truth = labels[trained].astype(np.int32)
    wrong = draw.random(truth.shape) < WRONG
    given = np.where(wrong, (truth + draw.integers(1, 10, truth.shape)) % 10, truth).astype(
        np.int32
    )
    data = {
        "training": {
            "image": features[trained],
            "label": given,
            "row": np.arange(truth.size).reshape(truth.shape),
        },
        "checked": {"image": features[checked], "label": labels[checked].astype(np.int32)},
    }
    return data, truth


# Network: two convolutions of stride 2 and two layers. Convolutions are products with patches,
# which stay fast when every client has weights of its own.


def network(side: int, key: jax.Array) -> dict[str, jax.Array]:
    flat = 32 * (side // 4) ** 2
    shapes = {"first": (9, 16), "second": (9 * 16, 32), "third": (flat, 64), "last": (64, 10)}
    keys = jax.random.split(key, len(shapes))
    draw = lambda key, shape: jax.random.normal(key, shape, jnp.float32) * (2 / shape[0]) ** 0.5
    weights = {
        name: draw(key, shape) for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }
    return weights | {
        f"{name}_bias": jnp.zeros(shape[1], jnp.float32) for name, shape in shapes.items()
    }


def patches(h: jax.Array) -> jax.Array:
    """The 3 x 3 neighbourhood of every second pixel, as the last axis."""
    side = h.shape[1]
    h = jnp.pad(h, ((0, 0), (0, 1), (0, 1), (0, 0)))
    parts = [
        h[:, i : i + side - side % 2 : 2, j : j + side - side % 2 : 2]
        for i in range(3)
        for j in range(3)
    ]
    return jnp.concatenate([part[:, : side // 2, : side // 2] for part in parts], axis=-1)


def scores(y: dict[str, jax.Array], image: jax.Array) -> jax.Array:
    h = jax.nn.relu(patches(image[..., None]) @ y["first"] + y["first_bias"])
    h = jax.nn.relu(patches(h) @ y["second"] + y["second_bias"])
    h = jax.nn.relu(h.reshape(len(h), -1) @ y["third"] + y["third_bias"])
    return h @ y["last"] + y["last_bias"]


def losses(y: dict[str, jax.Array], samples: dict[str, jax.Array]) -> jax.Array:
    logits = jax.nn.log_softmax(scores(y, samples["image"]))
    return -jnp.take_along_axis(logits, samples["label"][:, None], axis=1)[:, 0]


def decay(y: dict[str, jax.Array]) -> jax.Array:
    return DECAY / 2 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(y))


def outer(x, y, d):
    return jnp.mean(losses(y, d["checked"]))


def inner(x, y, d):
    return jnp.mean(jax.nn.sigmoid(x[d["training"]["row"]]) * losses(y, d["training"])) + decay(y)


def weighted(y, d):
    """Training with given weights of the images."""
    return jnp.mean(d["weight"] * losses(y, d)) + decay(y)


def drawn(rows, key, count=64):
    chosen = jax.random.randint(
        key, (min(count, rows["label"].shape[0]),), 0, rows["label"].shape[0]
    )
    return jax.tree.map(lambda leaf: leaf[chosen], rows)


def sample(d, key):
    """64 training images and up to 64 checked ones."""
    first, second = jax.random.split(key)
    return {"training": drawn(d["training"], first), "checked": drawn(d["checked"], second)}


# Runs


def falling(rate: float, steps: int):
    """A step size that stays for half of the steps and then falls to a fiftieth: minibatches keep x
    and y moving."""
    return lambda k: rate * jnp.clip(2 * (1 - k / steps), 0.02, 1)


def cleaned(data, size: Size, side: int, seed: int) -> decibo.Solution:
    inner_rule = rule.adam(falling(size.rate, size.steps))
    method = compose(
        direction.symmetric_penalty(size.lam),
        consensus.atc_tracking(),
        estimator=estimator.minibatch(),
        x=rule.adam(falling(size.rate_x, size.steps)),
        y=inner_rule,
        z=inner_rule,
    )
    count = data["training"]["label"].size
    start = network(side, jax.random.key(seed))
    problem = decibo.Problem(
        outer, inner, data, jnp.zeros(count, jnp.float32), start, sample=sample
    )
    return decibo.solve(
        problem, decibo.ring(CLIENTS), method, steps=size.steps, measures=["consensus_x"], seed=seed
    )


def trained(
    samples, size: Size, side: int, seed: int, weight: np.ndarray | float = 1.0
) -> decibo.Solution:
    """One level, with the same network, minibatches and optimiser."""
    weight = np.broadcast_to(np.asarray(weight, np.float32), samples["label"].shape)
    method = compose(
        direction.single(),
        consensus.atc_tracking(),
        estimator=estimator.minibatch(),
        x=rule.adam(size.rate),
        y=1e-3,
    )
    data = {"image": samples["image"], "label": samples["label"], "weight": weight}
    problem = decibo.problems.single_level(
        weighted, data, network(side, jax.random.key(seed)), sample=drawn
    )
    options = {"steps": size.training_steps, "measures": ["consensus_x"], "seed": seed}
    return decibo.solve(problem, decibo.ring(CLIENTS), method, **options)


def accuracy(y, features: np.ndarray, labels: np.ndarray) -> float:
    return float(np.mean(np.asarray(scores(y, jnp.asarray(features))).argmax(axis=1) == labels))


def area(trust: np.ndarray, wrong: np.ndarray) -> float:
    """How often a right label is trusted more than a wrong one: the area under the ROC curve."""
    ranks = np.argsort(np.argsort(trust.ravel())) + 1
    right = ~wrong.ravel()
    return float(
        (ranks[right].sum() - right.sum() * (right.sum() + 1) / 2) / (right.sum() * (~right).sum())
    )


def one(features, labels, test_features, test_labels, size: Size, seed: int) -> dict[str, float]:
    data, truth = clients(features, labels, size, seed)
    training = data["training"]
    wrong = training["label"] != truth
    side = features.shape[1]
    solution = cleaned(data, size, side, seed)
    # logits: a sigmoid would round large ones to the same number
    trust = np.asarray(solution.x)[training["row"]]
    join = lambda first, second: np.concatenate([first, second], axis=1)
    both = {name: join(training[name], data["checked"][name]) for name in data["checked"]}
    weight = join(trust > 0, np.ones_like(data["checked"]["label"]))
    weight = weight / weight.mean()
    judged = lambda y: accuracy(y, test_features, test_labels)
    y = jax.tree.map(lambda rows: jnp.mean(rows, axis=0), solution.agents.y)
    return {
        "checked images alone": judged(trained(data["checked"], size, side, seed).x),
        "all labels believed": judged(trained(both, size, side, seed).x),
        "y of the bilevel run": judged(y),
        "trusted labels believed": judged(trained(both, size, side, seed, weight).x),
        "all labels right": judged(
            trained(both | {"label": join(truth, data["checked"]["label"])}, size, side, seed).x
        ),
        "area under the curve": area(trust, wrong),
    }


def regained(run: dict[str, float], name: str) -> float:
    """The share of the accuracy lost to wrong labels that a network has."""
    noisy = run["all labels believed"]
    return (run[name] - noisy) / (run["all labels right"] - noisy)


def report(runs: list[dict[str, float]]) -> None:
    """What was found, over the draws of the data."""
    for name in runs[0]:
        values = np.array([run[name] for run in runs])
        print(f"{name:24s} {values.mean():.3f} (least {values.min():.3f})")
    for name in ("y of the bilevel run", "trusted labels believed"):
        shares = np.array([regained(run, name) for run in runs])
        print(
            f"{name}: {shares.mean():.0%} of the accuracy lost to wrong labels regained (least"
            f" {shares.min():.0%})"
        )
    print(
        "Look at: the last line, and the area: how often a right label is trusted more than a wrong"
        " one."
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fashion", help="folder of Fashion-MNIST")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--json", help="a file for the numbers of every seed")
    options = parser.parse_args()
    *parts, size = images(options.fashion)
    print(
        f"{CLIENTS} clients with {size.training} images each, {WRONG:.0%} of the labels wrong, "
        f"and {size.checked} that were checked"
    )
    runs = []
    for seed in range(options.seeds):
        runs.append(one(*parts, size, seed))
        if options.json:
            Path(options.json).write_text(json.dumps({"size": asdict(size), "runs": runs}))
    report(runs)


if __name__ == "__main__":
    main()
