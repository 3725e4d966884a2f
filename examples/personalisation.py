"""Personalisation with a network in PyTorch: features that all share, a last layer of one's own.

Ten offices sort scanned digits into ten trays. They agree on five of the trays and number the other
five as they like, and each has labelled only 30 images. The outer variable x is the hidden layer of
a network, shared by all; the inner variable y is the last layer, and it never leaves its office:
its consensus strategy is `local`. x is judged by how well the last layer that an office fits on 15
of its images does on its other 15. At the end every office fits its last layer on all 30.

The gradients are PyTorch's. First ones are enough for the symmetric penalty of `ahead_exact`;
methods of this kind from the literature, such as `lopa`, need second derivatives of the network.

    python examples/personalisation.py [--quick]      needs PyTorch and scikit-learn
"""

import sys

import numpy as np
import torch
from sklearn.datasets import load_digits

import decibo
from decibo.integrations import pytorch as bridge

STEPS = 30 if "--quick" in sys.argv else 400
OFFICES, IMAGES, HIDDEN = 10, 15, 32
cross_entropy = torch.nn.functional.cross_entropy


def body():
    return torch.nn.Sequential(torch.nn.Linear(64, HIDDEN), torch.nn.Tanh())


def head():
    return torch.nn.Linear(HIDDEN, 10)


def scores(x, y, images):
    hidden = torch.tanh(images @ x["0.weight"].T + x["0.bias"])
    return hidden @ y["weight"].T + y["bias"]


def size(tree):
    return sum(torch.sum(leaf**2) for leaf in tree.values())


def outer(x, y, d):
    """The loss on the images that the last layer was not fitted on."""
    return cross_entropy(scores(x, y, d["checked"]), d["checked trays"]) + 1e-3 * size(x)


def inner(x, y, d):
    """The loss on the others, with a decay that makes the inner level strongly convex."""
    return cross_entropy(scores(x, y, d["training"]), d["training trays"]) + 1e-2 * size(y)


def offices(random):
    """The images of every office with its trays, and what is left, for the test."""
    images, digits = load_digits(return_X_y=True)
    order = random.permutation(len(digits))
    images, digits = torch.tensor(images[order] / 16).float(), digits[order]
    trays = np.tile(np.arange(10), (OFFICES, 1))
    trays[:, 5:] = [5 + random.permutation(5) for _ in range(OFFICES)]
    data = {}
    for start, name in enumerate(("training", "checked")):
        rows = np.arange(OFFICES * IMAGES).reshape(OFFICES, IMAGES) + start * OFFICES * IMAGES
        labels = np.stack([own[digits[row]] for own, row in zip(trays, rows, strict=True)])
        data |= {name: images[rows], f"{name} trays": torch.tensor(labels)}
    rest = slice(2 * OFFICES * IMAGES, None)
    return data, images[rest], torch.tensor(trays[:, digits[rest]])


def accuracy(model, images, trays):
    with torch.no_grad():
        return float((model(images).argmax(dim=1) == trays).float().mean())


def trained(images, trays, parameters, model):
    """One level: all labelled images, the same decays, Adam."""
    optimiser = torch.optim.Adam(parameters, lr=1e-2)
    for _ in range(STEPS):
        optimiser.zero_grad()
        loss = cross_entropy(model(images), trays)
        (loss + sum(1e-3 * torch.sum(p**2) for p in parameters)).backward()
        optimiser.step()
    return model


def with_own_head(features, last, images, trays):
    """The features as they are, and a last layer fitted on all images of an office."""
    own = torch.nn.Linear(HIDDEN, 10)
    own.load_state_dict(last.state_dict())
    model = torch.nn.Sequential(features.requires_grad_(False), own)
    return trained(images, trays, list(own.parameters()), model)


def labelled(data):
    """All labelled images of each office, with their trays."""
    images = torch.cat([data["training"], data["checked"]], dim=1)
    trays = torch.cat([data["training trays"], data["checked trays"]], dim=1)
    return list(zip(images, trays, strict=True))


def rivals(data, images, trays):
    """Accuracy of an office alone, of one network for all, and of that network with a last layer of
    one's own."""
    offices = labelled(data)
    together = [torch.cat(parts) for parts in zip(*offices, strict=True)]
    torch.manual_seed(0)
    everyone = torch.nn.Sequential(body(), head())
    trained(*together, list(everyone.parameters()), everyone)
    alone, tuned = [], []
    for own, wanted in zip(offices, trays, strict=True):
        single = torch.nn.Sequential(body(), head())
        alone.append(accuracy(trained(*own, list(single.parameters()), single), images, wanted))
        tuned.append(accuracy(with_own_head(*everyone, *own), images, wanted))
    common = [accuracy(everyone, images, wanted) for wanted in trays]
    return {
        "each office alone": alone,
        "one network for all": common,
        "its features, own last layers": tuned,
    }


def main():
    torch.manual_seed(0)
    data, images, trays = offices(np.random.default_rng(0))
    shared, own = body(), head()
    problem = bridge.problem(outer, inner, data, x0=shared, y0=own)
    local = decibo.consensus.local()
    method = decibo.compose(
        decibo.direction.symmetric_penalty(10.0),
        {"x": decibo.consensus.tracking(), "y": local, "z": local},
        x=decibo.rule.amsgrad(0.01),
        y=decibo.rule.heavy_ball(2.0, 0.8),
        z=decibo.rule.heavy_ball(2.0, 0.8),
    )
    solution = decibo.solve(
        problem, decibo.ring(OFFICES), method, steps=STEPS, measures=["consensus_x", "outer_local"]
    )
    bridge.load(shared, solution.x)
    found = []
    for office, (seen, labels) in enumerate(labelled(data)):
        bridge.load(own, {name: leaf[office] for name, leaf in solution.agents.c.items()})
        found.append(accuracy(with_own_head(shared, own, seen, labels), images, trays[office]))
    results = rivals(data, images, trays) | {"features learned for it": found}
    print(
        f"{solution.status}: {OFFICES} offices, {2 * IMAGES} labelled images each, {len(images)}"
        " for the test"
    )
    print(f"{'':34s}mean   worst office")
    for name, values in results.items():
        print(f"  {name:32s}{np.mean(values):.2f}   {min(values):.2f}")
    if STEPS >= 400:
        *others, ours = (np.mean(values) for values in results.values())
        assert ours > 0.02 + max(others)
    print(f"disagreement of the offices over x: {solution.history['consensus_x'][-1]:.0e}")
    print(
        "Look at: an office alone has too few images, one network for all must guess five of the"
        " trays; features"
    )
    print(
        "learned for last layers that nobody else sees are better than features of the one network."
    )


if __name__ == "__main__":
    main()
