"""Problem, network, method and versions in words and numbers that JSON can hold."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import jax
import numpy as np

from decibo.algorithm.algorithm import Algorithm
from decibo.formatting import to_json
from decibo.network import DirectedNetwork, Network
from decibo.network.network import entries
from decibo.network.spectrum import DENSE_LIMIT
from decibo.problem.problem import Problem

EDGES = 5000  # links that are written one by one; nobody could draw more


def problem_words(problem: Problem) -> dict[str, Any]:
    """Its name, and how many numbers x and y have."""
    return {"name": str(problem.name), "x": problem.x_layout.size, "y": problem.y_layout.size}


def method_words(method: Algorithm) -> dict[str, Any]:
    """Its name, its settings and how it prints."""
    settings = {
        str(name): to_json(value, nonfinite_as_text=True)
        for name, value in method.settings.items()
        if value is not None
    }
    return {"name": str(method.name), "settings": settings, "text": repr(method)}


def network_words(network: Network | DirectedNetwork) -> dict[str, Any]:
    """Its links with their weights (pull weights if directed), unless there are too many, and rho where it is cheap."""
    weights = network.pull if isinstance(network, DirectedNetwork) else network.weights
    edges = network.edges
    listed = None
    if len(edges) <= EDGES:
        row, column = edges.T if not network.directed else edges.T[::-1]
        values = entries(weights, row, column).ravel()
        listed = [[int(i), int(j), float(w)] for (i, j), w in zip(edges.tolist(), values, strict=True)]
    return {
        "name": str(network.name),
        "agents": network.agents,
        "links": len(edges),
        "edges": listed,
        "labels": None
        if network.labels is None or network.agents > EDGES
        else [str(label) for label in network.labels],
        "shape": list(getattr(network, "shape", None) or (network.agents,)),
        "rho": _rho(network),
        "directed": bool(network.directed),
    }


def versions() -> dict[str, str]:
    """What the run was made with."""
    found = {"decibo": _version("decibo"), "jax": jax.__version__, "numpy": np.__version__}
    devices = jax.devices()
    return found | {"python": platform.python_version(), "device": f"{len(devices)} x {devices[0].device_kind}"}


def _rho(network: Network | DirectedNetwork) -> float | None:
    if isinstance(network, DirectedNetwork):
        return None
    cheap = "ends" in network.__dict__ or network.agents <= DENSE_LIMIT // 4 or network.shifts is not None
    return float(network.rho) if cheap else None


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # run from a source tree
        return "unknown"
