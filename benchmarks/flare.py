"""Sites as clients of NVFlare on this machine: equal to the simulation, killed, gone, forged,
tapped, timed.

    python benchmarks/nvflare.py [same simulator killed gone frozen forged tap fit speed]

Not part of the suite: it needs `pip install decibo[flare]`, starts eleven processes with 3 GiB, and
takes ten minutes. A server and four clients are provisioned (`nvflare provision`) with
certificates, mutual TLS and default settings; only the classes of decibo are added to the lists of
those that a job may name.

same       1,000 steps: how far from `decibo.solve`, and how long a step takes
simulator  the same in NVFlare's simulator, which encrypts nothing, 100 steps
killed     the job process of one client killed: how the job ends; submitted again: from which step,
           and how far off
gone       a whole client killed and started again 5 s later: what happens to the job, with a
           patience of 20 s
frozen     a client stopped for 20 s: how far from `decibo.solve`
forged     one client sends messages in the name of another, sealed and not: what its neighbours
           make of them
tap        all messages that pass the server, searched for every number that the sites say
fit        SiloLogisticRegression at four clients with a table each: the same model everywhere, and
           that of one process
speed      one exchange between two clients without JAX: milliseconds, and CPU of one site
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
import tomli_w

import decibo
from decibo.cli.join import free_port
from decibo.silo import nvflare
from decibo.silo.frame import MAGIC
from decibo.silo.mailbox import Post, Settings

jax.config.update("jax_enable_x64", True)
NAMES = ("north", "east", "south", "west")
METHOD = {"name": "ahead_exact", "alpha": 0.05, "gamma": 0.1}
CLASSES = ["decibo.silo.nvflare.SiteController", "decibo.silo.nvflare.SiteExecutor", "flare."]
TAP = """
import os
if os.environ.get("DECIBO_TAP"):
    from nvflare.fuel.f3.cellnet import core_cell
    before = core_cell.CoreCell._process_received_msg
    def tapped(self, endpoint, connection, message):
        if message.get_header("cn__channel") == "decibo":
            with open(os.environ["DECIBO_TAP"], "ab") as file:
                file.write(bytes(message.payload))
        return before(self, endpoint, connection, message)
    core_cell.CoreCell._process_received_msg = tapped
"""


class Consortium:
    """A server and four clients, each with a workspace and a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kits = provisioned(folder)
        for name in ("localhost", *NAMES):
            self._allow(name)
        (folder / "hook").mkdir()
        (folder / "hook" / "sitecustomize.py").write_text(TAP)
        self.running: dict[str, subprocess.Popen] = {}
        self.session = None

    def _allow(self, name: str) -> None:
        local = self.kits / name / "local"
        settings = json.loads((local / "resources.json.default").read_text())
        settings["class_allow_list"] += CLASSES
        text = json.dumps(settings, indent=1)
        for place in ("/tmp/nvflare/snapshot-storage", "/tmp/nvflare/jobs-storage"):
            text = text.replace(place, str(self.folder / Path(place).name))
        (local / "resources.json").write_text(text)

    def start(self, *names: str) -> None:
        for name in names:
            kind, words = ("server", []) if name == "localhost" else ("client", [f"uid={name}"])
            command = [sys.executable, "-u", "-m", f"nvflare.private.fed.app.{kind}.{kind}_train", "-m",
                       str(self.kits / name), "-s", f"fed_{kind}.json", "--set", "secure_train=true", *words,
                       "org=decibo", "config_folder=config"]  # fmt: skip
            paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
            more = {"JAX_PLATFORMS": "cpu"}
            if name == "localhost":
                paths.insert(0, str(self.folder / "hook"))
                more["DECIBO_TAP"] = str(self.folder / "tapped")
            log = (self.folder / f"{name}.log").open("ab")
            self.running[name] = subprocess.Popen(
                command, stdout=log, stderr=log, env=os.environ | more | {"PYTHONPATH": ":".join(paths)},
                start_new_session=True,
            )  # fmt: skip

    def connect(self) -> None:
        from nvflare.fuel.flare_api.flare_api import new_secure_session

        until = time.monotonic() + 120
        while True:
            with contextlib.suppress(Exception):
                self.session = new_secure_session(
                    "admin@decibo.org", str(self.kits / "admin@decibo.org")
                )
                while len(self.session.get_system_info().client_info) < len(NAMES):
                    time.sleep(1)
                return
            assert time.monotonic() < until, "no session"
            time.sleep(1)

    def submit(
        self, steps: int, name: str, patience: float = 120.0, executor: str | None = None, **more
    ) -> str:
        place = self.folder / name
        if not place.exists():
            self.earlier = {run for each in NAMES for run in self.runs(each)}
            path = self.folder / f"{name}.toml"
            path.write_text(tomli_w.dumps(job(steps, patience) | more))
            nvflare.job_folder(path, place, synthetic="estimator" not in more)
            if executor:
                config = place / "app" / "config" / "config_fed_client.json"
                config.write_text(
                    config.read_text().replace("decibo.silo.nvflare.SiteExecutor", executor)
                )
        return self.session.submit_job(str(place))

    def status(self, number: str) -> str:
        return self.session.get_job_meta(number)["status"]

    def wait(self, number: str, seconds: float = 300) -> tuple[str, float]:
        """How a job ended, and when; RUNNING if it did not."""
        begun = time.monotonic()
        while time.monotonic() - begun < seconds:
            status = self.status(number)
            if status.startswith("FINISHED"):
                return status, time.monotonic() - begun
            time.sleep(0.5)
        return self.status(number), seconds

    def found(self, file: str) -> dict[str, dict]:
        newest = lambda name: max(
            (self.kits / name / "local" / "decibo").glob(f"runs/*/{file}"),
            key=lambda path: path.stat().st_mtime,
        )
        return {name: json.loads(newest(name).read_text()) for name in NAMES}

    def runs(self, name: str) -> set[Path]:
        return set((self.kits / name / "local" / "decibo").glob("runs/*"))

    def step(self, name: str) -> int:
        """The step of a site's newest checkpoint of the run that was submitted last."""
        steps = [
            int(path.name[5:])
            for run in self.runs(name) - self.earlier
            for path in run.glob("step-*")
        ]
        return max(steps, default=0)

    def reach(self, step: int, number: str) -> None:
        """Wait until all sites have made this step in a job."""
        while min(map(self.step, NAMES)) < step:
            assert not self.status(number).startswith("FINISHED")
            time.sleep(0.2)

    def job_process(self, name: str, number: str) -> int:
        import psutil

        return next(
            child.pid for child in psutil.Process(self.running[name].pid).children(recursive=True)
            if any(number in word for word in child.cmdline())
        )  # fmt: skip

    def lines(self, name: str, words: str) -> list[str]:
        return [
            line for line in (self.folder / f"{name}.log").read_text().splitlines() if words in line
        ]

    def end(self, *names: str) -> None:
        for name in names or list(self.running):
            process = self.running.pop(name)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def provisioned(folder: Path) -> Path:
    """The startup kits of a server, four clients and an administrator."""
    server = {"name": "localhost", "type": "server", "org": "decibo", "fed_learn_port": free_port()}
    server["admin_port"] = free_port()
    clients = [{"name": name, "type": "client", "org": "decibo"} for name in NAMES]
    admin = {"name": "admin@decibo.org", "type": "admin", "org": "decibo", "role": "project_admin"}
    here = "nvflare.lighter.impl."
    project = {"api_version": 3, "name": "decibo", "participants": [server, *clients, admin], "builders": [
        {"path": f"{here}workspace.WorkspaceBuilder", "args": {"template_file": "master_template.yml"}},
        {"path": f"{here}static_file.StaticFileBuilder", "args": {"config_folder": "config", "scheme": "grpc"}},
        {"path": f"{here}cert.CertBuilder"}, {"path": f"{here}signature.SignatureBuilder"}]}  # fmt: skip
    (folder / "project.yml").write_text(json.dumps(project))
    command = [
        str(Path(sys.executable).parent / "nvflare"),
        "provision",
        "-p",
        "project.yml",
        "-w",
        "kits",
    ]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder / "kits" / "decibo" / "prod_00"


def job(steps: int, patience: float = 120.0) -> dict:
    run = {"steps": steps, "patience": patience, "checkpoint_every": 10}
    return {"problem": "quadratic", "network": {"name": "ring"}, "method": METHOD, "run": run,
            "site": [{"name": name} for name in NAMES]}  # fmt: skip


def apart(found: dict[str, dict], steps: int) -> float:
    problem = decibo.problems.quadratic(agents=4)
    method = decibo.ahead_exact(alpha=METHOD["alpha"], gamma=METHOD["gamma"])
    reference = decibo.solve(problem, decibo.ring(4), method, steps=steps, measures=[])
    rows = {
        "x": np.asarray(reference.agents.x),
        "y": np.asarray(getattr(reference.agents, method.answer)),
    }
    return max(
        np.abs(np.asarray(found[name][v][0]) - rows[v][i]).max()
        for i, name in enumerate(NAMES)
        for v in rows
    )


def same(all: Consortium) -> None:
    number = all.submit(1000, "same")
    status, seconds = all.wait(number)
    found = all.found("solution.json")
    steps = max(entry["seconds"] for entry in found.values())
    print(f"same: {status}; {apart(found, 1000):.1e} from solve after 1,000 steps, {steps:.1f} ms a step, "
          f"{seconds:.0f} s from submitting to the end; load {os.getloadavg()[0]:.1f}")  # fmt: skip


def simulator(all: Consortium) -> None:
    folder = all.folder / "simulated"
    (folder / "local").mkdir(parents=True)
    (folder / "local" / "resources.json").write_text(
        json.dumps({"format_version": 2, "class_allow_list": CLASSES})
    )
    (all.folder / "sim.toml").write_text(tomli_w.dumps(job(100)))
    nvflare.job_folder(all.folder / "sim.toml", all.folder / "sim", synthetic=True, sealed=False)
    command = [str(Path(sys.executable).parent / "nvflare"), "simulator", str(all.folder / "sim"), "-w", str(folder),
               "-c", ",".join(NAMES), "-t", "4"]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    place = lambda name: next((folder / name / "local" / "decibo").glob("runs/*/solution.json"))
    print(
        "simulator:"
        f" {apart({name: json.loads(place(name).read_text()) for name in NAMES}, 100):.1e} from"
        " solve"
    )


def killed(all: Consortium) -> None:
    number = all.submit(1001, "killed")
    all.reach(100, number)
    os.kill(all.job_process("south", number), signal.SIGKILL)
    status, seconds = all.wait(number)
    before = {name: all.step(name) for name in NAMES}
    print(
        f"killed: the job process of south: {status} after {seconds:.0f} s; checkpoints at {before}"
    )
    status, seconds = all.wait(all.submit(1001, "killed"))
    print(
        f"killed, submitted again: {status}; {apart(all.found('solution.json'), 1001):.1e} from"
        " solve"
    )


def gone(all: Consortium) -> None:
    number = all.submit(1002, "gone", patience=20.0)
    all.reach(100, number)
    all.end("south")
    begun = time.monotonic()
    time.sleep(5)
    all.start("south")
    status, _ = all.wait(number, 150)
    print(
        f"gone: south killed and started again 5 s later: {status} {time.monotonic() - begun:.0f} s"
        " after the kill"
    )
    for line in all.lines("localhost", "cannot go on")[-1:]:
        print(f"gone: the server's log says {line[-150:]!r}")
    all.connect()
    status, _ = all.wait(all.submit(1002, "gone"))
    print(
        f"gone, submitted again: {status}; {apart(all.found('solution.json'), 1002):.1e} from solve"
    )


def frozen(all: Consortium) -> None:
    number = all.submit(1003, "frozen")
    all.reach(100, number)
    process = all.job_process("south", number)
    os.kill(process, signal.SIGSTOP)
    time.sleep(20)
    os.kill(process, signal.SIGCONT)
    status, _ = all.wait(number)
    print(
        f"frozen: south for 20 s: {status}; {apart(all.found('solution.json'), 1003):.1e} from"
        " solve"
    )


class Forger(nvflare.SiteExecutor):
    """A site that also speaks in the name of another: east as west, to north."""

    def _solution(self, fl_ctx, say):
        if fl_ctx.get_identity_name() == "east":
            self._forge(fl_ctx.get_engine().get_cell(), fl_ctx.get_job_id(), say)
        return super()._solution(fl_ctx, say)

    def _forge(self, cell, number, say):
        from nvflare.fuel.f3.cellnet.registry import Callback

        as_west = lambda message: message.set_header("cn__origin", f"west.{number}")
        filters = cell.core_cell.out_req_filter_reg
        honest = list(filters.find(nvflare.CHANNEL, nvflare.TOPIC))
        filters.set(nvflare.CHANNEL, nvflare.TOPIC, [*honest, Callback(as_west, (), {})])
        for sealed in (False, True):
            for _ in range(5):
                nvflare.JobCell(cell, sealed=sealed).send(f"north.{number}", b"F" + bytes(100))
                time.sleep(0.3)
            say(f"forged 5 messages to north, sealed: {sealed}")
        filters.set(nvflare.CHANNEL, nvflare.TOPIC, honest)


class Unsealed(nvflare.SiteExecutor):
    """East sends to north in its own name, but in the clear, before it takes part as it should."""

    def _solution(self, fl_ctx, say):
        if fl_ctx.get_identity_name() == "east":
            for _ in range(15):  # seconds, by which north listens
                cell = nvflare.JobCell(fl_ctx.get_engine().get_cell(), sealed=False)
                cell.send(f"north.{fl_ctx.get_job_id()}", b"F" + bytes(100))
                time.sleep(1)
        return super()._solution(fl_ctx, say)


def forged(all: Consortium) -> None:
    for number, (words, executor) in enumerate(
        {"as west": "flare.Forger", "in the clear": "flare.Unsealed"}.items()
    ):
        status, _ = all.wait(all.submit(100 + number, f"forged-{number}", executor=executor))
        print(
            f"forged, {words}: {status}; {apart(all.found('solution.json'), 100 + number):.1e} from"
            " solve"
        )
    for name in ("north", "localhost"):
        said = [
            *all.lines(name, "refused"),
            *all.lines(name, "unauthenticated"),
            *all.lines(name, "InvalidSignature"),
        ]
        print(
            f"forged: {len(said)} lines at {name}",
            *(line[-160:] for line in said[:3]),
            sep="\n    ",
        )


def tap(all: Consortium) -> None:
    file = all.folder / "tapped"
    file.write_bytes(b"")
    status, _ = all.wait(all.submit(50, "tap"))
    content = file.read_bytes()
    problem = decibo.problems.quadratic(agents=4)
    method = decibo.ahead_exact(alpha=METHOD["alpha"], gamma=METHOD["gamma"])
    steps = decibo.privacy.messages(problem, decibo.ring(4), method, steps=50)
    said = {
        row.tobytes()
        for step in steps
        for part in step
        for rows in part.values()
        for row in np.asarray(rows)
    }
    own = {np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(problem.data)}
    wanted = {piece[k : k + 8] for piece in said | own for k in range(0, len(piece) - 7, 8)} - {
        bytes(8),
        b"",
    }
    seen = [piece for piece in wanted if len(piece) == 8 and piece in content]
    print(f"tap: {status}; {len(content):,} bytes passed the server; {len(seen)} of {len(wanted):,} numbers in them; "
          f"{content.count(MAGIC)} frames in the clear")  # fmt: skip


def fit(all: Consortium) -> None:
    import pandas

    from decibo.sklearn import SiloLogisticRegression, load

    data = decibo.data.heart_disease()
    tables = {}
    for number, name in enumerate(NAMES):
        own = np.asarray(data.groups) == np.unique(data.groups)[number]
        tables[name] = pandas.DataFrame(np.asarray(data.features)[own]).rename(columns=str)
        tables[name]["disease"] = np.asarray(data.labels)[own]
        folder = all.kits / name / "local" / "decibo"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "site.toml").write_text(f'name = "{name}"\ntable = "ours.csv"\n')
        tables[name].to_csv(folder / "ours.csv", index=False)
    more = {"estimator": {"name": "SiloLogisticRegression", "label": "disease", "random_state": 0},
            "run": {"patience": 120.0}}  # fmt: skip
    status, seconds = all.wait(all.submit(0, "fit", **more), 600)
    models = {
        name: load(all.kits / name / "local" / "decibo" / "models" / "job.json") for name in NAMES
    }
    first = models["north"]
    equal = all_equal([model.coef_ for model in models.values()])
    whole = pandas.concat(tables.values())
    # in the order of the job
    groups = np.repeat(range(4), [len(table) for table in tables.values()])
    features = whole.drop(columns="disease").to_numpy()
    order = SiloLogisticRegression(random_state=0).fit(
        features, whole["disease"].to_numpy(), groups
    )
    print(f"fit: {status} after {seconds:.0f} s; the same model at all sites: {equal}; "
          f"{np.abs(first.coef_ - order.coef_).max():.0e} from the fit in one process")  # fmt: skip


def all_equal(arrays: list[np.ndarray]) -> bool:
    return all(np.array_equal(arrays[0], array) for array in arrays)


class Exchanges(nvflare.SiteExecutor):
    """North and east exchange vectors; the others only stay."""

    def _solution(self, fl_ctx, say):
        me = fl_ctx.get_identity_name()
        if me not in NAMES[:2]:
            time.sleep(1)
            return self._ended("")
        engine = fl_ctx.get_engine()
        other = NAMES[1 - NAMES.index(me)]
        words = []
        for size, rounds in ((11, 500), (10_000, 200), (1_000_000, 10)):
            wire = nvflare.wire_of(engine, fl_ctx.get_job_id(), [other], say, sealed=self.sealed)
            how = Settings(
                me, NAMES[:2], [other], size.to_bytes(16, "little"), {}, most=size, patience=60.0
            )
            post = Post(wire, how, keep=14)
            post.start()
            vector = np.random.default_rng(0).normal(size=size)
            post.exchange(0, 0, vector)
            times = []
            cpu = time.process_time()
            for k in range(1, rounds + 1):
                begun = time.perf_counter()
                post.exchange(k, 0, vector)
                times.append(1e3 * (time.perf_counter() - begun))
            cpu = 1e3 * (time.process_time() - cpu) / rounds
            post.finish()
            post.close()
            low, median = np.percentile(times, [5, 50])
            words.append(f"speed, {size:,} numbers: {median:.2f} ms in the median, {low:.2f} ms in the best 5 %; "
                         f"{cpu:.2f} ms of CPU a site; load {os.getloadavg()[0]:.1f}")  # fmt: skip
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return self._ended(f"{'; '.join(words)}; {memory:.0f} MiB" if me == "north" else "")

    @staticmethod
    def _ended(words):
        from types import SimpleNamespace

        return SimpleNamespace(message=words, status=None), Path()


def speed(all: Consortium) -> None:
    status, _ = all.wait(all.submit(1, "speed", executor="flare.Exchanges"))
    print(
        f"speed: {status}",
        *(line.partition("speed, ")[2] for line in all.lines("north", "speed, ")),
        sep="\n    ",
    )


SECTIONS = {"same": same, "simulator": simulator, "killed": killed, "gone": gone, "frozen": frozen, "forged": forged,
            "tap": tap, "fit": fit, "speed": speed}  # fmt: skip

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], default=[])
    parser.add_argument("--keep", help="a new folder for workspaces and logs, which is not deleted")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        consortium = Consortium(Path(chosen.keep or temporary))
        try:
            begun = time.perf_counter()
            consortium.start("localhost", *NAMES)
            consortium.connect()
            print(f"connected after {time.perf_counter() - begun:.0f} s")
            for section in chosen.sections or SECTIONS:
                SECTIONS[section](consortium)
        finally:
            if consortium.session is not None:
                consortium.session.close()
            consortium.end()
