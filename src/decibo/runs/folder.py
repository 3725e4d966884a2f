"""The run folder: everything about one run, in plain files.

run.json              what was run, on what, with which settings and versions, and how it ended
code/                 copies of the files that were run, if a command ran them
history.csv|.parquet  one row a record: step, work, gradients, products, bytes, seconds, every
                      measure
solution.npz          the means x and y and the agents' own, plain arrays
figures/, checkpoint/ if requested

run.json holds checksums of the others, by which a reader tells that the folder is complete. It also
tells what is decibo's in a folder: a later run may replace the files that run.json names, code only
as long as it was not edited, and no others. That is why it is the first to be written.
"""

from __future__ import annotations

import dataclasses
import io
import json
import platform
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any, NotRequired, TypedDict, cast

import jax
import numpy as np
from numpy.typing import ArrayLike

from decibo.algorithm.algorithm import Algorithm
from decibo.capabilities import Need
from decibo.errors import CorruptedFileError, InputError, first_line, missing, short, short_repr
from decibo.files import (
    atomic_write_all,
    check_writable,
    encode,
    encode_record,
    read_checked,
    read_record,
    sha256,
)
from decibo.formatting import from_csv, to_csv, to_json
from decibo.network.directed import DirectedNetwork
from decibo.network.network import Network, entries
from decibo.problem.problem import Problem
from decibo.run.fingerprint import software
from decibo.run.repeat import Repeats
from decibo.run.solution import Solution, Status, Table, history_table
from decibo.validate import one_of

KIND = "decibo run"
FORMAT = 2
LARGEST = 1 << 30  # bytes of a file that is read
FILES = {"run.json", "history.csv", "history.parquet", "solution.npz"}
OTHERS = {"figures", "checkpoint"}  # may lie beside them


class ProblemRecord(TypedDict):
    """A problem, and how many numbers x and y have."""

    name: str
    x: NotRequired[int]
    y: NotRequired[int]


class MethodRecord(TypedDict):
    """The name of a method, its settings, and the text it prints as."""

    name: str
    settings: dict[str, Any]
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


@dataclass(frozen=True, eq=False, kw_only=True)
class RunFile:
    """The content of run.json.

    seconds   of all steps, without compiling and measuring
    cost      what a step costs, as in Solution.cost
    measures  the columns of history worth a curve
    config    the settings that a command used, or those passed to write_run
    setting   the same text in runs that differ in their seed only, if it is known
    files     the checksum of each other file
    """

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
    measures: list[str]
    files: dict[str, str] = field(repr=False)
    config: dict[str, Any] | None = None
    setting: str | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class RunRecord(RunFile):
    """One run, as its folder describes it.

    history   column -> array with one entry for each record: step, what was spent until then, all
              measures
    """

    folder: Path
    history: Table = field(repr=False)

    @property
    def sound(self) -> bool:
        """Whether the run ended with an answer."""
        return self.status not in (Status.diverged, Status.failed)

    def source(self) -> str:
        """The text of the file that was run, or of the settings if there is none."""
        name = f"code/{(self.config or {}).get('file', '')}"
        if name in self.files:
            content = read_checked(self.folder / name, self.files[name], LARGEST)
            return content.decode("utf-8", "replace")
        return "" if self.config is None else json.dumps(self.config, indent=1)

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
    config: Mapping[str, object] | None = None,
    label: str | None = None,
    seed: int | None = None,
    history: str = "csv",
    setting: str | None = None,
    code: Mapping[str, bytes] | None = None,
) -> Path:
    """Write everything about a run into `folder`, which may be new, empty or hold an older run.

    method    by default the method of the solution, with the settings in use at the end
    config    settings worth keeping: a mapping or a dataclass
    label     what pages call this run; by default the method with its settings
    seed      the seed of the run; by default the one in config
    history   "csv" or "parquet"
    setting   any text that is the same in runs that differ in their seed only: reports draw them as
              one
    code      copies of files to keep, by their path inside the folder code

    With several processes all of them must call it, and only process 0 writes.
    """
    folder = check_target(folder)
    method = solution.method if method is None else method
    file_format = check_format(history)
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        config = asdict(config)
    if config is not None and not isinstance(config, Mapping):
        raise InputError(
            f"config must be a mapping or a dataclass, but it is {short_repr(config)}."
        )
    # All processes come here: the arrays of some agents are elsewhere.
    trees = {"x": solution.x, "y": solution.y}
    trees |= {f"agents.{name}": tree for name, tree in vars(solution.agents).items()}
    arrays = {
        name + jax.tree_util.keystr(path): _host(leaf)
        for name, tree in trees.items()
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }
    if jax.process_index() != 0:
        return folder
    cost = solution.cost
    table, measures = history_table(solution.history, cost)
    solved = io.BytesIO()
    np.savez_compressed(solved, **arrays)  # type: ignore[arg-type]
    contents = {
        f"history.{file_format}": encode_table(table, file_format),
        "solution.npz": solved.getvalue(),
    }
    contents |= {f"code/{name}": content for name, content in (code or {}).items()}
    noted = None if config is None else config.get("seed")
    seed = noted if seed is None and isinstance(noted, int) else seed
    settings = {name: value for name, value in method.settings.items() if value is not None}
    as_json = lambda value: cast("Any", to_json(value, nonfinite_as_text=True))
    step = table["step"]
    record = RunFile(
        label=repr(method) if label is None else str(label),
        problem=describe_problem(problem),
        method={"name": str(method.name), "settings": as_json(settings), "text": repr(method)},
        network=describe_network(network),
        seed=None if seed is None else int(seed),
        setting=setting,
        config=as_json(config),
        steps=int(solution.steps),
        every=int(step[1] - step[0]) if len(step) > 1 else None,
        status=str(solution.status),
        message=str(solution.message),
        seconds=float(cost.seconds),
        cost=asdict(cost)
        | {"gradients": cost.gradients, "products": cost.products, "work": cost.work},
        precision=str(jax.tree.leaves(solution.x)[0].dtype),
        versions=versions(),
        finished=datetime.now(UTC).isoformat(timespec="milliseconds"),
        measures=measures,
        files={name: sha256(content) for name, content in contents.items()},
    )
    # it comes first
    contents = {"run.json": encode_record(KIND, FORMAT, asdict(record)), **contents}
    for name in contents:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
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
    same: dict[str, Any] = {"label": label, "history": history, "setting": setting}
    runs = zip(folders, repeats, repeats.problems, repeats.networks, repeats.seeds, strict=True)
    return [
        write_run(place, run, problem, over, method, seed=seed, **same)
        for place, run, problem, over, seed in runs
    ]


def seed_folder(seed: int | str) -> str:
    """What the folder of a run is called among those with other seeds."""
    return f"seed-{seed}"


def read_run(folder: str | Path) -> RunRecord:
    """The run in a folder, checked.

    Raises InputError if the folder is not a run folder, and CorruptedFileError, with the file and
    the reason, if a file is missing or damaged.
    """
    try:
        import msgspec
    except ImportError as error:
        raise missing("msgspec", "Reading a run folder", "report") from error
    folder = Path(folder)
    path = folder / "run.json"
    try:
        record = msgspec.convert(_read_json(folder), RunFile)
    except msgspec.ValidationError as error:
        raise _damaged(path, first_line(error)) from error
    lacking = {"gradients", "work", "bytes", "agents", "links"} - set(record.cost)
    if lacking:
        raise _damaged(path, f"'cost' has no {', '.join(sorted(lacking))}")
    for i, j, _ in record.network["edges"] or ():
        if not (0 <= i < record.network["agents"] and 0 <= j < record.network["agents"]):
            raise _damaged(path, f"'network.edges' names the agents {i} and {j}")
    for name in record.files:
        if name not in FILES and not _is_code(name):
            raise _damaged(path, f"'files' names {name!r}, which is not part of a run folder")
    file_format = next((name for name in FORMATS if f"history.{name}" in record.files), None)
    if file_format is None:
        raise _damaged(path, "it names no history")
    place = folder / f"history.{file_format}"
    content = read_checked(place, record.files[place.name], LARGEST)
    try:
        history = decode_table(content, file_format)
    except ImportError:
        raise
    # csv.Error, UnicodeDecodeError, ValueError: all tell what is wrong with the file
    except Exception as error:
        raise _damaged(place, str(error)) from error
    fields: dict[str, Any] = vars(record) | {
        "measures": [name for name in record.measures if name in history]
    }
    return RunRecord(**fields, folder=folder, history=history)


def is_run(folder: str | Path) -> bool:
    """Whether a folder is a run folder; `read_run` also checks that its files are sound."""
    try:
        _read_json(Path(folder))
    except (InputError, CorruptedFileError):
        return False
    return True


def check_target(folder: str | Path) -> Path:
    """The folder, if a run may be written there: it is new, empty or holds an older run. Worth
    calling before a run.

    Only files of that older run are ever replaced, and its code only if it was not edited.
    """
    folder = check_writable(Path(folder))
    if not folder.exists():
        return folder
    own = _own_files(folder)
    there = {path.name for path in folder.iterdir() if path.name[0] != "."} - OTHERS
    code = {
        f"code/{path.relative_to(folder / 'code').as_posix()}"
        for path in (folder / "code").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    strangers = sorted(((there & FILES if own else there - {"code"}) | code) - own)
    if strangers:
        edited = strangers[0].startswith("code/") and "run.json" in own
        reason = f"it holds {short(strangers[0])!r}, which " + (
            "has been edited" if edited else "is not of a run"
        )
    elif any((folder / name).is_dir() for name in FILES):
        reason = "a folder has the name of one of its files"
    else:
        return folder
    raise InputError(
        f"A run cannot be written to {folder}: {reason}.", "Choose a new or empty folder."
    )


def _own_files(folder: Path) -> set[str]:
    """The files of an older run in this folder: those that its run.json names."""
    try:
        sums = dict(_read_json(folder)["files"])
    except (InputError, CorruptedFileError, KeyError, TypeError, ValueError):
        return set()
    code = {name for name in sums if _is_code(name) and (folder / name).is_file()}
    return {
        "run.json",
        *(name for name in sums if name in FILES),
        *(name for name in code if sha256(folder / name) == sums[name]),
    }


def _is_code(name: str) -> bool:
    return name.startswith("code/") and ".." not in Path(name).parts


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
            "Pass a folder that decibo run, decibo compare or write_run wrote.",
        )
    return read_record(path, KIND, FORMAT, LARGEST)


def _host(leaf: ArrayLike) -> np.ndarray:
    """The array on this host; parts that other processes hold are fetched, which is why all must
    call."""
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        from jax.experimental.multihost_utils import process_allgather

        leaf = process_allgather(leaf, tiled=True)
    array = np.asarray(leaf)
    # bfloat16 is unknown to npz
    return array if array.dtype.kind in "biufc" else array.astype(np.float32)


EDGES = 5000  # links that are listed one by one; more cannot be drawn


def describe_problem(problem: Problem) -> ProblemRecord:
    """Its name and sizes."""
    return {"name": str(problem.name), "x": problem.x_layout.size, "y": problem.y_layout.size}


def describe_network(network: Network | DirectedNetwork) -> NetworkRecord:
    """Its links with their weights (pull weights if directed), unless there are too many, and rho
    where it is cheap."""
    named = network.labels is not None and network.agents <= EDGES
    edges = None
    if len(network.edges) <= EDGES:
        ends = network.edges.T
        weights = entries(network.weights, ends[1], ends[0])  # the receiver is the row
        listed = zip(*ends, weights.ravel(), strict=True)
        edges = [(int(i), int(j), float(weight)) for i, j, weight in listed]
    rho = None
    if Need.SYMMETRIC_WEIGHTS in network.gives:
        undirected = cast("Network", network)
        if "spectrum" in network.__dict__ or undirected.shifts is not None:
            rho = float(undirected.rho)
    return {
        "name": str(network.name),
        "agents": network.agents,
        "links": len(network.edges),
        "edges": edges,
        "labels": [str(label) for label in network.labels or ()] if named else None,
        "shape": list(getattr(network, "shape", None) or (network.agents,)),
        "rho": rho,
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


FORMATS = ("csv", "parquet")


def encode_table(table: Table, file_format: str) -> bytes:
    """The content of the file that holds the table."""
    if file_format != "parquet":
        return encode(to_csv(table))
    pyarrow, parquet = _pyarrow()
    columns = {name: pyarrow.array(column) for name, column in table.items()}
    out = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), out)
    return out.getvalue()


def decode_table(content: bytes, file_format: str) -> Table:
    """The table in a file; raises ValueError, with the reason, if there is none."""
    if file_format == "parquet":
        pyarrow, parquet = _pyarrow()
        try:
            read = parquet.read_table(io.BytesIO(content))
        except (pyarrow.ArrowException, OSError) as error:
            raise ValueError(f"it is not a Parquet file ({error})") from error
        table = {name: read[name].to_numpy() for name in read.column_names}
    else:
        table = from_csv(content.decode("utf-8"))
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


def _pyarrow() -> tuple[ModuleType, ModuleType]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise missing("pyarrow", "A history in Parquet", "table") from error
    return pyarrow, pyarrow.parquet
