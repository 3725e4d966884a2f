"""decibo: decentralised bilevel optimisation.

Agents on a network, each with private objectives f_i(x, y) and g_i(x, y), together solve

    min_x  mean f_i(x, y*(x))    subject to    y*(x) = argmin_y mean g_i(x, y)

by talking to their neighbours only. State a `Problem`, choose a `Network`, and `solve`:

    solution = decibo.solve(problem, decibo.ring(10))

methods, networks, problems            what there is by name; contrib has methods beside the core
direction, estimator, rule, consensus  what methods are composed of; with prox, schedules,
                                       compression and privacy
callbacks                              what looks at a run and may end it
data, theory, report, sklearn, silo    data sets and splits, the theory as functions, pages on runs,
                                       estimators, sites
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import decibo.cli  # noqa: F401  (so that Ctrl-C ends the command from the start)

if TYPE_CHECKING:
    from decibo import callbacks, data, methods, networks, problems, report, silo, sklearn, theory
    from decibo.algorithm import (
        compression,
        consensus,
        direction,
        estimator,
        privacy,
        prox,
        rule,
        schedules,
    )
    from decibo.algorithm.algorithm import CATALOG, Algorithm, method
    from decibo.algorithm.compose import compose, minibatch, with_estimator
    from decibo.algorithm.conformance import check_method
    from decibo.algorithm.local_steps import local_steps
    from decibo.algorithm.methods import ahead, ahead_exact
    from decibo.errors import ConformanceError, InputError, LostError
    from decibo.measure.cost import Cost
    from decibo.measure.measures import Snapshot
    from decibo.network.directed import DirectedNetwork
    from decibo.network.graphs import complete, from_graph, from_weights, ring
    from decibo.network.network import Network
    from decibo.parallel.processes import init_distributed
    from decibo.problem.heterogeneity import heterogeneity
    from decibo.problem.problem import Problem
    from decibo.problem.reference import reference
    from decibo.problem.rescaled import rescaled
    from decibo.run.checkpoint import Checkpoints
    from decibo.run.repeat import Repeats, repeat
    from decibo.run.solution import DivergedError, Solution, Status
    from decibo.run.solve import solve
    from decibo.run.start import random_start
    from decibo.run.sweep import Sweep, sweep

__version__ = "0.1.0"

__all__ = [
    "CATALOG",
    "Algorithm",
    "Checkpoints",
    "ConformanceError",
    "Cost",
    "DirectedNetwork",
    "DivergedError",
    "InputError",
    "LostError",
    "Network",
    "Problem",
    "Repeats",
    "Snapshot",
    "Solution",
    "Status",
    "Sweep",
    "ahead",
    "ahead_exact",
    "callbacks",
    "check_method",
    "complete",
    "compose",
    "compression",
    "consensus",
    "data",
    "direction",
    "estimator",
    "from_graph",
    "from_weights",
    "heterogeneity",
    "init_distributed",
    "local_steps",
    "method",
    "methods",
    "minibatch",
    "networks",
    "privacy",
    "problems",
    "prox",
    "random_start",
    "reference",
    "repeat",
    "report",
    "rescaled",
    "ring",
    "rule",
    "schedules",
    "silo",
    "sklearn",
    "solve",
    "sweep",
    "theory",
    "with_estimator",
]

# Loaded on first use: the command line answers questions about itself without JAX, which takes a
# second to import, and some rooms need more than jax, numpy and networkx.
PLACES = {
    "algorithm": "compression consensus direction estimator privacy prox rule schedules",
    "algorithm.algorithm": "Algorithm method",
    "algorithm.compose": "compose minibatch with_estimator",
    "algorithm.conformance": "check_method",
    "algorithm.local_steps": "local_steps",
    "algorithm.methods": "ahead ahead_exact",
    "errors": "ConformanceError InputError LostError",
    "measure.cost": "Cost",
    "measure.measures": "Snapshot",
    "methods": "CATALOG",
    "network.directed": "DirectedNetwork",
    "network.graphs": "complete from_graph from_weights ring",
    "network.network": "Network",
    "parallel.processes": "init_distributed",
    "problem.heterogeneity": "heterogeneity",
    "problem.problem": "Problem",
    "problem.reference": "reference",
    "problem.rescaled": "rescaled",
    "run.checkpoint": "Checkpoints",
    "run.repeat": "Repeats repeat",
    "run.solution": "DivergedError Solution Status",
    "run.solve": "solve",
    "run.start": "random_start",
    "run.sweep": "Sweep sweep",
}


def __getattr__(name: str) -> Any:
    for place, names in PLACES.items():
        if name in names.split():
            # a room's files are not its attributes before somebody has imported them
            if place == "algorithm":
                value = import_module(f"decibo.{place}.{name}")
            else:
                value = getattr(import_module(f"decibo.{place}"), name)
            break
    else:
        if name.startswith("_") or find_spec(f"decibo.{name}") is None:
            raise AttributeError(f"module 'decibo' has no attribute {name!r}")
        value = import_module(f"decibo.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
