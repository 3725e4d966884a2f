"""decibo: decentralised bilevel optimisation.

Agents on a network, each with private objectives f_i(x, y) and g_i(x, y), together solve

    min_x  mean f_i(x, y*(x))    subject to    y*(x) = argmin_y mean g_i(x, y)

by talking to their neighbours only.
"""

from decibo import data, theory
from decibo.algorithm import consensus, direction, prox
from decibo.algorithm.algorithm import Algorithm
from decibo.algorithm.bome import bome
from decibo.algorithm.c2dfb import c2dfb
from decibo.algorithm.catalog import CATALOG
from decibo.algorithm.check import check_algorithm
from decibo.algorithm.compose import compose
from decibo.algorithm.dsbo_jhip import dsbo_jhip
from decibo.algorithm.f2sa import f2sa
from decibo.algorithm.gossip_dsbo import gossip_dsbo
from decibo.algorithm.growing import growing, polynomial
from decibo.algorithm.lv_hba import lv_hba
from decibo.algorithm.ma_dsbo import ma_dsbo
from decibo.algorithm.mdbo import mdbo
from decibo.algorithm.methods import (
    ahead,
    ahead_exact,
    ahead_minimax,
    d_soba,
    dgda,
    dsgda_gt,
    fab,
    gt_gda,
    lopa,
    sldbo,
    sparkle_ed,
    sparkle_extra,
    sparkle_gt,
)
from decibo.algorithm.v_pbgd import v_pbgd
from decibo.algorithm.wrap import compressed, minibatch, quantise, random_k, top_k
from decibo.errors import ConformanceError, DivergedError, InputError, LostError
from decibo.execute.distributed import init_distributed
from decibo.execute.solution import Solution, Status
from decibo.execute.solve import solve
from decibo.execute.start import random_start
from decibo.execute.sweep import sweep
from decibo.execute.swept import Sweep
from decibo.measure.cost import Cost
from decibo.measure.measures import Snapshot
from decibo.network import (
    DirectedNetwork,
    Network,
    complete,
    directed_exponential,
    directed_ring,
    erdos_renyi,
    exponential,
    from_adjacency,
    from_digraph,
    from_graph,
    from_push_pull,
    from_weights,
    geometric,
    grid,
    hypercube,
    path,
    random_regular,
    ring,
    small_world,
    star,
    torus,
)
from decibo.network.varying import failing, periodic, sleeping
from decibo.problem.cleaning import hyper_cleaning, hyper_cleaning_mask, hyper_cleaning_separation
from decibo.problem.heterogeneity import heterogeneity
from decibo.problem.logistic import accuracy, logistic_hyperparameters
from decibo.problem.minimax import minimax
from decibo.problem.pricing import stackelberg_pricing
from decibo.problem.problem import Problem
from decibo.problem.quadratic import quadratic, quadratic_constants
from decibo.problem.reference import reference
from decibo.problem.single import single_level
from decibo.problem.synthetic import synthetic
from decibo.theory.check import check

__version__ = "0.1.0"

__all__ = [
    "CATALOG",
    "Algorithm",
    "ConformanceError",
    "Cost",
    "DirectedNetwork",
    "DivergedError",
    "InputError",
    "LostError",
    "Network",
    "Problem",
    "Snapshot",
    "Solution",
    "Status",
    "Sweep",
    "accuracy",
    "ahead",
    "ahead_exact",
    "ahead_minimax",
    "bome",
    "c2dfb",
    "check",
    "check_algorithm",
    "complete",
    "compose",
    "compressed",
    "consensus",
    "d_soba",
    "data",
    "dgda",
    "directed_exponential",
    "directed_ring",
    "direction",
    "dsbo_jhip",
    "dsgda_gt",
    "erdos_renyi",
    "exponential",
    "f2sa",
    "fab",
    "failing",
    "from_adjacency",
    "from_digraph",
    "from_graph",
    "from_push_pull",
    "from_weights",
    "geometric",
    "gossip_dsbo",
    "grid",
    "growing",
    "gt_gda",
    "heterogeneity",
    "hyper_cleaning",
    "hyper_cleaning_mask",
    "hyper_cleaning_separation",
    "hypercube",
    "init_distributed",
    "logistic_hyperparameters",
    "lopa",
    "lv_hba",
    "ma_dsbo",
    "mdbo",
    "minibatch",
    "minimax",
    "path",
    "periodic",
    "polynomial",
    "prox",
    "quadratic",
    "quadratic_constants",
    "quantise",
    "random_k",
    "random_regular",
    "random_start",
    "reference",
    "ring",
    "single_level",
    "sldbo",
    "sleeping",
    "small_world",
    "solve",
    "sparkle_ed",
    "sparkle_extra",
    "sparkle_gt",
    "stackelberg_pricing",
    "star",
    "sweep",
    "synthetic",
    "theory",
    "top_k",
    "torus",
    "v_pbgd",
]
