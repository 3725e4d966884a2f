"""Problem, network and method from a configuration."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import decibo
from decibo.algorithm.algorithm import Algorithm
from decibo.cli import registry
from decibo.cli.choice import OWN, Choice, choose, imported
from decibo.cli.config import Config
from decibo.errors import InputError
from decibo.execute.solve import check_fit

SIZES = ("agents", "m")  # what a user's own function may call the number of agents


class Parts(NamedTuple):
    """What a run is made of."""

    problem: Any
    network: Any
    method: Algorithm


@contextmanager
def precision(config: Config) -> Iterator[None]:
    """[run].dtype for as long as it lasts; it belongs to the whole process, so it is put back."""
    import jax

    before = jax.config.jax_enable_x64  # type: ignore[attr-defined]
    jax.config.update("jax_enable_x64", config.run.dtype == "float64")
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


def build(config: Config) -> tuple[Parts, Config]:
    """The three, and the configuration with the number of agents filled in wherever it follows from elsewhere."""
    network_choice = config.network or choose("ring", registry.networks(), f"{config.path.name}, [network]")
    if "agents" in network_choice.missing():
        problem = _make(config.problem, decibo.Problem)
        if problem.agents is None:
            raise InputError("the number of agents", "nothing says how many there are", "Give [network] agents = 10.")
        network_choice = network_choice.told(agents=problem.agents)
        network = _network(network_choice, config)
    else:
        network = _network(network_choice, config)
        config = replace(config, problem=_sized(config.problem, network.agents))
        problem = _make(config.problem, decibo.Problem)
    method = _make(config.method, Algorithm)
    check_fit(problem, network, method)
    return Parts(problem, network, method), replace(config, network=network_choice)


def solving(config: Config) -> dict[str, Any]:
    """What solve is told besides the three."""
    run = config.run
    start = decibo.random_start(**run.start) if run.start else None
    return {
        "steps": run.steps,
        "every": run.every,
        "measures": measures(config),
        "start": start,
        "seed": run.seed,
        "until": run.until or None,
    }


def measures(config: Config) -> list[Any]:
    """The measures of the configuration, and those that the run waits for."""
    asked = list(dict.fromkeys([*(config.run.measures or ("cheap",)), *config.run.until]))
    where = f"{config.path.name}, [run].measures"
    return [imported(name, where) if OWN.fullmatch(name) else name for name in asked]


def _make(choice: Choice, kind: type) -> Any:
    made = choice.make()
    if not isinstance(made, kind):
        raise InputError(
            f"{choice.where}: {choice.name} returned {type(made).__name__}",
            f"it must return a decibo.{kind.__name__}",
            f"Let it return one, or name another {'function' if choice.own else 'one'}.",
        )
    return made


def _network(choice: Choice, config: Config) -> Any:
    network = choice.make()
    if not isinstance(network, decibo.Network | decibo.DirectedNetwork):
        return _make(choice, decibo.Network)
    for name, rate in config.unreliable.items():
        network = getattr(decibo.networks, name)(network, rate)
    return network


def _sized(choice: Choice, m: int) -> Choice:
    """The problem for as many agents as the network has, unless it was told a number or takes none."""
    name = next((name for name in SIZES if name in choice.known()), None)
    return choice if name is None or name in choice.options else choice.told(**{name: m})
