"""Every method of the library by name; read by the tests, the command line and the docs."""

from __future__ import annotations

from collections.abc import Callable

from decibo.algorithm import methods, single
from decibo.algorithm.algorithm import Algorithm
from decibo.algorithm.bome import bome
from decibo.algorithm.c2dfb import c2dfb
from decibo.algorithm.dsbo_jhip import dsbo_jhip
from decibo.algorithm.f2sa import f2sa
from decibo.algorithm.gossip_dsbo import gossip_dsbo
from decibo.algorithm.lv_hba import lv_hba
from decibo.algorithm.ma_dsbo import ma_dsbo
from decibo.algorithm.mdbo import mdbo
from decibo.algorithm.v_pbgd import v_pbgd

CATALOG: dict[str, Callable[..., Algorithm]] = {
    factory.__name__: factory
    for factory in (
        # direction x consensus
        methods.ahead_exact,
        methods.ahead,
        methods.ahead_minimax,
        methods.dgda,
        methods.gt_gda,
        methods.dsgda_gt,
        methods.fab,
        methods.sldbo,
        methods.d_soba,
        methods.sparkle_gt,
        methods.sparkle_extra,
        methods.sparkle_ed,
        methods.lopa,
        # double loop, or with a twist
        ma_dsbo,
        dsbo_jhip,
        gossip_dsbo,
        c2dfb,
        mdbo,
        # one agent
        f2sa,
        bome,
        v_pbgd,
        lv_hba,
        # one level
        single.dgd,
        single.gradient_tracking,
        single.extra,
        single.exact_diffusion,
    )
}
