"""Every method on every network: one process against two, four, and eight devices in one. Takes
half an hour.

    python tests/parallel/_same.py [--float32] [--processes 2,4] [--devices 8] [--json OUT] [method
    ...]

Prints for each method the largest difference after 200 steps, over all four networks, all variables
of all agents and the last records; with --float32 relative to the largest number of the same array
if that is above 1. The last column is what one process makes of a start that differs in its last
digit: what the method does to rounding, wherever it runs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

Ends = dict[str, np.ndarray]
CASES = Path(__file__).with_name("_cases.py")
LAUNCH = (
    "import sys; from decibo.parallel.launch import launch; sys.exit(launch(sys.argv[2:],"
    " int(sys.argv[1])))"
)


def made(
    out: Path, flags: list[str], methods: list[str], processes: int = 1, devices: int = 1
) -> Ends:
    """What all methods end with."""
    job = [sys.executable, str(CASES), "--all", *flags, str(out), *methods]
    command = job if processes == 1 else [sys.executable, "-c", LAUNCH, str(processes), *job]
    xla = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    subprocess.run(
        command, check=True, stderr=subprocess.DEVNULL, env=os.environ | {"XLA_FLAGS": xla}
    )
    with np.load(out, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def differences(one: Ends, other: Ends, relative: bool) -> dict[str, float]:
    """The largest by method."""
    found: dict[str, float] = {}
    for name, rows in one.items():
        scale = max(1.0, float(np.abs(rows).max())) if relative else 1.0
        apart = float(np.abs(rows - other[name]).max()) / scale
        method = name.split()[0]
        found[method] = max(found.get(method, 0.0), apart)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("methods", nargs="*")
    parser.add_argument("--float32", action="store_true")
    parser.add_argument("--processes", default="2,4")
    parser.add_argument("--devices", default="8")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    flags = ["--float32"] if options.float32 else []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "end.npz"
        ends = partial(made, out, flags, options.methods)
        one = ends()
        others = {
            f"{n} processes": ends(processes=int(n)) for n in options.processes.split(",") if n
        }
        others |= {f"{n} devices": ends(devices=int(n)) for n in options.devices.split(",") if n}
        others["nudged"] = made(out, [*flags, "--nudge"], options.methods)
    table = {name: differences(one, other, options.float32) for name, other in others.items()}
    print(f"{'':20}" + "".join(f"{name:>14}" for name in table))
    for method in next(iter(table.values())):
        print(f"{method:20}" + "".join(f"{column[method]:14.1e}" for column in table.values()))
    if options.json:
        options.json.write_text(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
