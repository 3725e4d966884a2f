"""The subprocesses of these tests have several CPU devices."""

import pytest


@pytest.fixture(autouse=True, scope="module")
def _no_compilation_cache():
    """Programs for several CPU devices, read back from a cache, can crash the process (jaxlib
    0.10.2)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_ENABLE_COMPILATION_CACHE", "false")
        yield
