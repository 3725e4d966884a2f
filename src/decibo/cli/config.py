"""A configuration file and the command line's changes to it, checked before anything runs, and what
it describes.

problem = "quadratic"                          a name, "my_module:make_problem", or a table with
                                               options
[network] name = "ring", agents = 10           or [network.x], ...; without it: a ring of the
                                               problem's agents
[method]  name = "ahead_exact", lam = 100.0    without it: ahead_exact with automatic steps
[run]     steps, every, measures, seed, seeds, until, ...     see RunOptions
[compare] methods = ["ahead[lam=20]", ...]     or a table, by label; other keys are settings for all
                                               that have them
[sweep]   alpha = [0.1, 0.2], seeds = [0, 1]   settings of the method, lists of values
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from inspect import signature
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import jax

import decibo
from decibo.cli import networks, registry
from decibo.cli.networks import Links, read_networks
from decibo.cli.registry import (
    OWN,
    Choice,
    Table,
    at_place,
    check_options,
    choose,
    convert,
    members_of,
    own_measure,
    shown,
    table_of,
    unknown,
)
from decibo.cli.trust import NOBODY, Trust
from decibo.errors import InputError, first_line, short
from decibo.files import read_file
from decibo.run.seeds import seed_numbers
from decibo.run.solve import check_fit
from decibo.run.start import random_start
from decibo.validate import integer, only_known

TABLES = ("problem", "network", "method", "run", "compare", "sweep")
CONSENSUS = re.compile(r"consensus_\w+")
LARGEST = 2**31 - 1  # steps are counted in 32 bits
LONGEST = 1 << 20  # bytes of a configuration
DEEPEST = 8  # tables inside tables
LEAST = {"steps": 1, "every": 1, "checkpoint_every": 1, "keep": 1, "seed": 0}
SPEC = re.compile(r"\s*([\w.:]+)\s*(?:\[(.*)\])?\s*", re.DOTALL)
SETTING = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*(.*?)\s*", re.DOTALL)

T = TypeVar("T")


@dataclass(frozen=True)
class RunOptions:
    """[run]: the arguments of solve besides the problem, the network and the method."""

    steps: int = 1000
    every: int | None = None
    measures: tuple[str, ...] | None = None
    seed: int = 0
    seeds: int | tuple[int, ...] | None = None
    until: dict[str, float] = field(default_factory=dict)
    start: dict = field(default_factory=dict)  # the options of decibo.random_start
    dtype: Literal["float32", "float64"] = "float64"
    checkpoint_every: int | None = None
    keep: int = 3
    history: Literal["csv", "parquet"] = "csv"


@dataclass(frozen=True)
class Config:
    """Everything that a configuration says."""

    problem: Choice
    network: Links | None
    method: Choice
    run: RunOptions
    compare: tuple[Choice, ...] = ()
    grid: dict[str, list] = field(default_factory=dict)
    seeds: tuple[int, ...] | None = None
    # by how the file names them
    own_measures: dict[str, Callable[..., Any]] = field(default_factory=dict)
    path: Path = Path("config.toml")


class Places(dict[str, str]):
    """Where each key was set, for messages: in the file, or by --set. And which code the file may
    name."""

    def __init__(self, file: str, trust: Trust):
        super().__init__()
        self.file = file
        self.trust = trust

    def __call__(self, table: str, key: str = "") -> str:
        here = f"{self.file}, [{table}]" if table in TABLES else f"{self.file}, {table}"
        return self.get(f"{table}.{key}" if key else table, f"{here}.{key}" if key else here)

    def inside(self, table: str) -> dict[str, str]:
        """The places of the keys of one table that --set gave."""
        return {
            key.partition(".")[2]: place
            for key, place in self.items()
            if key.startswith(table + ".")
        }


def read(
    path: str | Path,
    sets: Iterable[str] = (),
    methods: Iterable[str] = (),
    grid: Iterable[str] = (),
    seeds: str | None = None,
    trust: Trust = NOBODY,
) -> Config:
    """A file, changed by `--set key=value`, `-m method`, `-g setting=values` and `--seeds` from the
    command line.

    Functions of the user's own that it names are imported here, if `trust` allows it.
    """
    path = Path(path)
    tables = _load(path)
    at = Places(path.name, trust)
    for text in sets:
        _set(tables, text, at)
    if seeds is not None:
        _set(
            tables, f"run.seeds={f'[{seeds}]' if ',' in seeds and '[' not in seeds else seeds}", at
        )
        at["run.seeds"] = "--seeds"
    for name in tables:
        if name not in TABLES:
            raise unknown(at(name), name, "table", TABLES)
    if "problem" not in tables:
        raise InputError(
            f"{path} does not name a problem.", 'Add a line such as problem = "quadratic".'
        )
    method = _method(tables.get("method", "ahead_exact"), at)
    values, swept = _sweep(tables.get("sweep", {}), method, at, grid)
    run = _run(tables.get("run", {}), at)
    return Config(
        problem=choose(
            tables["problem"], registry.problems(), at("problem"), at.inside("problem"), trust
        ),
        network=read_networks(tables.get("network"), at, at.inside("network"), trust),
        method=method,
        run=run,
        compare=_compare(tables.get("compare", {}), method, at, tuple(methods)),
        grid=values,
        seeds=swept,
        own_measures=_own_measures(run, at),
        path=path,
    )


def resolved(config: Config) -> Table:
    """The configuration with every default written out, as a run folder stores it."""
    options = {
        name: value for name, value in asdict(config.run).items() if value not in (None, {}, ())
    }
    tables: Table = {"problem": config.problem.as_table()}
    if config.network is not None:
        tables["network"] = config.network.as_table()
    return tables | {"method": config.method.as_table(), "run": options}


def declared_agents(path: str | Path, sets: Iterable[str] = ()) -> int | None:
    """How many agents a file names, or its ready-made problem has by default; None if only building
    it would tell."""
    tables = _load(Path(path))
    for text in sets:
        _set(tables, text, Places(str(path), NOBODY))
    problem = tables.get("problem")
    table = problem if isinstance(problem, Mapping) else {"name": problem}
    network = tables.get("network")
    inside = network.values() if isinstance(network, Mapping) else ()  # of [network.x], ...
    for options in (network, *inside, table):
        named = options.get("agents") if isinstance(options, Mapping) else None
        if isinstance(named, int):
            return named
    factory = registry.problems().factories.get(str(table.get("name")))
    if factory is None or "network" in tables:
        return None
    parameter = signature(factory).parameters.get("agents")
    return (
        parameter.default if parameter is not None and isinstance(parameter.default, int) else None
    )


def _load(path: Path) -> Table:
    try:
        tables = tomllib.loads(read_file(path, LONGEST).decode("utf-8"))
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}.", "Pass the path of a TOML file."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise InputError(
            f"{path} is not valid TOML: {short(first_line(error).rstrip('.'), 200)}."
        ) from error
    if _is_deep(tables):
        raise InputError(
            f"{path}: tables and lists are nested more than {DEEPEST} deep; no option needs that."
        )
    return tables


def _is_deep(value: object) -> bool:
    """Whether tables and lists are nested so deeply that converting and printing them would end in
    a RecursionError."""
    layer = [value]
    for _ in range(DEEPEST):
        layer = [
            inner for item in layer for inner in (item.values() if isinstance(item, dict) else item)
        ]
        layer = [item for item in layer if isinstance(item, dict | list)]
    return bool(layer)


def _set(tables: Table, text: str, at: Places) -> None:
    """Apply one `--set table.key=value`."""
    key, equals, value = text.partition("=")
    parts = [part.strip() for part in key.split(".")]
    if not equals or not all(parts) or not value.strip():
        raise InputError(
            f"--set must read key=value, but it is {shown(text)}.",
            "For example: --set run.steps=500",
        )
    if parts[0] not in TABLES:
        raise unknown(f"--set {short(text)}", parts[0], "table", TABLES)
    if len(parts) > DEEPEST:
        raise InputError(
            f"--set {short(text)}: a key has at most {DEEPEST} parts, but this one has"
            f" {len(parts):,}."
        )
    at[".".join(parts[:2])] = f"--set {short('.'.join(parts))}"
    table = tables
    for part in parts[:-1]:
        inner = table.get(part, {})
        below: Table = dict(inner) if isinstance(inner, Mapping) else {"name": inner}
        table[part] = below
        table = below
    table[parts[-1]] = parse_value(value.strip())


def _method(value: object, at: Places) -> Choice:
    table = {"name": "ahead_exact", **value} if isinstance(value, Mapping) else {"name": value}
    name = table["name"]
    # settings in the name, as on the command line, and others besides
    if isinstance(name, str) and "[" in name:
        table = parse_spec(name, at("method")) | {
            key: item for key, item in table.items() if key != "name"
        }
    return choose(table, registry.methods(), at("method"), at.inside("method"), at.trust)


def _run(value: object, at: Places) -> RunOptions:
    table = table_of(value, at("run"))
    if isinstance(table.get("measures"), str):
        table["measures"] = [table["measures"]]
    checked = check_options(table, RunOptions, "[run]", at("run"), places=at.inside("run"))
    options = RunOptions(**checked)  # type: ignore[arg-type]
    for name, least in LEAST.items():
        number = getattr(options, name)
        if number is not None and integer(at("run", name), number, least) > LARGEST:
            raise InputError(
                f"{at('run', name)} must be at most {LARGEST}, but it is {shown(number)}."
            )
    if options.seeds is not None:
        with at_place(at("run", "seeds")):
            seed_numbers(options.seeds, options.seed)
    for key, names in (("measures", options.measures or ()), ("until", options.until)):
        for name in names:
            _check_measure(name, at("run", key))
    if options.start:
        where = at("run", "start")
        start = {"seed": options.seed, **options.start}
        Choice(
            "random_start", random_start, check_options(start, random_start, "start", where), where
        ).make()
    return options


def _check_measure(name: str, where: str) -> None:
    names = registry.measures()
    if name not in names and not CONSENSUS.fullmatch(name) and not OWN.fullmatch(name):
        raise unknown(where, name, "measure", names, "decibo list measures")


def _own_measures(run: RunOptions, at: Places) -> dict[str, Callable[..., Any]]:
    """The user's own functions among the measures."""
    named = dict.fromkeys(run.until, "until") | dict.fromkeys(run.measures or (), "measures")
    return {
        name: own_measure(name, at("run", key), at.trust)
        for name, key in named.items()
        if OWN.fullmatch(name)
    }


# [compare] and [sweep]


def _compare(
    value: object, method: Choice, at: Places, requested: tuple[str, ...]
) -> tuple[Choice, ...]:
    """The methods to compare: those of -m, otherwise of [compare].methods, each with the settings
    that all share."""
    table = table_of(value, at("compare"))
    listed = convert(table.pop("methods", []), list[str] | dict[str, str], at("compare", "methods"))
    where = "-m" if requested else at("compare", "methods")
    named = (
        listed.items()
        if isinstance(listed, dict) and not requested
        else [(text, text) for text in requested or listed]
    )
    choices = [
        replace(
            choose(parse_spec(text, where), registry.methods(), where, trust=at.trust),
            label=label.strip(),
        )
        for label, text in named
    ]
    settings = {name: option for choice in choices for name, option in choice.parameters.items()}
    for key, value in table.items() if choices else ():
        if key not in settings:
            raise unknown(
                at("compare", key), key, "setting of these methods", ["methods", *settings]
            )
        if value == "none" and not any(_can_be_none(choice, key) for choice in choices):
            raise InputError(f"{at('compare', key)}: none of these methods can do without {key}.")
    return tuple(_shared(choice, table, method, at) for choice in choices)


def _shared(choice: Choice, table: Table, method: Choice, at: Places) -> Choice:
    """The method with the settings of [compare] and, if [method] is the same method, with those of
    [method].

    "none" switches a setting off in the methods that can do without it.
    """
    shared = {
        key: value
        for key, value in table.items()
        if key in choice.parameters and (value != "none" or _can_be_none(choice, key))
    }
    common = check_options(
        shared, choice.factory, choice.name, at("compare"), choice.own, choice.noun, trust=at.trust
    )
    own = method.options if method.name == choice.name else {}
    full = choice.with_defaults(**{**own, **common})
    if full.missing():
        names = ", ".join(full.missing())
        example = ",".join(f"{name}=..." for name in full.missing())
        raise InputError(
            f"{choice.where}: {choice.name} needs {names}.",
            f"Write '{choice.name}[{example}]', or set it in [compare].",
        )
    return full


def _can_be_none(choice: Choice, setting: str) -> bool:
    return setting in choice.parameters and members_of(choice.parameters[setting].hint)[1]


def _sweep(
    value: object, method: Choice, at: Places, requested: Iterable[str]
) -> tuple[dict[str, list], tuple[int, ...] | None]:
    """Lists of values by setting, each value checked as the setting itself would be; and the
    seeds."""
    table = table_of(value, at("sweep"))
    places = {}
    for text in requested:
        key, equals, values = text.partition("=")
        if not equals or not key.strip() or not values.strip():
            raise InputError(
                f"-g must read setting=value,value, but it is {shown(text)}.",
                "For example: -g alpha=0.1,0.2",
            )
        items = parse_value(f"[{values}]")
        table[key.strip()] = (
            items if isinstance(items, list) else [parse_value(item) for item in values.split(",")]
        )
        places[key.strip()] = f"-g {short(text)}"
    seeds = table.pop("seeds", None)
    grid: dict[str, list] = {}
    for key, values in table.items():
        where = places.get(key, at("sweep", key))
        only_known(f"{where}: {method.name}", method.noun, [key], [*method.parameters, "seeds"])
        if not isinstance(values, list) or not values:
            raise InputError(
                f"{where} must be a list of values, but it is {shown(values)}.",
                "For example: [0.1, 0.2]",
            )
        hint = method.parameters[key].hint
        grid[key] = [convert(item, hint, f"{where}[{k}]") for k, item in enumerate(values)]
    return grid, None if seeds is None else convert(seeds, tuple[int, ...], at("sweep", "seeds"))


# `name[setting=value,...]`: a method on the command line


def parse_spec(text: str, where: str = "-m") -> Table:
    """{"name": ..., setting: value, ...} of a text such as ahead[lam=20]."""
    match = SPEC.fullmatch(text)
    if match is None:
        raise _invalid_spec(text, where, "It must read name or name[setting=value,...].")
    name, inside = match.groups()
    settings: Table = {}
    for part in _parts(inside or ""):
        pair = SETTING.fullmatch(part)
        if pair is None or not pair[2]:
            raise _invalid_spec(text, where, f"{shown(part.strip())} must read setting=value.")
        if pair[1] in settings:
            raise _invalid_spec(text, where, f"{pair[1]} is set twice.")
        if pair[1] == "name":
            raise _invalid_spec(text, where, "name is not a setting.")
        settings[pair[1]] = parse_value(pair[2])
    return {"name": name, **settings}


def parse_value(text: str) -> object:
    """A value as TOML has it: 3, 0.1, true, "text", [1, 2], {start = 1}; anything else is text."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, ValueError, RecursionError):
        return text
    return parsed["value"] if set(parsed) == {"value"} else text


def _parts(inside: str) -> list[str]:
    """Split at commas outside brackets and quotes."""
    parts = []
    depth = 0
    quote = ""
    start = 0
    for k, mark in enumerate(inside):
        if quote:
            quote = "" if mark == quote else quote
        elif mark in "\"'":
            quote = mark
        elif mark in "[{":
            depth += 1
        elif mark in "]}":
            depth -= 1
        elif mark == "," and depth == 0:
            parts.append(inside[start:k])
            start = k + 1
    rest = inside[start:]
    return [*parts, rest] if rest.strip() or parts else []


def _invalid_spec(text: str, where: str, rule: str) -> InputError:
    return InputError(
        f"{where} {shown(text)} is not valid. {rule}",
        "For example: 'ahead[alpha=0.05,gamma=0.1,lam=20]'",
    )


# Problem, network, method and measures


class Parts(NamedTuple):
    """What a run is made of."""

    problem: decibo.Problem
    network: decibo.Network | decibo.DirectedNetwork
    method: decibo.Algorithm


def precision(config: Config) -> AbstractContextManager[None]:
    """[run].dtype while a command runs."""
    return computing_in(config.run.dtype)


@contextmanager
def computing_in(dtype: str) -> Iterator[None]:
    """This precision while a command runs. It is a setting of the whole process, so it is restored
    afterwards."""
    before = jax.config.jax_enable_x64  # type: ignore[attr-defined]
    jax.config.update("jax_enable_x64", dtype == "float64")
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


def build(config: Config) -> tuple[Parts, Config]:
    """Problem, network and method, and the configuration with the number of agents filled in where
    it was left out."""
    links = (config.network or networks.ring(f"{config.path.name}, [network]")).changed(
        networks.drawn
    )
    network = links.make() if links.complete else None
    agents = network.agents if network else links.agents()
    if agents is None:
        problem = _make(config.problem, decibo.Problem)
        if problem.agents is None:
            raise InputError(
                "Nothing in the configuration says how many agents there are.",
                "Set [network].agents.",
            )
        agents = problem.agents
    else:
        # as many as the network has, unless it has a number of its own
        if "agents" in config.problem.parameters:
            config = replace(config, problem=config.problem.with_defaults(agents=agents))
        problem = _make(config.problem, decibo.Problem)
    if network is None:
        links = links.changed(lambda choice: networks.with_agents(choice, agents))
        network = links.make()
    method = _make(config.method, decibo.Algorithm)
    check_fit(problem, network, method)
    return Parts(problem, network, method), replace(config, network=links)


def with_method(parts: Parts, config: Config, choice: Choice) -> tuple[Parts, Config]:
    """The same with another method."""
    method = _make(choice, decibo.Algorithm)
    check_fit(parts.problem, parts.network, method)
    return parts._replace(method=method), replace(config, method=choice)


def solve_arguments(config: Config) -> dict[str, Any]:
    """The arguments of solve besides these three."""
    run = config.run
    return {
        "steps": run.steps,
        "every": run.every,
        "measures": measures(config),
        "start": decibo.random_start(**{"seed": run.seed, **run.start}) if run.start else None,
        "seed": run.seed,
        "until": {_recorded(name, config): value for name, value in run.until.items()} or None,
    }


def _recorded(name: str, config: Config) -> str:
    """What a history calls a measure: the user's own by the function's name."""
    return config.own_measures[name].__name__ if name in config.own_measures else name


def measures(config: Config) -> list[str | Callable[..., Any]]:
    """The measures of [run], and those that `until` needs."""
    names = list(dict.fromkeys([*(config.run.measures or ("cheap",)), *config.run.until]))
    return [config.own_measures.get(name, name) for name in names]


def _make(choice: Choice, *kinds: type[T]) -> T:
    result = choice.make()
    if not isinstance(result, kinds):
        raise InputError(
            f"{choice.where}: {choice.name} must return a decibo.{kinds[0].__name__}, "
            f"but it returned a {type(result).__name__}."
        )
    return result
