"""One process of two fails, at every stage of a run: the other one ends in time, and gives the
reason."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from decibo.parallel.failure_detection import LOST
from decibo.parallel.processes import free_port

JOB = Path(__file__).with_name("_failing.py")
HEARTBEAT = 6  # seconds
BUSY = 12  # seconds more, for a busy machine
GONE = "is gone: its connection broke without a message"
# Each stage with the supervisor's sentence and its exit code, and the survivor's sentence if the
# processes are started by hand: it knows less.
STAGES = {
    "import": ("ended with exit code 1", 1, ""),
    "before the run": ("failed: LookupError: before", 1, "failed: LookupError: before"),
    "loading": ("failed: KeyError: 'label'", 1, "failed: KeyError: 'label'"),
    "nan in data": ("failed: Both objectives must be finite", 1, ""),
    "other arguments": ("steps differs between processes", 1, ""),
    "objective": ("ZeroDivisionError: objective", 1, "ZeroDivisionError: objective"),
    "measure": ("ValueError: measure", 1, "ValueError: measure"),
    "callback": ("failed: RuntimeError: callback", 1, "failed: RuntimeError: callback"),
    "full disk": ("could not be written: No space left on device", 1, ""),
    "finishing": ("failed: KeyError: 'finishing'", 1, "failed: KeyError: 'finishing'"),
    "sys.exit": ("failed: SystemExit: 5", LOST, "failed: SystemExit: 5"),
    "os._exit": ("ended with exit code 5", 5, GONE),
    "kill while loading": ("was killed by SIGKILL", LOST, GONE),
    "freeze while loading": ("stopped answering (it is frozen)", LOST, "has not answered for 6 s"),
    "SIGKILL": ("was killed by SIGKILL", LOST, GONE),
    "SIGSEGV": ("was killed by SIGSEGV", LOST, GONE),
    "SIGSTOP": ("stopped answering (it is frozen)", LOST, "has not answered for 6 s"),
}
LATE = ("callback", "finishing", "SIGKILL", "SIGSTOP", "SIGSEGV", "sys.exit", "os._exit")


def ended_after_failure(folder):
    """Seconds since the failure."""
    return time.time() - float((folder / "event").read_text())


def left_over(folder):
    """The processes of a job that still run."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_text()
        except OSError:
            continue
        if str(JOB) in words and str(folder) in words:
            found.append(entry.name)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_the_supervisor_ends_all_and_gives_the_reason_once(stage, tmp_path):
    sentence, code, _ = STAGES[stage]
    victim = len(stage) % 2  # some of each
    launch = [sys.executable, "-m", "decibo", "launch", "-n", "2", "--heartbeat", str(HEARTBEAT)]
    job = [sys.executable, str(JOB), stage, str(victim), str(tmp_path)]
    done = subprocess.run([*launch, *job], capture_output=True, text=True, timeout=240, check=False)
    assert ended_after_failure(tmp_path) < HEARTBEAT + BUSY
    assert not left_over(tmp_path)
    said = [line for line in done.stderr.splitlines() if line.startswith("decibo launch:")]
    assert sum(sentence in line for line in said) == 1, done.stderr
    assert done.returncode == code, said
    assert "Please report" not in done.stderr  # JAX's runtime
    if stage in LATE:
        assert list((tmp_path / "checkpoints").glob("step-*/manifest.json"))


@pytest.mark.slow
@pytest.mark.parametrize("stage", [stage for stage, (_, _, own) in STAGES.items() if own])
def test_without_a_supervisor_the_survivor_gives_the_reason(stage, tmp_path):
    *_, sentence = STAGES[stage]
    victim = len(stage) % 2
    job = [sys.executable, str(JOB), stage, str(victim), str(tmp_path), str(free_port()), "2"]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    both = [subprocess.Popen([*job, str(number)], **pipes) for number in (0, 1)]
    try:
        said = both[1 - victim].communicate(timeout=240)[1]
        assert ended_after_failure(tmp_path) < HEARTBEAT + BUSY
    finally:
        for process in both:
            process.kill()  # also one that is frozen
            process.communicate()
    lines = [line for line in said.splitlines() if line.startswith("decibo: ")]
    assert both[1 - victim].returncode == LOST, said
    assert len(lines) == 1, said
    assert sentence in lines[0]
    assert "Traceback" not in said
    assert "Please report" not in said
