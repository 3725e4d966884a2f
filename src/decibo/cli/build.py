"""Problem, network, method and measures from a configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import jax

import decibo
from decibo.cli import registry
from decibo.cli.config import Config
from decibo.cli.registry import OWN, Choice, choose, own_function
from decibo.errors import InputError
from decibo.execute.solve import check_fit

T = TypeVar("T")


class Parts(NamedTuple):
    """What a run is made of."""

    problem: decibo.Problem
    network: decibo.Network | decibo.DirectedNetwork
    method: decibo.Algorithm


@contextmanager
def precision(config: Config) -> Iterator[None]:
    """[run].dtype while a command runs. It is a setting of the whole process, so it is restored afterwards."""
    before = jax.config.jax_enable_x64  # type: ignore[attr-defined]
    jax.config.update("jax_enable_x64", config.run.dtype == "float64")
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


def build(config: Config) -> tuple[Parts, Config]:
    """Problem, network and method, and the configuration with the number of agents filled in where it was left out."""
    ring = choose("ring", registry.networks(), f"{config.path.name}, [network]")
    choice = config.network or ring
    if "agents" in choice.missing():
        problem = _make(config.problem, decibo.Problem)
        if problem.agents is None:
            raise InputError("Nothing in the configuration says how many agents there are.", "Set [network].agents.")
        choice = choice.with_defaults(agents=problem.agents)
        network = _network(choice, config)
    else:
        network = _network(choice, config)
        config = replace(config, problem=_sized(config.problem, network.agents))
        problem = _make(config.problem, decibo.Problem)
    method = _make(config.method, decibo.Algorithm)
    check_fit(problem, network, method)
    return Parts(problem, network, method), replace(config, network=choice)


def solve_arguments(config: Config) -> dict[str, Any]:
    """The arguments of solve besides these three."""
    run = config.run
    return {
        "steps": run.steps,
        "every": run.every,
        "measures": measures(config),
        "start": decibo.random_start(**run.start) if run.start else None,
        "seed": run.seed,
        "until": run.until or None,
    }


def measures(config: Config) -> list[str | Callable[..., Any]]:
    """The measures of [run], and those that `until` needs."""
    names = list(dict.fromkeys([*(config.run.measures or ("cheap",)), *config.run.until]))
    where = f"{config.path.name}, [run].measures"
    return [own_function(name, where) if OWN.fullmatch(name) else name for name in names]


def _make(choice: Choice, *kinds: type[T]) -> T:
    result = choice.make()
    if not isinstance(result, kinds):
        raise InputError(
            f"{choice.where}: {choice.name} must return a decibo.{kinds[0].__name__}, "
            f"but it returned a {type(result).__name__}."
        )
    return result


def _network(choice: Choice, config: Config) -> decibo.Network | decibo.DirectedNetwork:
    network = _make(choice, decibo.Network, decibo.DirectedNetwork)
    for name, rate in config.unreliable.items():
        network = getattr(decibo.networks, name)(network, rate)
    return network


def _sized(choice: Choice, agents: int) -> Choice:
    """The problem for as many agents as the network has, unless it has a number of its own or takes none."""
    return choice.with_defaults(agents=agents) if "agents" in choice.parameters else choice
