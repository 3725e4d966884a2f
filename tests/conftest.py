"""Every test runs in double precision."""

import jax
from hypothesis import settings

settings.register_profile("decibo", deadline=None, max_examples=50)  # compilation makes first calls slow
settings.load_profile("decibo")
jax.config.update("jax_enable_x64", True)
