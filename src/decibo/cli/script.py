"""The file that defines what to run. `decibo run mine.py` runs it, as Python would, and reads the
names that it defines:

problem, or make_problem(seed)   the only one that is required
network, or make_network(seed)   without it: a ring of the problem's agents
method, methods                  one method, and those to compare: a list, or a dictionary by label;
                                 without them: ahead_exact, which finds its step sizes
grid                             what `decibo sweep` varies: {"alpha": [0.1, 0.2]}
steps, every, measures, until, start, seed, memory, callbacks     as in `decibo.solve`; start may
                                 be a function of the seed
seeds                            how many seeds, or which
checkpoint_every, keep, history  of checkpoints, and "csv" or "parquet"

All else in the file is its own business. Computing is in double precision unless the file says
otherwise: jax.config.update("jax_enable_x64", False).
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax

import decibo
from decibo import contrib
from decibo.errors import OWN_FILES, InputError, short, short_repr, warn
from decibo.files import read_file
from decibo.formatting import distinct, format_setting, to_json
from decibo.network.per_variable import each
from decibo.run.repeat import seed_numbers
from decibo.run.solve import check_fit, check_types
from decibo.validate import did_you_mean, integer, one_of, only_known
from decibo.validate import seed as check_seed

LONGEST = 1 << 22  # bytes of a file
SPEC = re.compile(r"\s*([^\[\]]*[^\[\]\s])\s*(?:\[(.*)\])?\s*", re.DOTALL)
PARTS = ("problem", "make_problem", "network", "make_network", "method", "methods", "grid")
EXAMPLE = "For example: -m 'ahead[alpha=0.05, gamma=0.1, lam=20]'"


class Parts(NamedTuple):
    """What a run is made of."""

    problem: decibo.Problem
    network: decibo.Network | decibo.DirectedNetwork
    method: decibo.Algorithm


@dataclass(frozen=True)
class RunSettings:
    """The names of the file that are arguments of solve, and what is kept of a run."""

    steps: int = 1000
    every: int | None = None
    measures: Any = None
    until: Mapping[str, float] | None = None
    start: Any = None
    seed: int = 0
    memory: str = "normal"
    callbacks: Sequence[Any] = ()
    seeds: Any = None
    checkpoint_every: int | None = None
    keep: int = 3
    history: str = "csv"


NAMES = (*PARTS, *(each.name for each in fields(RunSettings)))


@dataclass(frozen=True)
class Choice:
    """A method, what tables call it, and how the command line can name it again."""

    label: str
    method: decibo.Algorithm
    spec: str | None = None

    def spec_with(self, settings: Mapping[str, object]) -> str:
        """How the command line names the same method with these settings."""
        match = SPEC.fullmatch(self.spec or self.label)
        name, inside = (self.label, "") if match is None else (match[1], match[2] or "")
        call = _call(inside)
        given = {each.arg: ast.unparse(each.value) for each in (call.keywords if call else ())}
        given |= {each: format_setting(value) for each, value in settings.items()}
        return f"{name}[{', '.join(f'{each}={value}' for each, value in given.items())}]"


@dataclass(frozen=True)
class Script:
    """A file that was run, with what the command line changed.

    path       of the file as it was named; of a copy in a run folder, if it was resumed
    origin     where the file was when the run began
    names      what it defines
    before     the modules that were there before it ran
    """

    path: Path
    origin: Path
    source: bytes = field(repr=False)
    names: Mapping[str, Any] = field(repr=False)
    before: frozenset[str] = field(repr=False)
    settings: RunSettings = RunSettings()

    @property
    def file(self) -> str:
        """The name of the file."""
        return self.path.name

    def changed(self, **settings: Any) -> Script:
        """The same with other settings; None leaves one as it is."""
        chosen = {name: value for name, value in settings.items() if value is not None}
        return replace(self, settings=replace(self.settings, **chosen))

    @property
    def seeds(self) -> list[int | None]:
        """The seeds, or one that changes nothing if there are none."""
        if self.settings.seeds is None:
            return [None]
        return list(seed_numbers(self.settings.seeds, self.settings.seed))

    @property
    def varied(self) -> list[str]:
        """What a seed changes besides the seed of solve."""
        made = [f"make_{name}" for name in ("problem", "network") if f"make_{name}" in self.names]
        return [f"{name}(seed)" for name in [*made, *["start"] * callable(self.settings.start)]]

    @property
    def fixed(self) -> list[str]:
        """What is the same with every seed."""
        return [name for name in ("problem", "network") if f"make_{name}" not in self.names]

    def build(self, seed: int | None) -> tuple[decibo.Problem, Any]:
        """The problem and the network of a seed."""
        number = self.settings.seed if seed is None else seed

        def made(name: str, kind: Any) -> Any:
            make = self.names.get(f"make_{name}")
            if make is not None and not callable(make):
                raise InputError(
                    f"{self.file}: make_{name} must be a function, but it is {short_repr(make)}."
                )
            if make is None:
                value = self.names[name]
            else:
                value = make(number) if inspect.signature(make).parameters else make()
            if not isinstance(value, kind):
                what = f"make_{name}(seed) must return" if make is not None else f"{name} must be"
                raise InputError(
                    f"{self.file}: {what} a decibo.{name.capitalize()}, but it is"
                    f" {short_repr(value)}."
                )
            return value

        problem = made("problem", decibo.Problem)
        if "network" in self.names or "make_network" in self.names:
            network = made("network", decibo.Network | decibo.DirectedNetwork | Mapping)
            return problem, each(network) if isinstance(network, Mapping) else network
        if problem.agents is None:
            raise InputError(
                f"Nothing in {self.file} tells how many agents there are.",
                "Define network, for example: network = decibo.ring(10)",
            )
        return problem, decibo.ring(problem.agents)

    @cached_property
    def listed(self) -> list[Choice]:
        """`method` of the file, if it has one, and then those of `methods`."""
        named = self.names.get("methods", ())
        if not isinstance(named, Mapping | list | tuple):
            raise InputError(
                f"{self.file}: methods must be a list of methods or a dictionary by label, but it"
                f" is {short_repr(named)}."
            )
        own = [self.names["method"]] if "method" in self.names else []
        for value in [*own, *(named.values() if isinstance(named, Mapping) else named)]:
            if not isinstance(value, decibo.Algorithm):
                raise InputError(
                    f"{self.file}: a method must be a decibo.Algorithm, but it is"
                    f" {short_repr(value)}.",
                    "For example: method = decibo.ahead_exact()",
                )
        if isinstance(named, Mapping):
            choices = [Choice(str(label), method) for label, method in named.items()]
        else:
            # A name that several methods share is no label: then the settings tell them apart.
            names = [method.name for method in named]
            choices = [
                Choice(method.name if names.count(method.name) == 1 else repr(method), method)
                for method in named
            ]
        return [*(Choice(method.name, method) for method in own), *choices]

    def choose(self, spec: str | None) -> Choice:
        """The method of -m, otherwise that of the file."""
        if spec is not None:
            return self.method_of(spec)
        if "method" not in self.names and len(self.listed) > 1:
            labels = ", ".join(choice.label for choice in self.listed)
            raise InputError(
                f"{self.file} defines several methods: {labels}.",
                "Choose one with -m, or use decibo compare.",
            )
        return next(iter(self.listed), Choice("ahead_exact", decibo.ahead_exact()))

    def compared(self, specs: Sequence[str]) -> list[Choice]:
        """The methods of -m, otherwise those of `methods` in the file."""
        choices = [self.method_of(spec) for spec in specs]
        choices = choices or self.listed["method" in self.names :]
        if not choices:
            raise InputError(
                f"{self.file} defines no methods to compare.",
                "Define methods = [...], or add -m ahead_exact -m 'ahead[alpha=0.05, gamma=0.1,"
                " lam=20]', for example.",
            )
        seen = set()
        for choice in choices:
            text = repr(choice.method) if choice.method.factory is not None else choice.label
            if {text, choice.label} & seen:
                raise InputError(f"The method {short(choice.label)} is listed twice.")
            seen |= {text, choice.label}
        return choices

    def method_of(self, spec: str) -> Choice:
        """The method of `name[setting=value, ...]`.

        A name is that of a method of the file, by its label or its own name, whose other settings
        stay; of a named method that the file defines; or of one that `decibo list methods` shows.
        """
        own = {choice.method.name: choice.method for choice in reversed(self.listed)}
        own |= {choice.label: choice.method for choice in reversed(self.listed)}
        if spec in own:
            return Choice(spec, own[spec], spec)
        match = SPEC.fullmatch(spec)
        call = None if match is None else _call(match[2] or "")
        if match is None or call is None or call.args or not all(k.arg for k in call.keywords):
            raise InputError(
                f"-m {short_repr(spec)} must read name or name[setting=value, ...].", EXAMPLE
            )
        settings = {str(each.arg): _value(each.value) for each in call.keywords}
        if len(settings) < len(call.keywords):
            raise InputError(f"-m {short_repr(spec)} sets a setting twice.", EXAMPLE)
        name = match[1]
        where = f"-m {short(spec)}"
        catalogue: dict[str, Any] = decibo.CATALOG | contrib.CATALOG
        catalogue |= {
            key: value
            for key, value in self.names.items()
            if callable(value) and hasattr(value, "provenance")  # made by @decibo.method
        }
        if name not in own and name not in catalogue:
            raise InputError(
                f"{where}: there is no method {short_repr(name)}.",
                f"{did_you_mean(name, [*own, *catalogue])} `decibo list methods` lists all"
                f" {len(catalogue)}.".lstrip(),
            )
        try:
            if name in own:
                return Choice(spec, own[name].replace(**settings), spec)
            known = inspect.signature(catalogue[name]).parameters
            only_known(name, "setting", settings, known)
            return Choice(spec, catalogue[name](**settings), spec)
        except TypeError as error:
            raise InputError(
                f"{where}: {str(error).removesuffix('.')}.", "Write it into the brackets."
            ) from error
        except InputError as error:
            raise InputError(f"{where}: {error.message}", error.remedy) from error

    def arguments(self, seed: int | None) -> dict[str, Any]:
        """The arguments of solve besides problem, network and method."""
        options = self.settings
        number = options.seed if seed is None else seed
        until = options.until or None
        # A target must be recorded to be watched.
        listed = isinstance(options.measures, list | tuple)
        measures = list(options.measures) if listed else [options.measures or "cheap"]
        names = [getattr(each, "__name__", each) for each in measures]
        measures += [name for name in until or () if name not in names]
        return {
            "steps": options.steps,
            "every": options.every,
            "measures": measures,
            "start": options.start(number) if callable(options.start) else options.start,
            "seed": number,
            "until": until,
            "memory": options.memory,
            **({"callbacks": list(options.callbacks)} if options.callbacks else {}),
        }

    def resolved(self, choice: Choice, seed: int | None) -> dict[str, Any]:
        """What the run folder notes: the file and the settings of a run."""
        arguments = self.arguments(seed)
        return {
            "file": self.file,
            "method": repr(choice.method),
            **{name: to_json(value) for name, value in arguments.items() if value is not None},
        }

    def code(self) -> dict[str, bytes]:
        """The file, and the modules beside it that it imported, by their path from its folder."""
        folder = os.path.abspath(self.path.parent)
        found = {self.file: self.source}
        for name in sorted(set(sys.modules) - self.before):
            place = _beside(sys.modules[name], folder)
            if place is not None and place != self.file:
                found[place] = read_file(Path(folder) / place)
        return found


@contextmanager
def opened(path: str | Path, origin: str | Path | None = None) -> Iterator[Script]:
    """Run a file, and read what it defines. What it imports from its folder, and the precision it
    chooses, last until the block ends.

    origin   where the file was when `path` is a copy of it, for what it reads beside itself
    """
    path = Path(path)
    origin = Path(os.path.abspath(path if origin is None else origin))
    try:
        source = read_file(path, LONGEST)
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror or error}.",
            "Pass the path of a Python file; `decibo init` writes one.",
        ) from error
    if path.suffix != ".py":
        raise InputError(
            f"{path} is not a Python file: its name does not end in .py.",
            "`decibo init` writes one.",
        )
    folder = os.path.abspath(path.parent)
    before = frozenset(sys.modules)
    module = types.ModuleType(path.stem if path.stem not in before else "decibo_script")
    module.__file__ = str(origin)
    writes = sys.dont_write_bytecode
    # A copy in a run folder is left as it is, without compiled files beside it.
    sys.dont_write_bytecode = writes or origin != Path(os.path.abspath(path))
    sys.path.insert(0, folder)  # as for a script, since it may import what lies beside it
    sys.modules[module.__name__] = module
    before |= {module.__name__}
    try:
        with computing_in("float64"):
            OWN_FILES.add(os.path.abspath(path))
            try:
                program = compile(source, os.path.abspath(path), "exec", dont_inherit=True)
                exec(program, vars(module))
            except SystemExit:
                raise InputError(
                    f"{path} ended the program (SystemExit) when it was run.",
                    "Put what is for scripts below: if __name__ == '__main__':",
                ) from None
            finally:
                _own(before, folder)
            script = Script(path, origin, source, vars(module), before)
            yield _checked(script)
            _own(before, folder)
    finally:
        sys.dont_write_bytecode = writes
        with suppress(ValueError):
            sys.path.remove(folder)
        for name in set(sys.modules) - before | {module.__name__}:
            if name == module.__name__ or _beside(sys.modules[name], folder) is not None:
                del sys.modules[name]


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


def _own(before: frozenset[str], folder: str) -> None:
    """Errors in modules beside the file are the user's own, too."""
    for name in set(sys.modules) - before:
        place = _beside(sys.modules[name], folder)
        if place is not None:
            OWN_FILES.add(os.path.join(folder, place))


def _beside(module: object, folder: str) -> str | None:
    """The path of a module from the folder, if it is there because the folder is searched."""
    name = str(getattr(module, "__name__", ""))
    place = getattr(module, "__file__", None)
    if not isinstance(place, str) or name.partition(".")[0] == "decibo":
        return None
    relative = os.path.relpath(place, folder)
    top = name.partition(".")[0]
    first = Path(relative).parts[0]
    return relative if first == top or Path(first).stem.partition(".")[0] == top else None


def _checked(script: Script) -> Script:
    """The script with its settings, if it defines a problem and nothing twice."""
    names = script.names
    for one in ("problem", "network"):
        if one in names and f"make_{one}" in names:
            raise InputError(
                f"{script.file} defines both {one} and make_{one}.",
                f"Keep make_{one}(seed) if a seed changes it, otherwise {one}.",
            )
    if "problem" not in names and "make_problem" not in names:
        close = did_you_mean("problem", [name for name in names if "problem" in name.lower()])
        raise InputError(
            f"{script.file} defines no problem.",
            f"{close} Define problem, or make_problem(seed).".lstrip(),
        )
    # A name that is not read may be a slip. It is only noted, since names are free.
    for name, value in names.items():
        if name in NAMES or name[0] == "_" or isinstance(value, type | types.ModuleType):
            continue
        close = get_close_matches(name, NAMES, n=1, cutoff=0.85)
        if close and close[0] not in names:
            warn(
                f"{script.file} defines {name}, which decibo does not read. Did you mean"
                f" {close[0]}?"
            )
    values = {each.name: names[each.name] for each in fields(RunSettings) if each.name in names}
    settings = RunSettings(**values)
    integer("steps", settings.steps)
    check_seed(settings.seed)
    integer("keep", settings.keep)
    one_of("history", settings.history, ("csv", "parquet"))
    for name in ("every", "checkpoint_every"):
        if (value := getattr(settings, name)) is not None:
            integer(name, value)
    return replace(script, settings=settings)


def fitted(problem: decibo.Problem, network: Any, method: decibo.Algorithm) -> Parts:
    """The three, if they fit together."""
    check_types(problem, network, method)
    check_fit(problem, network, method)
    return Parts(problem, network, method)


def grid_of(script: Script, method: decibo.Algorithm, requested: Sequence[str]) -> dict[str, list]:
    """Lists of values by setting: of -g, otherwise of `grid` in the file. Each value is tried."""
    grid: Any = {} if requested else script.names.get("grid", {})
    if not isinstance(grid, Mapping):
        raise InputError(
            f"{script.file}: grid must be a dictionary of lists, but it is {short_repr(grid)}.",
            'For example: grid = {"alpha": [0.1, 0.2]}',
        )
    places = dict.fromkeys(grid, f"{script.file}, grid")
    grid = dict(grid)
    for text in requested:
        name, equals, values = text.partition("=")
        if not equals or not name.strip() or not values.strip():
            raise InputError(
                f"-g must read setting=value,value, but it is {short_repr(text)}.",
                "For example: -g alpha=0.1,0.2",
            )
        call = _call(values)
        items = [] if call is None or call.keywords else call.args
        grid[name.strip()] = [_value(item) for item in items]
        places[name.strip()] = f"-g {short(text)}"
    for name, values in grid.items():
        try:
            if not isinstance(values, list | tuple) or not values:
                raise InputError(
                    f"{name} must be a list of values, but it is {short_repr(values)}.",
                    "For example: [0.1, 0.2]",
                )
            for value in values:
                method.replace(**{name: value})
        except InputError as error:
            raise InputError(f"{places[name]}: {error.message}", error.remedy) from error
    return grid


def by_folder(choices: Sequence[Choice], folder: Path) -> dict[str, Path]:
    """A folder for each label, whatever is in it."""
    names = [
        re.sub(r"[^\w.=-]+", "_", choice.label.replace(", ", ",")).strip("_.")[:100] or "method"
        for choice in choices
    ]
    return {
        choice.label: folder / name
        for choice, name in zip(choices, distinct(names, "{}-{}", ignore_case=True), strict=True)
    }


def _call(inside: str) -> ast.Call | None:
    """What stands between brackets, read as the arguments of a call: Python knows where they
    end."""
    try:
        call = ast.parse(f"f({inside})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return call if isinstance(call, ast.Call) else None


def _value(node: ast.expr) -> object:
    """A value as Python has it: 3, 0.1, True, "text", [1, 2]; any other word is text."""
    word = ast.unparse(node)
    try:
        return ast.literal_eval({"none": "None", "true": "True", "false": "False"}.get(word, word))
    except (ValueError, RecursionError, MemoryError):
        return word
