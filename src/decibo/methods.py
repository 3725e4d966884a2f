"""Every method by name. Each call gives an `Algorithm` to pass to `decibo.solve`; `decibo.CATALOG` holds them all."""

from decibo.algorithm.bome import bome
from decibo.algorithm.c2dfb import c2dfb
from decibo.algorithm.dsbo_jhip import dsbo_jhip
from decibo.algorithm.f2sa import f2sa
from decibo.algorithm.gossip_dsbo import gossip_dsbo
from decibo.algorithm.lv_hba import lv_hba
from decibo.algorithm.ma_dsbo import ma_dsbo
from decibo.algorithm.mdbo import mdbo
from decibo.algorithm.methods import (
    ahead,
    ahead_exact,
    ahead_minimax,
    d_soba,
    dgda,
    dsgda_gt,
    fab,
    gt_gda,
    lopa,
    sldbo,
    sparkle_ed,
    sparkle_extra,
    sparkle_gt,
)
from decibo.algorithm.single import dgd, exact_diffusion, extra, gradient_tracking
from decibo.algorithm.v_pbgd import v_pbgd

__all__ = [
    "ahead",
    "ahead_exact",
    "ahead_minimax",
    "bome",
    "c2dfb",
    "d_soba",
    "dgd",
    "dgda",
    "dsbo_jhip",
    "dsgda_gt",
    "exact_diffusion",
    "extra",
    "f2sa",
    "fab",
    "gossip_dsbo",
    "gradient_tracking",
    "gt_gda",
    "lopa",
    "lv_hba",
    "ma_dsbo",
    "mdbo",
    "sldbo",
    "sparkle_ed",
    "sparkle_extra",
    "sparkle_gt",
    "v_pbgd",
]
