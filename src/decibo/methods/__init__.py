"""Every method by name. A call returns an `Algorithm` to pass to `decibo.solve`; `decibo.CATALOG`
holds them all.

Methods beside the core are in `decibo.contrib`.
"""

from decibo.algorithm.algorithm import CATALOG
from decibo.algorithm.methods import *  # noqa: F403  (a composed method is written there and nowhere else)

# isort: split
from decibo.algorithm.c2dfb import c2dfb as c2dfb
from decibo.algorithm.centralised import bome as bome
from decibo.algorithm.centralised import f2sa as f2sa
from decibo.algorithm.centralised import f2sa_p as f2sa_p
from decibo.algorithm.centralised import v_pbgd as v_pbgd
from decibo.algorithm.ma_dsbo import ma_dsbo as ma_dsbo

__all__ = sorted(CATALOG)  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    return __all__
