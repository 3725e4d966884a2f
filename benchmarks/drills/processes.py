"""One process of several fails, at every stage of a run: all others must end in time, with the same
sentence.

Half of the cases run under `decibo launch`, whose supervisor says the sentence once; in the others
the processes are started one by one, and every survivor must say it. A promise is kept if all
processes have ended within the heartbeat timeout, here 6 s (30 s if a process never joins), plus 12
s for a busy machine.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from faults import Outcome

from decibo.parallel.processes import free_port

JOB = Path(__file__).parent / "_failing.py"
HEARTBEAT = 6
SLACK = 12
LOST = 71
GONE = "is gone: its connection broke without a message"
SILENT = f"has not answered for {HEARTBEAT} s"
# The stage, what the survivors must say, and what the supervisor must say where it knows better.
STAGES = {
    "import": ("did not start within 30 s", "ended with exit code 1"),
    "before the run": ("failed: LookupError: before", ""),
    "loading": ("failed: KeyError: 'label'", ""),
    "nan in data": ("failed: Both objectives must be finite", ""),
    "other arguments": ("steps differs between processes", ""),
    "objective": ("ZeroDivisionError: objective", ""),
    "measure": ("ValueError: measure", ""),
    "callback": ("failed: RuntimeError: callback", ""),
    "full disk": ("could not be written: No space left on device", ""),
    "finishing": ("failed: KeyError: 'finishing'", ""),
    "sys.exit": ("failed: SystemExit: 5", ""),
    "os._exit": (GONE, "ended with exit code 5"),
    "kill while loading": (GONE, "was killed by SIGKILL"),
    "freeze while loading": (SILENT, "stopped answering (it is frozen)"),
    "SIGKILL": (GONE, "was killed by SIGKILL"),
    "SIGSEGV": (GONE, "was killed by SIGSEGV"),
    "SIGSTOP": (SILENT, "stopped answering (it is frozen)"),
    "SIGTERM": ("interrupted", ""),
}


@dataclass
class Started:
    """A process, when it ended, and what it said."""

    process: subprocess.Popen[str]
    output: Path
    ended: float = 0.0

    @property
    def text(self) -> str:
        return self.output.read_text(errors="replace")


def start(stage: str, victim: int, processes: int, supervised: bool, folder: Path) -> list[Started]:
    job = [sys.executable, str(JOB), stage, str(victim), str(folder)]
    commands = [
        [sys.executable, "-m", "decibo", "launch", "-n", processes, "--heartbeat", HEARTBEAT, *job]
    ]
    if not supervised:
        port = free_port()
        commands = [[*job, port, processes, number] for number in range(processes)]
    started = []
    for number, command in enumerate(commands):
        output = folder / f"output{number}"
        with output.open("w") as file:
            child = subprocess.Popen(list(map(str, command)), stdout=file, stderr=file, text=True)
        started.append(Started(child, output))
    return started


def members(folder: Path) -> list[int]:
    """The processes of a case that are still there."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if (
                entry.name.isdigit()
                and f"{JOB}\0" in (text := (entry / "cmdline").read_text())
                and str(folder) in text
            ):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def wait(started: list[Started], frozen: int | None, limit: float) -> bool:
    """Wait until all have ended, but not for one that is frozen; False if time is up."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        for each in started:
            if not each.ended and each.process.poll() is not None:
                each.ended = time.time()
        if all(each.ended for number, each in enumerate(started) if number != frozen):
            return True
        time.sleep(0.05)
    return False


def case(stage: str, victim: int, processes: int, supervised: bool, folder: Path) -> Outcome:
    folder.mkdir()
    begun = time.perf_counter()
    started = start(stage, victim, processes, supervised, folder)
    freezes = stage in ("SIGSTOP", "freeze while loading") and not supervised
    ended = wait(started, victim if freezes else None, 240)
    event = float((folder / "event").read_text()) if (folder / "event").exists() else 0.0
    survivors = [each for number, each in enumerate(started) if supervised or number != victim]
    took = max((each.ended for each in survivors), default=0.0) - event
    # after the last start
    promised = SLACK + (30 + SLACK if stage == "import" and not supervised else HEARTBEAT)
    left = [pid for pid in members(folder) if not (freezes and pid == started[victim].process.pid)]
    for each in started:
        each.process.kill()
        each.process.wait()
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    wrong = _wrong(stage, supervised, started, survivors)
    saved = list((folder / "checkpoints").glob("step-*/manifest.json"))
    late = stage in (
        "callback",
        "finishing",
        "SIGKILL",
        "SIGSTOP",
        "SIGSEGV",
        "SIGTERM",
        "sys.exit",
        "os._exit",
    )
    stacks = (
        "Please report",
        "@     0x",
        *(() if supervised or stage in ("import", "other arguments") else ("Traceback",)),
    )
    return Outcome(
        f"{stage}, process {victim} of {processes}, {'launch' if supervised else 'by hand'}",
        lost=late and not saved,
        leaked=bool(left),
        hung=not ended or not event or took > promised,
        wrong=bool(wrong),
        traceback=any(word in each.text for each in survivors for word in stacks),
        detail=f"ended {took:.1f} s after it" + (f"; {wrong}" if wrong else ""),
        seconds=time.perf_counter() - begun,
    )


def _wrong(stage: str, supervised: bool, started: list[Started], survivors: list[Started]) -> str:
    """What is wrong with the exit codes or the words; empty if nothing is."""
    said, better = STAGES[stage]
    codes = [each.process.returncode for each in survivors]
    if stage == "SIGTERM":  # a request, which all follow together
        polite = set(codes) == {0} and all(said in each.text for each in started)
        return "" if polite else f"codes {codes}: {started[0].text[-200:]!r}"
    if supervised:
        expected = (
            (LOST,) if stage in ("sys.exit", "kill while loading", "freeze while loading") else None
        )
        expected = (
            (LOST,)
            if stage.startswith("SIG")
            else expected or ((5,) if stage == "os._exit" else (1,))
        )
        lines = [line for line in started[0].text.splitlines() if line.startswith("decibo launch:")]
        fits = codes[0] in expected and any((better or said) in line for line in lines)
        return "" if fits else f"code {codes[0]}, said {lines}"
    if stage == "import" and 0 not in [
        number for number, each in enumerate(started) if each in survivors
    ]:
        polite = set(codes) == {1} and all(
            "no answer from the coordinator" in each.text for each in survivors
        )
        return "" if polite else f"codes {codes}"  # without process 0 nobody can tell them more
    if stage == "other arguments":  # every process finds out by itself
        fits = all(
            code in (1, LOST) and said in each.text
            for code, each in zip(codes, survivors, strict=True)
        )
        return "" if fits else f"codes {codes}"
    lines = {
        line for each in survivors for line in each.text.splitlines() if line.startswith("decibo: ")
    }
    if set(codes) != {LOST} or len(lines) != 1 or said not in next(iter(lines)):
        return f"codes {codes}, said {sorted(lines)}"
    return (
        ""
        if all(any(line in each.text for line in lines) for each in survivors)
        else "one survivor said nothing"
    )


def cases(count: int, seed: int, folder: Path) -> Iterator[Outcome]:
    """Every stage in turn, each time with other processes; all stages are met once in 18 cases."""
    drawn = random.Random(seed)
    for number, stage in zip(range(count), itertools.cycle(STAGES), strict=False):
        processes = 2 + number % 3
        supervised = (number + number // len(STAGES) + seed) % 2 == 0
        yield case(
            stage, drawn.randrange(processes), processes, supervised, folder / f"case{number}"
        )
