import jax
import jax.numpy as jnp
import numpy as np
import pytest

from decibo.data import breast_cancer, digits, heart_disease
from decibo.errors import InputError
from decibo.problem.reference import reference
from decibo.problems.cleaning import hyper_cleaning, hyper_cleaning_mask, hyper_cleaning_separation
from decibo.problems.logistic import accuracy, logistic_hyperparameters
from decibo.problems.minimax import minimax
from decibo.problems.pricing import stackelberg_pricing
from decibo.problems.quadratic import quadratic, quadratic_constants
from decibo.problems.synthetic import synthetic

PROBLEMS = {
    "synthetic": synthetic,
    "quadratic": lambda: quadratic(agents=3),
    "bent": lambda: quadratic(agents=3, bend=0.1),
    "logistic sum": lambda: logistic_hyperparameters(agents=3, training=30, validation=30),
    "logistic mean": lambda: logistic_hyperparameters(
        agents=3, training=30, validation=30, loss="mean"
    ),
    "cleaning": lambda: hyper_cleaning(agents=3, training=20, validation=20),
    "minimax": lambda: minimax(agents=3),
    "auc": lambda: minimax("auc", agents=3),
    "perturbation": lambda: minimax("perturbation", agents=3),
    "pricing": lambda: stackelberg_pricing(agents=3, hours=5),
}


def _point(problem, seed=1):
    key = jax.random.key(seed)
    return jax.tree.map(
        lambda leaf: leaf + 0.3 * jax.random.normal(key, leaf.shape, leaf.dtype), problem.x0
    )


@pytest.mark.parametrize("name", PROBLEMS)
def test_reference_gradient_meets_differences(name):
    problem = PROBLEMS[name]()
    assert reference(problem).check(_point(problem), directions=2) < 1e-7


@pytest.mark.parametrize(
    "name", [name for name in PROBLEMS if PROBLEMS[name]().solution is not None]
)
def test_the_known_solution_is_stationary(name):
    problem = PROBLEMS[name]()
    assert problem.solution is not None
    answer = reference(problem).at(problem.solution["x"])
    np.testing.assert_allclose(answer.grad, 0, atol=1e-12)
    np.testing.assert_allclose(answer.y, problem.solution["y"], atol=1e-12)


@pytest.mark.parametrize("name", PROBLEMS)
def test_objectives_keep_their_identity(name):
    first, second = PROBLEMS[name](), PROBLEMS[name]()
    assert first.functions == second.functions
    assert hash(first.functions) == hash(second.functions)
    for a, b in zip(jax.tree.leaves(first.data), jax.tree.leaves(second.data), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("factory", [quadratic, minimax, stackelberg_pricing])
def test_heterogeneity_zero_makes_agents_equal(factory):
    for leaf in jax.tree.leaves(factory(agents=3, heterogeneity=0.0).data):
        np.testing.assert_allclose(leaf, jnp.broadcast_to(leaf[0], leaf.shape), atol=1e-15)


def test_the_mean_of_minimax_is_its_negative():
    problem = minimax("auc", agents=2)
    d = jax.tree.map(lambda leaf: leaf[0], problem.data)
    assert problem.outer(problem.x0, jnp.array(0.7), d) == -problem.inner(
        problem.x0, jnp.array(0.7), d
    )


def test_auc_saddle_form_is_the_pairwise_square_loss():
    """Phi = p (1-p) (mean over pairs of (1 - u+ + u-)^2 - 1) at the best a and c; Ying et al.,
    theorem 1."""
    data = breast_cancer()
    problem = minimax("auc", agents=1, ridge=0.0)
    w = np.random.default_rng(0).normal(size=30) * 0.1
    u = data.features @ w
    up, down = u[data.labels > 0], u[data.labels < 0]
    p = np.mean(data.labels > 0)
    pairs = np.mean((1 - (up[:, None] - down)) ** 2)
    phi = reference(problem).phi({"w": w, "a": up.mean(), "c": down.mean()})
    assert phi == pytest.approx(p * (1 - p) * (pairs - 1))


@pytest.mark.quick
def test_logistic_is_the_papers_formula():
    problem = logistic_hyperparameters(agents=2, training=20, validation=10)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=64), rng.normal(size=64)
    d = jax.tree.map(lambda leaf: np.asarray(leaf[1]), problem.data)
    losses = {
        kind: np.log1p(np.exp(-s["labels"] * (s["features"] @ y))) @ s["weights"]
        for kind, s in d.items()
    }
    assert problem.outer(x, y, d) == pytest.approx(losses["validation"])
    assert problem.inner(x, y, d) == pytest.approx(losses["training"] + y @ (np.exp(x) * y))
    assert jnp.isfinite(problem.outer(x, 1e6 * y, d))


def test_padding_changes_nothing():
    """31 samples over 3 agents: two agents are padded; their sum is the sum over the samples."""
    padded = logistic_hyperparameters(agents=3, training=31, validation=31)
    alone = logistic_hyperparameters(agents=1, training=31, validation=31)
    y = jnp.linspace(-1, 1, 64)
    total = sum(
        padded.outer(0 * y, y, jax.tree.map(lambda leaf, i=i: leaf[i], padded.data))
        for i in range(3)
    )
    assert total == pytest.approx(
        float(alone.outer(0 * y, y, jax.tree.map(lambda leaf: leaf[0], alone.data)))
    )


@pytest.mark.parametrize("make", [logistic_hyperparameters, hyper_cleaning])
def test_fixed_batches_add_up_to_the_whole(make):
    # padded, and neither divides by 5
    problem = make(agents=3, training=35, validation=28, batches=5)
    x = np.linspace(-1, 1, problem.x0.size)
    y = np.linspace(-1, 1, problem.y0.size).reshape(problem.y0.shape)
    for agent in range(3):
        d = jax.tree.map(lambda leaf, agent=agent: jnp.asarray(leaf[agent]), problem.data)
        for objective in (problem.outer, problem.inner):
            parts = [objective(x, y, problem.sample.batch(d, jnp.int32(j))) for j in range(5)]
            np.testing.assert_allclose(np.mean(parts), objective(x, y, d), rtol=1e-12)
    assert problem.sample is make(agents=2, batches=5).sample  # one program for all
    with pytest.raises(InputError, match=r"batch is 4 and batches 5.*Leave one of them out"):
        make(agents=3, batch=4, batches=5)
    with pytest.raises(InputError, match="batches must be"):
        make(agents=3, training=35, validation=28, batches=36)


def test_minibatches_are_unbiased():
    problem = logistic_hyperparameters(agents=2, training=20, validation=20, batch=5)
    draw = problem.sample
    assert draw is not None
    assert draw is logistic_hyperparameters(agents=3, batch=5).sample
    d = jax.tree.map(lambda leaf: leaf[0], problem.data)
    y = jnp.linspace(-1, 1, 64)
    values = jax.vmap(lambda key: problem.outer(y, y, draw(d, key)))(
        jax.random.split(jax.random.key(0), 4000)
    )
    assert values.mean() == pytest.approx(float(problem.outer(y, y, d)), rel=0.03)


def test_the_reference_classifies():
    data = digits()
    y = reference(logistic_hyperparameters(data)).y(jnp.zeros(64))
    assert accuracy(y, data.test_features, data.test_labels) > 0.95
    both = jnp.stack([-y, y], axis=1)
    assert accuracy(both, data.test_features, data.test_labels) == accuracy(
        y, data.test_features, data.test_labels
    )


def test_hyper_cleaning_finds_the_corrupted():
    problem = hyper_cleaning(
        digits(), agents=2, training=60, validation=80, corruption=0.3, ridge=0.1
    )
    mask = hyper_cleaning_mask(problem)
    assert mask.sum() == 18
    x, expert = problem.x0, reference(problem)
    for _ in range(5):
        x = x - 200.0 * expert.grad(x)
    assert hyper_cleaning_separation(problem, problem.x0) == 0.5
    assert hyper_cleaning_separation(problem, x) > 0.9


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: quadratic(agents=0), "agents must be a positive integer, but it is 0"),
        (lambda: quadratic(n=2.5), "n must be a positive integer, but it is 2.5"),  # pyright: ignore
        (lambda: quadratic(heterogeneity=-1), "heterogeneity must be .* at least 0, but it is -1"),
        (lambda: quadratic(condition=0.5), "at least 1"),
        (lambda: quadratic(bend=0.6), "strongly convex"),
        (lambda: quadratic_constants(quadratic(bend=0.1)), "bend=0"),
        (lambda: quadratic_constants(synthetic()), "synthetic"),
        (lambda: logistic_hyperparameters(split="odd"), "iid, by_label, dirichlet, by_group"),
        (lambda: logistic_hyperparameters(split="by_group"), "have no silos"),
        (lambda: logistic_hyperparameters(loss="max"), "sum, mean"),
        (lambda: logistic_hyperparameters(scale=0), "above 0"),
        (lambda: logistic_hyperparameters(training=200, validation=200), "292 samples"),
        (lambda: logistic_hyperparameters(ratios=[0.5] * 10), "belong to split='by_label'"),
        (lambda: logistic_hyperparameters(split="by_label", ratios=[0.5]), "each of the 10 agents"),
        (lambda: logistic_hyperparameters(digits(None, None)), "two classes"),
        (lambda: hyper_cleaning(corruption=1.5), "between 0 and 1"),
        (lambda: hyper_cleaning(ridge=0), "above 0"),
        (lambda: hyper_cleaning_mask(synthetic()), "hyper_cleaning"),
        (lambda: minimax("cubic"), "quadratic, auc, perturbation"),
        (lambda: minimax("auc", rho=1.0), "no option rho"),
        (lambda: minimax("perturbation", rho=0.0), "above 0"),
        (lambda: stackelberg_pricing(hours=1), "at least 2"),
        (lambda: stackelberg_pricing(target="high"), "target must be .* but it is 'high'"),  # pyright: ignore
    ],
)
def test_invalid_options_are_named(make, words):
    with pytest.raises(InputError, match=words):
        make()


def test_each_silo_of_a_dataset_is_an_agent_with_half_of_its_samples_for_validation():
    data = heart_disease()
    sizes = np.unique(data.groups, return_counts=True)[1]
    for problem in (
        logistic_hyperparameters(data, split="by_group"),
        hyper_cleaning(data, split="by_group", training=243, validation=243),
    ):
        assert problem.agents == 4
        for kind in ("training", "validation"):
            counts = (np.asarray(problem.data[kind]["weights"]) > 0).sum(axis=1)
            assert np.abs(counts - sizes / 2).max() <= 1
