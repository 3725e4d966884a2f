"""Who takes part in a job, and who talks to whom; and how a job file says so.

A job file is TOML: [network], [run], [[site]] and [relay] here, [problem] and [method] in job.py,
[estimator] in estimator_job.py. Nothing in it makes Python import anything.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import networkx

from decibo import networks
from decibo.errors import InputError, first_line, short_repr
from decibo.files import read_toml
from decibo.network.network import Network
from decibo.run.fingerprint import digest
from decibo.run.observers import Report
from decibo.silo.identity import Identity, Site
from decibo.silo.mix import neighbours_of
from decibo.silo.secure_sum import check_sums
from decibo.silo.wire import Log, Wire
from decibo.validate import flag, integer, one_of, only_known, positive

TABLES = ("problem", "network", "method", "estimator", "run", "relay", "site")
SITE = ("name", "address", "certificate")
OPTIONS = ("checkpoint_every", "patience", "dtype", "secure_sums")
KEEP = 4  # steps more than twice the distance of checkpoints, of which messages are kept


@dataclass(frozen=True, eq=False)
class Consortium:
    """The sites that compute together, as one of them sees them: `Consortium.at("job.toml")`.

    site              which of them this is; a relay is none of them
    home              the folder that `decibo site init` made, with the key; ~/.decibo/site by
                      default
    folder            where it keeps its checkpoints; in the home folder by default
    wire              what carries the messages, TLS by default; a wire serves one fit
    run               a word that tells a run from earlier ones of the same sites: all of them must
                      use the same
    checkpoint_every  steps between two checkpoints
    patience          seconds for which a silent site is waited for
    again             seconds of silence after which a neighbour is asked again
    log               gets the lines of the log
    progress          as for `solve`
    secure_sums       whether sites hide what they add to a sum; for three or more that are all
                      neighbours
    same_programs     whether you know that sites with another version of decibo compute the same
    """

    sites: tuple[Site, ...]
    network: Network
    site: str = ""
    relay: Site | None = None
    home: str | Path | None = None
    folder: str | Path | None = None
    wire: Wire | None = None
    run: str = ""
    checkpoint_every: int = 10
    patience: float = 3600.0
    again: float = 1.0
    log: Log = field(default=lambda line: None)
    progress: bool | Report | None = False
    secure_sums: bool = False
    same_programs: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.sites, Sequence) or not all(
            isinstance(site, Site) for site in self.sites
        ):
            raise InputError(
                f"sites must be a list of decibo.silo.Site, but it is {short_repr(self.sites)}."
            )
        if not isinstance(self.relay, Site | None):
            raise InputError(
                f"relay must be a decibo.silo.Site or None, but it is {short_repr(self.relay)}."
            )
        object.__setattr__(self, "sites", tuple(self.sites))
        pins = [site.fingerprint for site in self.sites if site.certificate]
        for noun, values in (("name", self.names), ("certificate", pins)):
            if len(set(values)) < len(values):
                raise InputError(
                    f"Every site must have a {noun} of its own, but two of"
                    f" {', '.join(self.names)} share one."
                )
        if self.site:
            self.number(self.site)
        if len(self.sites) != self.network.agents:
            raise InputError(
                f"The network must have an agent for each site, but there are {len(self.sites)}"
                f" sites and {self.network!r}."
            )
        integer("checkpoint_every", self.checkpoint_every)
        positive("patience", self.patience)
        positive("again", self.again)
        flag("same_programs", self.same_programs)
        if flag("secure_sums", self.secure_sums):
            check_sums(self.network)
        if not isinstance(self.run, str):
            raise InputError(
                "run must be a word that all sites use for this run, but it is"
                f" {short_repr(self.run)}."
            )

    @classmethod
    def at(
        cls,
        path: str | Path,
        home: str | Path | None = None,
        *,
        run: str = "",
        log: Log | None = None,
        wire: Wire | None = None,
        same_programs: bool = False,
    ) -> Consortium:
        """The sites of a job file, as the site of this machine sees them."""
        whole = read_consortium(path, certificates=wire is None)
        options = read_tables(path, run=OPTIONS)["run"]
        if options.pop("dtype", None) is not None:
            check_precision(path)
        own = Identity.at(home)
        more = {"same_programs": same_programs} | ({} if log is None else {"log": log})
        return cls(whole.sites, whole.network, own.name, whole.relay, own.folder, wire=wire,
                   run=run, **more, **options)  # fmt: skip

    @property
    def names(self) -> list[str]:
        return [site.name for site in self.sites]

    @property
    def peers(self) -> list[str]:
        """The names of this site's neighbours, in the order of the agents."""
        return self.neighbours(self.site)

    @property
    def keep(self) -> int:
        """For how many steps a site keeps its messages: equation (6) of mailbox.py."""
        return 2 * self.checkpoint_every + KEEP

    def number(self, name: str) -> int:
        """The agent that a site is."""
        if name not in self.names:
            raise InputError(
                f"The job has no site {short_repr(name)}. Its sites are {', '.join(self.names)}."
            )
        return self.names.index(name)

    def neighbours(self, name: str) -> list[str]:
        """The names of a site's neighbours, in the order of the agents."""
        return [self.names[other] for other in neighbours_of(self.network, self.number(name))]

    @property
    def cards(self) -> str:
        """Names and fingerprints of all sites, as the sites compare them."""
        return ", ".join(f"{site.name} {site.fingerprint[:16]}".strip() for site in self.sites)

    def terms(self, more: Mapping[str, str]) -> dict[str, str]:
        return {
            "sites": self.cards,
            "network": f"{self.network!r} {digest(self.network.weights.data)}",
            "run": self.run,
            "checkpoint_every": str(self.checkpoint_every),
            "dtype": jnp.zeros(()).dtype.name,
            **({"secure_sums": "yes"} if self.secure_sums else {}),
            **more,
        }


# Job files


def read_consortium(path: str | Path, *, certificates: bool = True) -> Consortium:
    """Who takes part in the job in a file; nothing of the problem is looked at.

    certificates   whether every site must have one; not on a wire that knows by itself who is who
    """
    path = Path(path)
    tables = read_toml(path)
    only_known(path.name, "table", tables, TABLES)
    entries = tables.get("site")
    if not isinstance(entries, list) or not entries:
        raise InputError(
            f"{path} names no sites.", "Add a [[site]] for each, as `decibo site card` prints it."
        )

    def site(where: str, entry: object) -> Site:
        table = checked_table(where, "site", entry, SITE)
        if "name" not in table or (certificates and "certificate" not in table):
            raise InputError(
                f"{where} needs a name and a certificate.",
                "Copy the card that `decibo site card` prints.",
            )
        return Site(**table)

    sites = [site(f"{path.name}, [[site]] {i}", entry) for i, entry in enumerate(entries, start=1)]
    relay = None
    if "relay" in tables:
        table = checked_table(path.name, "relay", tables["relay"], SITE)
        relay = site(f"{path.name}, [relay]", {"name": "relay", **table})
        if relay.address is None:
            raise InputError(
                f"{path.name}, [relay] needs an address, since both sites of a link call it."
            )
    network = _network(path, tables.get("network", "ring"), [each.name for each in sites])
    return Consortium(tuple(sites), network, relay=relay)


def read_tables(path: str | Path, **known: Sequence[str]) -> dict[str, Any]:
    """The tables of a job file; those that are named may have only these keys, and are empty if
    they are missing."""
    tables = read_toml(Path(path))
    return tables | {
        name: checked_table(Path(path).name, name, tables.get(name, {}), keys)
        for name, keys in known.items()
    }


def read_dtype(path: str | Path) -> str:
    options = read_toml(Path(path)).get("run", {})
    dtype = options.get("dtype", "float64") if isinstance(options, Mapping) else "float64"
    return one_of(f"{Path(path).name}, [run].dtype", dtype, ["float32", "float64"])


def check_precision(path: str | Path) -> None:
    """Reject a job that computes in another precision than JAX is set to."""
    dtype = read_dtype(path)
    if jnp.zeros(()).dtype.name != dtype:
        raise InputError(
            f"{path} computes in {dtype}, but JAX is set to {jnp.zeros(()).dtype.name} here.",
            f"Set jax_enable_x64 to {dtype == 'float64'} before anything else.",
        )


def checked_table(file: str, name: str, value: object, known: Sequence[str]) -> dict[str, Any]:
    """A table of a job file, if it is one and has only these keys."""
    if not isinstance(value, Mapping):
        raise InputError(f"{file}, {name} must be a table, but it is {short_repr(value)}.")
    only_known(f"{file}, [{name}]", "key", value, known)
    return dict(value)


def choice(
    where: str, value: object, known: Mapping[str, Callable[..., Any]], *, own: bool = False
) -> tuple[str, dict[str, Any]]:
    """A name and its options, from "name" or {name = "...", option = ...}.

    own   whether "module:function" will do, too
    """
    table = {"name": value} if isinstance(value, str) else value
    name = table.get("name") if isinstance(table, Mapping) else None
    if not isinstance(table, Mapping) or not isinstance(name, str):
        raise InputError(
            f"{where} must be a name, or a table with a name, but it is {short_repr(value)}."
        )
    if not (own and ":" in name):
        one_of(where, name, sorted(known))
    return name, {key: item for key, item in table.items() if key != "name"}


def made(where: str, name: str, factory: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """What a factory of this library makes of options from a file."""
    only_known(f"{where}: {name}", "option", options, inspect.signature(factory).parameters)
    try:
        return factory(**options)
    except InputError as error:
        raise InputError(f"{where}: {error.message}", error.remedy) from error
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        raise InputError(
            f"{where}: {name} with these options needs more memory than there is here."
        ) from error
    except (TypeError, ValueError, ArithmeticError) as error:
        raise InputError(
            f"{where}: {name} raised {type(error).__name__}: {first_line(error).rstrip('.')}."
        ) from error


def with_agents(
    where: str, factory: Callable[..., Any], options: Mapping[str, Any], agents: int
) -> dict[str, Any]:
    """Options of a factory, with the number of agents if it takes one and the file has none; for
    other numbers of agents than there are sites nothing is made."""
    whole = {key: value for key, value in options.items() if type(value) is int}
    grid = {"rows", "columns"} <= set(whole)
    means = whole.get("agents", whole["rows"] * whole["columns"] if grid else agents)
    if factory is networks.hypercube:
        means = 1 << max(0, min(whole.get("k", 0), 40))
    if means != agents:
        raise InputError(
            f"{where} has {means:,} agents, but the job has {agents} sites.",
            "Every agent is a site.",
        )
    takes = "agents" in inspect.signature(factory).parameters
    return ({"agents": agents} if takes else {}) | dict(options)


def _network(path: Path, value: object, names: list[str]) -> Network:
    where = f"{path.name}, [network]"
    if not (isinstance(value, Mapping) and "links" in value):
        known = {name: getattr(networks, name) for name in networks.__all__ if name[0].islower()}
        name, options = choice(where, value, known)
        return made(where, name, known[name], with_agents(where, known[name], options, len(names)))
    table = dict(value)
    links = table.pop("links")
    only_known(where, "option beside links", table, ("weights", "rho"))
    everyone = set(names)
    for pair in (links if isinstance(links, list) else []) or [links]:
        if not (isinstance(pair, list) and len(pair) == 2 and set(map(str, pair)) <= everyone):
            raise InputError(
                f"{where}.links must be a list of pairs of sites, but it has {short_repr(pair)}.",
                f"The sites are {', '.join(names)}.",
            )
    graph = networkx.Graph(name="links")
    graph.add_nodes_from(names)
    graph.add_edges_from(links)
    return made(where, "links", networks.from_graph, {"graph": graph, **table})
