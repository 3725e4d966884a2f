"""Sites as processes of this machine, over TLS on the loopback: equal to the simulation, killed,
frozen, tapped, timed.

    python benchmarks/silos.py [same methods kills frozen relay free lost-disk masks tap fuzz speed]
                               [--kills 50] [--steps 3000] [--seed 0]

same     four processes, 1,000 steps: how far from `decibo.solve`
methods  every method of the catalogue, three sites as threads, 6 steps: how far from `decibo.solve`
kills    random SIGKILLs of up to three of four sites at once: every bit of the final states
         compared with a calm run
frozen   one site stopped (SIGSTOP) for 60 seconds: the same
relay    four sites that can only call out; the relay killed for 3 seconds: the same
free     nobody waits: one site runs a tenth of the time, one is stopped for 10 s, one killed twice;
         once each site moves when it has computed, once at a pace: how far from the solution, and
         how long lockstep takes
lost-disk  nobody waits: one site killed, its folder deleted, and started again: how far from the
           solution
masks    masks a hundred times the largest direction, from secrets of the links: how far from the
         solution; and sums of which single messages cannot be read, on the complete network: how
         far from `decibo.solve` after 1,000 steps
tap      all bytes on a link and inside the relay, searched for every number that the sites have or
         say
fuzz     20,000 frames, made up and damaged, and 10,000 that hypothesis makes up, into a Post of
         each mode: exceptions, memory
speed    one exchange between two processes without JAX: milliseconds, and CPU of one site
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import inspect
import itertools
import json
import os
import pickle
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np
import tomli_w

import decibo
from decibo.cli.join import free_port
from decibo.silo import Home, Job, Memory, Site, join
from decibo.silo.async_mailbox import Newest
from decibo.silo.frame import Kind, pack
from decibo.silo.mailbox import Post, Settings
from decibo.silo.relay import Relay
from decibo.silo.tls import TlsWire

jax.config.update("jax_enable_x64", True)
NAMES = ("north", "east", "south", "west")
METHOD = {"name": "ahead_exact", "alpha": 0.05, "gamma": 0.1}
FREE = {"name": "ahead_free", "alpha": 0.05, "gamma": 0.1}
HELD = (
    "log",
    "greeted",
    "shares",
    "_box",
    "_reports",
    "_ended",
    "_heard",
    "_answered",
    "_complained",
    "_newest",
)


class Sites:
    """Four sites with a folder each, and their processes."""

    def __init__(
        self,
        folder: Path,
        steps: int,
        *,
        relay: bool = False,
        every: int = 7,
        method=METHOD,
        network="ring",
        **run,
    ):
        self.folder = folder
        address = lambda: f"127.0.0.1:{free_port()}"
        self.homes = {
            name: Home.make(folder / name, name, None if relay else address()) for name in NAMES
        }
        tables = {"problem": "quadratic", "network": {"name": network}, "method": method}
        tables["run"] = {"steps": steps, "checkpoint_every": every, "patience": 600.0} | run
        entry = lambda site: (
            {"name": site.name, "certificate": site.certificate}
            | ({"address": site.address} if site.address else {})
        )
        self.relay = Home.make(folder / "relay", "relay", address()) if relay else None
        if self.relay:
            tables["relay"] = {
                "address": self.relay.address,
                "certificate": self.relay.site.certificate,
            }
        tables["site"] = [entry(home.site) for home in self.homes.values()]
        self.job = folder / "job.toml"
        self.job.write_text(tomli_w.dumps(tables))
        self.running: dict[str, subprocess.Popen] = {}

    def start(self, *names: str) -> None:
        for name in names:
            words = ["join", self.job, "--home", self.folder / name, "--synthetic", "--json"]
            if name == "relay":
                words = [
                    "relay",
                    self.job,
                    "--listen",
                    self.relay.address,
                    "--home",
                    self.relay.folder,
                ]
            log = (self.folder / f"{name}.log").open("ab")
            command = [sys.executable, "-m", "decibo", *map(str, words)]
            self.running[name] = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self, *names: str) -> None:
        for name in names:
            self.running[name].kill()
        for name in names:
            self.running[name].wait()

    def step(self, name: str) -> int:
        """The step of a site's newest checkpoint."""
        return max(
            (int(path.name[5:]) for path in self.homes[name].folder.glob("runs/*/step-*")),
            default=0,
        )

    def wait(self, names: tuple[str, ...] = NAMES) -> None:
        for name in names:
            code = self.running[name].wait(timeout=900)
            assert code == 0, (self.folder / f"{name}.log").read_text()[-2000:]

    def states(self) -> dict[str, bytes]:
        """The bits of all final states."""
        found = {}
        for name, home in self.homes.items():
            newest = sorted(home.folder.glob("runs/*/step-*"))[-1]
            with np.load(next(newest.glob("agents-*.npz"))) as file:
                found[name] = b"".join(file[key].tobytes() for key in sorted(file.files))
        return found

    def ends(self) -> dict[str, dict]:
        """What each site has written at its end."""
        return {name: json.loads(next(home.folder.glob("runs/*/solution.json")).read_text())
                for name, home in self.homes.items()}  # fmt: skip

    def error(self) -> float:
        """The largest |x - x*| of a site."""
        solution = np.asarray(decibo.problems.quadratic(agents=4).solution["x"])
        return max(
            float(np.abs(np.asarray(found["x"][0]) - solution).max())
            for found in self.ends().values()
        )

    def end(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()


@contextlib.contextmanager
def sites(steps: int, **options):
    with tempfile.TemporaryDirectory() as folder:
        made = Sites(Path(folder), steps, **options)
        try:
            yield made
        finally:
            made.end()


def calm(steps: int, every: int = 7) -> dict[str, bytes]:
    with sites(steps, every=every) as run:
        run.start(*NAMES)
        run.wait()
        return run.states()


def same(options) -> None:
    with sites(1000, every=10) as run:
        begun = time.perf_counter()
        run.start(*NAMES)
        run.wait()
        wall = time.perf_counter() - begun
        found = run.ends()
    problem = decibo.problems.quadratic(agents=4)
    method = decibo.ahead_exact(alpha=METHOD["alpha"], gamma=METHOD["gamma"])
    reference = decibo.solve(problem, decibo.ring(4), method, steps=1000, measures=[])
    rows = {
        "x": np.asarray(reference.agents.x),
        "y": np.asarray(getattr(reference.agents, method.answer)),
    }
    apart = max(
        np.abs(np.asarray(found[name][v][0]) - rows[v][i]).max()
        for i, name in enumerate(NAMES)
        for v in rows
    )
    seconds = max(entry["seconds"] for entry in found.values())
    print(
        f"same: {apart:.1e} from solve after 1,000 steps; {seconds:.1f} s of steps, {wall:.1f} s"
        " with starting JAX"
    )


def methods(options) -> None:
    problem = decibo.problems.quadratic(agents=3)
    names = NAMES[:3]
    value = lambda parameter: (
        3 if parameter.annotation in ("int", int) else 20.0 if parameter.name == "lam" else 0.02
    )
    for name, factory in decibo.CATALOG.items():
        parameters = inspect.signature(factory).parameters.values()
        settings = {each.name: value(each) for each in parameters if each.default is each.empty}
        # lengths of inner loops
        settings |= {each.name: 3 for each in parameters if each.name in ("T", "N", "K")}
        try:
            method = factory(**settings)
            if method.centralised:
                continue
            made = Job(tuple(map(Site, names)), problem, decibo.ring(3), method, 6, patience=60.0)
        except decibo.InputError as error:
            print(f"methods: {name} is refused: {error}")
            continue
        memory = Memory()
        with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(3) as pool:
            place = lambda site, folder=folder, memory=memory: (
                Path(folder) / site,
                memory.wire(site),
            )
            work = lambda site, made=made, place=place: join(
                made, site=site, data=None, folder=place(site)[0], wire=place(site)[1]
            )
            try:
                found = list(pool.map(work, names))
            except decibo.LostError:
                print(f"methods: {name} needs a process for each site")
                continue
        expected = decibo.solve(problem, made.network, method, steps=6, measures=[])
        rows = np.asarray(expected.agents.x)
        apart = max(np.abs(np.asarray(own.x) - rows[i]).max() for i, own in enumerate(found))
        print(f"methods: {name} {apart:.0e}")


def kills(options) -> None:
    steps = options.steps
    expected = calm(steps)
    random = np.random.default_rng(options.seed)
    done, rounds, most = 0, 0, 0
    with sites(steps) as run:
        run.start(*NAMES)
        while done < options.kills:
            before = min(run.step(name) for name in NAMES)
            until = time.monotonic() + 120
            while min(run.step(name) for name in NAMES) < before + 7 and time.monotonic() < until:
                time.sleep(0.02)
            time.sleep(random.uniform(0, 0.3))
            chosen = tuple(random.choice(NAMES, size=random.integers(1, 4), replace=False))
            alive = [name for name in chosen if run.running[name].poll() is None]
            if not alive or min(run.step(name) for name in NAMES) > steps - 100:
                break
            run.kill(*alive)
            done += len(alive)
            rounds += 1
            most = max(most, len(alive))
            time.sleep(random.uniform(0, 1))
            run.start(*alive)
        run.wait()
        identical = run.states() == expected
    print(
        f"kills: {done} in {rounds} rounds, up to {most} of 4 at once; {steps} steps; the same"
        f" bits: {identical}"
    )


def frozen(options) -> None:
    expected = calm(options.steps)
    with sites(options.steps) as run:
        run.start(*NAMES)
        while run.step("south") < 70:
            time.sleep(0.05)
        run.running["south"].send_signal(signal.SIGSTOP)
        stopped = run.step("north")
        time.sleep(60)
        waited = run.step("north") - stopped
        run.running["south"].send_signal(signal.SIGCONT)
        run.wait()
        print(
            f"frozen: 60 s, others went on for {waited} steps at most; the same bits:"
            f" {run.states() == expected}"
        )


def relayed(options) -> None:
    expected = calm(options.steps)
    with sites(options.steps, relay=True) as run:
        run.start("relay", *NAMES)
        while run.step("north") < 70:
            time.sleep(0.05)
        run.kill("relay")
        time.sleep(3)
        run.start("relay")
        run.wait()
        lines = (run.folder / "relay.log").read_text().splitlines()
        connected = sum("connected" in line for line in lines)
        print(
            f"relay: killed for 3 s, {connected} connections made in all; the same bits:"
            f" {run.states() == expected}"
        )


@contextlib.contextmanager
def slowed(process: subprocess.Popen, share: float = 0.1, period: float = 0.05):
    """A process that runs only this share of the time."""
    done = threading.Event()

    def work() -> None:
        while not done.wait(period * share) and process.poll() is None:
            process.send_signal(signal.SIGSTOP)
            done.wait(period * (1 - share))
            process.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def free(options) -> None:
    """South is slow, west stopped for 10 s, east killed twice, at error 1e-2 or so."""
    calls = {"waiting": (METHOD, {}), "not waiting": (FREE, {"mode": "free", "rest": 1e-12}),
             "with a pace": (FREE, {"mode": "free", "rest": 1e-12, "pace": 0.005})}  # fmt: skip
    for words, (method, run_options) in calls.items():
        with sites(3000 if run_options else 600, every=20, method=method, **run_options) as run:
            run.start(*NAMES)
            while run.step("south") < 20:
                time.sleep(0.02)
            begun = time.perf_counter()
            with slowed(run.running["south"]):
                for number in range(2):
                    before = run.step("east")
                    run.kill("east")
                    time.sleep(1)
                    run.start("east")
                    if number == 0:
                        run.running["west"].send_signal(signal.SIGSTOP)
                        time.sleep(10)
                        run.running["west"].send_signal(signal.SIGCONT)
                    until = time.monotonic() + 60
                    runs = lambda: run.running["east"].poll() is None and time.monotonic() < until  # noqa: B023
                    while run.step("east") < before + 40 and runs():
                        time.sleep(0.02)
                run.wait()
            steps = {name: found["steps"] for name, found in run.ends().items()}
            seconds = time.perf_counter() - begun
            print(
                f"free, {words}: |x - x*| = {run.error():.0e} after {seconds:.0f} s; steps {steps}"
            )


def lost_disk(options) -> None:
    with sites(3000, every=10, method=FREE, mode="free", rest=1e-12) as run:
        run.start(*NAMES)
        while run.step("north") < 60:
            time.sleep(0.01)
        run.kill("north")
        lost = run.step("north")
        shutil.rmtree(run.homes["north"].folder / "runs")
        time.sleep(1)
        run.start("north")
        run.wait()
        steps = {name: found["steps"] for name, found in run.ends().items()}
        print(
            f"lost-disk: north's first {lost} steps and all else lost; |x - x*| ="
            f" {run.error():.0e}; steps {steps}"
        )


def masks(options) -> None:
    problem = decibo.problems.quadratic(agents=4)
    plain = decibo.ahead_exact(alpha=METHOD["alpha"], gamma=METHOD["gamma"])
    # -h d, since all start at 0
    first = decibo.privacy.messages(problem, decibo.ring(4), plain, steps=1)[0][0]
    rates = {"x": METHOD["alpha"], "y": METHOD["gamma"], "z": METHOD["gamma"]}
    largest = max(float(np.abs(first[name]).max()) / rate for name, rate in rates.items())
    scale = 100 * largest
    with sites(options.steps, every=100, method=METHOD | {"masks": scale}) as run:
        run.start(*NAMES)
        run.wait()
        print(f"masks: of {scale:.0f}, directions are {largest:.1f} at most; |x - x*| = {run.error():.0e} after "
              f"{options.steps} steps")  # fmt: skip
    with sites(1000, every=100, network="complete", secure_sums=True) as run:
        run.start(*NAMES)
        run.wait()
        found = run.ends()
    rows = np.asarray(
        decibo.solve(problem, decibo.complete(4), plain, steps=1000, measures=[]).agents.x
    )
    apart = max(
        np.abs(np.asarray(found[name]["x"][0]) - rows[i]).max() for i, name in enumerate(NAMES)
    )
    seconds = max(entry["seconds"] for entry in found.values())
    print(f"secure sums: {apart:.1e} from solve after 1,000 steps; {seconds:.1f} s of steps")


class Proxy:
    """Copies a link on the loopback and keeps all its bytes."""

    def __init__(self, listen: int, target: int) -> None:
        self.seen = bytearray()
        self.target = target
        self.server = socket.create_server(("127.0.0.1", listen))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = self.server.accept()
                try:
                    other = socket.create_connection(("127.0.0.1", self.target))
                except OSError:
                    one.close()
                    continue
                for a, b in ((one, other), (other, one)):
                    threading.Thread(target=self._copy, args=(a, b), daemon=True).start()

    def _copy(self, a: socket.socket, b: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := a.recv(65536):
                self.seen += data
                b.sendall(data)
        b.close()


def tap(options) -> None:
    """north calls east through a proxy that keeps everything; south and west meet at a relay with a
    tap."""
    problem = decibo.problems.quadratic(agents=4)
    marked = jax.tree.map(lambda leaf: np.asarray(leaf) + 0.123456789, problem.data)
    method = decibo.ahead_exact(alpha=METHOD["alpha"], gamma=METHOD["gamma"])
    said: list[bytes] = []
    keep = Post._data
    Post._data = lambda self, at, vector, peer: (
        said.append(vector.tobytes()) or keep(self, at, vector, peer)
    )
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        port, behind = free_port(), free_port()
        addresses = {"north": f"127.0.0.1:{free_port()}", "east": f"127.0.0.1:{port}"}
        homes = {name: Home.make(folder / name, name, addresses.get(name)) for name in NAMES}
        (folder / "east/site.toml").write_text(
            f'name = "east"\naddress = "127.0.0.1:{port}"\nlisten = "127.0.0.1:{behind}"\n'
        )
        own = Home.make(folder / "relay", "relay", f"127.0.0.1:{free_port()}")
        graph = decibo.networks.path(4)  # west meets south at the relay
        made = Job(
            tuple(home.site for home in homes.values()), problem, graph, method, 50, relay=own.site
        )
        proxy = Proxy(port, behind)
        copied = bytearray()
        relay = Relay(made.members, own.credentials(own.site), tap=copied.extend)
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        asyncio.run_coroutine_threadsafe(relay.start(own.address), loop).result()
        data = lambda i: jax.tree.map(lambda leaf: leaf[i], marked)
        work = lambda i, name: join(made, site=name, data=data(i), home=folder / name)
        threads = [threading.Thread(target=work, args=pair) for pair in enumerate(NAMES)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        asyncio.run_coroutine_threadsafe(relay.close(), loop).result()
    Post._data = keep
    numbers = {vector[i : i + 8] for vector in said for i in range(0, len(vector), 8)} - {bytes(8)}
    private = {
        np.float64(value).tobytes() for leaf in jax.tree.leaves(marked) for value in np.ravel(leaf)
    }
    words = {b"dcbo", b"ahead_exact", b"quadratic"}
    for name, seen in (("link", bytes(proxy.seen)), ("relay", bytes(copied))):
        hits = [
            sum(pattern in seen for pattern in patterns) for patterns in (numbers, private, words)
        ]
        print(
            f"tap of the {name}: {len(seen):,} bytes; {hits[0]} of {len(numbers):,} numbers said,"
            f" {hits[1]} of {len(private)} private numbers, {hits[2]} of {len(words)} words found"
        )


def fuzz(options) -> None:
    class Nowhere:
        start = send = close = lambda *_: None

    random = np.random.default_rng(options.seed)
    job = bytes(range(16))
    lines = itertools.count()
    how = Settings(
        "b",
        ("a", "b", "c"),
        ["a", "c"],
        job,
        {"steps": "10"},
        most=50,
        say=lambda line: next(lines),
    )
    posts = {"lockstep": Post(Nowhere(), how, keep=24), "free": Newest(Nowhere(), how, width=2)}
    posts["free"].offer(np.zeros(20), busy=True)

    def frame() -> bytes:
        kind = Kind(int(random.integers(1, 7)))
        at = (int(random.integers(0, 60)), int(random.integers(0, 4)))
        content = (
            pack(
                kind,
                job,
                int(random.integers(0, 3)),
                *at,
                numbers=random.normal(size=random.choice([20, random.integers(0, 60)])),
            )
            if kind is Kind.DATA
            else pack(
                kind,
                job,
                int(random.integers(0, 3)),
                *at,
                words={
                    "first": [1, 2],
                    "waiting": ["a", 3],
                    "why": "x",
                    "heard": [1, int(random.integers(90))],
                    "share": "ab" * 32,
                },
            )
        )
        if random.random() < 0.4:
            damaged = bytearray(content)
            for _ in range(random.integers(1, 5)):
                damaged[random.integers(len(damaged))] = random.integers(256)
            content = bytes(damaged[: random.integers(1, len(damaged) + 1)])
        return content if random.random() < 0.9 else random.bytes(random.integers(0, 300))

    for words, post in posts.items():
        sizes = []
        post.refused = 0
        tracemalloc.start()
        for k in range(20_000):
            post.deliver(str(random.choice(["a", "b", "c", "?"])), frame())
            if k % 2000 == 1999:
                sizes.append(tracemalloc.get_traced_memory()[0] // 1024)
        tracemalloc.stop()
        kept = (
            len(post._newest)
            if isinstance(post, Newest)
            else sum(len(box) for box in post._box.values())
        )
        print(f"fuzz, {words}: 20,000 frames, {post.refused:,} refused, {next(lines)} lines so far, no exception; "
              f"{kept} kept; KiB after each 2,000: {sizes}")  # fmt: skip
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from helpers.sites import make_newest, make_post

    invented("lockstep", make_post)
    invented("free", make_newest)


def invented(words: str, make) -> None:
    """Frames of hypothesis, 20 at a time, all into one Post: what it holds after every 2,000."""
    from hypothesis import HealthCheck, given, settings
    from hypothesis import strategies as st

    from helpers.frames import FRAMES
    from helpers.sites import ABC, Silent

    wire = Silent()
    post = make(wire, "b")
    if isinstance(post, Newest):
        post.offer(np.zeros(3), busy=True)
    frames = 0
    sizes = []

    @settings(
        max_examples=500, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(st.lists(st.tuples(st.sampled_from([*ABC, "?"]), FRAMES), min_size=20, max_size=20))
    def arrive(arrivals):
        nonlocal frames
        for peer, content in arrivals:
            post.deliver(peer, content)
        frames += len(arrivals)
        wire.sent.clear()
        if frames % 2000 == 0:
            sizes.append(
                sum(len(pickle.dumps(held)) for name, held in vars(post).items() if name in HELD)
            )

    arrive()
    print(f"fuzz, {words}: {frames:,} frames of hypothesis, {post.refused:,} refused, no exception; bytes held after "
          f"each 2,000: {sizes}")  # fmt: skip


def speed(options) -> None:
    for size, rounds in ((11, 2000), (10_000, 500), (1_000_000, 12)):
        with tempfile.TemporaryDirectory() as folder:
            address = [f"127.0.0.1:{free_port()}" for _ in range(2)]
            for name, where in zip(("a", "b"), address, strict=True):
                Home.make(Path(folder) / name, name, where)
            words = [sys.executable, __file__, "--peer", folder, str(size), str(rounds)]
            other = subprocess.Popen([*words, "b"])
            done = subprocess.run([*words, "a"], capture_output=True, text=True, check=True)
            other.wait()
            print(f"speed, {size:,} numbers: {done.stdout.strip()}")


def peer(folder: str, size: str, rounds: str, me: str) -> None:
    """One of two sites that exchange vectors."""
    homes = {name: Home.at(Path(folder) / name) for name in ("a", "b")}
    problem = decibo.problems.quadratic(agents=2)
    made = Job(
        tuple(home.site for home in homes.values()),
        problem,
        decibo.complete(2),
        decibo.ahead_exact(),
    )
    wire = TlsWire(made, me, homes[me].credentials(homes[me].site))
    how = Settings(me, ("a", "b"), ["b" if me == "a" else "a"], bytes(16), {}, most=int(size))
    post = Post(wire, how, keep=14)
    post.start()
    vector = np.random.default_rng(0).normal(size=int(size))
    post.exchange(0, 0, vector)
    times = []
    cpu = time.process_time()
    for k in range(1, int(rounds) + 1):
        begun = time.perf_counter()
        post.exchange(k, 0, vector)
        times.append(1e3 * (time.perf_counter() - begun))
    cpu = 1e3 * (time.process_time() - cpu) / int(rounds)
    post.finish()
    post.close()
    if me == "a":
        low, median = np.percentile(times, [5, 50])
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{median:.2f} ms in the median, {low:.2f} ms in the best 5 %; {cpu:.2f} ms of CPU a site; load "
              f"{os.getloadavg()[0]:.1f}; {memory:.0f} MiB")  # fmt: skip


SECTIONS = {
    "same": same,
    "methods": methods,
    "kills": kills,
    "frozen": frozen,
    "relay": relayed,
    "free": free,
    "lost-disk": lost_disk,
    "masks": masks,
    "tap": tap,
    "fuzz": fuzz,
    "speed": speed,
}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--peer"]:
        peer(*sys.argv[2:])
        sys.exit()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], default=[])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    for section in chosen.sections or SECTIONS:
        SECTIONS[section](chosen)
