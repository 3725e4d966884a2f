"""decibo doctor: versions, devices, data and optional packages on this machine."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

import jax

import decibo
from decibo.cli import cache, terminal
from decibo.cli.options import Json
from decibo.formatting import format_bytes

DATA = ("mnist.npz", "a9a", "a9a.t", "ijcnn1")  # what `reproduce` looks for
PACKAGE = re.compile(r"([A-Za-z0-9_.-]+)")


def doctor(as_json: Json = False) -> int:
    """Show versions, devices, MPI, data and extras."""
    cache.enable()
    found = findings()
    if as_json:
        terminal.print_json(found)
        return 0
    terminal.table(("package", "version"), list(found["versions"].items()), left=2)
    missing = "not found; set DECIBO_DATA to the folder that holds it"
    rows = [
        ("platform", found["platform"]),
        ("devices", "; ".join(found["devices"])),
        ("cores", str(found["cores"])),
        ("MPI", found["mpi"]),
        *(
            (f"data {name}", terminal.path_of(path) if path else missing)
            for name, path in found["data"].items()
        ),
        ("compilation cache", found["compilation cache"]["text"]),
    ]
    terminal.table(("item", "value"), rows, left=2)
    terminal.table(("extra", "package", "version"), _rows(found["extras"]), left=3)
    return 0


def findings() -> dict[str, Any]:
    """Everything, as JSON can hold it."""
    return {
        "versions": {
            "decibo": decibo.__version__,
            "python": platform.python_version(),
            **_packages(""),
        },
        "platform": platform.platform(),
        "devices": [f"{device.platform}: {device.device_kind}" for device in jax.devices()],
        "cores": os.cpu_count(),
        "mpi": _mpi(),
        "data": {
            name: None if (path := decibo.data.find(name)) is None else str(path) for name in DATA
        },
        "data folder": os.environ.get("DECIBO_DATA"),
        "extras": {extra: _packages(extra) for extra in _extras()},
        "compilation cache": _programs(),
    }


def version_line() -> str:
    """One line that a bug report should have."""
    names = ", ".join(f"{name} {number}" for name, number in _packages("").items())
    return (
        f"decibo {decibo.__version__}, {names}, Python {platform.python_version()}, {sys.platform}"
    )


def _rows(extras: dict[str, dict[str, str | None]]) -> Iterator[tuple[str, str, str]]:
    for extra, packages in extras.items():
        for name, number in packages.items():
            yield extra, name, number or f"missing: pip install 'decibo[{extra}]'"


def _extras() -> list[str]:
    """The extras that users install; those that combine others or are for developers are left
    out."""
    extras = {match[1] for line in _requires() if (match := re.search(r"extra == '(\w+)'", line))}
    return sorted(extras - {"all", "dev", "docs", "bench"})


def _packages(extra: str) -> dict[str, str | None]:
    """The packages that an extra needs, or decibo itself, with their versions."""
    lines = [
        line
        for line in _requires()
        if (f"extra == '{extra}'" in line if extra else "extra ==" not in line)
    ]
    names = {match[1] for line in lines if (match := PACKAGE.match(line))}
    return {name: _version(name) for name in sorted(names - {"decibo"})}


def _requires() -> list[str]:
    try:
        return requires("decibo") or []
    except PackageNotFoundError:  # run from a source tree
        return ["jax", "numpy", "networkx"]


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _mpi() -> str:
    path = os.pathsep.join([os.environ.get("PATH", ""), str(Path(sys.executable).parent)])
    launcher = next(
        (found for name in ("mpiexec", "srun") if (found := shutil.which(name, path=path))), None
    )
    package = _version("mpi4py")
    if package is None:
        return "mpi4py is missing: pip install 'decibo[mpi]'"
    return f"mpi4py {package}, launcher {terminal.path_of(launcher) if launcher else 'not found'}"


def _programs() -> dict[str, object]:
    """Where compiled programs are stored, and how many there are."""
    folder = cache.folder_in_use()
    if folder is None:
        return {"folder": None, "programs": 0, "bytes": 0, "text": "off"}
    sizes = [path.stat().st_size for path in Path(folder).glob("*-cache")]
    text = f"{folder} ({len(sizes)} programs, {format_bytes(sum(sizes))})"
    return {"folder": folder, "programs": len(sizes), "bytes": sum(sizes), "text": text}
