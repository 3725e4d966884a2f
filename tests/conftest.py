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

# compilation makes first calls slow
settings.register_profile("decibo", deadline=None, max_examples=50)
settings.load_profile("decibo")
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

# What `make quick` runs: files, or single tests of slow files, that touch every package within a
# minute on two cores.
QUICK = (
    "algorithm/test_ahead.py",
    "algorithm/test_mdbo.py",
    "studies/bench/test_bench.py::test_ranks_show_ties_and_those_who_never_get_there",
    "cli/test_commands.py::test_run_writes_a_folder_that_describes_itself",
    "cli/test_config.py",
    "data/test_loaders.py",
    "data/test_split.py",
    "run/test_bad_input.py",
    "run/test_checkpoint.py::test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit",
    "run/test_progress.py",
    "integrations/test_bridges.py",
    "measure/test_measures.py",
    "network/test_graphs.py",
    "network/test_rejections.py",
    "network/test_spectrum.py",
    "network/test_weights.py",
    "studies/paper/test_claims.py",
    "parallel/test_signals.py",
    "problem/test_heterogeneity.py",
    "problem/test_ready_made.py::test_logistic_is_the_papers_formula",
    "problem/test_reference.py",
    "report/test_chart_data.py",
    "report/test_latex.py",
    "report/test_summary.py",
    "report/test_verdict.py",
    "runs/",
    "silo/test_post.py",
    "sklearn/test_silos.py::test_invalid_settings_are_rejected",
    "sklearn/test_silos.py::test_the_mean_over_silos_is_the_pooled_loss",
    "run/test_sweep.py::test_table_best_and_repr",
    "test_files.py",
    "test_formatting.py",
    "test_quick.py",
    "test_reference.py",
    "test_validate.py",
    "theory/test_check.py",
)
# Files that take longest come first, so that one worker does not end long after the other (`--dist
# loadfile`: tests of one file share fixtures and compiled programs, so they stay together).
LONG = (
    "test_docs.py",
    "parallel/test_processes.py",
    "parallel/test_devices.py",
    "studies/paper/test_experiments.py",
    "test_examples.py",
    "sklearn/test_companies.py",
    "algorithm/test_automatic.py",
    "test_site.py",
    "test_readme.py",
    "test_neural_examples.py",
    "cli/test_commands.py",
    "cli/test_page.py",
    "theory/test_constants.py",
    "theory/test_exact.py",
    "theory/test_theorem1.py",
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
    name = lambda item: item.nodeid.removeprefix(f"{HERE.name}/")
    for item in items:
        if name(item).startswith(QUICK):
            item.add_marker("quick")
    place = {file: n for n, file in enumerate(LONG)}
    # the order of others stays
    items.sort(key=lambda item: place.get(name(item).partition("::")[0], len(LONG)))


def pytest_ignore_collect(collection_path, config):
    """With -m quick, other files are not even imported."""
    if config.option.markexpr != "quick" or collection_path.suffix != ".py":
        return None
    name = collection_path.relative_to(HERE).as_posix()
    return None if any(name.startswith(entry.partition("::")[0]) for entry in QUICK) else True
