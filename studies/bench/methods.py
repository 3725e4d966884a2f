"""The methods that take part, and the hyper-parameters that the search tunes.

A hyper-parameter is a setting, or several tied settings, with a range in units of the task, so that
one range suits all tasks:

    outer    sqrt(n)/|grad Phi(x0)|: a step of x of this size moves each of its entries by about 1
    inner    1/L, L the largest curvature in y of any agent's inner level at the start
    one      1

Every method has the same ranges. Step sizes of y and v, which see the same curvature, are tied; so
is the step of y in a penalty method, whose curvature is lam L, to that of z. A user's method gets
its hyper-parameters from its signature, one for every setting without a default, by its name; or it
brings its own as an attribute, `my_method.hyper_parameters = {...}`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import decibo
from decibo import consensus, contrib, direction
from decibo.algorithm.algorithm import Algorithm, method
from decibo.algorithm.compose import minibatch
from decibo.algorithm.rule import tuning_free
from decibo.capabilities import Need
from decibo.errors import InputError
from decibo.validate import only_known


@method
def s_tfbo(*, step: float = 1.0, initial: float = 0.0) -> Algorithm:
    """S-TFBO, a recipe of docs/how-to/algorithm.md: implicit x tracking with the rule `tuning_free`."""
    rule = tuning_free(step, initial)
    return decibo.compose(direction.implicit(), consensus.tracking(), rule=rule)


CATALOG = decibo.CATALOG | contrib.CATALOG | {"s_tfbo": s_tfbo}
Settings = dict[str, float]
Units = Mapping[str, float]


@dataclass(frozen=True)
class HyperParameter:
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


def outer(name: str = "alpha") -> HyperParameter:
    """A step size of x."""
    return HyperParameter(name, 1e-3, 30.0, "outer")


def inner(name: str = "gamma", *tied: str) -> HyperParameter:
    """A step size of y, z or v; the bound of stability is 2."""
    return HyperParameter(name, 0.03, 2.0, "inner", tied)


PENALTY = HyperParameter("lam", 10.0, 1000.0)
WEIGHT = HyperParameter("theta", 0.05, 1.0, most=1.0)
BY_NAME: dict[str, HyperParameter] = {
    "alpha": outer(),
    "lam": PENALTY,
    "c": HyperParameter("c", 1.0, 100.0),
    "theta": WEIGHT,
}


@dataclass(frozen=True)
class TunableMethod:
    """A method with its search space.

    name               the name in tables
    source             the name in the catalogue, or module:function
    hyper_parameters   what is tuned; empty for a method that finds its own step sizes
    fixed              settings that are not tuned
    about              a few words for tables
    """

    name: str
    factory: Callable[..., Algorithm] = field(repr=False)
    hyper_parameters: tuple[HyperParameter, ...] = ()
    fixed: Mapping[str, object] = field(default_factory=dict)
    source: str = ""
    about: str = ""

    def method(self, settings: Mapping[str, float], sampled: bool = False) -> Algorithm:
        """The method with these settings, on minibatches if the task draws them."""
        values = dict(settings)
        for parameter in self.hyper_parameters:
            for name in parameter.tied:
                values[name] = values[parameter.name]
        made = self.factory(**self.fixed, **values)
        return minibatch(made) if sampled and Need.MINIBATCHES not in made.needs else made


def all_methods() -> dict[str, TunableMethod]:
    """Every method of the catalogue that solves this library's problem on an undirected network."""
    gamma, eta = inner("gamma", "beta"), inner("eta", "beta")
    momentum = HyperParameter("momentum", 0.3, 0.95, most=0.99)
    step = HyperParameter("step", 0.01, 10.0)
    penalty = (outer(), inner(), PENALTY)
    implicit = (outer(), gamma, WEIGHT)
    exact = {"method": "ahead_exact"}
    table: list[tuple[str, str, Sequence[HyperParameter], dict[str, object]]] = [
        ("ahead_exact_auto", "ahead_exact without settings: untuned", (), exact),
        ("ahead_exact", "symmetric penalty, exact diffusion", penalty, {}),
        (
            "ahead_exact_momentum",
            "the same with momentum for y and z",
            (*penalty[:2], momentum),
            exact,
        ),
        ("ahead", "penalty, dgd (AHEAD)", penalty, {}),
        ("sparkle_ed", "implicit, exact diffusion (SPARKLE-ED, our reading)", implicit, {}),
        ("sparkle_extra", "implicit, EXTRA (SPARKLE-EXTRA, our reading)", implicit, {}),
        ("sparkle_gt", "implicit, gradient tracking (SPARKLE-GT, our reading)", implicit, {}),
        ("d_soba", "implicit, diffusion (D-SOBA)", implicit, {}),
        ("sldbo", "implicit, gradient tracking (SLDBO, our reading)", (outer(), gamma), {}),
        ("c2dfb", "penalty, compressed inner loops (C2DFB, our reading)", penalty, {"K": 5}),
        ("s_tfbo", "implicit, steps without tuning (S-TFBO)", (step,), {}),
        ("mdbo", "Neumann series of 10, tracking (MDBO)", (outer(), eta), {"N": 10}),
        (
            "ma_dsbo",
            "inner loops of 5 and 10 (MA-DSBO, v goes on)",
            (outer(), gamma),
            {"T": 5, "N": 10, "warm": True, "theta": 0.2},
        ),
        (
            "sun_dsbo_gt",
            "Moreau envelope, tracking (after SUN-DSBO-GT)",
            (outer(), gamma),
            {"method": "moreau"},
        ),
    ]
    found = {}
    for name, about, parameters, options in table:
        fixed = dict(options)
        source = str(fixed.pop("method", name))
        found[name] = TunableMethod(name, CATALOG[source], tuple(parameters), fixed, source, about)
    return found


MORE = ("sun_dsbo_gt", "ahead_exact_momentum")  # of the full budget only


def chosen(names: Sequence[str], small: bool) -> list[TunableMethod]:
    """The methods of these names, which may be any of the catalogue; without names all of the
    budget."""
    known = all_methods()
    if not names:
        return [method for name, method in known.items() if not (small and name in MORE)]
    only_known("The benchmark", "method", names, [*known, *CATALOG])
    return [known.get(name) or from_factory(name, CATALOG[name]) for name in dict.fromkeys(names)]


def from_factory(source: str, factory: Callable[..., Algorithm]) -> TunableMethod:
    """A method from its signature, or from its attribute `hyper_parameters`: {"alpha": (0.001, 1.0,
    "outer")}."""
    name = source.rpartition(":")[2]
    own = getattr(factory, "hyper_parameters", None)
    if own is not None:
        found = [_own(name, *item) for item in dict(own).items()]
    else:
        found = [
            BY_NAME.get(each.name) or inner(each.name)
            for each in inspect.signature(factory).parameters.values()
            if each.default is each.empty and each.kind is not each.VAR_KEYWORD
        ]
    return TunableMethod(name, factory, tuple(found), source=source)


def _own(method: str, name: str, spec: object) -> HyperParameter:
    """A hyper-parameter as a user writes it."""
    low, high, unit, *_ = (*spec, "one", "", "")[:4] if isinstance(spec, tuple | list) else [""] * 4
    sound = all(isinstance(end, int | float) and not isinstance(end, bool) for end in (low, high))
    known = unit in ("one", "outer", "inner")
    if not (sound and 0 < low < high and known and len(spec) <= 3):  # type: ignore[operator]
        raise InputError(
            f"{method}.hyper_parameters[{name!r}] must be (low, high) or (low, high, unit) with"
            f' 0 < low < high and a unit of "one", "outer" or "inner", but it is {spec!r:.60}.',
            'For example: {"alpha": (0.001, 3.0, "outer")}.',
        )
    return HyperParameter(name, float(low), float(high), str(unit))
