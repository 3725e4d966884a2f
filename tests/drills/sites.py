"""Sites, launched processes and relays that are struck at random: killed, frozen, restarted with the
same command, for as long as wanted. Every end must have the bits of an undisturbed run.

    PYTHONPATH=src:tests python -m drills.sites soak --seconds 3600
    PYTHONPATH=src:tests python -m drills.sites launch --strikes 30
    PYTHONPATH=src:tests python -m drills.sites estimators --strikes 20
    PYTHONPATH=src:tests python -m drills.sites relay --strikes 10
    PYTHONPATH=src:tests python -m drills.sites clock --strikes 10
    PYTHONPATH=src:tests python -m drills.sites readonly --strikes 5      # as root, on Linux
    PYTHONPATH=src:tests python -m drills.sites floods
    PYTHONPATH=src:tests python -m drills.sites many
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from decibo.cli.join import free_port
from decibo.silo.identity import Identity

NAMES = ("north", "east", "west")
RUN = """
problem = "quadratic"
[network]
name = "complete"
[method]
name = "ahead_exact"
alpha = 0.05
gamma = 0.1
[run]
steps = {steps}
checkpoint_every = 20
patience = 600.0
{more}
"""
FIT = """
[network]
name = "complete"
[estimator]
name = "SiloLogisticRegression"
label = "sick"
steps = {steps}
tol = 1e-30
random_state = 0
[run]
checkpoint_every = 20
patience = 600.0
{more}
"""
FILE = """
import decibo
problem = decibo.problems.quadratic(agents=6)
network = decibo.ring(6)
method = decibo.ahead_exact(alpha=0.002, gamma=0.004)  # does not come to rest before the end
every = checkpoint_every = 200
"""
END = 900.0  # seconds without a checkpoint, or an end, after which a round counts as hung


# A clock that is off by what stands in a file, for OpenSSL and Python alike.
CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static long off(void) {
    long seconds = 0; FILE *file = fopen(getenv("CLOCK_OFF"), "r");
    if (file) { if (fscanf(file, "%ld", &seconds) != 1) seconds = 0; fclose(file); }
    return seconds;
}
int clock_gettime(clockid_t kind, struct timespec *t) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(kind, t);
    if (kind == CLOCK_REALTIME) t->tv_sec += off();
    return code;
}
time_t time(time_t *to) {
    struct timespec t; clock_gettime(CLOCK_REALTIME, &t);
    if (to) *to = t.tv_sec;
    return t.tv_sec;
}
int gettimeofday(struct timeval *restrict to, void *restrict zone) {
    struct timespec t; clock_gettime(CLOCK_REALTIME, &t);
    to->tv_sec = t.tv_sec; to->tv_usec = t.tv_nsec / 1000; (void)zone;
    return 0;
}
"""


class Site:
    """A process that is started again whenever it falls, until its work is done.

    before, variables   words before the command, and more environment variables
    """

    def __init__(self, name: str, command: list[str], folder: Path) -> None:
        self.name = name
        self.command = command
        self.folder = folder
        self.log = folder / f"{name}.txt"
        self.before: list[str] = []
        self.variables: dict[str, str] = {}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as file:
            words = [*self.before, sys.executable, "-P", "-m", "decibo", *self.command]
            variables = os.environ | self.variables
            self.process = subprocess.Popen(
                words, stdout=file, stderr=file, cwd=self.folder, env=variables
            )

    @property
    def code(self) -> int | None:
        assert self.process is not None
        return self.process.poll()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def send(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else ""


def job_of(folder: Path, text: str, *, relay: bool = False) -> tuple[list[Site], Site | None]:
    """Sites of a job, none of them started; with a relay, none of them can be called."""
    homes = {
        name: Identity.make(folder / name, name, None if relay else f"127.0.0.1:{free_port()}")
        for name in NAMES
    }
    path = folder / "job.toml"
    own = None
    if relay:
        address = f"127.0.0.1:{free_port()}"
        home = Identity.make(folder / "relay", "relay", address)
        table = f'[relay]\naddress = "{address}"\ncertificate = """\n{home.site.certificate}\n"""\n'
        text += table
        command = ["relay", "job.toml", "--listen", address, "--home", str(home.folder)]
        own = Site("relay", command, folder)
    path.write_text(text + "".join(home.card() for home in homes.values()))
    command = lambda name: ["join", "job.toml", "--home", name, "--json"]
    more = [] if "[estimator]" in text else ["--synthetic"]
    return [Site(name, [*command(name), *more], folder) for name in NAMES], own


def ends(folder: Path) -> dict[str, object]:
    """What each site has found: x and y, or its model."""
    found: dict[str, object] = {}
    for name in NAMES:
        for path in (folder / name).glob("runs/*/solution.json"):
            content = json.loads(path.read_text())
            found[name] = (content["x"], content["y"], content["steps"])
        for path in (folder / name).glob("models/*.json"):
            found[name] = path.read_text()
    return found


Strike = Callable[[list[Site]], None]  # gets those that run


def round_of(
    sites: list[Site], strike: Strike | None, pauses: tuple[float, float], count: Counter[str]
) -> bool:
    """All sites from the start to the end, struck in between; False if they do not end."""
    shown = random.Random(time.time_ns())
    for site in sites:
        for part in ("runs", "models"):
            shutil.rmtree(site.folder / site.name / part, ignore_errors=True)
        site.start()
    moved = time.monotonic()
    next_strike = moved + shown.uniform(*pauses)
    before: set[Path] = set()
    while any(site.code is None for site in sites):
        time.sleep(0.1)
        now = set(sites[0].folder.glob("*/runs/*/step-*"))
        moved = moved if now == before else time.monotonic()
        before = now
        for site in sites:
            if site.code not in (None, 0):
                count["fell"] += 1
                print(f"   {site.name} ended with {site.code}: {site.words()}", flush=True)
                site.start()
        # One that is killed while the others have ended waits for them until it gives up.
        all_run = all(site.code is None for site in sites)
        if strike is not None and time.monotonic() > next_strike and all_run:
            strike(sites)
            next_strike = time.monotonic() + shown.uniform(*pauses)
        if time.monotonic() - moved > END:
            for site in sites:
                if site.code is None:
                    site.kill()
            return False
    return True


class Rounds:
    """Rounds of one job, each of which must end as the first one, which nothing disturbs."""

    def __init__(self, sites: list[Site], folder: Path, count: Counter[str]) -> None:
        self.sites = sites
        self.folder = folder
        self.count = count
        self.calm: dict[str, object] = {}
        self.shortest = END  # seconds of a round

    def one(self, strike: Strike, pauses: tuple[float, float]) -> None:
        """A round with a strike after each pause, of which the first ends before the round does,
        however fast the machine is."""
        soon = (min(pauses[0], 0.2 * self.shortest), min(pauses[1], 0.6 * self.shortest))
        began = time.monotonic()
        ended = round_of(self.sites, strike if self.calm else None, soon, self.count)
        self.shortest = min(time.monotonic() - began, self.shortest)
        found = ends(self.folder)
        self.calm = self.calm or found
        assert self.calm, self.sites[0].words()  # there is nothing to compare with
        self.count["rounds"] += 1
        self.count["hung"] += not ended
        self.count["wrong"] += found != self.calm or len(found) < len(NAMES)
        print(f"   {dict(self.count)}", flush=True)


class Striker:
    """Kills, and now and then freezes, at most so often."""

    def __init__(
        self, most: int, count: Counter[str], freezes: float = 0.15, seed: int = 7
    ) -> None:
        self.most = most
        self.count = count
        self.freezes = freezes
        self.random = random.Random(seed)

    def __call__(self, sites: list[Site]) -> None:
        if not sites or self.count["kills"] + self.count["freezes"] >= self.most:
            return
        chosen = self.random.sample(sites, min(len(sites), self.random.choice((1, 1, 1, 2))))
        if self.random.random() < self.freezes:
            chosen[0].send(signal.SIGSTOP)
            time.sleep(self.random.uniform(1, 8))
            chosen[0].send(signal.SIGCONT)
            self.count["freezes"] += 1
            return
        for site in chosen:
            site.kill()
        self.count["kills"] += len(chosen)
        time.sleep(self.random.uniform(0, 3))
        for site in chosen:
            site.start()


def judged(kind: str, count: Counter[str]) -> Counter[str]:
    print(f"{kind}: {', '.join(f'{name} {number}' for name, number in count.items())}", flush=True)
    return count


def soak(seconds: float, every: float = 60.0, steps: int = 12_000, seed: int = 7) -> Counter[str]:
    """Jobs with and without secure sums, one after the other, with a strike about every minute."""
    count: Counter[str] = Counter(rounds=0, kills=0, freezes=0, fell=0, wrong=0, hung=0)
    until = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as place:
        kinds = []
        for more in ("", "secure_sums = true\n"):
            folder = Path(place) / f"job{len(kinds)}"
            folder.mkdir()
            sites, _ = job_of(folder, RUN.format(steps=steps, more=more))
            kinds.append(Rounds(sites, folder, count))
        strike = Striker(10**9, count, seed=seed)
        while time.monotonic() < until:
            for rounds in kinds:
                rounds.one(strike, (0.7 * every, 1.3 * every))
    return judged("soak", count)


def struck(
    kind: str, strikes: int, steps: int, pauses: tuple[float, float], seed: int
) -> Counter[str]:
    """Rounds of one job, until there were so many strikes: at its sites, its relay, its clocks or
    its folders."""
    count: Counter[str] = Counter(rounds=0, kills=0, freezes=0, fell=0, wrong=0, hung=0)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        more = "secure_sums = true\n" if kind == "estimators" else ""
        text = (FIT if kind == "estimators" else RUN).format(steps=steps, more=more)
        sites, relay = job_of(folder, text, relay=kind == "relay")
        if kind == "estimators":
            table(folder)
        if relay is not None:
            relay.start()
        strike = Striker(strikes, count, freezes=0.4 if relay else 0.0, seed=seed)
        own: Strike = strike if relay is None else lambda _: strike([relay])
        if kind == "clock":
            own = Clocks(sites, folder, strike)
        if kind == "readonly":
            own = Folders(sites, strikes, count)
        rounds = Rounds(sites, folder, count)
        while count["kills"] + count["freezes"] < strikes:
            rounds.one(own, pauses)
        if relay is not None:
            relay.kill()
    return judged(kind, count)


class Clocks:
    """Kills that also set the clocks of all sites, up to ten years forth and back."""

    def __init__(self, sites: list[Site], folder: Path, strike: Striker) -> None:
        self.sites = sites
        self.strike = strike
        (folder / "clock.c").write_text(CLOCK)
        words = "cc -shared -fPIC -O1 -o clock.so clock.c -ldl"
        subprocess.run(words.split(), cwd=folder, check=True)
        for site in sites:
            own = folder / f"{site.name}.clock"
            site.variables = {"LD_PRELOAD": str(folder / "clock.so"), "CLOCK_OFF": str(own)}

    def __call__(self, running: list[Site]) -> None:
        for site in self.sites:
            off = self.strike.random.choice((3_600, 86_400, 315_000_000))
            own = Path(site.variables["CLOCK_OFF"])
            own.write_text(str(off * self.strike.random.choice((-1, 1))))
        self.strike(running)


class Folders:
    """The folder of a site that has a checkpoint becomes read-only; when it has ended, it is started
    again."""

    def __init__(self, sites: list[Site], strikes: int, count: Counter[str]) -> None:
        self.strikes = strikes
        self.count = count
        for site in sites:
            site.before = ["unshare", "--mount"]

    def __call__(self, running: list[Site]) -> None:
        saved = [site for site in running if any(site.folder.glob(f"{site.name}/runs/*/step-*"))]
        if not saved or self.count["kills"] >= self.strikes:
            return
        site = random.choice(saved)
        assert site.process is not None
        # A mount on top of the folder: the one below it has open files, and cannot become read-only.
        home = site.folder / site.name
        mount = f"mount --bind {home} {home} && mount -o remount,bind,ro {home}"
        inside = ["nsenter", "--mount", "--target", str(site.process.pid), "sh", "-c", mount]
        if subprocess.run(inside, capture_output=True).returncode:
            return
        code = site.process.wait(120)
        print(f"   read-only: {site.name} ended with {code}: {site.words()}", flush=True)
        if code == 0:
            return  # all that it writes was written
        self.count["kills"] += 1
        self.count["wrong"] += code != 74  # with a sentence that names the folder
        site.start()


def many(agents: int = 200, steps: int = 100) -> float:
    """So many sites as threads of this process, over TLS: how far they end from the simulation."""
    import jax
    import numpy as np

    import decibo
    from decibo.silo import Job, join

    jax.config.update("jax_enable_x64", True)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        ports: set[int] = set()
        while len(ports) < agents:
            ports.add(free_port())
        homes = [
            Identity.make(root / f"s{i}", f"s{i}", f"127.0.0.1:{port}")
            for i, port in enumerate(ports)
        ]
        job = Job(
            tuple(home.site for home in homes),
            decibo.problems.quadratic(agents=agents),
            decibo.networks.torus(10, agents // 10),
            decibo.ahead_exact(alpha=0.05, gamma=0.1),
            steps=steps,
        )
        found: dict[str, object] = {}

        def site(home: Identity) -> None:
            found[home.name] = join(job, site=home.name, data=None, home=home.folder)

        begun = time.monotonic()
        threads = [threading.Thread(target=site, args=(home,), daemon=True) for home in homes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(END)
        taken = time.monotonic() - begun
        rows = decibo.solve(job.problem, job.network, job.method, steps=steps, measures=[]).agents.x
        own = np.stack([found[home.name].x for home in homes])
        apart = float(np.abs(own - rows).max())
        done = sum(str(each.status) == "done" for each in found.values())
    print(
        f"many: {done} of {agents} sites done in {taken:.0f} s, {apart:.1e} from solve", flush=True
    )
    return apart


def table(folder: Path) -> None:
    """A table with 60 samples at each site."""
    drawn = random.Random(3)
    for name in NAMES:
        lines = ["age,pressure,pain,sick"]
        for _ in range(60):
            sick = drawn.random() < 0.5
            age = drawn.gauss(60 + 5 * sick, 9)
            pain = drawn.choice(("none", "strong"))
            word = "yes" if sick else "no"
            lines.append(f"{age:.2f},{drawn.gauss(120, 15):.1f},{pain},{word}")
        (folder / name / "ours.csv").write_text("\n".join(lines) + "\n")
        with (folder / name / "site.toml").open("a") as file:
            file.write('table = "ours.csv"\n')


def launch(
    strikes: int, steps: int = 6_000, freezes: float = 1 / 3, seed: int = 11
) -> Counter[str]:
    """`decibo launch` on two processes: one of them is killed or frozen at a random moment after the
    first checkpoint."""
    count: Counter[str] = Counter(rounds=0, kills=0, freezes=0, wrong=0, hung=0)
    drawn = random.Random(seed)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "mine.py").write_text(FILE)
        calm: dict[str, bytes] = {}
        while count["kills"] + count["freezes"] < strikes or not calm:
            out = folder / f"out{count['rounds']}"
            run = ["run", "mine.py", "--steps", str(steps)]
            words = ["launch", "-n", "2", "--restarts", "2", "--", *run]
            site = Site("launch", [*words, "--out", str(out), "--checkpoint"], folder)
            site.start()
            begun = time.monotonic()
            saved = lambda out=out: [int(p.name[5:]) for p in out.glob("checkpoint/step-*")]
            while site.code is None and not saved() and time.monotonic() - begun < END:
                time.sleep(0.05)
            at = drawn.randrange(steps)
            while site.code is None and max(saved(), default=0) < at:
                time.sleep(0.05)
            time.sleep(drawn.uniform(0, 0.3))
            assert site.process is not None
            task = Path(f"/proc/{site.process.pid}/task/{site.process.pid}/children")
            # The run may end at any moment, and its processes with it: then nothing is struck.
            with suppress(FileNotFoundError, ProcessLookupError):
                children = task.read_text().split() if calm and site.code is None else []
                if children and drawn.random() < freezes:
                    victim = int(drawn.choice(children))
                    os.kill(victim, signal.SIGSTOP)
                    count["freezes"] += 1
                    time.sleep(drawn.uniform(2, 20))
                    os.kill(victim, signal.SIGCONT)
                elif children:
                    os.kill(int(drawn.choice(children)), signal.SIGKILL)
                    count["kills"] += 1
            try:
                site.process.wait(END)
            except subprocess.TimeoutExpired:
                count["hung"] += 1
                site.kill()
            count["rounds"] += 1
            found = {"solution": (out / "solution.npz").read_bytes()} if site.code == 0 else {}
            calm = calm or found
            if site.code != 0 or found != calm:
                count["wrong"] += 1
                print(f"   {site.code}: {site.words()}", flush=True)
            assert calm, site.words()  # there is nothing to compare with
            print(f"   {dict(count)}", flush=True)
    return judged("launch", count)


FLOODS = {"one address": (1, 0.002), "40 addresses": (40, 0.02)}  # seconds between connections


def floods(door: str, kinds: Iterable[str] = FLOODS, steps: int = 300) -> dict[str, float]:
    """The seconds that a job of three sites takes: undisturbed, and while a stranger makes as many
    connections as it can at one of them, or at their relay."""
    found: dict[str, float] = {}
    for title in ("nobody", *kinds):
        sources, pause = FLOODS.get(title, (0, 0.0))
        with tempfile.TemporaryDirectory() as place:
            text = RUN.format(steps=steps, more="")
            sites, relay = job_of(Path(place), text, relay=door == "relay")
            first = relay or sites.pop()  # the one that is flooded
            port = int((Identity.at(Path(place) / first.name).address or "").rpartition(":")[2])
            end = threading.Event()
            stranger = threading.Thread(target=knock, args=(port, sources, pause, end))
            if sources:
                stranger.start()
            first.start()
            time.sleep(1)
            begun = time.monotonic()
            assert round_of(sites, None, (1e9, 1e9), Counter())
            while relay is None and first.code is None:
                time.sleep(0.1)
            found[title] = time.monotonic() - begun
            end.set()
            assert first.code == (None if relay else 0)
            first.kill()
        print(f"{door}, {title}: {found[title]:.1f} s", flush=True)
    return found


def knock(port: int, sources: int, pause: float, end: threading.Event) -> None:
    """Make connections that never say a word, and keep them."""
    held: list[socket.socket] = []
    while not end.is_set():
        link = socket.socket()
        link.settimeout(0.5)
        try:
            link.bind((f"127.0.0.{2 + len(held) % sources}", 0))
            link.connect(("127.0.0.1", port))
            held.append(link)
        except OSError:
            link.close()
        while len(held) > 800:
            held.pop(0).close()
        time.sleep(pause)
    for link in held:
        link.close()


def main() -> None:
    kinds = ["soak", "launch", "estimators", "relay", "clock", "readonly", "floods", "many"]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("drill", choices=kinds)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--strikes", type=int, default=20)
    parser.add_argument("--steps", type=int, default=12_000)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    if options.drill == "soak":
        soak(options.seconds, steps=options.steps, seed=options.seed)
    elif options.drill == "launch":
        launch(options.strikes, seed=options.seed)
    elif options.drill == "floods":
        floods("site")
        floods("relay")
    elif options.drill == "many":
        many()
    else:
        struck(options.drill, options.strikes, 4_000, (8.0, 20.0), options.seed)


if __name__ == "__main__":
    main()
