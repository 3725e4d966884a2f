"""Every benchmark as one table of ratios, each pair measured interleaved in one run.

    python benchmarks/all.py [--quick] [--json FILE] [--only step growth ...]

--quick runs everything small, to see that it works: its numbers mean little. benchmarks/page.py
writes docs/performance.md from the JSON.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ["DECIBO_CACHE"] = "off"  # compilation is part of what is measured
sys.path.insert(0, str(Path(__file__).parent))

MODULES = ("step", "growth", "sweeps", "overheads", "accuracy", "momentum", "second", "peers")


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    import jax
    import numpy

    import decibo

    model = next(
        (line.split(":")[1].strip() for line in _cpuinfo() if line.startswith("model name")), ""
    )
    return {
        "processor": model or platform.processor(),
        "cores": (
            len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        ),
        "python": platform.python_version(),
        "decibo": decibo.__version__,
        "jax": jax.__version__,
        "numpy": numpy.__version__,
        "load": [round(value, 1) for value in os.getloadavg()],
    }


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def print_rows(rows: Iterator[Any], quick: bool) -> list[dict[str, Any]]:
    """Print rows as they come, and keep them; small sizes are not judged."""
    records = []
    for row in rows:
        row = replace(row, target="") if quick else row
        print(row, flush=True)
        records.append(row.as_dict())
    return records


def run_alone(
    rows: Callable[[bool], Iterator[Any]], part: Callable[[str, int], None] | None = None
) -> None:
    """The command line of a single benchmark; `--part NAME NUMBER` runs what it starts in processes
    of their own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--part", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if part and options.part:
        return part(options.part[0], int(options.part[1]))
    print_rows(rows(options.quick), options.quick)
    return None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes: does everything run?")
    parser.add_argument("--json", type=Path, help="write the table here as well")
    parser.add_argument("--only", nargs="+", choices=MODULES, default=MODULES)
    options = parser.parse_args()
    results: dict[str, Any] = {
        "quick": options.quick,
        "machine": machine(),
        "rows": [],
        "seconds": {},
    }
    for name in options.only:
        print(f"\n== {name}", flush=True)
        begun = time.perf_counter()
        try:
            results["rows"] += print_rows(
                importlib.import_module(name).rows(options.quick), options.quick
            )
        except Exception:  # the others still run; the table names what failed
            traceback.print_exc()
            results["rows"].append(
                {
                    "group": name,
                    "what": f"{name} failed",
                    "value": None,
                    "met": False,
                    "note": "see the log",
                }
            )
        results["seconds"][name] = round(time.perf_counter() - begun, 1)
        if options.json:
            options.json.write_text(
                json.dumps(results, indent=1, default=lambda value: value.item())
            )
    verdicts = [row["met"] for row in results["rows"] if row["met"] is not None]
    print(
        f"\n{sum(verdicts)} of {len(verdicts)} targets met;"
        f" {sum(results['seconds'].values()):.0f} s"
    )
    for row in results["rows"]:
        if row["met"] is False:
            print(f"missed: {row['what']}: {row['value']} ({row.get('target', '')})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
