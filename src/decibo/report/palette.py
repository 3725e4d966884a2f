"""Colours that the colour-blind tell apart (after Okabe and Ito), and dashes for when they run out."""

from __future__ import annotations

LIGHT = ("#0072B2", "#D55E00", "#009E73", "#B5518C", "#B87A00", "#2E9BD6", "#3A3F47")
DARK = ("#5CB3F0", "#FF8A4C", "#3FD0A4", "#E79AC4", "#F2B63D", "#9AD7F8", "#D5DAE1")
DASH = ("", "7 4", "2 3", "9 3 2 3")


def look(k: int) -> tuple[int, str]:
    """The number of the colour and the dashes of line k."""
    return k % len(LIGHT), DASH[k // len(LIGHT) % len(DASH)]
