"""A configuration file, checked into types before anything runs.

problem = "quadratic"                          a name, "my_module:make_problem", or a table with options
[network] name = "ring", agents = 10           without it: a ring of as many agents as the problem has
[method]  name = "ahead_exact", lam = 100.0    without it: ahead_exact with automatic steps
[run]     steps, every, measures, seed, until, ...            see Settings
[compare] methods = ["ahead[lam=20]", ...]     other keys are settings that all methods share which have them
[sweep]   alpha = [0.1, 0.2], seeds = [0, 1]   settings of the method, lists of values
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from decibo.cli import registry
from decibo.cli.choice import OWN, Choice, checked, choose
from decibo.cli.nearest import unknown
from decibo.cli.options import typed
from decibo.cli.places import TABLES, Places, as_table
from decibo.cli.several import compared, swept
from decibo.cli.spec import parse_spec, parse_value
from decibo.errors import InputError

UNRELIABLE = ("failing", "sleeping")  # options of every network: decibo.networks.failing, decibo.networks.sleeping
CONSENSUS = re.compile(r"consensus_\w+")
LONGEST = 2**31 - 1  # steps are counted in 32 bits


@dataclass(frozen=True)
class Settings:
    """[run]: what solve is told, besides the problem, the network and the method."""

    steps: int = 1000
    every: int | None = None
    measures: tuple[str, ...] | None = None
    seed: int = 0
    until: dict[str, float] = field(default_factory=dict)
    start: dict[str, Any] = field(default_factory=dict)  # the options of decibo.random_start
    dtype: Literal["float32", "float64"] = "float64"
    checkpoint_every: int | None = None
    keep: int = 3
    history: Literal["csv", "parquet"] = "csv"


@dataclass(frozen=True)
class Config:
    """Everything that a configuration says."""

    problem: Choice
    network: Choice | None
    method: Choice
    run: Settings
    unreliable: dict[str, float] = field(default_factory=dict)
    compare: tuple[Choice, ...] = ()
    grid: dict[str, list[Any]] = field(default_factory=dict)
    seeds: tuple[int, ...] | None = None
    path: Path = Path("config.toml")


def read(path: str | Path, sets: Iterable[str] = (), methods: Iterable[str] = (), grid: Iterable[str] = ()) -> Config:
    """A file, changed by `--set key=value`, `-a method` and `-g setting=values` from the command line."""
    path = Path(path)
    tables, at = _load(path), Places(path.name)
    for text in sets:
        _set(tables, text, at)
    extra = sorted(set(tables) - set(TABLES))
    if extra:
        raise unknown(at(extra[0]), extra[0], "table", TABLES)
    if "problem" not in tables:
        raise InputError(f"{path}", "it names no problem", 'Give problem = "quadratic", for example.')
    network, unreliable = _network(tables.get("network"), at)
    method = _method(tables.get("method", "ahead_exact"), at)
    values, seeds = swept(tables.get("sweep", {}), method, at, grid)
    return Config(
        problem=choose(tables["problem"], registry.problems(), at("problem"), at.inside("problem")),
        network=network,
        method=method,
        run=_settings(tables.get("run", {}), at),
        unreliable=unreliable,
        compare=compared(tables.get("compare", {}), method, at, tuple(methods)),
        grid=values,
        seeds=seeds,
        path=path,
    )


def resolved(config: Config) -> dict[str, Any]:
    """The configuration with every default written out: what a run folder keeps."""
    settings = {name: value for name, value in asdict(config.run).items() if value not in (None, {}, ())}
    tables: dict[str, Any] = {"problem": config.problem.plain()}
    if config.network is not None:
        tables["network"] = config.network.plain() | config.unreliable
    return tables | {"method": config.method.plain(), "run": settings}


def _load(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise InputError(f"{path}", f"{error.strerror}", "Give the path of a configuration in TOML.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path} is not TOML", reason, "Mend this place.") from error


def _set(tables: dict[str, Any], text: str, at: Places) -> None:
    """Apply one `--set table.key=value`."""
    key, equals, value = text.partition("=")
    parts = [part.strip() for part in key.split(".")]
    if not equals or not all(parts) or not value.strip():
        raise InputError(f"--set {text!r}", "it must read key=value", "Write --set run.steps=500, for example.")
    if parts[0] not in TABLES:
        raise unknown(f"--set {text}", parts[0], "table", TABLES)
    at[".".join(parts[:2])] = f"--set {'.'.join(parts)}"
    place = tables
    for part in parts[:-1]:
        inner = place.get(part, {})
        place[part] = dict(inner) if isinstance(inner, Mapping) else {"name": inner}
        place = place[part]
    place[parts[-1]] = parse_value(value.strip())


def _network(given: Any, at: Places) -> tuple[Choice | None, dict[str, float]]:
    if given is None:
        return None, {}
    table = {"name": given} if isinstance(given, str) else as_table(given, at("network"))
    unreliable = {name: typed(table.pop(name), float, at("network", name)) for name in UNRELIABLE if name in table}
    table.setdefault("name", "ring")
    chosen = choose(table, registry.networks(), at("network"), at.inside("network"))
    if "seed" in chosen.missing():
        chosen.options["seed"] = 0
    return chosen, unreliable


def _method(given: Any, at: Places) -> Choice:
    table = {"name": "ahead_exact", **given} if isinstance(given, Mapping) else given
    if isinstance(table, str) and "[" in table:
        table = parse_spec(table, at("method"))
    return choose(table, registry.methods(), at("method"), at.inside("method"))


def _settings(given: Any, at: Places) -> Settings:
    table, places = as_table(given, at("run")), at.inside("run")
    if isinstance(table.get("measures"), str):
        table["measures"] = [table["measures"]]
    found = checked(table, Settings, "[run]", at("run"), True, places)
    settings = Settings(**found)
    for name, least in (("steps", 1), ("every", 1), ("checkpoint_every", 1), ("keep", 1), ("seed", 0)):
        value = getattr(settings, name)
        if value is not None and not least <= value <= LONGEST:
            raise InputError(
                f"{at('run', name)} = {value}", f"it must be from {least} to {LONGEST}", f"Give {least or 1}00."
            )
    for name in (*(settings.measures or ()), *settings.until):
        _measure(name, at("run", "measures" if name in (settings.measures or ()) else "until"))
    _start(settings.start, at)
    return settings


def _measure(name: str, where: str) -> None:
    known = registry.measure_names()
    if name not in known and not CONSENSUS.fullmatch(name) and not OWN.fullmatch(name):
        raise unknown(f"{where} = {name!r}", name, "measure", known, "decibo list measures")


def _start(given: dict[str, Any], at: Places) -> None:
    from decibo.execute.start import random_start

    where = at("run", "start")
    if given:
        Choice("random_start", random_start, checked(given, random_start, "start", where, True), where, True).make()
