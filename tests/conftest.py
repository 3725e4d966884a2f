"""Every test runs in double precision, with programs that are compiled quickly rather than well,
and only once."""

import atexit
import functools
import gc
import os
from contextlib import suppress
from pathlib import Path

# Before jax is imported. Most of the suite's time is compilation of small programs that run for
# milliseconds; those that are the same in several tests, workers and subprocesses are taken from a
# cache. XLA's fusion emitters take half of the time of a compilation, and a program in one part
# takes fewer regions of memory (MAPS below). If jaxlib ends with the name of a flag that it does
# not know, remove it here.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
)
# Small products in NumPy and scikit-learn: the threads of BLAS and OpenMP would only wait for each
# other, and burn the time of the other worker's core while they do.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent.parent / ".pytest_cache" / "programs")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

import jax
import pytest
from hypothesis import settings

# Compilation makes first calls slow. `make test-all` asks for the profile `all`.
settings.register_profile("daily", deadline=None, max_examples=15)
settings.register_profile("all", deadline=None, max_examples=100)
settings.load_profile("daily")
jax.config.update("jax_enable_x64", True)
# JAX makes a context of MLIR for every program that it lowers, which takes 7 ms, and keeps it with
# the program, 1.2 MB. One for all took a seventh off the time of two files, and two thirds off
# their memory. If the function moves, only this is lost.
with suppress(ImportError, AttributeError):
    from jax._src.interpreters import mlir

    mlir.make_ir_context = functools.cache(mlir.make_ir_context)
# tracing makes many small objects: searching them and all of jax for garbage every time takes a
# tenth
gc.freeze()
gc.set_threshold(50_000, 20, 20)

# Files that take longest come first, so that one worker does not end long after the other (`--dist
# loadfile`: tests of one file share fixtures and compiled programs, so they stay together).
LONG = (
    "test_docs.py",
    "parallel/test_devices.py",
    "parallel/test_processes.py",
    "studies/paper/test_experiments.py",
    "sklearn/test_companies.py",
    "sklearn/test_owners.py",
    "algorithm/test_automatic.py",
    "algorithm/test_fixed_points.py",
    "test_readme.py",
    "cli/test_commands.py",
    "theory/test_constants.py",
)
HERE = Path(__file__).parent
# Every compiled program holds several regions of memory, of which Linux grants a process 65,530;
# beyond, jaxlib crashes while it compiles. Programs that are needed again come from the cache on
# disk.
MAPS = Path("/proc/self/maps")
MOST = 50_000
# regions, more than a test takes on average: counting takes time too, and so does forgetting
A_TEST = 500
_until_counted = [1]  # tests


@pytest.fixture(autouse=True)
def _few_programs():
    """Forget compiled programs before there are too many."""
    yield
    _until_counted[0] -= 1
    if _until_counted[0] or not MAPS.exists():
        return
    regions = MAPS.read_bytes().count(b"\n")
    if regions > MOST:
        jax.clear_caches()
        gc.collect()
        regions = MAPS.read_bytes().count(b"\n")
    _until_counted[0] = max(1, (MOST - regions) // A_TEST)


def pytest_unconfigure(config):
    """A worker ends without freeing its programs one by one, for which the other would have to
    wait."""
    if hasattr(config, "workerinput"):
        atexit.register(os._exit, 0)


def pytest_collection_modifyitems(items):
    place = {f"{HERE.name}/{file}": n for n, file in enumerate(LONG)}
    # the order of others stays
    items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], len(LONG)))


def pytest_ignore_collect(collection_path, config):
    """With -m quick, files without such a mark are not even imported."""
    if not config.option.markexpr.startswith("quick") or collection_path.suffix != ".py":
        return None
    return True if "pytest.mark.quick" not in collection_path.read_text() else None
