"""What was run, as run.json and config.toml hold it: problem, method, network, versions, configuration."""

from __future__ import annotations

import dataclasses
import platform
import tomllib
from collections.abc import Mapping
from datetime import date, time
from importlib.metadata import PackageNotFoundError, version
from typing import NotRequired, TypedDict

import jax
import numpy as np

from decibo.algorithm.algorithm import Algorithm
from decibo.errors import InputError, missing
from decibo.formatting import Json, to_json
from decibo.network.directed import DirectedNetwork
from decibo.network.network import Network, entries
from decibo.problem.problem import Problem

EDGES = 5000  # links that are listed one by one; nobody could draw more


class ProblemRecord(TypedDict):
    """The name of a problem, and how many numbers x and y have."""

    name: str
    x: NotRequired[int]
    y: NotRequired[int]


class MethodRecord(TypedDict):
    """The name of a method, its settings, and the text it prints as."""

    name: str
    settings: dict[str, Json]
    text: str


class NetworkRecord(TypedDict):
    """A network; `edges` are (agent, agent, weight), or None if there are too many to list."""

    name: str
    agents: int
    links: int
    edges: list[tuple[int, int, float]] | None
    labels: NotRequired[list[str] | None]
    shape: list[int]
    rho: float | None
    directed: bool


def describe_problem(problem: Problem) -> ProblemRecord:
    """Its name and sizes."""
    return {"name": str(problem.name), "x": problem.x_layout.size, "y": problem.y_layout.size}


def describe_method(method: Algorithm) -> MethodRecord:
    """Its name and settings; settings that are functions by their name."""
    settings = {name: value for name, value in method.settings.items() if value is not None}
    return {
        "name": str(method.name),
        "settings": {str(name): to_json(value, nonfinite_as_text=True) for name, value in settings.items()},
        "text": repr(method),
    }


def describe_network(network: Network | DirectedNetwork) -> NetworkRecord:
    """Its links with their weights (pull weights if directed), unless there are too many, and rho where it is cheap."""
    labels = None if network.labels is None or network.agents > EDGES else [str(label) for label in network.labels]
    return {
        "name": str(network.name),
        "agents": network.agents,
        "links": len(network.edges),
        "edges": _edges(network) if len(network.edges) <= EDGES else None,
        "labels": labels,
        "shape": list(getattr(network, "shape", None) or (network.agents,)),
        "rho": _rho(network),
        "directed": bool(network.directed),
    }


def versions() -> dict[str, str]:
    """The software and the devices of this process."""
    devices = jax.devices()
    return {
        "decibo": _version("decibo"),
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "device": f"{len(devices)} x {devices[0].device_kind}",
    }


def to_toml(config: Mapping[str, object]) -> str:
    """A configuration as TOML. Entries that are None are left out, since TOML has no word for nothing."""
    try:
        import tomli_w
    except ImportError as error:
        raise missing("tomli-w", "A configuration in a run folder", "report") from error
    return tomli_w.dumps({_text(str(name)): _toml(value) for name, value in config.items() if value is not None})


def config_text(config: object) -> str | None:
    """The text of config.toml from a mapping, a dataclass or TOML itself; None if there is no configuration."""
    if config is None:
        return None
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        config = dataclasses.asdict(config)
    if isinstance(config, Mapping):
        return to_toml(config)
    try:
        tomllib.loads(str(config))
    except tomllib.TOMLDecodeError as error:
        raise InputError(
            f"config must be a mapping, a dataclass or TOML, but it is not valid TOML: {error}."
        ) from error
    return str(config)


def _edges(network: Network | DirectedNetwork) -> list[tuple[int, int, float]]:
    ends = network.edges.T
    if isinstance(network, DirectedNetwork):
        weights = entries(network.pull, ends[1], ends[0])  # the receiver is the row
    else:
        weights = entries(network.weights, ends[0], ends[1])
    return [(int(i), int(j), float(w)) for i, j, w in zip(*ends, weights.ravel(), strict=True)]


def _rho(network: Network | DirectedNetwork) -> float | None:
    if isinstance(network, DirectedNetwork):
        return None
    cheap = "spectrum" in network.__dict__ or network.shifts is not None
    return float(network.rho) if cheap else None


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # run from a source tree
        return "unknown"


def _toml(value: object) -> object:
    if hasattr(value, "tolist"):  # numpy and jax
        value = np.asarray(value).tolist()
    if isinstance(value, Mapping):
        return {_text(str(name)): _toml(item) for name, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_toml(item) for item in value if item is not None]
    return value if isinstance(value, bool | int | float | date | time) else _text(str(value))


def _text(text: str) -> str:
    """The text without what UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode()
