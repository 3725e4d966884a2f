"""The public names: importing this file loads the core of decibo.

Rooms that need more than jax, numpy and networkx (report, silo, sklearn) are not in it.
"""

from decibo import callbacks, data, methods, networks, problems, theory
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
from decibo.problem.check import check_problem
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
    "check_problem",
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
    "rescaled",
    "ring",
    "rule",
    "schedules",
    "solve",
    "sweep",
    "theory",
    "with_estimator",
]
