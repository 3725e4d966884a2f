"""What NVFlare's server is believed and told, with the few names of NVFlare that are needed in
place of it."""

import json
import sys
import threading
from types import ModuleType, SimpleNamespace

import pytest

from decibo.errors import InputError, LostError
from decibo.silo.nvflare_cells import FRAME
from helpers.sites import NAMES

ORIGIN, SECURE, ENCRYPTED = "origin", "secure", "encrypted"


class Reply(dict):
    def __init__(self, code="OK"):
        super().__init__()
        self.code = code

    def get_return_code(self):
        return self.code


class Message:
    def __init__(self, payload=None, **headers):
        self.payload = payload
        self.headers = headers

    def get_header(self, key, default=None):
        return self.headers.get(key, default)

    def set_prop(self, key, value):
        setattr(self, key, value)

    def get_prop(self, key, default=None):
        return getattr(self, key, default)


class Component:
    """What executors and controllers inherit from."""

    def __init__(self):
        self.said = []

    def log_info(self, fl_ctx, line):
        self.said.append(line)

    def system_panic(self, why, fl_ctx):
        self.said.append(why)


class Core:
    """A cell whose messages come from the test."""

    def __init__(self, *, certificates=True, names=True):
        self.supports_secure_messages = lambda: certificates
        self.credential_manager = SimpleNamespace(enforce_identity=names)
        self.sent = []

    def add_incoming_filter(self, channel, topic, cb):
        self.filter = cb

    def register_request_cb(self, channel, topic, cb):
        self.callback = cb

    def fire_and_forget(self, channel, topic, targets, message, secure, optional):
        self.sent.append((targets, message.payload, secure))
        return {targets[0]: ""}

    def arrive(self, message):
        """The filter, then what NVFlare does to an encrypted message, then the callback."""
        self.filter(message)
        message.headers.pop(ENCRYPTED, None)
        self.callback(message)


@pytest.fixture
def flare(monkeypatch):
    codes = {name: name for name in ("OK", "TASK_UNKNOWN", "TASK_ABORTED", "EXECUTION_EXCEPTION")}
    keys = {"ORIGIN": ORIGIN, "SECURE": SECURE, "ENCRYPTED": ENCRYPTED}
    parts = {
        "apis.executor": {"Executor": Component},
        "apis.impl.controller": {"Controller": Component},
        "apis.controller_spec": {"Task": SimpleNamespace},
        "apis.shareable": {"Shareable": Reply, "make_reply": Reply},
        "apis.fl_constant": {"ReturnCode": SimpleNamespace(**codes)},
        "fuel.f3.cellnet.defs": {"MessageHeaderKey": SimpleNamespace(**keys)},
        "fuel.f3.message": {"Message": Message},
    }
    for name in [name for name in sys.modules if name.partition(".")[0] == "nvflare"]:
        monkeypatch.delitem(sys.modules, name)
    for path, names in parts.items():
        words = ("nvflare." + path).split(".")
        for count in range(1, len(words) + 1):
            name = ".".join(words[:count])
            if name not in sys.modules:
                monkeypatch.setitem(sys.modules, name, ModuleType(name))
        vars(sys.modules["nvflare." + path]).update(names)
    monkeypatch.delitem(sys.modules, "decibo.silo.nvflare", raising=False)
    import decibo.silo.nvflare as module

    yield module
    sys.modules.pop("decibo.silo.nvflare")


def engine(core, **cells):
    clients = {
        name: SimpleNamespace(get_fqcn=lambda cell=cell: cell) for name, cell in cells.items()
    }
    return SimpleNamespace(
        get_cell=lambda: SimpleNamespace(core_cell=core), get_client_from_name=clients.get
    )


# Whom a site believes


@pytest.mark.parametrize(
    ("core", "cells", "words"),
    [
        (Core(certificates=False), {"east": "east"}, "has no certificates"),
        (
            Core(names=False),
            {"east": "east"},
            "could pose as a neighbour. Set its connection_security to mtls",
        ),
        (Core(), {}, "no client takes part under this name"),
        (Core(), {"east": "mallory"}, "The server says that the client east is at mallory"),
        (Core(), {"east": "relay.east"}, "without a relay of NVFlare"),
    ],
)
def test_a_wire_that_the_server_could_read_is_refused(flare, core, cells, words):
    with pytest.raises(InputError, match=words):
        flare.wire_of(engine(core, **cells), "job", ["east"], print, sealed=True)


def test_only_sealed_messages_of_the_neighbours_own_cell_are_delivered(flare):
    core, log, got = Core(), [], []
    wire = flare.wire_of(engine(core, east="east"), "7", ["east"], log.append, sealed=True)
    receiver = SimpleNamespace(
        longest=100, deliver=lambda *frame: got.append(frame), connected=lambda peer: None
    )
    wire.start(receiver)
    arrive = lambda origin, payload, **headers: core.arrive(
        Message(payload, **{ORIGIN: origin} | headers)
    )
    sealed = {SECURE: True, ENCRYPTED: True}
    arrive("east.7", FRAME + b"one", **sealed)
    arrive("mallory.7", FRAME + b"two", **sealed)
    # says so, but NVFlare has opened and checked nothing
    arrive("east.7", FRAME + b"three", **{SECURE: True})
    arrive("east.8", FRAME + b"four", **sealed)
    arrive("east.7", {"no": "bytes"}, **sealed)
    wire.send("east", b"five")
    wire.close()
    assert got == [("east", b"one")]
    assert [line.partition(": ")[2] for line in log] == [
        "it is no neighbour", "it is not encrypted and signed", "it is no neighbour", "it is neither a frame nor a knock"]  # fmt: skip
    assert core.sent[-1] == (["east.7"], FRAME + b"five", True)
    assert all(secure for _, _, secure in core.sent)


# What the server is told


class Ended(Exception):  # noqa: N818
    """Whatever a site's own code may raise."""


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            InputError("ours.csv, line 7: Jane Doe", "Ask Jane."),
            "InputError: the site's own log says why.",
        ),
        (Ended("Jane Doe is 61"), "Ended: the site's own log says why."),
        (SystemExit("Jane Doe"), "the site's own log says why."),
        (
            LostError("north has waited 20 seconds for east."),
            "north has waited 20 seconds for east.",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_server_learns_who_is_missing_and_nothing_that_may_quote_data(
    flare, monkeypatch, tmp_path, error, told
):
    def fail(self, fl_ctx, log):
        raise error

    (tmp_path / "job.toml").write_text("")
    monkeypatch.setattr(flare.SiteExecutor, "_solution", fail)
    monkeypatch.setattr(flare, "job_file", lambda fl_ctx: tmp_path / "job.toml")
    executor = flare.SiteExecutor()
    reply = executor.execute("decibo", None, None, SimpleNamespace(triggered=False))
    assert (reply.code, reply["why"]) == ("EXECUTION_EXCEPTION", told)
    # at home it is in the log
    assert isinstance(error, LostError | SystemExit) or "Jane" in executor.said[0]
    controller = flare.SiteController(["north"])
    reply["why"] += "\x1b[2J" + 1000 * "a"
    controller._received(SimpleNamespace(client=SimpleNamespace(name="north"), result=reply), None)
    assert controller.said[0].startswith(f"north cannot go on: {told}?[2J")
    assert len(controller.said[0]) < 350


def test_a_job_that_is_aborted_says_so_at_once(flare, monkeypatch, tmp_path):
    (tmp_path / "job.toml").write_text("")
    waits = threading.Event()
    monkeypatch.setattr(flare.SiteExecutor, "_solution", lambda *_: waits.wait(20))
    monkeypatch.setattr(flare, "job_file", lambda fl_ctx: tmp_path / "job.toml")
    reply = flare.SiteExecutor().execute("decibo", None, None, SimpleNamespace(triggered=True))
    waits.set()
    assert reply.code == "TASK_ABORTED"
    assert flare.SiteExecutor().execute("another", None, None, None).code == "TASK_UNKNOWN"


# What a site agrees to


def test_a_site_runs_the_function_that_its_own_folder_names_and_no_other(flare, tmp_path):
    home = flare.home_of(tmp_path / "decibo", "north")
    assert home.folder.stat().st_mode & 0o777 == 0o700
    with pytest.raises(InputError, match="os:system, which this site has not agreed to run"):
        flare.agreed(home, "os:system", "problem")
    (home.folder / "site.toml").write_text(
        'name = "north"\nproblem = "decibo.problems:quadratic"\n'
    )
    home = flare.home_of(home.folder, "north")
    assert flare.agreed(home, "decibo.problems:quadratic", "problem").__name__ == "quadratic"
    with pytest.raises(InputError, match="is that of north, but this client is east"):
        flare.home_of(home.folder, "east")


def test_a_job_folder_names_the_sites_and_our_two_classes(flare, tmp_path):
    job = tmp_path / "heart.toml"
    sites = "".join(f'[[site]]\nname = "{name}"\n' for name in NAMES)
    job.write_text(
        'problem = "quadratic"\n[method]\nname = "ahead_exact"\nalpha = 0.05\ngamma = 0.1\n' + sites
    )
    place = flare.job_folder(job, tmp_path / "heart")
    meta = json.loads((place / "meta.json").read_text())
    assert (meta["name"], meta["mandatory_clients"]) == ("heart", list(NAMES))
    client, server = (
        json.loads((place / "app" / "config" / f"config_fed_{who}.json").read_text())
        for who in ("client", "server")
    )
    executor = client["executors"][0]["executor"]
    assert executor["path"].rpartition(".")[2] == "SiteExecutor"
    assert executor["args"] == {"synthetic": False, "sealed": True}
    assert server["workflows"][0]["args"] == {"sites": list(NAMES)}
    assert (place / "app" / "config" / "job.toml").read_bytes() == job.read_bytes()
    with pytest.raises(InputError, match="exists already"):
        flare.job_folder(job, place)
