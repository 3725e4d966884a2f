"""The run folder: everything about one run, in plain files.

run.json              what was run, on what, with which settings and versions, and how it ended
config.toml           the resolved configuration, if there was one
history.csv|.parquet  one row a record: step, work, gradients, products, bytes, seconds, every
                      measure
solution.npz          the means x and y and the agents' own, plain arrays
figures/, checkpoint/ if requested

run.json holds checksums of the others, by which a reader tells that the folder is complete. It also
tells what is decibo's in a folder: a later run may replace the files that run.json names, and no
others. That is why it is the first to be written. config.toml begins with a checksum of itself,
since a run with checkpoints writes it before there is a run.json, and since it is the file that
people edit.
"""

from __future__ import annotations

import dataclasses
import io
import json
import platform
import tomllib
import zipfile
from collections.abc import Container, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime, time
from pathlib import Path
from types import ModuleType, NoneType
from typing import NotRequired, TypeAlias, TypedDict

import jax
import numpy as np
from numpy.typing import ArrayLike

from decibo.algorithm.algorithm import Algorithm
from decibo.errors import CorruptedFileError, InputError, missing, short
from decibo.files import atomic_write_all, check_writable, encode, read_checked, read_file, sha256
from decibo.formatting import Json, from_csv, to_csv, to_json
from decibo.measure.cost import Cost
from decibo.network.directed import DirectedNetwork
from decibo.network.network import Network, entries
from decibo.problem.problem import Problem
from decibo.run.fingerprint import software
from decibo.run.repeat import Repeats
from decibo.run.solution import Solution, Status
from decibo.validate import one_of

KIND = "decibo run"
FORMAT = 1
MARK = "# Written by decibo. The sha256 of the lines below, until somebody edits them: "
LARGEST = 1 << 30  # bytes of a file that is read
REPLACED = {"run.json", "config.toml", "history.csv", "history.parquet", "solution.npz"}
KEPT = {"figures", "checkpoint"}
CONTENT = REPLACED | KEPT

Types = tuple[type, ...]
NUMBER: Types = (int, float)
REQUIRED: dict[str, Types] = {  # of run.json, with the types that JSON may give them
    "label": (str,),
    "problem": (dict,),
    "problem.name": (str,),
    "method": (dict,),
    "method.name": (str,),
    "method.text": (str,),
    "method.settings": (dict,),
    "network": (dict,),
    "network.name": (str,),
    "network.agents": (int,),
    "network.links": (int,),
    "network.edges": (list, NoneType),
    "network.shape": (list,),
    "network.rho": (*NUMBER, NoneType),
    "network.directed": (bool,),
    "seed": (int, NoneType),
    "steps": (int,),
    "every": (int, NoneType),
    "status": (str,),
    "message": (str,),
    "seconds": NUMBER,
    "cost": (dict,),
    "cost.gradients": NUMBER,
    "cost.bytes": NUMBER,
    "cost.agents": NUMBER,
    "cost.links": NUMBER,
    "precision": (str,),
    "versions": (dict,),
    "finished": (str,),
    "measures": (list,),
    "files": (dict,),
}


@dataclass(frozen=True, eq=False)
class RunRecord:
    """One run, as its folder describes it.

    history   column -> array with one entry for each record: step, what was spent until then, all
              measures
    measures  the columns of history worth a curve
    cost      what a step costs, as in Solution.cost
    config    the text of config.toml, if the run had one
    setting   the same text in runs that differ in their seed only, if it is known
    """

    folder: Path
    label: str
    problem: ProblemRecord
    method: MethodRecord
    network: NetworkRecord
    seed: int | None
    steps: int
    every: int | None
    status: str
    message: str
    seconds: float
    cost: dict[str, float]
    precision: str
    versions: dict[str, str]
    finished: str
    measures: tuple[str, ...]
    config: str | None
    history: Table = field(repr=False)
    files: dict[str, str] = field(repr=False)
    setting: str | None = None

    @property
    def sound(self) -> bool:
        """Whether the run ended with an answer."""
        return self.status not in (Status.diverged, Status.failed)

    def arrays(self) -> dict[str, np.ndarray]:
        """solution.npz: the means x and y, and every agent's own as agents.x, agents.y, ..."""
        path = self.folder / "solution.npz"
        content = read_checked(path, self.files.get("solution.npz"))
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as stored:
                return dict(stored)
        except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise _damaged(path, f"it holds no plain arrays ({error})") from error


def write_run(
    folder: str | Path,
    solution: Solution,
    problem: Problem,
    network: Network | DirectedNetwork,
    method: Algorithm | None = None,
    *,
    config: Mapping[str, object] | str | None = None,
    label: str | None = None,
    seed: int | None = None,
    history: str = "csv",
    setting: str | None = None,
) -> Path:
    """Write everything about a run into `folder`, which may be new, empty or hold an older run.

    method    by default the method of the solution, with the settings in use at the end
    config    the resolved configuration: a mapping, a dataclass, or TOML as text
    label     what pages call this run; by default the method with its settings
    seed      the seed of the run; by default the one in the configuration
    history   "csv" or "parquet"
    setting   any text that is the same in runs that differ in their seed only: reports draw them as
              one

    With several processes all of them must call it, and only process 0 writes.
    """
    folder = check_target(folder)
    method = solution.method if method is None else method
    file_format = check_format(history)
    configuration = config_text(config)
    arrays = _arrays(solution)
    if jax.process_index() != 0:
        return folder
    cost = solution.cost
    table, measures = history_table(solution.history, cost)
    contents = {
        f"history.{file_format}": encode_table(table, file_format),
        "solution.npz": _npz(arrays),
    }
    if configuration is not None:
        contents["config.toml"] = encode(stamped(configuration))
    record = {
        "kind": KIND,
        "format": FORMAT,
        "label": repr(method) if label is None else str(label),
        "problem": describe_problem(problem),
        "method": describe_method(method),
        "network": describe_network(network),
        "seed": _seed(configuration) if seed is None else int(seed),
        "setting": setting,
        "steps": int(solution.steps),
        "every": int(table["step"][1] - table["step"][0]) if len(table["step"]) > 1 else None,
        "status": str(solution.status),
        "message": str(solution.message),
        "seconds": float(cost.seconds),
        "seconds of a record": (
            "those of all steps, without compiling and measuring, shared out equally"
        ),
        "cost": (
            asdict(cost)
            | {"gradients": cost.gradients, "products": cost.products, "work": cost.work}
        ),
        "precision": str(jax.tree.leaves(solution.x)[0].dtype),
        "versions": versions(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "measures": measures,
        "files": {name: sha256(content) for name, content in contents.items()},
    }
    # it comes first
    contents = {"run.json": encode(json.dumps(record, indent=1) + "\n"), **contents}
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write_all(folder, contents, outdated=sorted(_own_files(folder) - set(contents)))
    return folder


def write_runs(
    folder: str | Path, repeats: Repeats, *, label: str | None = None, history: str = "csv"
) -> list[Path]:
    """Write the runs of `decibo.repeat` into the folders seed-0, seed-1, ... of a folder, and
    return them.

    Reports, figures and tables of this folder show them as one: with a band, and with mean and
    deviation.
    """
    method = repeats.method
    label = repr(method) if label is None else str(label)
    network = repeats.networks[0]
    parts = [label, repr(method), *map(str, describe_problem(repeats.problems[0]).values())]
    setting = sha256(
        encode(" ".join([*parts, network.name, str(network.agents), *repeats[0].history]))
    )
    folders = [check_target(Path(folder) / seed_folder(seed)) for seed in repeats.seeds]
    runs = zip(folders, repeats.seeds, repeats, repeats.problems, repeats.networks, strict=True)
    return [
        write_run(
            place,
            run,
            problem,
            over,
            method,
            label=label,
            seed=seed,
            history=history,
            setting=setting,
        )
        for place, seed, run, problem, over in runs
    ]


def seed_folder(seed: int | str) -> str:
    """What the folder of a run is called among those with other seeds."""
    return f"seed-{seed}"


def read_run(folder: str | Path) -> RunRecord:
    """The run in a folder, checked.

    Raises InputError if the folder is not a run folder, and CorruptedFileError, with the file and
    the reason, if a file is missing or damaged.
    """
    folder = Path(folder)
    path = folder / "run.json"
    record = _read_json(folder)
    _check(path, record)
    files = record["files"]
    for name in files:
        if name not in CONTENT:
            raise _damaged(path, f"'files' names {name!r}, which is not part of a run folder")
    file_format = next((name for name in FORMATS if f"history.{name}" in files), None)
    if file_format is None:
        raise _damaged(path, "it names no history")
    history = _read_history(
        folder / f"history.{file_format}", files[f"history.{file_format}"], file_format
    )
    config = None
    if "config.toml" in files:
        content = read_checked(folder / "config.toml", files["config.toml"], LARGEST)
        config = _unstamped(content.decode("utf-8", "replace"))
    network = record["network"]
    if network["edges"] is not None:
        network["edges"] = [tuple(edge) for edge in network["edges"]]
    fields = {name: record[name] for name in RunRecord.__dataclass_fields__ if name in record}
    fields["measures"] = tuple(name for name in record["measures"] if name in history)
    return RunRecord(**fields | {"folder": folder, "config": config, "history": history})


def is_run(folder: str | Path) -> bool:
    """Whether a folder is a run folder; `read_run` also checks that its files are sound."""
    try:
        _read_json(Path(folder))
    except (InputError, CorruptedFileError):
        return False
    return True


def check_target(folder: str | Path, *, resume: bool = False) -> Path:
    """The folder, if a run may be written there: it is new, empty or holds an older run. Worth
    calling before a run.

    Only files of that older run are ever replaced, and its config.toml only if nobody has edited
    it; `resume` goes on with the run in the folder, whose config.toml is then its own in any case.
    """
    folder = check_writable(Path(folder))
    if not folder.exists():
        return folder
    own = _own_files(folder) | ({"config.toml"} if resume else set())
    names = sorted(path.name for path in folder.iterdir())
    replaced = [name for name in names if name in REPLACED]
    new = [name for name in names if name not in KEPT and name[0] != "."]
    strangers = [name for name in (replaced if own else new) if name not in own]
    reason = ""
    if strangers:
        edited = strangers == ["config.toml"] and "run.json" in own
        reason = f"it holds {short(strangers[0])!r}, which " + (
            "has been edited" if edited else "is not of a run"
        )
    elif any((folder / name).is_dir() for name in replaced):
        reason = "a folder has the name of one of its files"
    if reason:
        raise InputError(
            f"A run cannot be written to {folder}: {reason}.", "Choose a new or empty folder."
        )
    return folder


def _own_files(folder: Path) -> set[str]:
    """The files of an older run in this folder: those that its run.json names, or those of a run
    that has not ended."""
    try:
        config = read_file(folder / "config.toml", LARGEST)
    except OSError:
        config = b""
    try:
        named = _read_json(folder)["files"]
        own = {name for name in named if name in REPLACED - {"config.toml"}} | {"run.json"}
        intact = named.get("config.toml") == sha256(config)
    except (InputError, CorruptedFileError, KeyError, TypeError, AttributeError):
        own = set()
        intact = False
    unfinished = (folder / "checkpoint").is_dir()
    if intact or (
        (own or unfinished) and config == encode(stamped(config.decode("utf-8", "replace")))
    ):
        own.add("config.toml")
    return own


def stamped(config: str) -> str:
    """The text of config.toml with its checksum in front."""
    text = _unstamped(config)
    return f"{MARK}{sha256(encode(text))}\n{text}"


def _unstamped(config: str) -> str:
    return config.partition("\n")[2] if config.startswith(MARK) else config


def _damaged(path: Path, reason: str) -> CorruptedFileError:
    return CorruptedFileError(
        f"{path} is damaged: {reason}. Repeat the run, or leave this folder out."
    )


def _read_json(folder: Path) -> dict:
    path = folder / "run.json"
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}.")
    if not path.exists():
        raise InputError(
            f"{folder} is not a run folder: run.json is missing.",
            "Pass a folder that write_run wrote.",
        )
    try:
        record = json.loads(read_checked(path, most=LARGEST))
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"it is not JSON ({error})") from error
    if not isinstance(record, dict) or record.get("kind") != KIND:
        raise InputError(f"{path} does not describe a run: its kind is not {KIND!r}.")
    if record.get("format") != FORMAT:
        raise InputError(
            f"{path} has format {record.get('format')!r}, but this version of decibo reads format"
            f" {FORMAT}.",
            "Use a newer version of decibo.",
        )
    return record


def _check(path: Path, record: Mapping) -> None:
    """Everything that a page relies on must be there and of its type."""
    for name, types in REQUIRED.items():
        owner, _, key = name.rpartition(".")
        entries = record[owner] if owner else record
        if key not in entries:
            raise _damaged(path, f"'{name}' is missing")
        value = entries[key]
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise _damaged(path, f"'{name}' must not be of type {type(value).__name__}")
    if not isinstance(record.get("setting"), str | None):
        raise _damaged(path, "'setting' must be text")
    if not all(isinstance(name, str) for name in record["measures"]):
        raise _damaged(path, "'measures' must be names")
    if not all(isinstance(value, NUMBER) for value in record["cost"].values()):
        raise _damaged(path, "'cost' must hold numbers only")
    for name in ("versions", "files"):
        if not all(isinstance(value, str) for value in record[name].values()):
            raise _damaged(path, f"'{name}' must hold text only")
    _check_edges(path, record["network"])


def _check_edges(path: Path, network: Mapping) -> None:
    agents = network["agents"]
    for edge in network["edges"] or []:
        ends = edge[:2] if isinstance(edge, list) and len(edge) == 3 else []
        if not (
            ends
            and all(type(end) is int and 0 <= end < agents for end in ends)
            and isinstance(edge[2], NUMBER)
        ):
            raise _damaged(
                path, f"'network.edges' holds {edge!r}, which is not [agent, agent, weight]"
            )


def _read_history(path: Path, digest: str, file_format: str) -> Table:
    content = read_checked(path, digest, LARGEST)
    try:
        return decode_table(content, file_format)
    except ImportError:
        raise
    # csv.Error, UnicodeDecodeError, ValueError: all say what is wrong with the file
    except Exception as error:
        raise _damaged(path, str(error)) from error


def _arrays(solution: Solution) -> dict[str, np.ndarray]:
    trees = {"x": solution.x, "y": solution.y}
    trees |= {f"agents.{name}": tree for name, tree in vars(solution.agents).items()}
    return {
        name + jax.tree_util.keystr(path): _host(leaf)
        for name, tree in trees.items()
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def _host(leaf: ArrayLike) -> np.ndarray:
    """The array on this host; parts that other processes hold are fetched, which is why all must
    call."""
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        from jax.experimental.multihost_utils import process_allgather

        leaf = process_allgather(leaf, tiled=True)
    array = np.asarray(leaf)
    # bfloat16 is unknown to npz
    return array if array.dtype.kind in "biufc" else array.astype(np.float32)


def _npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)  # type: ignore[arg-type]
    return out.getvalue()


def _seed(config: str | None) -> int | None:
    """The seed in a configuration: at the top, or in its section [run]."""
    settings = tomllib.loads(config or "")
    run = settings.get("run")
    seed = settings.get("seed", run.get("seed") if isinstance(run, dict) else None)
    return seed if type(seed) is int else None


EDGES = 5000  # links that are listed one by one; nobody could draw more


class ProblemRecord(TypedDict):
    """The name of a problem, and how many numbers x and y have."""

    name: str
    x: NotRequired[int]
    y: NotRequired[int]


class MethodRecord(TypedDict):
    """The name of a method, its settings, and the text it prints as."""

    name: str
    settings: dict[str, Json]
    text: str


class NetworkRecord(TypedDict):
    """A network; `edges` are (agent, agent, weight), or None if there are too many to list."""

    name: str
    agents: int
    links: int
    edges: list[tuple[int, int, float]] | None
    labels: NotRequired[list[str] | None]
    shape: list[int]
    rho: float | None
    directed: bool


def describe_problem(problem: Problem) -> ProblemRecord:
    """Its name and sizes."""
    return {"name": str(problem.name), "x": problem.x_layout.size, "y": problem.y_layout.size}


def describe_method(method: Algorithm) -> MethodRecord:
    """Its name and settings; settings that are functions by their name."""
    settings = {name: value for name, value in method.settings.items() if value is not None}
    return {
        "name": str(method.name),
        "settings": {
            str(name): to_json(value, nonfinite_as_text=True) for name, value in settings.items()
        },
        "text": repr(method),
    }


def describe_network(network: Network | DirectedNetwork) -> NetworkRecord:
    """Its links with their weights (pull weights if directed), unless there are too many, and rho
    where it is cheap."""
    labels = (
        None
        if network.labels is None or network.agents > EDGES
        else [str(label) for label in network.labels]
    )
    return {
        "name": str(network.name),
        "agents": network.agents,
        "links": len(network.edges),
        "edges": _edges(network) if len(network.edges) <= EDGES else None,
        "labels": labels,
        "shape": list(getattr(network, "shape", None) or (network.agents,)),
        "rho": _rho(network),
        "directed": bool(network.directed),
    }


def versions() -> dict[str, str]:
    """The software and the devices of this process."""
    devices = jax.devices()
    return {
        **software(),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "device": f"{len(devices)} x {devices[0].device_kind}",
    }


def to_toml(config: Mapping[str, object]) -> str:
    """A configuration as TOML. Entries that are None are left out, since TOML has no word for
    nothing."""
    try:
        import tomli_w
    except ImportError as error:
        raise missing("tomli-w", "A configuration in a run folder", "report") from error
    return tomli_w.dumps(_toml_table(config))


def config_text(config: object) -> str | None:
    """The text of config.toml from a mapping, a dataclass or TOML itself; None if there is no
    configuration."""
    if config is None:
        return None
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        config = dataclasses.asdict(config)
    if isinstance(config, Mapping):
        return to_toml(config)
    try:
        tomllib.loads(str(config))
    except tomllib.TOMLDecodeError as error:
        raise InputError(
            f"config must be a mapping, a dataclass or TOML, but it is not valid TOML: {error}."
        ) from error
    return str(config)


def _edges(network: Network | DirectedNetwork) -> list[tuple[int, int, float]]:
    ends = network.edges.T
    if isinstance(network, DirectedNetwork):
        weights = entries(network.pull, ends[1], ends[0])  # the receiver is the row
    else:
        weights = entries(network.weights, ends[0], ends[1])
    return [(int(i), int(j), float(w)) for i, j, w in zip(*ends, weights.ravel(), strict=True)]


def _rho(network: Network | DirectedNetwork) -> float | None:
    if isinstance(network, DirectedNetwork):
        return None
    cheap = "spectrum" in network.__dict__ or network.shifts is not None
    return float(network.rho) if cheap else None


def _toml_table(entries: Mapping) -> dict[str, object]:
    return {
        encode(str(name)).decode(): _toml(item)
        for name, item in entries.items()
        if item is not None
    }


def _toml(value: object) -> object:
    if hasattr(value, "tolist"):  # numpy and jax
        value = np.asarray(value).tolist()
    if isinstance(value, Mapping):
        return _toml_table(value)
    if isinstance(value, list | tuple):
        return [_toml(item) for item in value if item is not None]
    return (
        value
        if isinstance(value, bool | int | float | date | time)
        else encode(str(value)).decode()
    )


Table: TypeAlias = dict[str, np.ndarray]

COSTS = ("step", "work", "gradients", "products", "bytes", "seconds")
FORMATS = ("csv", "parquet")
WIDE = 8  # components of a measure that a page still shows one by one


def history_table(history: Mapping[str, ArrayLike], cost: Cost) -> tuple[Table, list[str]]:
    """The table of a run, and the names of the measures worth a curve.

    work, gradients and products (all agents) and bytes (all links) are cumulative. seconds are
    those of the steps, without compiling and measuring, shared out equally, since single steps are
    not timed. A measure with several components gets a column for each.
    """
    step = np.asarray(history["step"], dtype=np.int64)
    table: Table = {"step": step} | cost.so_far(step)
    shown: list[str] = []
    for name, values in history.items():
        if name == "step":
            continue
        components = _components(name, np.asarray(values))
        for component, column in components.items():
            free = _free_name(component, table)
            table[free] = column
            if len(components) <= WIDE:
                shown.append(free)
    return table, shown


def encode_table(table: Table, file_format: str) -> bytes:
    """The content of the file that holds the table."""
    return _to_parquet(table) if file_format == "parquet" else encode(to_csv(table))


def decode_table(content: bytes, file_format: str) -> Table:
    """The table in a file; raises ValueError, with the reason, if there is none."""
    table = (
        _from_parquet(content) if file_format == "parquet" else from_csv(content.decode("utf-8"))
    )
    if "step" not in table:
        raise ValueError("it has no column 'step'")
    if (np.diff(table["step"]) < 0).any() or not np.issubdtype(table["step"].dtype, np.integer):
        raise ValueError("its steps are not ascending integers")
    return table


def check_format(file_format: str) -> str:
    """The format, if it can be written here."""
    one_of("history", file_format, FORMATS)
    if file_format == "parquet":
        _pyarrow()
    return file_format


def _components(name: str, values: np.ndarray) -> Table:
    if values.ndim <= 1:
        return {name: values}
    indices = np.ndindex(*values.shape[1:])
    return {
        f"{name}[{','.join(map(str, index))}]": values[(slice(None), *index)] for index in indices
    }


def _free_name(name: str, taken: Container[str]) -> str:
    """The name, changed if a column has it already; the names of costs are reserved."""
    while name in taken or name in COSTS:
        name += " (measure)"
    return name


def _to_parquet(table: Table) -> bytes:
    pyarrow, parquet = _pyarrow()
    out = io.BytesIO()
    parquet.write_table(
        pyarrow.table({name: pyarrow.array(column) for name, column in table.items()}), out
    )
    return out.getvalue()


def _from_parquet(content: bytes) -> Table:
    pyarrow, parquet = _pyarrow()
    try:
        table = parquet.read_table(io.BytesIO(content))
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"it is not a Parquet file ({error})") from error
    return {name: table[name].to_numpy() for name in table.column_names}


def _pyarrow() -> tuple[ModuleType, ModuleType]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise missing("pyarrow", "A history in Parquet", "table") from error
    return pyarrow, pyarrow.parquet
