"""Several processes, started by the supervisor or by mpiexec: the same numbers, private data,
bounded failure."""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import decibo
from decibo.errors import UnreachableError
from decibo.parallel import processes
from decibo.run import checkpoint_files

HERE = Path(__file__).parent
JOB = HERE / "_job.py"
CHEAP = ("--measures", "outer")  # exact measures take longest to compile


def start(
    n: int, out: Path, *arguments: object, restarts: int = 0, heartbeat: int = 10
) -> subprocess.Popen:
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


def members(out: Path, number: str = "DECIBO_PROCESS") -> dict[int, int]:
    """The processes of a job by their number, found by their command line and environment."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if (
                str(out) not in (entry / "cmdline").read_text()
                or str(JOB) not in (entry / "cmdline").read_text()
            ):
                continue
            env = dict(
                item.split("=", 1)
                for item in (entry / "environ").read_text().split("\0")
                if "=" in item
            )
        except OSError:
            continue
        if number in env:
            found[int(env[number])] = int(entry.name)
    return found


def wait_for_step(out: Path, step: int, process: subprocess.Popen) -> None:
    """Wait until a run has done so many steps."""
    file = out.with_suffix(".step")
    for _ in range(600):
        if file.exists() and int(file.read_text() or 0) >= step:
            return
        assert process.poll() is None, process.communicate()[0][-3000:]
        time.sleep(0.1)
    raise AssertionError(f"not {step} steps within a minute")


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> dict[str, np.ndarray]:
    """The job in one process, uninterrupted."""
    out = tmp_path_factory.mktemp("alone") / "run.npz"
    finish(start(1, out))
    return result(out)


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> dict[str, np.ndarray]:
    """The job in two processes, uninterrupted."""
    out = tmp_path_factory.mktemp("two") / "run.npz"
    finish(start(2, out, *CHEAP))
    return result(out)


@pytest.fixture(scope="module")
def three(tmp_path_factory) -> Path:
    """The first 200 steps in three processes, with checkpoints."""
    out = tmp_path_factory.mktemp("three") / "run.npz"
    finish(start(3, out, "--steps", 200, "--checkpoint", out.parent / "kept"))
    return out


@pytest.mark.slow
def test_each_process_asks_for_the_data_of_its_own_agents_only(three):
    asked = [json.loads(three.with_suffix(f".{p}.json").read_text())["agents"] for p in range(3)]
    assert asked == [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]


@pytest.mark.parametrize(
    ("number", "process", "words"),
    [
        (signal.SIGKILL, 1, "process 1 (agents 5 to 9) was killed by SIGKILL"),
        pytest.param(
            signal.SIGSTOP,
            0,
            "process 0 (agents 0 to 4) stopped answering (it is frozen)",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["killed", "frozen"],
)
def test_a_lost_process_is_named_and_restarted(two, tmp_path, number, process, words):
    """The result is that of an uninterrupted run on as many processes."""
    out, kept = tmp_path / "run.npz", tmp_path / "kept"
    run = start(2, out, *CHEAP, "--checkpoint", kept, "--slow", 0.3, restarts=3, heartbeat=5)
    wait_for_step(out, 60, run)
    os.kill(members(out)[process], number)
    output = finish(run)
    assert words in output
    assert output.count("restarting from the last checkpoint") == 1
    assert not members(out)
    for name, value in two.items():
        assert (result(out)[name] == value).all(), name


@pytest.mark.slow
def test_a_signal_writes_a_checkpoint_from_which_fewer_processes_continue(three, alone, tmp_path):
    """Two processes continue what three have begun, and are interrupted on the way; one completes
    it."""
    kept, out = tmp_path / "kept", tmp_path / "run.npz"
    shutil.copytree(three.parent / "kept", kept)
    process = start(2, out, "--checkpoint", kept, "--resume", "--slow", 0.1, "--every", 100)
    wait_for_step(out, 210, process)
    process.send_signal(signal.SIGTERM)
    finish(process)
    said = json.loads(out.with_suffix(".0.json").read_text())
    assert said["status"] == "interrupted"
    saved = checkpoint_files.newest(kept, lambda saved: saved)
    assert saved is not None
    assert 200 < saved.step == said["steps"] < 400
    finish(start(1, out, "--checkpoint", kept, "--resume"))
    ours = result(out)
    assert (ours["step"] == alone["step"]).all()
    for name in alone:
        np.testing.assert_allclose(ours[name], alone[name], rtol=0, atol=1e-12)


@pytest.mark.slow
def test_processes_that_were_given_different_things_say_so(tmp_path):
    said = finish(
        start(2, tmp_path / "run.npz", *CHEAP, "--spoil", "agents", "steps", "data", "stream")
    )
    assert said.count("There are 2 processes for 1 agents") == 2
    assert said.count("steps differs between processes") == 2
    assert said.count("outer of agent 5 is nan there") == 2
    # in process 0
    assert "process 1 (agents 5 to 9) failed: Both objectives must be finite" in said
    assert (
        said.count(
            "The batch of agent 6 for step 25 could not be read: OSError: a hole in the disk"
        )
        == 2
    )
    means = re.findall(r"mean of x after 20 steps: (\S+)", said)
    assert [*map(float, means)] == pytest.approx([streamed_mean()] * 2, abs=1e-11)


def streamed_mean() -> float:
    """The same 20 steps in this process alone."""
    spec = importlib.util.spec_from_file_location("_job", JOB)
    assert spec
    assert spec.loader
    job = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(job)
    problem = decibo.Problem(
        job.outer, job.inner, job.data, np.zeros(3), np.zeros(3), agents=10, name="job"
    )
    return float(job.streamed(problem, 20).x.mean())


def test_a_coordinator_that_is_not_there_is_an_error(monkeypatch):
    monkeypatch.setenv("DECIBO_WAIT", "0.5")
    words = r"no answer from the coordinator 127\.0\.0\.1:9 within 0\.5 s"
    with pytest.raises(UnreachableError, match=words):
        decibo.init_distributed(coordinator="127.0.0.1:9", processes=2, process=1)


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed: decibo[mpi]"
)
def test_mpiexec_starts_processes_too(alone, tmp_path):
    mpiexec = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which(
        "mpiexec"
    )
    if mpiexec is None:
        pytest.skip("there is no mpiexec")
    out = tmp_path / "run.npz"
    command = [mpiexec, "-n", "2", sys.executable, str(JOB), str(out), *CHEAP]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    np.testing.assert_allclose(result(out)["x"], alone["x"], rtol=0, atol=1e-12)
    assert json.loads(out.with_suffix(".1.json").read_text())["agents"] == [5, 6, 7, 8, 9]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_torchrun_starts_processes_and_starts_them_again(alone, tmp_path):
    out = tmp_path / "run.npz"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    kept = ("--checkpoint", str(tmp_path / "kept"), "--resume", "auto", "--slow", "0.3")
    command = [*torchrun, "--max-restarts=3", str(JOB), str(out), *CHEAP, *kept]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for_step(out, 60, run)
    os.kill(members(out, "RANK")[1], signal.SIGKILL)
    finish(run)
    assert json.loads(out.with_suffix(".1.json").read_text())["steps"] == 400
    np.testing.assert_allclose(result(out)["x"], alone["x"], rtol=0, atol=1e-12)


@pytest.mark.slow
def test_processes_that_jax_has_connected_already_are_used(alone, tmp_path):
    out = tmp_path / "run.npz"
    code = (
        "import sys, runpy, jax; jax.distributed.initialize(sys.argv.pop(1), 2, int(sys.argv.pop(1)));"
        "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    address = f"127.0.0.1:{processes.free_port()}"
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code, address, str(n), str(JOB), str(out), *CHEAP],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for n in (0, 1)
    ]
    for process in both:
        finish(process)
    assert json.loads(out.with_suffix(".1.json").read_text())["agents"] == [5, 6, 7, 8, 9]
    np.testing.assert_allclose(result(out)["x"], alone["x"], rtol=0, atol=1e-12)
