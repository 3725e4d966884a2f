"""`@method`, and what every entry of the catalogue has: a docstring in one shape and a
provenance."""

import importlib
import inspect
import pkgutil
import re

import jax
import jax.numpy as jnp
import pytest

import decibo
from decibo import algorithm, consensus, contrib, direction
from decibo.algorithm.algorithm import CATALOG, Algorithm, method
from decibo.algorithm.schedules import Rate, Schedule


@pytest.fixture
def catalogue(monkeypatch):
    """Methods that a test defines leave the catalogue with it."""
    before = dict(CATALOG)
    yield CATALOG
    CATALOG.clear()
    CATALOG.update(before)


def test_every_method_is_in_decibo_methods():
    """A file with a method that decibo/methods.py does not import is found here."""
    for module in pkgutil.iter_modules(algorithm.__path__):
        importlib.import_module(f"decibo.algorithm.{module.name}")
    assert sorted(CATALOG) == decibo.methods.__all__ == dir(decibo.methods)
    assert all(getattr(decibo.methods, name) is factory for name, factory in CATALOG.items())


@pytest.mark.parametrize("name", CATALOG | contrib.CATALOG)
def test_every_method_explains_itself(name):
    factory = (CATALOG | contrib.CATALOG)[name]
    text = inspect.getdoc(factory)
    assert factory.provenance
    assert re.search(r"^Cost: .*gradient", text, re.MULTILINE)
    assert re.search(r"^Lands: ", text, re.MULTILINE)
    assert " ".join(text.split()).endswith(f"Provenance: {factory.provenance}")
    undescribed = [
        word
        for word in inspect.signature(factory).parameters
        if not re.search(rf"\b{word}\b.*   ", text)
    ]
    assert not undescribed


def test_contrib_lists_each_of_its_files():
    files = {module.name for module in pkgutil.iter_modules(contrib.__path__)}
    assert files == set(contrib.CATALOG) == set(contrib.__all__) - {"CATALOG"}
    assert not files & set(CATALOG)


def test_rates_become_schedules_and_settings_stay(catalogue):
    seen = {}

    @method
    def mine(
        *,
        alpha: Rate,
        beta: Rate | None = None,
        gamma: Rate = 0.5,
        T: int = 3,
        radius: float | None = 2.0,
    ):
        """Mine."""
        seen.update(locals())
        return decibo.compose(direction.single(), consensus.dgd(), x=alpha, y=gamma)

    halving = lambda k: 0.5**k
    algorithm = mine(alpha=0.1, gamma=halving, T=4)
    assert (seen["alpha"](7), seen["gamma"](2), seen["beta"], seen["T"], seen["radius"]) == (
        0.1,
        0.25,
        None,
        4,
        2.0,
    )
    assert algorithm.settings == {
        "alpha": 0.1,
        "beta": None,
        "gamma": halving,
        "T": 4,
        "radius": 2.0,
    }
    assert (algorithm.name, algorithm.replace(alpha=0.2).settings["alpha"]) == ("mine", 0.2)
    assert "mine" not in catalogue  # which is that of the package
    assert mine.__doc__ == "Mine."
    assert jax.tree.leaves(seen["T"]) == []  # the length of a loop is part of the program
    for name, value in {"alpha": -1.0, "gamma": "fast", "beta": 0, "T": 0}.items():
        with pytest.raises(decibo.InputError, match=f"{name} must be"):
            mine(**{"alpha": 0.1} | {name: value})


def test_traced_numbers_pass(catalogue):
    """A sweep makes methods inside a compiled program."""

    @jax.jit
    def leaves(alpha):
        core = decibo.ahead(alpha=alpha, gamma=0.1, lam=alpha * 10).core
        return jax.tree.leaves(core.direction)

    assert leaves(jnp.asarray(0.5)) == [5.0]


def test_no_method_replaces_another_modules(catalogue):
    def ahead(*, alpha: Rate) -> Algorithm:
        """Another AHEAD."""
        return decibo.methods.dgd(alpha=alpha)

    assert method(ahead)(alpha=0.1).name == "ahead"  # a stranger's may have any name
    assert catalogue["ahead"] is decibo.ahead
    ahead.__module__ = "decibo.algorithm.another"
    with pytest.raises(
        decibo.InputError, match=r"ahead already exists in decibo\.algorithm\.methods"
    ):
        method(ahead)


def test_a_method_must_return_an_algorithm():
    @method
    def forgetful(*, alpha: Rate) -> Algorithm:
        decibo.methods.dgd(alpha=alpha)

    with pytest.raises(
        decibo.InputError, match=r"forgetful must return a decibo\.Algorithm, but it returned None"
    ):
        forgetful(alpha=0.1)


def test_matched_steps_are_gamma_over_lam():
    """Without beta, for every method that has one to match."""
    for factory in (decibo.ahead, decibo.methods.f2sa, decibo.methods.c2dfb):
        settings = {"alpha": 0.1, "gamma": 0.4, "lam": 8.0}
        rates = _schedules(factory(**settings).core.step)
        assert {0.05, 0.1, 0.4, 8.0} <= {float(rate(0)) for rate in rates}


def _schedules(step) -> list[Schedule]:
    if isinstance(step.args[0], tuple):  # composed
        rules = step.args[0].rule.step.args[0]
        return [*(rule.step.args[0] for rule in rules.values()), step.args[0].direction.at.args[0]]
    return list(step.args[0].values())


def test_what_methods_declare():
    ahead = decibo.ahead(alpha=0.1, gamma=0.1, lam=10.0)
    exact = decibo.ahead_exact(alpha=0.1, gamma=0.1)
    assert (*ahead.theory, ahead.answer) == ("1/lam", "Theorem 1", "y")
    assert (*exact.theory, exact.answer) == ("1/lam^2", "Theorem B", "c")
    batched = decibo.minibatch(ahead)
    assert (*batched.theory, batched.direction) == ("1/lam", None, ahead.direction)
    assert decibo.methods.bome(alpha=0.1, gamma=0.1).direction is None
