"""Bad arguments to the Python API: every parameter of a table gets every value that makes no
sense for its kind.

Each must be rejected by an InputError, in complete sentences and before anything is computed.
`hopeless` runs problems that have no answer: `done` or `converged` is wrong.
"""

from __future__ import annotations

import inspect
import signal
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import jax.numpy as jnp
import networkx
import numpy as np

import decibo
from decibo.algorithm.schedules import Schedule
from decibo.errors import InputError
from drills._parts import parts

LIMIT = 120  # seconds of one case
NAN = float("nan")
INF = float("inf")
VECTOR = np.array([1.0, 2.0])

# Values that make no sense for a kind of parameter.
NO_NUMBER = ["a", "", b"1", [], {}, (), {1}, object(), 1j, NAN, INF, -INF, VECTOR, lambda: 1]
KINDS: dict[str, list[Any]] = {
    "count": [0, -1, 1.5, True, None, *NO_NUMBER],
    "optional count": [0, -1, 1.5, True, *NO_NUMBER],
    "size": [-1, 1.5, None, *NO_NUMBER],
    "steps": [0, -1, 1.5, True, None, 2**31, 10**30, *NO_NUMBER],
    "seed": [-1, 1.5, None, 2**63, 10**40, *NO_NUMBER],
    "numpy seed": [-1, 1.5, None, *NO_NUMBER],  # which has no upper bound
    "positive": [0, -1, 0.0, -1e-9, True, *[v for v in NO_NUMBER if not callable(v)]],
    "rate": [0, -1, True, None, lambda: 1, lambda k: -1.0, lambda k: "a", *NO_NUMBER[:-1]],
    "optional rate": [0, -1, True, lambda: 1, lambda k: -1.0, *NO_NUMBER[:-1]],
    "probability": [-0.1, 1.5, None, *NO_NUMBER],
    "flag": ["yes", 5, [], {}, object(), NAN],
    "word": ["nonsense", 5, 0.5, [], {}, object(), b"x", ("a",)],
    "object": [None, 0, 1.5, "a", [], {}, object(), VECTOR, lambda: 1, decibo.Problem],
    "function": [3.0, "a", [], {}, VECTOR, object()],
}


class Outcome(NamedTuple):
    """What came of one case; `bad` is empty if it was rejected in a sentence."""

    case: str
    bad: str = ""


class Target(NamedTuple):
    """A function, arguments that are fine, and the kinds of the parameters that are spoilt one at a
    time."""

    name: str
    function: Callable[..., Any]
    fine: dict[str, Any]
    kinds: dict[str, str | list[Any]]


def outer(x, y, d):
    return jnp.sum((y - d) ** 2) + jnp.sum(x**2)


def inner(x, y, d):
    return jnp.sum((y - x - d) ** 2)


DATA = jnp.arange(4.0)
PROBLEM = decibo.Problem(outer, inner, DATA, jnp.zeros(2), jnp.zeros(2))
RING = decibo.ring(4)
METHOD = decibo.ahead(alpha=0.05, gamma=0.1, lam=20.0)


def targets(folder: Path) -> Iterator[Target]:
    """The table."""
    run = {"problem": PROBLEM, "network": RING, "method": METHOD, "steps": 2, "progress": False}
    until = [
        "outer",
        5,
        {"outer": None},
        {"outer": "a"},
        {"outer": NAN},
        {"outer": 1j},
        {"nothing": 1.0},
        ["outer"],
    ]
    measures = [
        "phi",
        5,
        {"a": 3},
        [3],
        [None],
        [("a", 3)],
        [("a",)],
        ["nothing"],
        [("step", len)],
        b"phi",
        [[]],
        object(),
    ]
    start = [
        5,
        "a",
        [],
        {"w": 0.0},
        {"x": 0.0},
        {"x": np.zeros((3, 2))},
        {"x": np.full((4, 2), NAN)},
    ]
    start += [
        {"x": np.zeros((4, 2), complex)},
        {"x": np.array([["a", "b"]] * 4)},
        {"x": None},
        VECTOR,
        object(),
    ]
    checkpoint = [5, "", "folder", True, {}, [], folder, object()]
    yield Target(
        "solve",
        decibo.solve,
        run,
        {
            "problem": "object",
            "network": "object",
            "method": [5, "ahead", [], {}, object(), decibo.ahead, VECTOR],
            "steps": "steps",
            "every": "optional count",
            "measures": measures,
            "start": start,
            "seed": "seed",
            "until": until,
            "progress": ["yes", 5, [], {}, object()],
            "throw": "flag",
            "devices": ["a", 0, -1, 1.5, [], 10**6],
            "checkpoint": checkpoint,
        },
    )
    text = np.array(["a", "b", "c", "d"])
    data = [
        None,
        5,
        "abcd",
        [],
        {},
        text,
        text.astype(object),
        np.zeros((0, 3)),
        object(),
        np.ma.masked_array(DATA),
    ]
    data += [
        {"a": np.zeros(4), "b": np.zeros(3)},
        np.array(["2020-01-01"] * 4, "datetime64[D]"),
        lambda: 1,
        NAN,
    ]
    point = [
        None,
        0,
        "a",
        [],
        {},
        np.array([1, 2]),
        np.array([NAN, 0.0]),
        np.array(["a"]),
        1j,
        object(),
        INF,
        True,
    ]
    yield Target(
        "Problem",
        lambda **options: decibo.solve(
            decibo.Problem(**options), RING, METHOD, steps=2, progress=False
        ),
        {"outer": outer, "inner": inner, "data": DATA, "x0": jnp.zeros(2), "y0": jnp.zeros(2)},
        {
            "outer": [
                "a",
                3.0,
                None,
                [],
                lambda x: x,
                lambda x, y, d: (jnp.sum(y),),
                lambda x, y, d: y,
                lambda x, y, d: 1,
                lambda x, y, d: None,
                lambda x, y, d: "a",
                lambda x, y, d: jnp.sum(y) * 1j,
                lambda x, y, d: NAN * jnp.sum(y),
            ],
            "inner": [
                "a",
                3.0,
                None,
                [],
                lambda x: x,
                lambda x, y, d: {"g": jnp.sum(y)},
                lambda x, y, d: y,
                lambda x, y, d: None,
                lambda x, y, d: INF * (jnp.sum(x) + jnp.sum(y)),
                lambda x, y, d: jnp.nonsense,
            ],  # type: ignore
            "data": data,
            "x0": point,
            "y0": point,
            "agents": [0, -1, 7, 4.0, "a", True, NAN, [], {}],
            "solution": [
                5,
                "a",
                [],
                {"w": 1.0},
                {"x": "a"},
                {"x": np.zeros(7)},
                {"x": np.array([NAN, 0.0])},
            ],
            "constants": [5, "a", [1.0]],
            "sample": [5, "a", [], {}],
            "inner_solution": [5, "a", [], {}],
        },
    )
    for name in decibo.networks.__all__:
        function = getattr(decibo.networks, name)
        spoilt = NETWORKS.get(name)
        if spoilt is None:
            continue
        fine, kinds = spoilt
        named = inspect.signature(function).parameters
        common = {"weights": "word", "rho": [NAN, -0.5, 1.5, "a", [], 1j, INF, object()]}
        yield Target(
            f"networks.{name}",
            function,
            fine,
            kinds | {k: v for k, v in common.items() if k in named},
        )
    yield from methods()
    yield Target(
        "sweep",
        decibo.sweep,
        run | {"grid": {"alpha": [0.01, 0.02]}},
        {
            "problem": "object",
            "network": [None, 5, "ring", [], {}, [RING, None], [RING, decibo.ring(5)], object()],
            "method": [None, 5, "ahead", [], [METHOD, METHOD, None], object()],
            "grid": [
                5,
                "alpha",
                {"alpha": 0.1},
                {"alpha": []},
                {"alpha": "ab"},
                {"wrong": [1]},
                {"alpha": [-1.0]},
                {"alpha": [None]},
                {"alpha": ["a"]},
                {"alpha": [NAN]},
                [],
                [5],
                [{"beta": -1}],
                object(),
                {"alpha": None},
            ],
            "seeds": [-5, "a", [], [1.5], [-1], ["a"], [0, 0], [None], [2**63], object()],
            "steps": "steps",
            "every": "optional count",
            "measures": measures,
            "start": start,
            "progress": ["yes", 5, [], {}, object()],
        },
    )
    yield Target(
        "random_start",
        decibo.random_start,
        {"seed": 0},
        {"seed": "seed", "scale": [-1, NAN, "a", [], None, 1j, {"x": "a"}], "common": "flag"},
    )
    keep = {
        "every": "count",
        "keep": "count",
        "folder": [None, "", 5, [], {}, object()],
        "resume": "flag",
    }
    yield Target("Checkpoints", decibo.Checkpoints, {"folder": str(folder)}, keep)
    growing = {
        "start": "positive",
        "factor": [1.0, *KINDS["positive"]],
        "every": "count",
        "most": "positive",
    }
    yield Target("schedules.growing", decibo.schedules.growing, {"start": 10.0}, growing)
    falling = {
        "start": "positive",
        "power": [v for v in NO_NUMBER if not callable(v)],
        "delay": "positive",
    }
    yield Target(
        "schedules.polynomial", decibo.schedules.polynomial, {"start": 1.0, "power": -0.5}, falling
    )
    quadratic = {
        "agents": "count",
        "n": "count",
        "r": "count",
        "seed": "numpy seed",
        "heterogeneity": [-1, "a", NAN, INF, None, []],
    }
    yield Target("problems.quadratic", decibo.problems.quadratic, {}, quadratic)
    agents = [0, -1, 9, "a", [], [9], [-1], [1.5], ["a"], object()]
    yield Target(
        "reference", decibo.reference, {"problem": PROBLEM}, {"problem": "object", "agents": agents}
    )
    yield Target("heterogeneity", decibo.heterogeneity, {"problem": PROBLEM}, {"problem": "object"})
    yield Target(
        "check_method",
        decibo.check_method,
        {"method": METHOD},
        {"method": [None, 5, "ahead", decibo.ahead, {}]},
    )
    yield from estimators()
    for each in parts():
        yield Target(*each)


GRAPH = [None, 5, "a", [], {}, VECTOR, object()]
MATRIX = [
    None,
    "a",
    [],
    VECTOR,
    np.zeros((2, 3)),
    np.full((2, 2), NAN),
    np.array([["a", "b"]] * 2),
    np.eye(2) * 1j,
    -np.eye(3),
    object(),
]
ALONE = {"agents": "count"}
NETWORKS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    **dict.fromkeys(("ring", "path", "star", "complete", "exponential"), ({"agents": 4}, ALONE)),
    **dict.fromkeys(("directed_ring", "directed_exponential"), ({"agents": 4}, ALONE)),
    **dict.fromkeys(
        ("grid", "torus"), ({"rows": 3, "columns": 3}, {"rows": "count", "columns": "count"})
    ),
    "hypercube": ({"k": 2}, {"k": "size"}),
    "erdos_renyi": (
        {"agents": 6, "p": 0.9, "seed": 0},
        {"agents": "count", "p": "probability", "seed": "numpy seed"},
    ),
    "random_regular": (
        {"agents": 6, "degree": 3, "seed": 0},
        {"agents": "count", "degree": "size", "seed": "numpy seed"},
    ),
    "small_world": (
        {"agents": 8, "neighbours": 4, "p": 0.1, "seed": 0},
        {"agents": "count", "neighbours": "size", "p": "probability", "seed": "numpy seed"},
    ),
    "geometric": (
        {"agents": 6, "radius": 1.0, "seed": 0},
        {"agents": "count", "radius": "positive", "seed": "numpy seed"},
    ),
    "from_graph": ({"graph": networkx.cycle_graph(4)}, {"graph": GRAPH}),
    "from_digraph": ({}, {"graph": GRAPH}),
    "from_adjacency": ({"A": 1 - np.eye(3)}, {"A": MATRIX}),
    "from_weights": ({"W": np.full((2, 2), 0.5)}, {"W": MATRIX}),
    "from_push_pull": ({"A": np.eye(2), "B": np.eye(2)}, {"A": MATRIX, "B": MATRIX}),
    "failing": (
        {"network": RING, "probability": 0.1},
        {"network": GRAPH, "probability": "probability"},
    ),
    "sleeping": (
        {"network": RING, "probability": 0.1},
        {"network": GRAPH, "probability": "probability"},
    ),
    "periodic": (
        {},
        {"networks": [None, 5, "a", [], [None], [RING, decibo.ring(5)], [VECTOR], object()]},
    ),
}


def methods() -> Iterator[Target]:
    """Every method of the catalogue; kinds follow from the types of its settings."""
    for name, method in decibo.CATALOG.items():
        hints = get_type_hints(inspect.unwrap(method))
        fine: dict[str, Any] = {}
        kinds: dict[str, Any] = {}
        for setting, parameter in inspect.signature(method).parameters.items():
            hint = hints.get(setting)
            options = get_args(hint)
            optional = type(None) in options
            needed = parameter.default is inspect.Parameter.empty
            if Schedule in options:
                kinds[setting] = "optional rate" if optional else "rate"
            elif hint is int:
                kinds[setting] = "count"
            elif hint is float or float in options:
                kinds[setting] = [v for v in NO_NUMBER if not callable(v)]
            if needed:
                fine[setting] = 1 if hint is int else 0.1
        yield Target(f"methods.{name}", method, fine, kinds)


def estimators() -> Iterator[Target]:
    """The scikit-learn estimators: their settings are checked by fit."""
    try:
        from decibo.sklearn import SiloLogisticRegression, SiloRidge
    except ImportError:
        return
    random = np.random.default_rng(0)
    features = random.normal(size=(24, 2))
    groups = np.repeat(np.arange(3), 8)
    labels = {SiloLogisticRegression: np.tile([0, 1], 12), SiloRidge: features[:, 0]}
    kinds = {
        "network": ["nonsense", 5, [], {}, object(), decibo.ring(7), lambda: 1],
        "validation": ["a", 0.0, -0.1, 1.5, NAN, [], None, 1j],
        "lam": "positive",
        "steps": "steps",
        "tol": ["a", -1.0, NAN, [], None, 1j],
    }
    for kind, target in labels.items():
        fit = lambda kind=kind, target=target, **settings: kind(**{"steps": 2, **settings}).fit(
            features, target, groups
        )
        yield Target(f"sklearn.{kind.__name__}", fit, {}, kinds)


def cases(folder: Path) -> Iterator[Outcome]:
    """Every parameter with every value."""
    for target in targets(folder):
        for parameter, kind in target.kinds.items():
            for value in KINDS[kind] if isinstance(kind, str) else kind:
                yield _try(target, parameter, value)


def hopeless() -> Iterator[Outcome]:
    """Problems without an answer, by fixed and by automatic steps and in a sweep: none may end
    well."""
    up = lambda x, y, d: -jnp.sum(y**2) + jnp.sum(x * y)
    slope = lambda x, y, d: jnp.sum(y) + 0 * jnp.sum(x)
    ignored = lambda x, y, d: jnp.sum(x**2) + 0 * jnp.sum(y)
    undefined = lambda x, y, d: jnp.where(
        jnp.sum(x) > 0.1, jnp.nan, outer(x, y, d) - 4 * jnp.sum(x)
    )
    problems = {
        "hill": (outer, up),
        "plane": (outer, slope),
        "no y": (outer, ignored),
        "undefined": (undefined, inner),
    }
    fixed = decibo.ahead_exact(alpha=0.02, gamma=0.05, lam=20.0)
    options = {"steps": 20_000, "progress": False}
    for name, (f, g) in problems.items():
        stated = decibo.Problem(f, g, DATA, jnp.zeros(2), jnp.zeros(2))
        runs = {
            "fixed": lambda stated=stated: [decibo.solve(stated, RING, fixed, **options).status],
            "phi": lambda stated=stated: [
                decibo.solve(stated, RING, fixed, measures=["phi"], **options).status
            ],
            "automatic": lambda stated=stated: [decibo.solve(stated, RING, **options).status],
            "sweep": lambda stated=stated: (
                decibo.sweep(stated, RING, fixed, {"alpha": [0.01, 0.02]}, **options).status
            ),
        }
        for kind, run in runs.items():
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    ends = run()
                bad = f"ended as {[str(end) for end in ends]}" if any(e.sound for e in ends) else ""
            except Exception as error:
                bad = repr(error)[:100]
            yield Outcome(f"{name}, {kind}", bad)


def _try(target: Target, parameter: str, value: Any) -> Outcome:
    case = f"{target.name}({parameter}={_shown(value)})"
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(LIMIT)
    bad = ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target.function(**{**target.fine, parameter: value})
        bad = "accepted"
    except InputError as error:
        text = str(error)
        sentence = text[:1].isupper() or text[:1].isalnum()
        if not (sentence and text.rstrip().endswith((".", "?")) and len(text) > 20):
            bad = f"not a sentence: {text}"
    except TimeoutError:
        bad = f"took more than {LIMIT} s"
    except Exception as error:
        bad = f"{type(error).__name__}: {str(error).splitlines()[:1]}"
    finally:
        signal.alarm(0)
    return Outcome(case, bad)


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 50 else text[:47] + "..."


def _too_long(*_: object) -> None:
    raise TimeoutError
