"""The cells of the full benchmark on a machine that has no more than Python, JAX, numpy and
networkx.

    python benchmarks/field.py --pack out/bench-data                       here: the data, as files that numpy can read
    DECIBO_DATA=out/bench-data python3 benchmarks/field.py --jobs 15 --minutes 9 --corner --archive cells.tar.xz   there
    tar xJf cells.tar.xz -C out && decibo bench --budget full --out out/bench-full --render --claims
    --docs docs

The second command can be given again and again: it makes the cells that are missing, and stops in
time. Every cell is a file of its own, written whole or not at all, and the archive has all of them.
The last command makes tables, pictures and docs/benchmark.md of what is there, with the date,
versions and hardware that the cells tell. Processes use one thread each and the CPU only, in double
precision; compiled programs are kept in OUT/programs. --corner adds one agent against the solvers
of benchmark_bilevel, in a process of its own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tarfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))
# for the processes too
os.environ |= {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1", "OMP_NUM_THREADS": "1"}


def work(job) -> int:
    """One job in a process of the pool."""
    from studies.bench import suite

    return suite.carry_out(job, suite.entrant_of(job.method, {}))


def corner(out: Path) -> None:
    """One agent against the solvers of benchmark_bilevel; kept once it is there."""
    from studies.bench import corner

    corner.kept(out)


def collect(out: Path, archive: Path) -> None:
    """All cells in one file."""
    draft = archive.with_name(f"{archive.name}.part")
    with tarfile.open(draft, "w:xz", preset=6) as tar:
        for path in sorted([*(out / "cells").glob("*.json"), *(out / "corner").glob("*.json")]):
            tar.add(path, f"{out.name}/{path.relative_to(out)}")
    draft.replace(archive)
    print(f"{archive}: {archive.stat().st_size / 2**20:.1f} MiB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--budget", default="full")
    parser.add_argument("--tasks", nargs="*", default=[])
    parser.add_argument("--methods", nargs="*", default=[])
    parser.add_argument("--out", type=Path, default=Path("out/bench-full"))
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument(
        "--corner", action="store_true", help="also one agent, in a process of its own"
    )
    parser.add_argument("--archive", type=Path)
    parser.add_argument(
        "--pack",
        type=Path,
        metavar="FOLDER",
        help="write the data into FOLDER, and do nothing else",
    )
    options = parser.parse_args()
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str((options.out / "programs").absolute()))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")

    import decibo
    from studies.bench import material, pool, suite

    if options.pack:
        for path in material.pack(options.pack):
            print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB")
        return
    begun = time.monotonic()
    made = pool.here(options.jobs, decibo.__version__)
    todo = suite.plan(options.out, options.budget, options.tasks, options.methods, made=made)
    missing = [job for job in todo if suite.missing_cells(job, suite.entrant_of(job.method, {}))]
    print(
        f"{len(todo)} jobs, {len(todo) - len(missing)} done before; {made['hardware']}", flush=True
    )
    beside = multiprocessing.get_context("spawn").Process(
        target=corner, args=(options.out,), daemon=True
    )
    if options.corner:
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {pool.SINGLE}".strip()
        beside.start()

    def told(done: int) -> None:
        if done % 25 == 0:
            print(f"{time.monotonic() - begun:6.0f} s  {done}/{len(missing)}", flush=True)

    left = lambda: 60 * options.minutes - (time.monotonic() - begun)
    try:
        done = (
            pool.run(missing, work, options.jobs, seconds=left(), report=told)
            if missing
            else pool.Done(0, 0)
        )
        if options.corner:
            beside.join(max(left(), 0.0))
        print(
            f"{done.cells} cells made in {time.monotonic() - begun:.0f} s, {done.left} jobs left",
            flush=True,
        )
    finally:  # a job that failed is told after all others are done, and takes nothing with it
        if options.archive:
            collect(options.out, options.archive)


if __name__ == "__main__":
    main()
