"""Every method by name. A call returns an `Algorithm` to pass to `decibo.solve`; `decibo.CATALOG`
holds them all.

Methods that are composed of a direction and a consensus strategy come from one file, each of the
others has its own.
"""

from decibo.algorithm.algorithm import CATALOG
from decibo.algorithm.methods import *  # noqa: F403  (a composed method is written there and nowhere else)

# isort: split
from decibo.algorithm.acc_f2ba import acc_f2ba as acc_f2ba
from decibo.algorithm.bome import bome as bome
from decibo.algorithm.c2dfb import c2dfb as c2dfb
from decibo.algorithm.dsbo_jhip import dsbo_jhip as dsbo_jhip
from decibo.algorithm.f2sa import f2sa as f2sa
from decibo.algorithm.f2sa_p import f2sa_p as f2sa_p
from decibo.algorithm.gossip_dsbo import gossip_dsbo as gossip_dsbo
from decibo.algorithm.lv_hba import lv_hba as lv_hba
from decibo.algorithm.ma_dsbo import ma_dsbo as ma_dsbo
from decibo.algorithm.mdbo import mdbo as mdbo
from decibo.algorithm.v_pbgd import v_pbgd as v_pbgd

__all__ = sorted(CATALOG)  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    return __all__
