"""Methods beside the core: fewer people compare with them, and none is a single call of
`decibo.compose` (those are recipes: docs/how-to/algorithm.md#recipes).

    from decibo.contrib import mdbo

They are methods like any other, listed in this room's own CATALOG. A contrib method may use the
core and may not change a type of it.
"""

from decibo.algorithm.algorithm import Method
from decibo.contrib.lv_hba import lv_hba
from decibo.contrib.mdbo import mdbo

__all__ = ["CATALOG", "lv_hba", "mdbo"]

CATALOG: dict[str, Method[...]] = {method.__name__: method for method in (lv_hba, mdbo)}
