"""When, on what and with which versions a study was measured."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any


def machine() -> dict[str, Any]:
    """The date, the hardware and the software of measurements made now."""
    import jax
    import numpy

    import decibo

    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    model = next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")), ""
    )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processor": model or platform.processor(),
        "cores": cores,
        "python": platform.python_version(),
        "decibo": decibo.__version__,
        "jax": jax.__version__,
        "numpy": numpy.__version__,
        "load": [round(value, 1) for value in os.getloadavg()],
    }


def in_words(at: dict[str, Any]) -> str:
    """The same as a part of a sentence."""
    software = ", ".join(f"{name} {at[name]}" for name in ("decibo", "jax", "numpy"))
    where = f"{at['processor']}, {at['cores']} cores; {software}, Python {at['python']}"
    return f"{at['date']} on {where}"
