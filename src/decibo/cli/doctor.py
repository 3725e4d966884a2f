"""decibo doctor: what decibo finds on this machine."""

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
from decibo.cli import cache
from decibo.cli import terminal as show

DATA = ("mnist.npz", "a9a", "a9a.t", "ijcnn1")  # what `reproduce` looks for
ONE_LINE = re.compile(r"([A-Za-z0-9_.-]+)")


def findings() -> dict[str, Any]:
    """Everything, as JSON can hold it."""
    import jax

    return {
        "versions": {"decibo": decibo.__version__, "python": platform.python_version(), **_packages("")},
        "platform": platform.platform(),
        "devices": [f"{device.platform}: {device.device_kind}" for device in jax.devices()],
        "cores": os.cpu_count(),
        "mpi": _mpi(),
        "data": {name: None if (path := decibo.data.find(name)) is None else str(path) for name in DATA},
        "data folder": os.environ.get("DECIBO_DATA"),
        "extras": {extra: _packages(extra) for extra in _extras()},
        "compilation cache": _programs(),
    }


def doctor(as_json: bool) -> int:
    """Print them."""
    found = findings()
    if as_json:
        show.as_json(found)
        return 0
    show.table(("package", "version"), list(found["versions"].items()), left=2)
    missing = "set DECIBO_DATA to a folder that has it"
    rows = [
        ("platform", found["platform"]),
        ("devices", "; ".join(found["devices"])),
        ("cores", str(found["cores"])),
        ("MPI", found["mpi"]),
        *((f"data {name}", show.path_of(Path(path)) if path else missing) for name, path in found["data"].items()),
        ("compilation cache", found["compilation cache"]["says"]),
    ]
    show.table(("what", "found"), rows, left=2)
    show.table(("extra", "package", "version"), list(_rows(found["extras"])), left=3)
    return 0


def version_line() -> str:
    """One line that a report of a problem should have."""
    names = ", ".join(f"{name} {number}" for name, number in _packages("").items())
    return f"decibo {decibo.__version__}, {names}, Python {platform.python_version()}, {sys.platform}"


def _rows(extras: dict[str, dict[str, str | None]]) -> Any:
    for extra, packages in extras.items():
        for name, number in packages.items():
            yield extra, name, number or f"missing: pip install 'decibo[{extra}]'"


def _extras() -> list[str]:
    """The extras that users install; those that gather others or are for developers are left out."""
    found = {match[1] for line in _requires() if (match := re.search(r"extra == '(\w+)'", line))}
    return sorted(found - {"all", "dev", "docs", "bench"})


def _packages(extra: str) -> dict[str, str | None]:
    """The packages that an extra needs, or decibo itself, with their versions."""
    lines = [line for line in _requires() if (f"extra == '{extra}'" in line if extra else "extra ==" not in line)]
    names = [match[1] for line in lines if (match := ONE_LINE.match(line))]
    return {name: _version(name) for name in sorted(names)}


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
    places = os.pathsep.join([os.environ.get("PATH", ""), str(Path(sys.executable).parent)])
    launcher = next((path for name in ("mpiexec", "srun") if (path := shutil.which(name, path=places))), None)
    package = _version("mpi4py")
    if package is None:
        return "no mpi4py: pip install 'decibo[mpi]'"
    return f"mpi4py {package}, launcher {show.path_of(Path(launcher)) if launcher else 'not found'}"


def _programs() -> dict[str, Any]:
    """Where compiled programs are kept, and how many there are."""
    import jax

    cache.enable()
    config: Any = jax.config
    place = config.jax_compilation_cache_dir
    if not place or not config.jax_enable_compilation_cache:
        return {"folder": None, "programs": 0, "bytes": 0, "says": "off"}
    sizes = [path.stat().st_size for path in Path(place).glob("*-cache")]
    says = f"{place} ({len(sizes)} programs, {show.amount(sum(sizes))})"
    return {"folder": str(place), "programs": len(sizes), "bytes": sum(sizes), "says": says}
