"""Every measurement of the performance page as one table of ratios, each pair measured in turns.

    python -m studies.performance [--quick] [--only step growth ...] [--json FILE] [--page]

--quick runs everything small, to see that it works: its numbers mean little. --page also writes
studies/results/performance.json, .md and the figures of docs/performance.md; --render writes them
from the stored JSON. A part can be run singly, python -m studies.performance.step:

    step         every method against a hand-written loop, numpy, PyTorch, and the floor
    growth       agents, dimension, links; to a million agents
    sweeps       64 runs in one sweep against one after another
    overheads    recording, progress, checkpoints, starting
    accuracy     steps, gradients, bytes and seconds to a given accuracy
    momentum     inner momentum and Chebyshev rounds
    second       second derivatives of a small network
    peers        DGD and gradient tracking of decent-bench and disropt

Beyond this table, for other pages:

    gpu          many agents on one device
    neural       time and memory for every kind of direction and inner level
    torch_step   objectives in PyTorch
    large        25 million weights
    precision    how large lam may be in 32 and 16 bits
    automatic    automatic step sizes against a grid of 52
    asynchrony   what it is worth not to wait
    processes    the same run in one process and in two
    pictures     the picture of the front page
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from studies.machine import machine
from studies.performance import page
from studies.performance.timing import print_rows

PARTS = ("step", "growth", "sweeps", "overheads", "accuracy", "momentum", "second", "peers")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m studies.performance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="small sizes: does everything run?")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--json", type=Path, default=Path("out/performance.json"))
    parser.add_argument("--page", action="store_true", help="also write the page and the figures")
    parser.add_argument("--render", action="store_true", help="only write them, from the JSON")
    options = parser.parse_args()
    if options.render:
        page.write()
        return 0
    results: dict[str, Any] = {
        "quick": options.quick,
        "machine": machine(),
        "rows": [],
        "seconds": {},
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        print(f"\n== {name}", flush=True)
        begun = time.perf_counter()
        try:
            part = importlib.import_module(f"studies.performance.{name}")
            results["rows"] += print_rows(part.rows(options.quick), options.quick)
        except Exception:  # the others still run; the table names what failed
            traceback.print_exc()
            failed = {"what": f"{name} failed", "value": None, "met": False, "note": "see the log"}
            results["rows"].append({"group": name, **failed})
        results["seconds"][name] = round(time.perf_counter() - begun, 1)
        options.json.write_text(json.dumps(results, indent=1, default=lambda value: value.item()))
    verdicts = [row["met"] for row in results["rows"] if row["met"] is not None]
    total = sum(results["seconds"].values())
    print(
        f"\n{sum(verdicts)} of {len(verdicts)} targets met; {total:.0f} s; {options.json} written"
    )
    for row in results["rows"]:
        if row["met"] is False:
            print(f"missed: {row['what']}: {row['value']} ({row.get('target', '')})")
    if options.page:
        page.store(results)
        page.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
