"""Masks: what neighbours can compute from the first messages without them and with them, and where
methods land."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import decibo
from decibo import consensus, direction, privacy

H, LAM = 0.3, 20.0
RING = decibo.ring(4)


def loss(y, samples):
    return jnp.mean(jax.nn.softplus(-samples["labels"] * (samples["features"] @ y)))


def outer(x, y, d):
    return loss(y, d["validation"]) + 0.01 * x**2


def inner(x, y, d):
    return loss(y, d["training"]) + jnp.exp(x) * y @ y


@pytest.fixture(scope="module")
def silos():
    """Two standardised features and a column of ones for four silos, with another share of
    positives in each."""
    random = np.random.default_rng(0)

    def table(i, count=60):
        labels = np.where(random.random(count) < 0.2 + 0.15 * i, 1.0, -1.0)
        features = random.normal(size=(count, 2)) + labels[:, None] * random.normal(size=2)
        features = (features - features.mean(axis=0)) / features.std(axis=0)
        return {"features": np.column_stack([np.ones(count), features]), "labels": labels}

    parts = [{kind: table(i) for kind in ("training", "validation")} for i in range(4)]
    data = jax.tree.map(lambda *leaves: np.stack(leaves), *parts)
    return decibo.Problem(outer, inner, data, np.array(0.0), np.zeros(3))


def class_means(samples):
    """What no neighbour should know."""
    positive = samples["labels"] > 0
    both = [samples["features"][chosen, 1:].mean(axis=0) for chosen in (positive, ~positive)]
    return np.concatenate([[positive.mean()], *both])


def guessed(gradient):
    """The share of positives and both class means from g_y = -mean(label feature)/2 at y = 0."""
    moment = -2 * np.asarray(gradient)
    share = (1 + moment[0]) / 2
    return np.concatenate([[share], moment[1:] / (2 * share), -moment[1:] / (2 * (1 - share))])


def ahead_free(sent, i):
    """The direction of c, from the difference of two messages about its total: c+ = W c + d, and c
    starts at 0."""
    return sent[1][0][1]["c"][i]


def exact_diffusion(sent, i):
    """Half of the directions of y and z, from the first message s - h d."""
    return -(sent[0][0]["y"][i] + sent[0][0]["z"][i]) / (2 * H)


def tracking(sent, i):
    """Half of the directions of y and z, which are the first message."""
    t = sent[0][0][1]
    return (t["y"][i] + t["z"][i]) / 2


along = direction.symmetric_penalty(LAM)
ATTACKS = {
    "exact_diffusion": (decibo.ahead_exact(alpha=H, gamma=H, lam=LAM), exact_diffusion),
    "tracking": (decibo.compose(along, consensus.tracking(), x=H, y=H, z=H), tracking),
    "robust_tracking": (decibo.methods.ahead_free(alpha=H, gamma=H, lam=LAM), ahead_free),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_the_first_messages_give_away_class_means_unless_they_are_masked(silos, name):
    method, attack = ATTACKS[name]
    plain, hidden = (
        privacy.messages(silos, RING, each) for each in (method, privacy.masked(method, scale=50.0))
    )
    for i in range(4):
        truth = class_means({key: rows[i] for key, rows in silos.data["training"].items()})
        np.testing.assert_allclose(guessed(attack(plain, i)), truth, atol=1e-12)
        masked = attack(hidden, i)
        assert np.abs(masked).max() > 10 * np.abs(attack(plain, i)).max()
        # a share of positives, which lies between 0 and 1
        assert np.abs(guessed(masked) - truth)[0] > 1


@pytest.mark.parametrize(
    "method",
    [decibo.ahead_exact(alpha=0.05, gamma=0.1), decibo.methods.ahead_free(alpha=0.05, gamma=0.1)],
    ids=["exact_diffusion", "robust_tracking"],
)
def test_masks_a_hundred_times_the_gradient_do_not_move_the_answer(method):
    problem = decibo.problems.quadratic(5)
    ring = decibo.ring(5)
    largest = jnp.abs(
        privacy.messages(problem, ring, decibo.methods.dgd(alpha=1.0), steps=2)[1][0]["x"]
    ).max()
    assert 1.0 <= largest <= 10.0  # of the gradients of f, since agents start at 0
    solution = decibo.solve(
        problem, ring, privacy.masked(method, 1000.0), steps=3000, every=3000, measures=["outer"]
    )
    np.testing.assert_allclose(
        solution.agents.x, np.broadcast_to(problem.solution["x"], (5, 3)), atol=1e-9
    )


def test_who_has_one_neighbour_is_told_that_masks_do_not_help(silos):
    with pytest.warns(
        UserWarning, match="Agents 0 and 3 have a single neighbour, who knows all their masks"
    ):
        privacy.messages(
            silos,
            decibo.networks.path(4),
            privacy.masked(ATTACKS["exact_diffusion"][0], 3.0),
            steps=1,
        )


def test_masks_cancel_over_the_agents_and_differ_between_links_variables_and_seeds(silos):
    method = privacy.masked(ATTACKS["exact_diffusion"][0], 50.0)
    plain = privacy.messages(silos, RING, ATTACKS["exact_diffusion"][0], steps=1)[0][0]
    masks = []
    for seed in (0, 1):
        sent = privacy.messages(silos, RING, method, steps=1, seed=seed)[0][0]
        masks.append(
            {name: np.asarray(plain[name] - sent[name]).reshape(4, -1) / H for name in sent}
        )
    for mask in masks:
        for rows in mask.values():
            np.testing.assert_allclose(rows.sum(axis=0), 0, atol=1e-10)
            assert np.abs(rows).min() > 1e-3
    assert not np.allclose(masks[0]["y"], masks[1]["y"])
    assert not np.allclose(masks[0]["y"], masks[0]["z"])


def test_what_cannot_be_masked():
    refused = {
        r"by dgd.*masks would lead it elsewhere.*exact_diffusion": decibo.ahead(
            alpha=0.1, gamma=0.1, lam=10.0
        ),
        "by atc": decibo.methods.d_soba(alpha=0.1, beta=0.1, gamma=0.1),
        "y, v by local": decibo.methods.lopa(alpha=0.1, beta=0.1, gamma=0.1, tracking=True),
        "Pass alpha and gamma": decibo.ahead_exact(),
        "Mask first": decibo.minibatch(decibo.ahead_exact(alpha=0.1, gamma=0.1)),
    }
    for words, method in refused.items():
        with pytest.raises(decibo.InputError, match=words):
            privacy.masked(method, 1.0)
    with pytest.raises(decibo.InputError, match="The scale of x must be"):
        privacy.masked(ATTACKS["tracking"][0], 0.0)
    with pytest.raises(decibo.InputError, match="has no variable v"):
        privacy.masked(ATTACKS["tracking"][0], {"x": 1.0, "v": 2.0})
    masked = privacy.masked(ATTACKS["exact_diffusion"][0], 3.0)
    assert (masked.replace(alpha=0.1).masks, masked.theory.theorem) == (
        {"x": 3.0, "y": 3.0, "z": 3.0},
        None,
    )
