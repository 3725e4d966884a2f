"""Consent: a job file that names `module:function` is code, and none of it runs before the owner of
this site has agreed.

A module is looked for beside the job file, then in the current folder, then among the installed
packages, and finding it imports nothing. It is imported if `--trust MODULE` names it, or if the
owner says so on the terminal. Modules of Python itself are never imported for a job.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import sys
import typing
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any, Union

import jax

from decibo.errors import OWN_FILES, InputError, plain, short_repr
from decibo.validate import did_you_mean

OWN = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


@dataclass(frozen=True)
class Trust:
    """What a command may import: modules named by --trust, and those the user agrees to.

    folders   where modules are looked for before the installed packages
    modules   those that --trust names
    asks      whether there is somebody to ask
    agreed    the files and folders of modules that the user has agreed to in this command
    """

    folders: tuple[Path, ...] = ()
    modules: frozenset[str] = frozenset()
    asks: bool = False
    agreed: set[Path] = field(default_factory=set)


def trust_for(path: Path, modules: Iterable[str] | None, as_json: bool) -> Trust:
    """The trust of one command: a terminal can be asked, but not by several processes at once."""
    terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
    tops = frozenset(name.partition(":")[0].partition(".")[0] for name in modules or ())
    folders = tuple(dict.fromkeys((path.absolute().parent, Path.cwd())))
    return Trust(folders, tops, terminal and not as_json and jax.process_count() == 1)


def _imported(name: str, where: str, trust: Trust) -> ModuleType:
    """The module of this name, if the user agrees. A bug in it goes through with its traceback."""
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names:
        raise InputError(
            f"{where} names the module {top}, which is part of Python; a job cannot name its"
            " functions.",
            "Name a function of a module of your own, under another name.",
        )

    # Where is it? Only top-level modules are looked for: to find one inside a package would import
    # the package.
    importlib.invalidate_caches()
    found = (PathFinder.find_spec(top, [str(each)]) for each in trust.folders)
    spec = next(filter(None, found), None)
    if spec is None:
        with suppress(ValueError):  # a module without a spec, such as __main__
            spec = importlib.util.find_spec(top)
    if spec is None:
        raise InputError(
            f"{where}: there is no module {top}.", f"Put {top}.py beside the job file."
        )
    place = _place(spec)

    # Does the user agree?
    if top not in trust.modules and place not in trust.agreed:
        relative = os.path.relpath(place)
        shown = str(place) if relative.startswith("..") else relative
        names = f"{where} names a function of the module {top}, which"
        message = f"{names} would run the code in {shown}."
        if not trust.asks:
            raise InputError(message, f"If you trust this code, add --trust {top}.")
        print(f"decibo: {plain(message)}", file=sys.stderr)
        print("Do you trust it? [y] yes, [N] no: ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise InputError(f"{names} you do not trust; nothing was run.")
        trust.agreed.add(place)

    # Import it as for a script, which may import what lies beside it.
    loaded = getattr(sys.modules.get(top), "__spec__", None)
    if loaded is not None and _place(loaded) != place:
        raise InputError(
            f"{where}: the module {top} in {place} has the name of another one, {_place(loaded)}.",
            "Rename it.",
        )
    folder = str(place.parent)
    if place.parent in [each.resolve() for each in trust.folders] and sys.path[:1] != [folder]:
        sys.path.insert(0, folder)
    OWN_FILES.add(spec.origin or "")
    try:
        inner = importlib.util.find_spec(name)
        if inner is None:
            raise InputError(f"{where}: there is no module {name}.")
        OWN_FILES.add(inner.origin or "")
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if f"{name}.".startswith(f"{error.name}."):  # it, or a package above it
            raise InputError(f"{where}: there is no module {name}.") from error
        raise
    except SystemExit as error:
        raise InputError(f"{where}: importing {name} ended the program (SystemExit).") from error


def _place(spec: ModuleSpec) -> Path:
    """The file of a module, or the folder of a package."""
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).resolve()
    return Path(spec.origin or spec.name).resolve()


def own_function(name: str, where: str, trust: Trust) -> Callable[..., object]:
    """The function `module:function`, whose module is imported if the user agrees."""
    if not OWN.fullmatch(name):
        raise InputError(
            f"{where} must read module:function, but it is {short_repr(name)}.",
            'Example: "my_module:make".',
        )
    module, _, function = name.partition(":")
    found = _imported(module, where, trust)
    value = getattr(found, function, None)
    if not callable(value):
        names = [key for key, item in vars(found).items() if callable(item) and key[0] != "_"]
        listed = f"Valid names are {', '.join(names)}." if names else "There are none."
        raise InputError(
            f"{where}: there is no function in {module} {short_repr(function)}.",
            f"{did_you_mean(function, names)} {listed}".lstrip(),
        )
    return value


def own_factory(name: str, where: str, kind: type, trust: Trust) -> Callable[..., Any]:
    """The function, if it declares that it returns what is wanted; no other one is ever called."""
    factory = own_function(name, where, trust)
    try:
        declared = typing.get_type_hints(factory).get("return")
    except Exception:  # an annotation that names what is imported only where it is used
        declared = None
    parts = (
        typing.get_args(declared)
        if typing.get_origin(declared) in (Union, UnionType)
        else (factory if inspect.isclass(factory) else declared,)
    )
    if not all(inspect.isclass(part) and issubclass(part, kind) for part in parts):
        raise InputError(
            f"{where}: {name} does not declare that it returns a decibo.{kind.__name__}.",
            f"Write: def {name.partition(':')[2]}(...) -> decibo.{kind.__name__}",
        )
    return factory
