"""What methods, networks, problems and data are made of: each with arguments that are fine, and
what is spoilt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

import decibo
from decibo.data import Batches, Stream

NAN = float("nan")
INF = float("inf")
Spoilt = tuple[str, Callable[..., Any], dict[str, Any], dict[str, Any]]

METHOD = decibo.ahead(alpha=0.05, gamma=0.1, lam=20.0)
RING = decibo.ring(4)
LABELS = np.tile([0, 1], 12)
NO_METHOD: list[Any] = [None, 5, "ahead", [], {}, object(), decibo.ahead, np.zeros(2)]
NO_NETWORK: list[Any] = [None, 5, "ring", [], {}, object(), np.eye(4)]
# of something: above 0, at most 1
NO_SHARE: list[Any] = [0, -0.1, 1.5, NAN, INF, "a", None, [], 1j, object()]
NO_MOMENTUM: list[Any] = [-0.1, 1.0, 1.5, NAN, INF, "a", [], 1j, object()]


def parts() -> Iterator[Spoilt]:
    """All of them."""
    yield from _networks()
    yield from _rules()
    yield from _factors()
    yield from _wrappers()
    yield from _problems()
    yield from _data()
    yield from _sites()


def _networks() -> Iterator[Spoilt]:
    each = [
        None,
        5,
        [],
        {},
        {"x": None},
        {"x": 5},
        {5: RING},
        {"x": RING, "y": decibo.ring(5)},
        object(),
    ]
    yield "networks.each", decibo.networks.each, {}, {"networks": each}
    rounds = {"network": NO_NETWORK, "rounds": "count"}
    yield "networks.chebyshev", decibo.networks.chebyshev, {"network": RING, "rounds": 2}, rounds
    speeds = [
        0,
        -1,
        1.5,
        NAN,
        INF,
        "a",
        [],
        [1.0],
        [1.0] * 5,
        [1.0, 1.0, 1.0, -1.0],
        {9: 1.0},
        {"a": 1.0},
        None,
        1j,
    ]
    away = [5, "a", [5], {9: (0, 1)}, {0: 5}, {0: (5, 2)}, {0: (-1, 2)}, object()]
    kinds = {
        "network": NO_NETWORK,
        "speeds": speeds,
        "delay": "count",
        "loss": [1.0, *NO_SHARE[1:]],
        "away": away,
    }
    kinds |= {"patience": "optional count", **dict.fromkeys(("relay", "split"), "flag")}
    yield "networks.asynchronous", decibo.networks.asynchronous, {"network": RING}, kinds


def _rules() -> Iterator[Spoilt]:
    rule = decibo.rule
    step = {"step": "rate"}
    moments = step | {"b1": NO_MOMENTUM, "b2": NO_MOMENTUM, "eps": "positive"}
    not_negative = [-1.0, NAN, INF, "a", None, [], 1j, object()]
    yield "rule.constant", rule.constant, {"step": 0.1}, step
    yield "rule.normalised", rule.normalised, {"step": 0.1}, step
    yield "rule.adam", rule.adam, {"step": 0.1}, moments
    yield "rule.amsgrad", rule.amsgrad, {"step": 0.1}, moments
    yield "rule.heavy_ball", rule.heavy_ball, {"step": 0.1}, step | {"momentum": NO_MOMENTUM}
    yield "rule.nesterov", rule.nesterov, {"step": 0.1}, step | {"momentum": NO_MOMENTUM}
    yield "rule.adagrad_norm", rule.adagrad_norm, {"step": 0.1}, step | {"initial": not_negative}
    yield "rule.tuning_free", rule.tuning_free, {}, {"step": "positive", "initial": not_negative}
    yield (
        "rule.from_optax",
        rule.from_optax,
        {},
        {"transformation": [None, 5, "adam", [], {}, object(), lambda: 1]},
    )


def _factors() -> Iterator[Spoilt]:
    direction, consensus, estimator, prox = (
        decibo.direction,
        decibo.consensus,
        decibo.estimator,
        decibo.prox,
    )
    for name in ("penalty", "symmetric_penalty", "centred_penalty", "minimax_penalty"):
        spoilt = "optional rate" if name == "centred_penalty" else "rate"
        yield f"direction.{name}", getattr(direction, name), {"lam": 1.0}, {"lam": spoilt}
    yield "direction.penalty_p", direction.penalty_p, {"lam": 1.0}, {"lam": "rate", "p": "count"}
    yield "direction.moreau", direction.moreau, {"c": 1.0}, {"c": "rate", "proximity": "rate"}
    difference = [0, -1.0, NAN, INF, "a", [], 1j, object()]
    yield (
        "direction.implicit",
        direction.implicit,
        {},
        {"difference": difference, "ridge": "optional rate"},
    )
    for name in ("page", "snapshot"):
        yield (
            f"estimator.{name}",
            getattr(estimator, name),
            {"p": 0.5},
            {"p": NO_SHARE, "seed": "seed"},
        )
    yield "estimator.sarah", estimator.sarah, {"period": 5}, {"period": "count"}
    yield "estimator.storm", estimator.storm, {"a": 0.1}, {"a": "rate"}
    for name, parameter in {"ball": "radius", "l1": "weight", "simplex": "total"}.items():
        spoilt = difference[1:] if name == "l1" else difference
        yield f"prox.{name}", getattr(prox, name), {parameter: 1.0}, {parameter: [*spoilt, None]}
    bounds = [NAN, "a", [], 1j, None, object()]
    yield "prox.box", prox.box, {"low": -1.0, "high": 1.0}, {"low": [INF, *bounds], "high": bounds}
    compose = {
        "direction": direction.penalty(1.0),
        "consensus": consensus.dgd(),
        "x": 0.1,
        "y": 0.1,
        "z": 0.1,
    }
    kinds = {
        "direction": [None, 5, "penalty", direction.penalty, [], object()],
        "consensus": [
            None,
            5,
            "dgd",
            consensus.dgd,
            {},
            {"x": 5},
            {"q": consensus.dgd()},
            object(),
        ],
        "estimator": [5, "saga", estimator.saga, [], object()],
        "average": [5, "a", {"q": 0.1}, {"x": -1}, {"x": "a"}, object()],
        "prox": [5, "a", {"x": 5}, {"q": prox.l1(1.0)}, object()],
        "rule": [5, "adam", decibo.rule.adam, [], object()],
        "x": "rate",
        "w": [0.1],
    }
    yield "compose", decibo.compose, compose, kinds


def _wrappers() -> Iterator[Spoilt]:
    compression = decibo.compression
    yield "compression.top_k", compression.top_k, {}, {"fraction": NO_SHARE}
    yield "compression.random_k", compression.random_k, {}, {"fraction": NO_SHARE}
    yield "compression.quantise", compression.quantise, {}, {"bits": "count"}
    yield "compression.rounded", compression.rounded, {}, {"dtype": "word"}
    kinds = {
        "method": NO_METHOD,
        "compressor": [None, 5, "top_k", compression.top_k, object()],
        "eta": NO_SHARE,
    }
    fine = {"method": METHOD, "compressor": compression.top_k(0.5)}
    yield "compression.compressed", compression.compressed, fine, kinds
    yield (
        "local_steps",
        decibo.local_steps,
        {"method": METHOD, "K": 2},
        {"method": NO_METHOD, "K": "count"},
    )
    yield "minibatch", decibo.minibatch, {}, {"method": NO_METHOD}
    kinds = {"method": NO_METHOD, "estimator": [None, 5, "saga", decibo.estimator.saga, object()]}
    fine = {"method": METHOD, "estimator": decibo.estimator.minibatch()}
    yield "with_estimator", decibo.with_estimator, fine, kinds
    scale = [
        0,
        -1.0,
        NAN,
        INF,
        "a",
        None,
        [],
        {},
        {"x": "a"},
        {"x": -1.0},
        {"q": 1.0},
        1j,
        object(),
    ]
    exact = decibo.ahead_exact(alpha=0.05, gamma=0.1)
    kinds = {"method": [*NO_METHOD, METHOD], "scale": scale}
    yield "privacy.masked", decibo.privacy.masked, {"method": exact, "scale": 1.0}, kinds


def _problems() -> Iterator[Spoilt]:
    problems = decibo.problems
    more = [0.5, -1.0, NAN, INF, "a", None, [], 1j, object()]
    yield (
        "problems.quadratic",
        problems.quadratic,
        {},
        {"condition": more, "bend": [NAN, INF, "a", None, [], 1j]},
    )
    kinds = {
        "agents": "count",
        "hours": "count",
        "heterogeneity": more[1:],
        "target": [NAN, INF, "a", None, [], 1j],
        "smooth": more[1:],
        "seed": "numpy seed",
    }
    yield "problems.stackelberg_pricing", problems.stackelberg_pricing, {}, kinds
    yield "problems.minimax", problems.minimax, {}, {"kind": "word"}
    kinds = {
        "dataset": [5, "digits", [], object(), np.zeros(3)],
        "agents": "count",
        "split": "word",
        "ratios": [5, "a", [], [2.0] * 10, [0.5], [NAN] * 10],
        "batch": "optional count",
        "batches": "optional count",
        "seed": "numpy seed",
    }
    cleaning = {
        "corruption": more[1:],
        "ridge": more[1:],
        "training": "optional count",
        "validation": "optional count",
    }
    yield "problems.hyper_cleaning", problems.hyper_cleaning, {}, kinds | cleaning
    unequal = {"concentration": [0, *more[1:]]}
    yield "problems.hyper_cleaning", problems.hyper_cleaning, {"split": "dirichlet"}, unequal
    logistic = {
        "loss": "word",
        "scale": [0, *more[1:]],
        "training": "optional count",
        "validation": "optional count",
    }
    yield (
        "problems.logistic_hyperparameters",
        problems.logistic_hyperparameters,
        {},
        kinds | logistic,
    )
    run = {
        "problem": problems.quadratic(4),
        "network": RING,
        "method": METHOD,
        "steps": 2,
        "progress": False,
    }
    kinds = {
        "problem": [None, 5, "a", lambda seed: 5, object()],
        "network": [None, 5, "ring", lambda seed: 5, object()],
        "method": [5, "ahead", object()],
        "seeds": [0, -5, "a", [], [1.5], [-1], [0, 0], object()],
        "steps": "steps",
        "until": ["outer", 5, {"outer": NAN}],
    }
    yield "repeat", decibo.repeat, run, kinds
    networks = [
        {},
        {"x": RING},
        {"x": RING, "y": 5, "z": RING},
        {"x": RING, "y": RING, "z": decibo.ring(5)},
    ]
    yield "solve", decibo.solve, run, {"memory": "word", "network": networks}
    own = {"data": jnp.arange(4.0), "x0": jnp.zeros(2), "y0": jnp.zeros(2)}
    own |= {
        "outer": lambda x, y, d: jnp.sum((y - d) ** 2),
        "inner": lambda x, y, d: jnp.sum((y - x) ** 2),
    }
    gradient = [
        5,
        "a",
        [],
        lambda x: x,
        lambda x, y, d: None,
        lambda x, y, d: x,
        lambda x, y, d: (x,),
    ]
    gradient += [
        lambda x, y, d: (x, y, y),
        lambda x, y, d: (jnp.zeros(7), y),
        lambda x, y, d: ("a", y),
    ]
    yield "Problem", decibo.Problem, own, {"outer_gradient": gradient, "inner_gradient": gradient}


def _data() -> Iterator[Spoilt]:
    data = decibo.data
    labels = [None, 5, "a", [], np.zeros((2, 2)), object()]
    yield (
        "data.iid",
        data.iid,
        {"labels": LABELS, "agents": 4},
        {"labels": labels, "agents": [0, -1, 99, 1.5, "a"]},
    )
    kinds = {
        "labels": labels,
        "agents": [0, -1, 1.5, "a"],
        "concentration": [0, -1.0, NAN, INF, "a", None, []],
    }
    yield "data.dirichlet", data.dirichlet, {"labels": LABELS, "agents": 4}, kinds
    fine = {"labels": LABELS, "agents": 2, "ratios": [0.5, 0.5]}
    ratios = [None, 5, "a", [], [0.5], [2.0, 0.5], [NAN, 0.5], [-0.5, 0.5], object()]
    yield "data.by_label", data.by_label, fine, {"ratios": ratios, "size": "optional count"}
    yield "data.Batches", Batches, {"count": 2}, {"count": "count", "take": [5, "a", [], object()]}
    arrays = [{"a": np.arange(8.0)} for _ in range(4)]
    options = {
        "agents": "optional count",
        "join": [5, "a", [], object()],
        "block": "optional count",
    }
    kinds = {
        "source": [None, 5, "a", [], {}, [5], [{}], object()],
        "batch": "count",
        "shuffle": "flag",
    }
    yield (
        "data.Stream.from_arrays",
        Stream.from_arrays,
        {"source": arrays, "batch": 2},
        kinds | options,
    )
    no_reader = [None, 5, "a", [], lambda: 1, object()]
    read = {"read": lambda agent, step, random: np.zeros(2)}
    yield "data.Stream.from_function", Stream.from_function, read, {"read": no_reader} | options
    start = {"start": lambda agent: iter([])}
    yield "data.Stream.from_iterators", Stream.from_iterators, start, {"start": no_reader} | options
    path = [None, 5, "nowhere", [], object()]
    yield "data.libsvm", data.libsvm, {}, {"path": path}
    yield "data.read_table", data.read_table, {}, {"source": path}


def _sites() -> Iterator[Spoilt]:
    silo = decibo.silo
    kinds = {
        "name": [None, 5, "", "a b", "../a", "a" * 41, "\x1b", b"a", object()],
        "certificate": [5, "nonsense", b"a", [], object()],
        "address": [5, "", "host", "host:", "host:0", "host:99999", ":1", "a b:1", [], object()],
    }
    yield "silo.Site", silo.Site, {"name": "north"}, kinds
    share = [-0.1, 1.5, NAN, INF, "a", None, [], 1j, object()]
    faults = {"lose": share, "double": share, "delay": [-1.0, *share[2:]], "seed": "numpy seed"}
    yield "silo.Faults", silo.Faults, {}, faults
    sites = tuple(silo.Site(name) for name in ("north", "east", "south", "west"))
    fine = {
        "sites": sites,
        "problem": decibo.problems.quadratic(4),
        "network": RING,
        "method": METHOD,
    }
    not_negative = [-1.0, NAN, INF, "a", [], 1j, object()]
    kinds = {
        "sites": [
            None,
            5,
            "north",
            [],
            (),
            sites[:2],
            sites[:3] + sites[:1],
            ("north",) * 4,
            object(),
        ],
        "problem": "object",
        "network": [*NO_NETWORK, decibo.ring(5)],
        "method": NO_METHOD,
        "steps": "steps",
        "seed": "seed",
        "checkpoint_every": "count",
        "patience": "positive",
        "again": "positive",
        "relay": [5, "a", [], object()],
        "mode": "word",
        "rest": not_negative,
        "pace": not_negative,
        "secure_sums": "flag",
    }
    yield "silo.Job", silo.Job, fine, kinds
