"""Results of the full budget from a machine that has only Python, JAX, numpy and networkx.

    python -m studies.bench.remote --pack out/bench-data                            here
    DECIBO_DATA=out/bench-data python3 -m studies.bench.remote --jobs 15 --minutes 9 \\
        --single-agent --archive results.tar.xz                                     there
    tar xJf results.tar.xz -C out && python -m studies.bench --budget full \\
        --out out/bench-full --render --claims --results studies/results            here

The first command writes the data as files that numpy can read. The second one can be repeated: it
computes what is missing, and stops in time; the archive has all results. The last one makes tables,
pictures and the page. Processes use one thread each and the CPU only, in double precision; compiled
programs are stored in OUT/programs. --single-agent runs in a process of its own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tarfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "src"))  # decibo need not be installed there

# before JAX is imported, and inherited by all processes
os.environ |= {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1", "OMP_NUM_THREADS": "1"}


def alone(out: Path) -> None:
    """The single-agent comparison."""
    from studies.bench import single_agent

    single_agent.compute(out)


def collect(out: Path, archive: Path) -> None:
    """All results in one file."""
    draft = archive.with_name(f"{archive.name}.part")
    with tarfile.open(draft, "w:xz", preset=6) as tar:
        for path in sorted(
            [*(out / "results").glob("*.json"), *(out / "single_agent").glob("*.json")]
        ):
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
    parser.add_argument("--single-agent", action="store_true")
    parser.add_argument("--archive", type=Path)
    parser.add_argument("--pack", type=Path, metavar="FOLDER", help="write the data, nothing else")
    options = parser.parse_args()
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str((options.out / "programs").absolute()))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")

    import decibo
    from studies.bench import material, suite

    if options.pack:
        for path in material.pack(options.pack):
            print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB")
        return
    begun = time.monotonic()
    made = suite.provenance(options.jobs, decibo.__version__)
    todo = suite.plan(options.out, options.budget, options.tasks, options.methods, made=made)
    missing = [
        job for job in todo if suite.missing_results(job, suite.method_named(job.method, {}))
    ]
    print(f"{len(todo)} jobs, {len(todo) - len(missing)} done before; {made['hardware']}")
    beside = multiprocessing.get_context("spawn").Process(
        target=alone, args=(options.out,), daemon=True
    )
    if options.single_agent:
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {suite.SINGLE}".strip()
        beside.start()

    def report(done: int) -> None:
        if done % 25 == 0:
            print(f"{time.monotonic() - begun:6.0f} s  {done}/{len(missing)}", flush=True)

    left = lambda: 60 * options.minutes - (time.monotonic() - begun)
    try:
        if missing:
            done = suite.run(missing, suite.work, options.jobs, seconds=left(), report=report)
            print(f"{done.results} results in {time.monotonic() - begun:.0f} s, {done.left} left")
        if options.single_agent:
            beside.join(max(left(), 0.0))
    finally:  # also after a job has failed
        if options.archive:
            collect(options.out, options.archive)


if __name__ == "__main__":
    main()
