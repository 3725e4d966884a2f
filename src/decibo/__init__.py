"""decibo: decentralised bilevel optimisation.

Agents on a network, each with private objectives f_i(x, y) and g_i(x, y), together solve

    min_x  mean f_i(x, y*(x))    subject to    y*(x) = argmin_y mean g_i(x, y)

by talking to their neighbours only. State a `Problem`, choose a `Network`, and `solve`:

    solution = decibo.solve(problem, decibo.ring(10))

methods, networks, problems            what there is by name; contrib has methods beside the core
direction, estimator, rule, consensus  what methods are composed of; with prox, schedules,
                                       compression and privacy
callbacks                              what looks at a run and may end it
data, theory, report, sklearn, silo    data sets and splits, the theory as functions, pages on runs,
                                       estimators, sites
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import decibo.cli  # noqa: F401  (so that Ctrl-C ends the command from the start)

if TYPE_CHECKING:
    from decibo import report, silo, sklearn  # noqa: F401
    from decibo.names import *  # noqa: F403

__version__ = "0.1.0"
ROOMS = ("report", "silo", "sklearn")  # public rooms that the core does not load


def __getattr__(name: str) -> Any:
    # The command line answers questions about itself without JAX, which takes a second to import:
    # a room is imported alone, and any other name brings the whole core at its first use, so that
    # nothing is loaded in the middle of a run.
    if name.startswith("_") and name != "__all__":
        raise AttributeError(f"module 'decibo' has no attribute {name!r}")
    if find_spec(f"decibo.{name}") is not None:
        return import_module(f"decibo.{name}")
    core = import_module("decibo.names")
    public = [*core.__all__, *ROOMS]
    globals().update({each: getattr(core, each) for each in core.__all__}, __all__=sorted(public))
    if name not in globals():
        raise AttributeError(f"module 'decibo' has no attribute {name!r}")
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
