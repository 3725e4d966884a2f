"""Who takes part: methods, and the dials that the search may turn.

A dial is a setting, or several that are tied, with a range in units of the task, so that one range
suits all tasks:

    outer    sqrt(n)/|grad Phi(x0)|: a step of x of this size moves each of its numbers by about 1
    inner    1/L, L the largest curvature in y of any agent's inner level at the start
    one      1

Every method has the same ranges. Step sizes of y and v, which see the same curvature, are tied; so
is the step of y in a penalty method, whose curvature is lam L, to that of z. A method of a stranger
gets its dials from its signature: a dial for every setting without a default, by its name; or it
brings its own as an attribute, `my_method.dials = {...}`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from decibo.algorithm.algorithm import CATALOG, Algorithm
from decibo.algorithm.compose import minibatch
from decibo.errors import InputError
from decibo.validate import only_known

Settings = dict[str, float]
Units = Mapping[str, float]


@dataclass(frozen=True)
class Dial:
    """A range of a setting, searched on a logarithmic scale; `tied` are settings that equal it.

    unit     "outer", "inner" or "one"
    most     a bound that widening must not cross
    """

    name: str
    low: float
    high: float
    unit: str = "one"
    tied: tuple[str, ...] = ()
    most: float = float("inf")


def outer(name: str = "alpha") -> Dial:
    """A step size of x."""
    return Dial(name, 1e-3, 30.0, "outer")


def inner(name: str = "gamma", *tied: str) -> Dial:
    """A step size of y, z or v; the bound of stability is 2."""
    return Dial(name, 0.03, 2.0, "inner", tied)


PENALTY = Dial("lam", 10.0, 1000.0)
WEIGHT = Dial("theta", 0.05, 1.0, most=1.0)
BY_NAME: dict[str, Dial] = {
    "alpha": outer(),
    "lam": PENALTY,
    "c": Dial("c", 1.0, 100.0),
    "theta": WEIGHT,
}


@dataclass(frozen=True)
class Entrant:
    """A method that takes part.

    name      what tables call it
    source    the name in the catalogue, or module:function
    dials     what is tuned; none for a method that finds its own step sizes
    fixed     settings that are not tuned
    about     a few words for tables
    """

    name: str
    factory: Callable[..., Algorithm] = field(repr=False)
    dials: tuple[Dial, ...] = ()
    fixed: Mapping[str, object] = field(default_factory=dict)
    source: str = ""
    about: str = ""

    def method(self, settings: Mapping[str, float], sampled: bool = False) -> Algorithm:
        """The method with these values of its dials, on minibatches if the task draws them."""
        values = dict(settings)
        for dial in self.dials:
            for name in dial.tied:
                values[name] = values[dial.name]
        made = self.factory(**self.fixed, **values)
        return minibatch(made) if sampled and not made.stochastic else made


def _of(name: str, about: str, *dials: Dial, method: str = "", **fixed: object) -> Entrant:
    return Entrant(name, CATALOG[method or name], dials, fixed, method or name, about)


def _implicit(name: str, about: str, *more: Dial) -> Entrant:
    return _of(name, about, outer(), inner("gamma", "beta"), *more)


def entrants() -> dict[str, Entrant]:
    """Everybody in the catalogue who solves the problem of this library on an undirected
    network."""
    listed = (
        _of("ahead_exact_auto", "ahead_exact without settings: untuned", method="ahead_exact"),
        _of("ahead_exact", "symmetric penalty, exact diffusion", outer(), inner(), PENALTY),
        _of(
            "ahead_exact_momentum",
            "the same with momentum for y and z",
            outer(),
            inner(),
            Dial("momentum", 0.3, 0.95, most=0.99),
            method="ahead_exact",
        ),
        _of("ahead", "penalty, diffusion (AHEAD)", outer(), inner(), PENALTY),
        _implicit("sparkle_ed", "implicit, exact diffusion (SPARKLE-ED)", WEIGHT),
        _implicit("sparkle_extra", "implicit, EXTRA (SPARKLE-EXTRA)", WEIGHT),
        _implicit("sparkle_gt", "implicit, gradient tracking (SPARKLE-GT)", WEIGHT),
        _implicit("d_soba", "implicit, diffusion (D-SOBA)", WEIGHT),
        _implicit("sldbo", "implicit, gradient tracking (SLDBO)"),
        _of("c2dfb", "penalty, compressed inner loops (C2DFB)", outer(), inner(), PENALTY, K=5),
        _of("s_tfbo", "implicit, steps without tuning (S-TFBO)", Dial("step", 0.01, 10.0)),
        _of("mdbo", "Neumann series of 10, tracking (MDBO)", outer(), inner("eta", "beta"), N=10),
        _of(
            "ma_dsbo",
            "inner loops of 5 and 10 (MA-DSBO)",
            outer(),
            inner("gamma", "beta"),
            T=5,
            N=10,
        ),
        _of(
            "sun_dsbo_gt",
            "Moreau envelope, tracking (SUN-DSBO-GT)",
            outer(),
            inner("gamma", "beta"),
        ),
    )
    return {entrant.name: entrant for entrant in listed}


MORE = ("sun_dsbo_gt", "ahead_exact_momentum")  # of the full budget only


def chosen(names: list[str] | None, small: bool) -> list[Entrant]:
    """The entrants of these names; without names all of the budget. Other methods of the catalogue
    can be named."""
    known = entrants()
    if not names:
        return [entrant for name, entrant in known.items() if not (small and name in MORE)]
    only_known("The benchmark", "method", names, [*known, *CATALOG])
    return [known.get(name) or from_factory(name, CATALOG[name]) for name in dict.fromkeys(names)]


def from_factory(source: str, factory: Callable[..., Algorithm]) -> Entrant:
    """An entrant from a method's signature, or from its attribute `dials`: {"alpha": (0.001, 1.0,
    "outer")}."""
    name = source.rpartition(":")[2]
    own = getattr(factory, "dials", None)
    if own is not None:
        return Entrant(
            name, factory, tuple(_own(name, *item) for item in dict(own).items()), source=source
        )
    required = [
        parameter.name
        for parameter in inspect.signature(factory).parameters.values()
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    ]
    return Entrant(
        name, factory, tuple(BY_NAME.get(each) or inner(each) for each in required), source=source
    )


def _own(method: str, name: str, spec: object) -> Dial:
    """A dial as a stranger writes it."""
    parts = tuple(spec) if isinstance(spec, tuple | list) else ()
    unit = parts[2] if len(parts) == 3 else "one"
    numbers = [
        each for each in parts[:2] if isinstance(each, int | float) and not isinstance(each, bool)
    ]
    if len(numbers) < 2 or not 0 < numbers[0] < numbers[1] or unit not in ("one", "outer", "inner"):
        raise InputError(
            f"{method}.dials[{name!r}] must be (low, high) or (low, high, unit) with 0 < low < high"
            " and a unit of "
            f'"one", "outer" or "inner", but it is {spec!r:.60}.',
            'For example: {"alpha": (0.001, 3.0, "outer")}.',
        )
    return Dial(name, float(numbers[0]), float(numbers[1]), str(unit))
