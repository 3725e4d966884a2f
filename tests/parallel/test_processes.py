"""Several processes, started by the supervisor or by mpiexec: the same numbers, private data, bounded failure."""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from decibo.execute import stored

HERE = Path(__file__).parent
JOB = HERE / "_job.py"


def start(n: int, out: Path, *arguments: object, restarts: int = 0, heartbeat: int = 10) -> subprocess.Popen:
    """A supervisor with n processes; with n = 1 just the job."""
    job = [sys.executable, str(JOB), str(out), *map(str, arguments)]
    call = f"launch(sys.argv[1:], {n}, restarts={restarts}, heartbeat={heartbeat})"
    code = f"import sys; from decibo.parallel.launch import launch; sys.exit({call})"
    command = job if n == 1 else [sys.executable, "-c", code, *job]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(process: subprocess.Popen, code: int = 0) -> str:
    output = process.communicate(timeout=240)[0]
    assert process.returncode == code, output[-3000:]
    return output


def result(out: Path) -> dict[str, np.ndarray]:
    with np.load(out, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def members(out: Path) -> dict[int, int]:
    """The processes of a job by their number, found by their command line and environment."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if str(out) not in (entry / "cmdline").read_text() or str(JOB) not in (entry / "cmdline").read_text():
                continue
            env = dict(item.split("=", 1) for item in (entry / "environ").read_text().split("\0") if "=" in item)
        except OSError:
            continue
        if "DECIBO_PROCESS" in env:
            found[int(env["DECIBO_PROCESS"])] = int(entry.name)
    return found


def wait_for_checkpoint(folder: Path, process: subprocess.Popen) -> None:
    for _ in range(600):
        if list(folder.glob("step-*")):
            return
        assert process.poll() is None, process.communicate()[0][-3000:]
        time.sleep(0.1)
    raise AssertionError("no checkpoint within a minute")


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> dict[str, np.ndarray]:
    """The job in one process, uninterrupted."""
    out = tmp_path_factory.mktemp("alone") / "run.npz"
    finish(start(1, out))
    return result(out)


@pytest.fixture(scope="module")
def four(tmp_path_factory) -> Path:
    """The first 200 steps in four processes, with checkpoints."""
    out = tmp_path_factory.mktemp("four") / "run.npz"
    finish(start(4, out, "--steps", 200, "--checkpoint", out.parent / "kept"))
    return out


def test_each_process_asks_for_the_data_of_its_own_agents_only(four):
    asked = [json.loads(four.with_suffix(f".{p}.json").read_text())["agents"] for p in range(4)]
    assert asked == [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]


@pytest.mark.parametrize("n", [3, 2, 1])
def test_a_run_on_four_processes_resumes_on_fewer(four, alone, tmp_path, n):
    kept, out = tmp_path / "kept", tmp_path / "run.npz"
    shutil.copytree(four.parent / "kept", kept)
    finish(start(n, out, "--checkpoint", kept, "--resume"))
    ours = result(out)
    assert (ours["step"] == alone["step"]).all()
    for name in ours:
        np.testing.assert_allclose(ours[name], alone[name], rtol=0, atol=1e-12)


def test_a_lost_process_is_named_and_restarted(alone, tmp_path):
    """kill -9 and a freeze, one after the other; the result is that of an uninterrupted run on as many processes."""
    out, kept = tmp_path / "run.npz", tmp_path / "kept"
    process = start(2, out, "--checkpoint", kept, "--slow", 0.05, restarts=3, heartbeat=5)
    wait_for_checkpoint(kept, process)
    os.kill(members(out)[1], signal.SIGKILL)
    while len(members(out)) < 2 or (out.with_suffix(".step").read_text() or "0") == "0":
        assert process.poll() is None
        time.sleep(0.1)
    time.sleep(1.0)
    again = members(out)
    frozen = 0 in again and process.poll() is None
    if frozen:
        os.kill(again[0], signal.SIGSTOP)
    output = finish(process)
    assert "process 1 (agents 5 to 9) was killed by SIGKILL" in output
    assert output.count("restarting from the last checkpoint") >= 1
    assert not members(out)
    undisturbed = tmp_path / "undisturbed.npz"
    finish(start(2, undisturbed))
    for name, value in result(undisturbed).items():
        assert (result(out)[name] == value).all(), name


def test_a_signal_writes_a_checkpoint_and_ends_cleanly(alone, tmp_path):
    out, kept = tmp_path / "run.npz", tmp_path / "kept"
    process = start(2, out, "--checkpoint", kept, "--slow", 0.1, "--every", 100)
    wait_for_checkpoint(kept, process)
    process.send_signal(signal.SIGTERM)
    finish(process)
    said = json.loads(out.with_suffix(".0.json").read_text())
    assert said["status"] == "interrupted"
    saved = stored.newest(kept, lambda saved: saved)
    assert saved is not None
    assert saved.step == said["steps"] < 400
    finish(start(2, out, "--checkpoint", kept, "--resume"))
    np.testing.assert_allclose(result(out)["x"], alone["x"], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [("steps", "steps differs"), ("data", "outer of agent 5 is nan there")],
)
def test_processes_that_were_given_different_things_say_so(tmp_path, spoil, words):
    output = finish(start(2, tmp_path / "run.npz", "--spoil", spoil), code=2)
    assert words in output


def test_more_processes_than_agents_are_rejected(tmp_path):
    output = finish(start(3, tmp_path / "run.npz", "--agents", 2), code=2)
    assert "3 processes for 2 agents" in output


def test_a_coordinator_that_is_not_there_is_an_error(tmp_path):
    code = (
        "import decibo, decibo.parallel.watch as w; w.WAIT = 2; "
        "decibo.init_distributed(coordinator='127.0.0.1:9', processes=2, process=1)"
    )
    begun = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=100)
    assert time.monotonic() - begun < 30
    assert "no answer from the coordinator 127.0.0.1:9" in done.stderr


@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed: decibo[mpi]")
def test_mpiexec_starts_processes_too(alone, tmp_path):
    mpiexec = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
    if mpiexec is None:
        pytest.skip("there is no mpiexec")
    out = tmp_path / "run.npz"
    command = [mpiexec, "-n", "4", sys.executable, str(JOB), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    np.testing.assert_allclose(result(out)["x"], alone["x"], rtol=0, atol=1e-12)
    assert json.loads(out.with_suffix(".3.json").read_text())["agents"] == [8, 9]
