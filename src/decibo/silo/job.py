"""A job: what all sites agree on before they compute together. One file, mailed to all of them, is
the contract: docs/how-to/sites.md shows one. [run] has the settings of `Job`, and [method] and
problem are names or tables with a name; beyond these,

    [method]
    masks = 50.0           of numbers that neighbours add and subtract, to hide what is sent
    [run]
    dtype = "float64"      in which all sites compute
    [relay]                only if some link has no end that can be called: address, certificate

The problem's own data are there for rehearsals and to fix shapes; every site puts its own in their
place. Sites compare `terms`, part by part, and every frame carries their checksum. Addresses are
not among them, since who answers is proven by certificates, and patience only in free mode, where
both ends of a link must give up each other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from decibo import contrib, networks, problems
from decibo.algorithm.algorithm import Algorithm
from decibo.algorithm.asynchronous import check_asynchronous
from decibo.algorithm.methods import ahead_exact
from decibo.algorithm.privacy import masked
from decibo.capabilities import FREE_SITES, SECURE_SUMS, SITES, check
from decibo.errors import InputError, short_repr
from decibo.formatting import listed
from decibo.methods import CATALOG
from decibo.network.network import Network
from decibo.problem.problem import Problem
from decibo.pytree import Tree
from decibo.run.fingerprint import PROGRAMS, programs, settings, software
from decibo.run.solve import check_fit, check_types, one_of
from decibo.silo.consortium import (
    Consortium,
    check_precision,
    choice,
    made,
    read_consortium,
    read_tables,
    with_agents,
)
from decibo.silo.identity import Site
from decibo.silo.secure_sum import check_secure
from decibo.validate import MOST_STEPS, at_least, flag, integer, positive
from decibo.validate import one_of as one_word
from decibo.validate import seed as check_seed

MODES = ("lockstep", "free")
RESIDUAL = "residual"
TOGETHER = (RESIDUAL, "mean_outer", "mean_inner")  # what sites can record together
# ("module:function", where it is named) -> the function
Import = Callable[[str, str], Callable[..., object]]


@dataclass(frozen=True, eq=False)
class Job:
    """What all sites agree on.

    sites             in the order of the agents of the network
    checkpoint_every  steps between two checkpoints of a site
    patience          seconds for which a silent site is waited for; in free mode, for which its
                      last message counts
    again             seconds of silence after which a neighbour is asked again
    relay             copies ciphertext between sites of which neither can be called
    mode              "lockstep", or "free": every site moves at its own speed, with the newest
                      messages that it has
    rest              in free mode: the run ends when no site would move by more than this, after
                      `steps` at the latest
    pace              in free mode: seconds between two moves of a site, which goes on mixing while
                      it computes; without it a site moves when it has computed a direction
    secure_sums       whether neighbours hide their messages to a site so that only the sum can be
                      read
    every             steps between two records, about a hundred records by default
    measures          what all sites record together, by messages along a tree of links
                      (network_measures.py): residual, mean_outer, mean_inner
    until             the run ends when these are all at or below their values: {"residual": 1e-8}
    """

    sites: tuple[Site, ...]
    problem: Problem
    network: Network
    method: Algorithm
    steps: int = 1000
    seed: int = 0
    checkpoint_every: int = 10
    patience: float = 3600.0
    again: float = 1.0
    relay: Site | None = None
    mode: str = "lockstep"
    rest: float | None = None
    pace: float | None = None
    secure_sums: bool = False
    every: int | None = None
    measures: Sequence[str] = ()
    until: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        check_types(self.problem, self.network, self.method)
        integer("steps", self.steps, most=MOST_STEPS - 1)
        check_seed(self.seed)
        object.__setattr__(self, "sites", self.consortium.sites)
        check_fit(self.problem, self.network, self.method)
        check(SITES, self.problem, self.network)
        one_word("mode", self.mode, MODES)
        for name in ("rest", "pace"):
            value = getattr(self, name)
            if value is not None and not self.is_asynchronous:
                raise InputError(
                    f'{name} is for mode = "free", but the mode is {self.mode}.', "Leave it out."
                )
            if value is not None:
                positive(name, value)
        if self.is_asynchronous:
            self._check_free_mode()
        if flag("secure_sums", self.secure_sums):
            check(SECURE_SUMS, self.problem, self.network)
            check(self.method, self.problem, self.network, SECURE_SUMS)
            check_secure(self.network, self.consortium.names)
        if self.every is not None:
            integer("every", self.every)
        self._check_together()
        for name, layout in (("x", self.problem.x_layout), ("y", self.problem.y_layout)):
            if layout.dtype.name not in ("float32", "float64"):
                raise InputError(
                    f"Sites exchange float32 or float64, but {name} is {layout.dtype.name}."
                )

    def _check_together(self) -> None:
        """What sites record together must be known to all of them, and hide nothing that is hidden
        elsewhere."""
        if not isinstance(self.measures, list | tuple) or not isinstance(
            self.until, Mapping | None
        ):
            raise InputError(
                "measures must be a list of names and until a table of names and values, but they"
                f" are {short_repr(self.measures)} and {short_repr(self.until)}.",
                'Pass measures=["mean_outer"], until={"residual": 1e-8}, for example.',
            )
        for name in self.together:
            one_word("What sites record together", name, TOGETHER)
        for name, value in (self.until or {}).items():
            at_least(f"until[{name!r}]", value, 0.0 if name == RESIDUAL else -math.inf)
        if not self.together:
            return
        if self.is_asynchronous:
            raise InputError(
                "In free mode no site waits for another, so that there is no step at which all of"
                f" them could find {listed(self.together)}.",
                'Use rest to end the run, or mode = "lockstep".',
            )
        if self.method.masks or self.secure_sums:
            raise InputError(
                f"{'Masks' if self.method.masks else 'Secure sums'} hide what a site sends, but"
                f" {listed(self.together)} would be found from sums in the clear.",
                "Leave out measures and until, or what hides.",
            )
        if RESIDUAL in self.together and self.method.direction is None:
            raise InputError(
                f"The residual needs the direction of a method, which {self.method.name} does not"
                " declare.",
                "Use mean_outer.",
            )

    @property
    def together(self) -> tuple[str, ...]:
        """What all sites record together."""
        return tuple(dict.fromkeys([*self.measures, *(self.until or {})]))

    @property
    def record_every(self) -> int:
        return self.every or max(1, self.steps // 100)

    def _check_free_mode(self) -> None:
        check(FREE_SITES, self.problem, self.network)
        check(self.method, self.problem, self.network, FREE_SITES)
        if self.secure_sums:
            check(SECURE_SUMS, self.problem, self.network, FREE_SITES)
        check_asynchronous(
            self.method, networks.asynchronous(self.network, relay=self.pace is not None)
        )
        if self.rest is not None and self.method.rest is None:
            raise InputError(
                f"{self.method.name} cannot tell whether it is at rest.",
                "Leave rest out, or use ahead_free.",
            )

    @property
    def is_asynchronous(self) -> bool:
        return self.mode == "free"

    @cached_property
    def consortium(self) -> Consortium:
        return Consortium(
            self.sites,
            self.network,
            relay=self.relay,
            checkpoint_every=self.checkpoint_every,
            patience=self.patience,
            again=self.again,
        )

    @property
    def names(self) -> list[str]:
        return self.consortium.names

    def number(self, name: str) -> int:
        return self.consortium.number(name)

    @cached_property
    def terms(self) -> dict[str, str]:
        """What the sites compare, in words. If the data is where it belongs only, the programs are
        not among it: what they look like depends on it."""
        problem = self.problem
        rows = problem.start_rows(self.network.agents)
        words = settings(problem, self.network, self.method, self.seed, rows)
        if not callable(problem.data):
            words |= self.programs(one_of(problem.data))
        if self.method.masks:
            words["masks"] = ", ".join(
                f"{name} {scale:g}" for name, scale in sorted(self.method.masks.items())
            )
        if self.secure_sums:
            words["secure_sums"] = "yes"
        if self.is_asynchronous:
            words["mode"] = (
                f"free, patience {self.patience:g} s, rest {self.rest}, pace {self.pace}"
            )
        if self.together:
            goals = " ".join(f"{name} <= {value:g}" for name, value in (self.until or {}).items())
            words["together"] = f"{listed(self.together)} every {self.record_every}, {goals}"
        return {
            "sites": self.consortium.cards,
            **words,
            "steps": str(self.steps),
            "checkpoint_every": str(self.checkpoint_every),
            **software(),
        }

    def programs(self, data: Tree) -> dict[str, str]:
        """Checksums of the programs of a site whose data has these shapes."""
        rows = self.problem.start_rows(self.network.agents)
        return programs(self.problem, self.method, rows, data)

    @cached_property
    def digest(self) -> bytes:
        """16 bytes that are the same at all sites of the job, and in no other job."""
        agreed = {
            name: value
            for name, value in self.terms.items()
            if name not in (*PROGRAMS, *software())
        }
        return sha256(json.dumps(agreed, sort_keys=True).encode()).digest()[:16]


def read_job(
    path: str | Path,
    *,
    problem: Problem | None = None,
    own: Import | None = None,
    certificates: bool = True,
) -> Job:
    """The job in a file.

    problem        the problem, if the file names a function `module:function`: files never make
                   Python import anything
    own            instead: what finds such a function, once somebody has agreed
    certificates   whether every site must have one; not on a wire that knows by itself who is who
    """
    path = Path(path)
    consortium = read_consortium(path, certificates=certificates)
    apart = {"sites", "problem", "network", "method", "again", "relay"}
    tables = read_tables(path, run=sorted({each.name for each in fields(Job)} - apart | {"dtype"}))
    if "estimator" in tables:
        raise InputError(
            f"{path} names an estimator, and so has no problem of its own.",
            f"Take part in it with: decibo join {path.name}",
        )
    options = tables["run"]
    one_word(f"{path.name}, [run].mode", options.get("mode", "lockstep"), MODES)
    options.pop("dtype", None)
    check_precision(path)
    return Job(
        sites=consortium.sites,
        problem=_problem(path, tables.get("problem"), len(consortium.sites), problem, own),
        network=consortium.network,
        method=_method(path, tables.get("method", "ahead_exact")),
        relay=consortium.relay,
        **options,
    )


def _problem(
    path: Path, value: object, agents: int, given: Problem | None, own: Import | None
) -> Problem:
    where = f"{path.name}, problem"
    known = {name: getattr(problems, name) for name in problems.__all__}
    name, options = choice(where, value, known, own=True)
    if given is not None:
        return given
    if ":" not in name:
        return made(where, name, known[name], with_agents(where, known[name], options, agents))
    if own is None:
        raise InputError(
            f"{where} is {name}, a function that this file may not import.",
            f"Pass read_job(path, problem={name}()).",
        )
    factory = own(name, where)
    options = with_agents(where, factory, options, agents)
    try:
        found = factory(**options)
    except MemoryError as error:
        raise InputError(
            f"{where}: {name} with these options needs more memory than there is here."
        ) from error
    if not isinstance(found, Problem):
        raise InputError(
            f"{where}: {name} must return a decibo.Problem, but it returned a"
            f" {type(found).__name__}."
        )
    return found


def _method(path: Path, value: object) -> Algorithm:
    where = f"{path.name}, [method]"
    table = {"name": ahead_exact.__name__, **value} if isinstance(value, Mapping) else value
    known = CATALOG | contrib.CATALOG
    name, options = choice(where, table, known)
    scale = options.pop("masks", None)
    found: Any = made(where, name, known[name], options)
    return (
        found if scale is None else made(where, "masks", masked, {"method": found, "scale": scale})
    )
