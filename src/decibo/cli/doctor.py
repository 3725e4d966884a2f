"""decibo doctor: versions, devices, data and optional packages on this machine."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

import decibo
from decibo.cli import terminal
from decibo.formatting import format_bytes

DATA = ("mnist.npz", "a9a", "a9a.t", "ijcnn1")  # what the paper's experiments look for
PACKAGE = re.compile(r"([A-Za-z0-9_.-]+)")


def doctor(as_json: bool) -> int:
    """Print all of it."""
    found = findings()
    if as_json:
        terminal.print_json(found)
        return 0
    terminal.table(("package", "version"), list(found["versions"].items()), left=2)
    missing = "not found; set DECIBO_DATA to the folder that holds it"
    data = found["data"].items()
    rows = [
        ("platform", found["platform"]),
        ("devices", "; ".join(found["devices"])),
        ("cores", str(found["cores"])),
        ("MPI", found["mpi"]),
        *((f"data {name}", terminal.path_of(path) if path else missing) for name, path in data),
        ("compilation cache", found["compilation cache"]["text"]),
    ]
    terminal.table(("item", "value"), rows, left=2)
    extras = [
        (extra, name, number or f"missing: pip install 'decibo[{extra}]'")
        for extra, packages in found["extras"].items()
        for name, number in packages.items()
    ]
    terminal.table(("extra", "package", "version"), extras, left=3)
    return 0


def findings() -> dict[str, Any]:
    """Everything, as JSON can hold it."""
    import jax

    from decibo.cli import cache

    cache.enable()
    path = os.pathsep.join([os.environ.get("PATH", ""), str(Path(sys.executable).parent)])
    found = (shutil.which(name, path=path) for name in ("mpiexec", "srun"))
    launcher = next((terminal.path_of(each) for each in found if each), "not found")
    mpi4py = _version("mpi4py")
    mpi = f"mpi4py {mpi4py}, launcher {launcher}"
    # Those that combine others, or are for developers, are left out.
    extras = {match[1] for line in _requires() if (match := re.search(r"extra == '(\w+)'", line))}
    folder = cache.folder_in_use()
    sizes = [each.stat().st_size for each in Path(folder or "").glob("*-cache")] if folder else []
    programs = f"{folder} ({len(sizes)} programs, {format_bytes(sum(sizes))})"
    return {
        "versions": {
            "decibo": decibo.__version__,
            "python": platform.python_version(),
            **_packages(""),
        },
        "platform": platform.platform(),
        "devices": [f"{device.platform}: {device.device_kind}" for device in jax.devices()],
        "cores": os.cpu_count(),
        "mpi": mpi if mpi4py else "mpi4py is missing: pip install 'decibo[mpi]'",
        "data": {
            name: None if (place := decibo.data.find(name)) is None else str(place) for name in DATA
        },
        "data folder": os.environ.get("DECIBO_DATA"),
        "extras": {
            extra: _packages(extra) for extra in sorted(extras - {"all", "dev", "docs", "bench"})
        },
        "compilation cache": {
            "folder": folder,
            "programs": len(sizes),
            "bytes": sum(sizes),
            "text": programs if folder else "off",
        },
    }


def version_line() -> str:
    """One line that a bug report should have."""
    names = ", ".join(f"{name} {number}" for name, number in _packages("").items())
    return (
        f"decibo {decibo.__version__}, {names}, Python {platform.python_version()}, {sys.platform}"
    )


def _packages(extra: str) -> dict[str, str | None]:
    """The packages that an extra needs, or decibo itself, with their versions."""
    mark = f"extra == '{extra}'"
    lines = [line for line in _requires() if (mark in line if extra else "extra ==" not in line)]
    names = {match[1] for line in lines if (match := PACKAGE.match(line))} - {"decibo"}
    return {name: _version(name) for name in sorted(names, key=lambda name: (name != "jax", name))}


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
