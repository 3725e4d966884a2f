"""NVFlare as a wire: the sites of a job are clients of a consortium that runs NVFlare already.

    from decibo.silo import nvflare

    nvflare.job_folder("job.toml", "heart")        # then: nvflare job submit -j heart

`SiteExecutor` takes part at every client, as `decibo join` would: with the folder `local/decibo` of
the client's workspace in place of ~/.decibo/site, which holds site.toml and the checkpoints.
`SiteController`, at the server, starts all of them, and ends all of them if one fails. The same
folder, submitted again, goes on from the checkpoints.

Frames are messages between the job's cells, not the `aux` requests that workflows of NVFlare use:
an aux request is encrypted only if it waits for an answer, and says itself who sent it. A message
of a cell can be sealed (encrypted for the receiver, signed by the sender) without waiting, and its
origin is the name in the certificate that signed it. The server passes every message on, and reads
none that is sealed. It also says which cell is whose, and is not believed: the cell of a site is
that of its name, and NVFlare must compare this name with the certificate's.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import jax

from decibo.errors import InputError, LostError, first_line, missing, plain, short
from decibo.files import read_file
from decibo.pytree import Tree
from decibo.run.solution import Status
from decibo.silo.consortium import read_consortium, read_dtype, read_tables
from decibo.silo.identity import Identity
from decibo.silo.job import read_job
from decibo.silo.join import join, write_solution
from decibo.silo.nvflare_cells import CellWire

try:
    _executor: Any = import_module("nvflare.apis.executor")
    _controller: Any = import_module("nvflare.apis.impl.controller")
    _specification: Any = import_module("nvflare.apis.controller_spec")
    _shareable: Any = import_module("nvflare.apis.shareable")
    _constants: Any = import_module("nvflare.apis.fl_constant")
    _defs: Any = import_module("nvflare.fuel.f3.cellnet.defs")
    _message: Any = import_module("nvflare.fuel.f3.message")
except ImportError as error:
    raise missing("NVFlare", "decibo.silo.nvflare", "flare") from error

__all__ = ["SiteController", "SiteExecutor", "job_folder"]

TASK = "decibo"
CHANNEL = "decibo"
TOPIC = "frame"
SEALED = "decibo_sealed"
JOB = "job.toml"
WHY = "why"
OWN_LOG = "the site's own log says why."
POLL = 0.2  # seconds between two looks at whether the job was aborted
APP = "app"
Header: Any = _defs.MessageHeaderKey
Code: Any = _constants.ReturnCode


def job_folder(
    job: str | Path, folder: str | Path, *, synthetic: bool = False, sealed: bool = True
) -> Path:
    """Write a job of NVFlare that runs the job in a file, each site at the client of its name;
    returns the folder.

    job         a job file; its sites need neither certificates nor addresses
    synthetic   whether the sites compute with the data that the job's problem has, to try it
    sealed      whether messages are encrypted and signed from end to end; False for NVFlare's
                simulator, which has no certificates
    """
    path = Path(job)
    names = read_consortium(path, certificates=False).names
    place = Path(folder)
    if place.exists():
        raise InputError(f"{place} exists already, and is not replaced.", "Choose another folder.")
    here = __name__
    meta = {
        "name": path.stem,
        "resource_spec": {},
        "min_clients": len(names),
        "mandatory_clients": names,
        "deploy_map": {APP: ["server", *names]},
    }
    workflow = {"id": TASK, "path": f"{here}.SiteController", "args": {"sites": names}}
    executor = {"path": f"{here}.SiteExecutor", "args": {"synthetic": synthetic, "sealed": sealed}}
    client = {
        "format_version": 2,
        "executors": [{"tasks": [TASK], "executor": executor}],
        "components": [],
    }
    config = place / APP / "config"
    config.mkdir(parents=True)
    (place / "meta.json").write_text(json.dumps(meta, indent=1) + "\n")
    (config / "config_fed_server.json").write_text(
        json.dumps({"format_version": 2, "workflows": [workflow]}) + "\n"
    )
    (config / "config_fed_client.json").write_text(json.dumps(client) + "\n")
    (config / JOB).write_bytes(read_file(path, 1 << 20))
    return place


class SiteExecutor(_executor.Executor):
    """One site of a job, at the client of its name.

    synthetic   whether it computes with the data that the job's problem has
    sealed      whether messages are encrypted and signed from end to end
    """

    def __init__(self, synthetic: bool = False, sealed: bool = True) -> None:
        super().__init__()
        self.synthetic = synthetic
        self.sealed = sealed

    def execute(self, task_name: str, shareable: Any, fl_ctx: Any, abort_signal: Any) -> Any:
        """Take part until the end, or until the job is aborted: what was computed is kept."""
        if task_name != TASK:
            return _shareable.make_reply(Code.TASK_UNKNOWN)
        log = lambda line: self.log_info(fl_ctx, line)
        ended: list[str] = []  # why not, or "" if all went well
        part = threading.Thread(
            target=lambda: ended.append(self._take_part(fl_ctx, log)), daemon=True
        )
        part.start()
        while part.is_alive() and not abort_signal.triggered:
            part.join(POLL)
        if part.is_alive():
            return _shareable.make_reply(Code.TASK_ABORTED)
        why = ended[0] if ended else OWN_LOG
        reply = _shareable.make_reply(Code.EXECUTION_EXCEPTION if why else Code.OK)
        reply[WHY] = why
        return reply

    def _take_part(self, fl_ctx: Any, log: Callable[[str], None]) -> str:
        """Why this site could not go on, for the server: who is missing, but no words that may
        quote its data."""
        try:
            with jax.enable_x64(read_dtype(job_file(fl_ctx)) == "float64"):
                solution, place = self._solution(fl_ctx, log)
        except LostError as error:
            return str(error)
        except Exception as error:
            log(
                f"{type(error).__name__}:"
                f" {error if isinstance(error, InputError) else first_line(error)}"
            )
            return f"{type(error).__name__}: {OWN_LOG}"
        log(f"{solution.message} The result is in {place}")
        return solution.message if solution.status is Status.diverged else ""

    def _solution(self, fl_ctx: Any, log: Callable[[str], None]) -> tuple[Any, Path]:
        """This site's solution, and where it is kept."""
        engine = fl_ctx.get_engine()
        workspace = engine.get_workspace()
        name = fl_ctx.get_identity_name()
        path = job_file(fl_ctx)
        home = home_of(Path(workspace.get_site_config_dir()) / "decibo", name)
        consortium = read_consortium(path, certificates=False)
        peers = consortium.neighbours(name)
        wire = wire_of(engine, fl_ctx.get_job_id(), peers, log, sealed=self.sealed)
        if "estimator" in read_tables(path):
            from decibo.silo.estimator_job import fit_job  # needs scikit-learn

            model, place = fit_job(path, home, log=log, wire=wire)
            return model.solution_, place
        job = read_job(
            path, own=lambda named, where: agreed(home, named, where), certificates=False
        )
        solution = join(
            job, site=name, data=self._data(home), folder=home.run(job.digest), wire=wire, log=log
        )
        return solution, write_solution(home.run(job.digest), name, solution)

    def _data(self, home: Identity) -> Tree:
        if self.synthetic:
            return None
        if home.data is None:
            raise InputError(
                f"{home.folder / 'site.toml'} does not say what loads the data.",
                'Add data = "module:function".',
            )
        return _function(home.data, "data")()


class SiteController(_controller.Controller):
    """Starts all sites and waits for them; if one fails, all are ended.

    sites   the names of the clients
    """

    def __init__(self, sites: Iterable[str]) -> None:
        super().__init__()
        self.sites = list(sites)

    def start_controller(self, fl_ctx: Any) -> None:
        """Nothing to prepare."""

    def stop_controller(self, fl_ctx: Any) -> None:
        """Nothing to clear away."""

    def process_result_of_unknown_task(self, *args: Any, **kwargs: Any) -> None:
        """Ignore it."""

    def control_flow(self, abort_signal: Any, fl_ctx: Any) -> None:
        """One task for all sites, and no end to it but theirs."""
        task = _specification.Task(
            name=TASK, data=_shareable.Shareable(), timeout=0, result_received_cb=self._received
        )
        many = len(self.sites)
        self.broadcast_and_wait(
            task, fl_ctx, targets=self.sites, min_responses=many, abort_signal=abort_signal
        )

    def _received(self, client_task: Any, fl_ctx: Any) -> None:
        name = client_task.client.name
        result = client_task.result
        if result.get_return_code() == Code.OK:
            self.log_info(fl_ctx, f"{name} is done")
        else:
            why = short(plain(result.get(WHY) or result.get_return_code()), 300)
            self.system_panic(f"{name} cannot go on: {why}", fl_ctx)


class JobCell:
    """The cell of this client's job process."""

    def __init__(self, cell: Any, *, sealed: bool) -> None:
        self.core = cell.core_cell  # without the layer that cuts long messages into pieces
        self.sealed = sealed

    def listen(self, heard: Callable[[str, bytes, bool], None]) -> None:
        """Call this for every message of ours."""

        def received(message: Any) -> None:
            content = message.payload
            content = bytes(content) if isinstance(content, bytes | bytearray | memoryview) else b""
            heard(str(message.get_header(Header.ORIGIN)), content, message.get_prop(SEALED, False))

        self.core.add_incoming_filter(CHANNEL, TOPIC, self._before_it_is_opened)
        self.core.register_request_cb(CHANNEL, TOPIC, received)

    def send(self, address: str, content: bytes) -> None:
        """Send a message, and wait for no answer."""
        message = _message.Message(payload=content)
        found = self.core.fire_and_forget(
            CHANNEL, TOPIC, [address], message, secure=self.sealed, optional=True
        )
        if found and found.get(address):
            raise ConnectionError(found[address])

    @staticmethod
    def _before_it_is_opened(message: Any) -> None:
        """Note whether it is sealed: NVFlare opens and checks only messages that say so, and lets
        others pass."""
        sealed = message.get_header(Header.SECURE, False) and message.get_header(
            Header.ENCRYPTED, False
        )
        message.set_prop(SEALED, bool(sealed))


def wire_of(
    engine: Any, job_id: str, peers: Iterable[str], log: Callable[[str], None], *, sealed: bool
) -> CellWire:
    """The wire of this client to those of its neighbours that take part in the same job."""
    cell = engine.get_cell()
    if sealed:
        check_certificates(cell.core_cell)
    addresses = {
        peer: f"{cell_of(peer, engine.get_client_from_name(peer), sealed=sealed)}.{job_id}"
        for peer in peers
    }
    return CellWire(JobCell(cell, sealed=sealed), addresses, log, sealed=sealed)


def check_certificates(core: Any) -> None:
    """Reject an NVFlare whose messages cannot be sealed, or could be opened by somebody else."""
    if not core.supports_secure_messages():
        raise InputError(
            "This NVFlare has no certificates, so that messages cannot be encrypted and signed from"
            " end to end.",
            "Use a provisioned one; or sealed=False in job_folder(...), to try a job in NVFlare's"
            " simulator.",
        )
    if not core.credential_manager.enforce_identity:
        raise InputError(
            "This NVFlare does not compare the names of clients with those in their certificates,"
            " so that its server, or any client, could pose as a neighbour.",
            "Set its connection_security to mtls.",
        )


def cell_of(peer: str, client: Any, *, sealed: bool) -> str:
    """The address of a site's client, as the server tells it; if messages are sealed, only that of
    its name will do."""
    if client is None:
        raise InputError(f"{peer} is a site of the job, but no client takes part under this name.")
    address = str(client.get_fqcn())
    if sealed and address != peer:
        raise InputError(
            f"The server says that the client {peer} is at {short(plain(address))}, for which the"
            " certificate of another one would do.",
            "Connect the client with the server directly, without a relay of NVFlare.",
        )
    return address


def job_file(fl_ctx: Any) -> Path:
    """The job file in the folder of the running job."""
    return Path(fl_ctx.get_engine().get_workspace().get_app_config_dir(fl_ctx.get_job_id())) / JOB


def home_of(folder: Path, name: str) -> Identity:
    """The site's own folder at a client, which only its user may read; without a site.toml it names
    no data."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.chmod(folder, 0o700)
    home = Identity.at(folder) if (folder / "site.toml").is_file() else Identity(folder, name)
    if home.name != name:
        raise InputError(
            f"{folder / 'site.toml'} is that of {home.name}, but this client is {name}."
        )
    return home


def agreed(home: Identity, name: str, where: str) -> Callable[..., object]:
    """The function that a job names, if the site's own folder names the same."""
    if name != home.problem:
        raise InputError(
            f"{where} is {name}, which this site has not agreed to run.",
            f'If you trust it, add problem = "{name}" to {home.folder / "site.toml"}.',
        )
    return _function(name, where)


def _function(name: str, where: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    found = getattr(import_module(module), function, None)
    if not callable(found):
        raise InputError(f"{where}: {module} has no function {function!r}.")
    return found
