"""A job: what all sites agree on before they compute together. One file, mailed to all of them, is
the contract.

    problem = "hospital:make"            a name, or a function that is installed at each site; no
                                         code travels
    [network]                            by name, or  links = [["north", "east"], ["east", "south"]]
    name = "ring"
    [method]                             without it: ahead_exact, which finds its step sizes
    name = "ahead_exact"
    masks = 50.0                         numbers of this size that neighbours add and subtract hide
                                         what is sent
    [run]
    mode = "lockstep"                    "free": nobody waits for slow or absent sites, with
                                         ahead_free
    steps = 300
    seed = 0
    checkpoint_every = 10                steps between two checkpoints
    patience = 3600                      seconds for which a silent site is waited for; in free
                                         mode: counts
    rest = 1e-10                         free mode: end when nobody would move further than this, at
                                         most `steps` steps
    pace = 0.1                           free mode: seconds between two messages of a site, also
                                         while it computes
    secure_sums = true                   a site learns the sum of what its neighbours say, and not
                                         what each says
    dtype = "float64"
    [relay]                              only if some link has no end that can be called
    address = "relay.example.org:443"
    certificate = '''-----BEGIN CERTIFICATE----- ...'''
    [[site]]                             one for each site, in the order of the agents: its card
    name = "north"
    address = "north.example.org:7400"   left out: this site only calls others
    certificate = '''-----BEGIN CERTIFICATE----- ...'''

The problem's own data are there for rehearsals and to fix shapes; every site puts its own in their
place. Sites compare `terms`, part by part, and every frame carries their checksum. Addresses are
not among them, since who answers is proven by certificates, and patience only in free mode, where
both ends of a link must give up each other.
"""

from __future__ import annotations

import inspect
import json
import re
import ssl
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import networkx

from decibo import contrib, networks, problems
from decibo.algorithm.algorithm import CATALOG, Algorithm
from decibo.algorithm.asynchronous import check_free
from decibo.algorithm.methods import ahead_exact
from decibo.algorithm.privacy import masked
from decibo.data.stream import Stream
from decibo.errors import InputError, first_line, short, short_repr
from decibo.files import read_file
from decibo.network.network import Network
from decibo.problem.problem import Problem
from decibo.run.fingerprint import PROGRAMS, digest, fingerprint, software
from decibo.run.solve import check_fit, check_types, one_of
from decibo.silo.mix import silo_mixing
from decibo.silo.secure_sum import check_secure
from decibo.validate import MOST_STEPS, flag, integer, only_known, positive
from decibo.validate import one_of as one_word
from decibo.validate import seed as check_seed

LONGEST = 1 << 20  # bytes of a job file
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})")
TABLES = ("problem", "network", "method", "estimator", "run", "relay", "site")
RUN = (
    "mode",
    "steps",
    "seed",
    "checkpoint_every",
    "patience",
    "rest",
    "pace",
    "secure_sums",
    "dtype",
)
MODES = ("lockstep", "free")
SITE = ("name", "address", "certificate")
KEEP = 4  # steps more than twice the distance of checkpoints, of which messages are kept
# ("module:function", where it is named) -> the function
Own = Callable[[str, str], Callable[..., object]]


@dataclass(frozen=True)
class Site:
    """One site: its name, its certificate, and where it can be called, if it can."""

    name: str
    certificate: str = ""
    address: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not NAME.fullmatch(self.name):
            raise InputError(
                "The name of a site must be up to 40 letters, digits, - and _, but it is"
                f" {short_repr(self.name)}."
            )
        if self.address is not None:
            _ = host_and_port(self.address, self.name)
        if self.certificate != "":
            _ = self.der

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the certificate, as `openssl x509 -fingerprint -sha256` has it; empty if
        there is none."""
        if not self.certificate:
            return ""
        return sha256(self.der).hexdigest()

    @property
    def der(self) -> bytes:
        """The certificate as it appears in a handshake."""
        try:
            return ssl.PEM_cert_to_DER_cert(self.certificate.strip())
        except (ValueError, AttributeError, TypeError) as error:
            raise InputError(
                f"The certificate of {self.name} must be PEM, from -----BEGIN CERTIFICATE----- to"
                f" the end, but it is {short_repr(self.certificate)}.",
                "Copy the card that `decibo site card` prints at that site.",
            ) from error


def _check_sites(sites: object, relay: object) -> None:
    """Reject what is not a list of sites, and a relay that is none."""
    if not isinstance(sites, Sequence) or not all(isinstance(site, Site) for site in sites):
        raise InputError(
            f"sites must be a list of decibo.silo.Site, but it is {short_repr(sites)}."
        )
    if not isinstance(relay, Site | None):
        raise InputError(
            f"relay must be a decibo.silo.Site or None, but it is {short_repr(relay)}."
        )


def host_and_port(address: object, name: str) -> tuple[str, int]:
    """The two parts of "host:port"."""
    found = ADDRESS.fullmatch(address) if isinstance(address, str) else None
    if found is None or not 0 < int(found[2]) < 65536:
        raise InputError(
            f"The address of {name} must read host:port, but it is {short_repr(address)}."
        )
    return found[1].strip("[]"), int(found[2])


@dataclass(frozen=True, eq=False)
class Members:
    """Who takes part, and who talks to whom: all that a relay needs to know of a job."""

    sites: tuple[Site, ...]
    network: Network
    relay: Site | None = None

    @property
    def names(self) -> list[str]:
        """The names of the sites."""
        return [site.name for site in self.sites]

    def number(self, name: str) -> int:
        """The agent that a site is."""
        if name not in self.names:
            raise InputError(
                f"The job has no site {short_repr(name)}. Its sites are {', '.join(self.names)}."
            )
        return self.names.index(name)


@dataclass(frozen=True, eq=False)
class Job:
    """What all sites agree on.

    sites             in the order of the agents of the network
    checkpoint_every  steps between two checkpoints of a site
    patience          seconds for which a silent site is waited for; in free mode, for which its
                      last word counts
    again             seconds of silence after which a neighbour is asked again, or told again
    relay             copies ciphertext between sites of which neither can be called
    mode              "lockstep", or "free": every site moves at its own speed, with the newest
                      messages that it has
    rest              in free mode: the run ends when no site would move by more than this, after
                      `steps` at the latest
    pace              in free mode: seconds between two moves of a site, which goes on mixing while
                      it computes; without it a site moves when it has computed a direction
    secure_sums       whether neighbours hide their messages to a site so that only the sum can be
                      read
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

    def __post_init__(self) -> None:
        check_types(self.problem, self.network, self.method)
        integer("steps", self.steps, most=MOST_STEPS - 1)
        check_seed(self.seed)
        integer("checkpoint_every", self.checkpoint_every)
        positive("patience", self.patience)
        positive("again", self.again)
        _check_sites(self.sites, self.relay)
        object.__setattr__(self, "sites", tuple(self.sites))
        names = [site.name for site in self.sites]
        pins = [site.fingerprint for site in self.sites if site.certificate]
        for noun, values in (("name", names), ("certificate", pins)):
            if len(set(values)) < len(values):
                raise InputError(
                    f"Every site must have a {noun} of its own, but two of {', '.join(names)} share"
                    " one."
                )
        if len(names) != self.network.agents:
            raise InputError(
                f"The network must have an agent for each site, but there are {len(names)} sites"
                f" and {self.network!r}."
            )
        check_fit(self.problem, self.network, self.method)
        if isinstance(self.problem.sample, Stream):
            raise InputError(
                "A site has its data in memory, but this problem reads minibatches from a stream."
            )
        self._check_mode()
        self._check_sums()
        silo_mixing(self.network, 0)
        for name, layout in (("x", self.problem.x_layout), ("y", self.problem.y_layout)):
            if layout.dtype.name not in ("float32", "float64"):
                raise InputError(
                    f"Sites exchange float32 or float64, but {name} is {layout.dtype.name}."
                )

    def _check_sums(self) -> None:
        flag("secure_sums", self.secure_sums)
        if self.secure_sums and self.is_free:
            raise InputError(
                "Secure sums need all neighbours of a site in the same exchange, but in free mode"
                " it mixes messages of different age.",
                'Use mode = "lockstep".',
            )
        if self.secure_sums and self.method.told:
            raise InputError(
                f"{self.method!r} finds step sizes by the largest of what neighbours say, which is"
                " no sum.",
                "Pass alpha and gamma.",
            )
        if self.secure_sums:
            check_secure(self.network, self.names)

    def _check_mode(self) -> None:
        one_word("mode", self.mode, MODES)
        for name in ("rest", "pace"):
            value = getattr(self, name)
            if value is not None and not self.is_free:
                raise InputError(
                    f'{name} is for mode = "free", but the mode is {self.mode}.', "Leave it out."
                )
            if value is not None:
                positive(name, value)
        if not self.is_free:
            return
        if self.method.masks:
            raise InputError(
                f"{self.method.name} adds masks that cancel between neighbours, but in free mode a"
                " neighbour that is silent is left out, and its masks with it: the others would go"
                " elsewhere.",
                'Use masks with mode = "lockstep", or the method without masks.',
            )
        check_free(self.method, networks.asynchronous(self.network, relay=self.pace is not None))
        if self.rest is not None and self.method.rest is None:
            raise InputError(
                f"{self.method.name} cannot tell whether it is at rest.",
                "Leave rest out, or use ahead_free.",
            )

    @property
    def is_free(self) -> bool:
        """Whether nobody waits."""
        return self.mode == "free"

    @property
    def names(self) -> list[str]:
        """The names of the sites."""
        return [site.name for site in self.sites]

    @property
    def members(self) -> Members:
        """Who takes part."""
        return Members(self.sites, self.network, self.relay)

    @property
    def keep(self) -> int:
        """For how many steps a site keeps what it said."""
        return 2 * self.checkpoint_every + KEEP

    def number(self, name: str) -> int:
        """The agent that a site is."""
        return self.members.number(name)

    @cached_property
    def terms(self) -> dict[str, str]:
        """What the sites compare, in words; the programs among it are compared between equal
        versions only."""
        rows = self.problem.start_rows(self.network.agents)
        if callable(self.problem.data):  # shapes are known where the data is
            problem = self.problem
            settings = {
                "problem": (
                    f"{problem.name}, x {problem.x_layout.shapes}, y {problem.y_layout.shapes}"
                )
            }
            settings |= {
                "method": repr(self.method),
                "network": f"{self.network!r} {digest(self.network.weights.data)}",
            }
        else:
            data = one_of(self.problem.data)
            settings = fingerprint(
                self.problem, self.network, self.method, self.seed, (), rows, data
            )
            del settings["measures"]
        if self.method.masks:
            settings["masks"] = ", ".join(
                f"{name} {scale:g}" for name, scale in sorted(self.method.masks.items())
            )
        if self.secure_sums:
            settings["secure_sums"] = "yes"
        if self.is_free:
            settings["mode"] = (
                f"free, patience {self.patience:g} s, rest {self.rest}, pace {self.pace}"
            )
        return {
            "sites": ", ".join(
                f"{site.name} {site.fingerprint[:16]}".strip() for site in self.sites
            ),
            **settings,
            "seed": str(self.seed),
            "steps": str(self.steps),
            "checkpoint_every": str(self.checkpoint_every),
            **software(),
        }

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
    own: Own | None = None,
    certificates: bool = True,
) -> Job:
    """The job in a file.

    problem        the problem, if the file names a function `module:function`: files never make
                   Python import anything
    own            instead: what finds such a function, once somebody has agreed
    certificates   whether every site must have one; not on a wire that knows by itself who is who
    """
    path = Path(path)
    tables = _load(path)
    members = _members(path, tables, certificates)
    if "estimator" in tables:
        raise InputError(
            f"{path} names an estimator, and so has no problem of its own.",
            f"Take part in it with: decibo join {path.name}",
        )
    options = _table(path.name, "run", tables.get("run", {}), RUN)
    one_word(f"{path.name}, [run].mode", options.get("mode", "lockstep"), MODES)
    options.pop("dtype", None)
    _check_precision(path, read_dtype(path))
    return Job(
        sites=members.sites,
        problem=_problem(path, tables.get("problem"), len(members.sites), problem, own),
        network=members.network,
        method=_method(path, tables.get("method", "ahead_exact")),
        relay=members.relay,
        **options,  # pyright: ignore[reportArgumentType]  (checked by Job)
    )


def read_members(path: str | Path, *, certificates: bool = True) -> Members:
    """Who takes part in the job in a file; nothing of the problem is looked at."""
    return _members(Path(path), _load(Path(path)), certificates)


def read_tables(path: str | Path, **known: tuple[str, ...]) -> dict[str, Any]:
    """The tables of a job file; those that are named may have only these keys, and are empty if
    they are missing."""
    tables = _load(Path(path))
    return tables | {
        name: _table(Path(path).name, name, tables.get(name, {}), keys)
        for name, keys in known.items()
    }


def read_dtype(path: str | Path) -> str:
    """The precision in which a job computes."""
    options = _load(Path(path)).get("run", {})
    dtype = options.get("dtype", "float64") if isinstance(options, Mapping) else "float64"
    return one_word(f"{Path(path).name}, [run].dtype", dtype, ["float32", "float64"])


def _members(path: Path, tables: dict[str, Any], certificates: bool) -> Members:
    only_known(path.name, "table", tables, TABLES)
    listed = tables.get("site")
    if not isinstance(listed, list) or not listed:
        raise InputError(
            f"{path} names no sites.", "Add a [[site]] for each, as `decibo site card` prints it."
        )
    sites = tuple(
        _site(f"{path.name}, [[site]] {i + 1}", entry, certificates)
        for i, entry in enumerate(listed)
    )
    relay = None
    if "relay" in tables:
        table = {"name": "relay", **_table(path.name, "relay", tables["relay"], SITE)}
        relay = _site(f"{path.name}, [relay]", table, certificates)
        if relay.address is None:
            raise InputError(
                f"{path.name}, [relay] needs an address, since both sites of a link call it."
            )
    return Members(sites, _network(path, tables.get("network", "ring"), sites), relay)


def _load(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_file(path, LONGEST).decode("utf-8"))
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}.", "Pass the path of a job file."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise InputError(
            f"{path} is not valid TOML: {short(first_line(error).rstrip('.'), 200)}."
        ) from error


def _table(file: str, name: str, value: object, known: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{file}, {name} must be a table, but it is {short_repr(value)}.")
    only_known(f"{file}, [{name}]", "key", value, known)
    return dict(value)


def _site(where: str, entry: object, certificates: bool) -> Site:
    table = _table(where, "site", entry, SITE)
    if "name" not in table or (certificates and "certificate" not in table):
        raise InputError(
            f"{where} needs a name and a certificate.",
            "Copy the card that `decibo site card` prints.",
        )
    return Site(**table)


def _check_precision(path: Path, dtype: str) -> None:
    if jnp.zeros(()).dtype.name != dtype:
        raise InputError(
            f"{path} computes in {dtype}, but JAX is set to {jnp.zeros(()).dtype.name} here.",
            f"Set jax_enable_x64 to {dtype == 'float64'} before anything else.",
        )


def _choice(
    where: str, value: object, known: Mapping[str, Callable[..., Any]]
) -> tuple[str, dict[str, Any]]:
    """A name and its options, from "name" or {name = "...", option = ...}."""
    table = {"name": value} if isinstance(value, str) else value
    name = table.get("name") if isinstance(table, Mapping) else None
    if not isinstance(table, Mapping) or not isinstance(name, str):
        raise InputError(
            f"{where} must be a name, or a table with a name, but it is {short_repr(value)}."
        )
    if ":" not in name:
        one_word(where, name, sorted(known))
    return name, {key: item for key, item in table.items() if key != "name"}


def _called(where: str, name: str, factory: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """What a factory of this library makes of options from a file."""
    only_known(f"{where}: {name}", "option", options, inspect.signature(factory).parameters)
    try:
        return factory(**options)
    except InputError as error:
        raise InputError(f"{where}: {error.message}", error.remedy) from error
    except (TypeError, ValueError, ArithmeticError) as error:
        raise InputError(
            f"{where}: {name} raised {type(error).__name__}: {first_line(error).rstrip('.')}."
        ) from error


def _problem(
    path: Path, value: object, agents: int, given: Problem | None, own: Own | None
) -> Problem:
    where = f"{path.name}, problem"
    known = {name: getattr(problems, name) for name in problems.__all__}
    name, options = _choice(where, value, known)
    if given is not None:
        return given
    if ":" in name and own is None:
        raise InputError(
            f"{where} is {name}, a function that this file may not import.",
            f"Pass read_job(path, problem={name}()).",
        )
    factory = known[name] if ":" not in name else own(name, where) if own else None
    assert factory is not None
    if "agents" in inspect.signature(factory).parameters:
        options.setdefault("agents", agents)
    made = factory(**options) if ":" in name else _called(where, name, factory, options)
    if not isinstance(made, Problem):
        raise InputError(
            f"{where}: {name} must return a decibo.Problem, but it returned a"
            f" {type(made).__name__}."
        )
    return made


def _network(path: Path, value: object, sites: tuple[Site, ...]) -> Network:
    where = f"{path.name}, [network]"
    if isinstance(value, Mapping) and "links" in value:
        return _linked(where, dict(value), [site.name for site in sites])
    factories = {name: getattr(networks, name) for name in networks.__all__ if name[0].islower()}
    name, options = _choice(where, value, factories)
    one_word(where, name, sorted(factories))
    if "agents" in inspect.signature(factories[name]).parameters:
        options.setdefault("agents", len(sites))
    return _called(where, name, factories[name], options)


def _linked(where: str, table: dict[str, Any], names: list[str]) -> Network:
    """The network on links between sites by name."""
    links = table.pop("links")
    only_known(where, "option beside links", table, ("weights", "rho"))
    pairs = links if isinstance(links, list) else []
    for pair in pairs or [links]:
        if not (isinstance(pair, list) and len(pair) == 2 and set(map(str, pair)) <= set(names)):
            raise InputError(
                f"{where}.links must be a list of pairs of sites, but it has {short_repr(pair)}.",
                f"The sites are {', '.join(names)}.",
            )
    graph = networkx.Graph(name="links")
    graph.add_nodes_from(names)
    graph.add_edges_from(pairs)
    return _called(where, "links", networks.from_graph, {"graph": graph, **table})


def _method(path: Path, value: object) -> Algorithm:
    where = f"{path.name}, [method]"
    table = {"name": ahead_exact.__name__, **value} if isinstance(value, Mapping) else value
    name, options = _choice(where, table, CATALOG | contrib.CATALOG)
    one_word(where, name, sorted(CATALOG | contrib.CATALOG))
    scale = options.pop("masks", None)
    made = _called(where, name, (CATALOG | contrib.CATALOG)[name], options)
    return (
        made if scale is None else _called(where, "masks", masked, {"method": made, "scale": scale})
    )
