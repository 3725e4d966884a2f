"""Every test runs in double precision, with programs that are compiled quickly rather than well, and only once."""

import os
from pathlib import Path

# Before jax is imported. Most of the suite's time is compilation of small programs that run for milliseconds; those
# that are the same in several tests, workers and subprocesses are taken from a cache.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent.parent / ".pytest_cache" / "programs"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")

import jax
from hypothesis import settings

settings.register_profile("decibo", deadline=None, max_examples=50)  # compilation makes first calls slow
settings.load_profile("decibo")
jax.config.update("jax_enable_x64", True)
