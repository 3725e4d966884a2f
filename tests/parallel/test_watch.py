"""One process fails, all end: the hub without processes, then two processes that are started by
hand."""

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import astuple
from pathlib import Path

import pytest

import decibo
from decibo.parallel import failure_detection, hub, processes
from decibo.parallel.launch import launch
from helpers.variants import daily

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SECRET = b"known to the run"
WHO = ("decibo: ", "decibo launch: ")  # a process of a run, and the supervisor


@pytest.fixture
def meeting():
    """The port of a hub for two processes."""
    server = socket.create_server(("127.0.0.1", 0))
    thread = hub.Hub(server, 2, SECRET, heartbeat=30.0, port=4321)
    thread.start()
    return server.getsockname()[1]


@pytest.fixture
def call(meeting):
    """Join the hub as a process."""
    called = []

    def join(process, secret=SECRET, count=2):
        called.append(failure_detection._call("127.0.0.1", meeting, count, process, secret, 30.0))
        return called[-1]

    yield join
    for member in called:
        for line in (member.line, member.wake, member.alarm):
            line.close()


def read(member):
    """The next message for this process that is not a sign of life."""
    while True:
        message, member.unread = hub.next_message(member.line, member.unread)
        if "alive" not in message:
            return message


def test_strangers_are_refused_by_name_and_the_run_goes_on(call, meeting, capfd):
    first = call(0)
    with pytest.raises(
        decibo.InputError, match="says that it is process 1, but it does not know the secret"
    ):
        call(1, b"guessed")
    with pytest.raises(decibo.InputError, match="process 0, but that one has joined already"):
        call(0)
    with pytest.raises(decibo.InputError, match="process 1 of 3, and this run has 2 processes"):
        call(1, count=3)
    with socket.create_connection(("127.0.0.1", meeting)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" + b'{"failed": "everything"}\n')
        stranger.recv(100)
    second = call(1)
    assert read(first) == read(second) == {"port": 4321}
    said = capfd.readouterr().err
    assert said.count("refused a connection from 127.0.0.1:") == 4
    assert "does not know the secret of this run; the run goes on" in said


def test_a_hub_that_does_not_know_the_secret_is_refused():
    """Somebody else listens there, who lets everybody in."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        answers = threading.Thread(target=pretend, args=(server,))
        answers.start()
        with pytest.raises(decibo.InputError, match="does not know the secret of this run"):
            failure_detection._call("127.0.0.1", port, 2, 1, SECRET, 30.0)
        answers.join()


def pretend(server):
    line, _ = server.accept()
    with line:
        line.sendall(b'{"nonce": "1"}\n')
        line.recv(1000)
        line.sendall(b'{"proof": "1", "pid": 1, "host": "here"}\n')


def test_the_first_failure_reaches_all_and_so_does_a_broken_line(call):
    first = call(0)
    second = call(1)
    assert "port" in read(first)
    assert "port" in read(second)
    hub.send(second.line, {"failed": "process 1 failed: KeyError: 'label'"})
    hub.send(first.line, {"failed": "process 0 failed: too late"})
    expected = {"failed": "process 1 failed: KeyError: 'label'", "process": 1}
    assert read(first) == read(second) == expected


def test_a_line_that_breaks_without_a_word_is_a_failure_and_after_leaving_it_is_not(call):
    first = call(0)
    second = call(1)
    assert "port" in read(first)
    hub.send(first.line, {"leaving": True})
    second.line.close()
    assert read(first)["failed"].startswith("process 1 is gone: its connection broke")


def test_all_may_go_when_all_are_leaving(call):
    both = [call(number) for number in (0, 1)]
    for member in both:
        assert "port" in read(member)
        hub.send(member.line, {"leaving": True})
    assert [read(member) for member in both] == [{"released": True}] * 2


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (
            {"DECIBO_COORDINATOR": "127.0.0.1:1"},
            "DECIBO_PROCESSES, DECIBO_PROCESS is not, and they belong together",
        ),
        (
            {"OMPI_COMM_WORLD_SIZE": "abc"},
            "OMPI_COMM_WORLD_SIZE must be an integer, but it is 'abc'",
        ),
        (
            {"DECIBO_COORDINATOR": "127.0.0.1:1", "DECIBO_PROCESSES": "2", "DECIBO_PROCESS": "x"},
            "DECIBO_PROCESS must be an integer, but it is 'x'",
        ),
    ],
)
def test_a_broken_environment_is_an_error_of_the_input(env, words):
    with pytest.raises(decibo.InputError, match=re.escape(words)):
        processes.find_launcher(env)


def test_a_heartbeat_that_is_none_is_an_error_of_the_input(monkeypatch):
    ours = {"DECIBO_COORDINATOR": "127.0.0.1:1", "DECIBO_PROCESSES": "2", "DECIBO_PROCESS": "1"}
    for name, value in {**ours, "DECIBO_HEARTBEAT": "abc"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(decibo.InputError, match="DECIBO_HEARTBEAT must be a number"):
        decibo.init_distributed()
    with pytest.raises(decibo.InputError, match="at most 86400 seconds"):
        launch(["python", "-c", "pass"], 2, heartbeat=1e300)
    with pytest.raises(
        decibo.InputError, match="the number of processes must be a positive integer"
    ):
        launch(["python", "-c", "pass"], 0)


@pytest.mark.parametrize(
    ("nodes", "host"),
    [("node001", "node001"), ("a[07,09-15],b", "a07"), ("a[3-5]", "a3"), ("x,y[1-2]", "x")],
)
def test_slurm_says_where_process_0_is(nodes, host):
    env = {
        "SLURM_JOB_ID": "4097",
        "SLURM_STEP_NODELIST": nodes,
        "SLURM_NTASKS": "4",
        "SLURM_PROCID": "3",
    }
    found = processes.find_launcher(env)
    assert (found.coordinator, found.processes, found.process) == (f"{host}:61441", 4, 3)


@pytest.mark.parametrize(
    ("env", "found"),
    [
        ("MASTER_ADDR=h MASTER_PORT=29500 WORLD_SIZE=4 RANK=3", ("h:29500", 4, 3, False)),
        (
            "MASTER_ADDR=h MASTER_PORT=29500 WORLD_SIZE=4 RANK=3 TORCHELASTIC_RUN_ID=a"
            " LOCAL_WORLD_SIZE=2 LOCAL_RANK=1",
            ("h:62268", 4, 3, False, "", 1),
        ),
        (
            "MASTER_ADDR=h MASTER_PORT=29500 WORLD_SIZE=2 RANK=1 TORCHELASTIC_RUN_ID=a"
            " LOCAL_WORLD_SIZE=2 LOCAL_RANK=1 SLURM_JOB_ID=1 SLURM_STEP_NODELIST=n SLURM_NTASKS=8"
            " SLURM_PROCID=0",
            ("127.0.0.1:62268", 2, 1, True, "", 1),
        ),
        (
            "JAX_COORDINATOR_ADDRESS=h:1234 JAX_NUM_PROCESSES=2 JAX_PROCESS_ID=1",
            ("h:1234", 2, 1, False),
        ),
        (
            "JAX_COORDINATOR_ADDRESS=a-0.a JAX_NUM_PROCESSES=2 JOB_COMPLETION_INDEX=1",
            ("a-0.a:8482", 2, 1, False),
        ),
        (
            "COORDINATOR_ADDRESS=h COORDINATOR_PORT=6666 NUM_PROCESSES=3 PROCESS_ID=2",
            ("h:6666", 3, 2, False),
        ),
        ("TPU_WORKER_HOSTNAMES=a,b,c TPU_WORKER_ID=2", ("a:8482", 3, 2, False)),
        ("MASTER_ADDR=h MASTER_PORT=29500 WORLD_SIZE=1 RANK=0", None),
        ("JOB_COMPLETION_INDEX=1 RANK=1 WORLD_SIZE=2", None),
    ],
)
def test_clusters_say_where_process_0_is(env, found):
    launcher = processes.find_launcher(dict(each.split("=") for each in env.split()))
    expected = None if found is None else (*found, "", None)[:6]
    assert expected == (None if launcher is None else astuple(launcher)[1:])


@pytest.mark.parametrize("how", daily([(), ("guest",)], ()))
def test_an_exception_in_one_process_ends_the_other_with_the_same_sentence(tmp_path, how):
    """Started by hand: nobody watches but they themselves."""
    job = [sys.executable, str(HERE / "_failing.py"), "callback", "1", str(tmp_path)]
    port = str(processes.free_port())
    both = [
        subprocess.Popen(
            [*job, port, "2", str(n), *how],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in (0, 1)
    ]
    survivor, victim = (process.communicate(timeout=240)[1] for process in both)
    ended = time.time() - float((tmp_path / "event").read_text())
    assert [process.returncode for process in both] == [71, 1]
    line = (
        "decibo: process 1 (agents 4 to 7) failed: RuntimeError: callback. All processes of the run"
        " end."
    )
    assert survivor.splitlines()[-1] == line
    assert "Traceback" not in survivor
    assert victim.splitlines()[-1] == "RuntimeError: callback"
    assert ended < 200  # JAX's runtime would have waited for 300 s


OUTSIDE = """
import pathlib, sys, time
import decibo
from decibo.parallel.failure_detection import inside
me = decibo.init_distributed(coordinator=sys.argv[1], processes=3, process=int(sys.argv[2]), heartbeat=30)
if me == 0:
    with inside():
        time.sleep(200)
begun = pathlib.Path(sys.argv[3])
if me == 2:
    while not begun.exists():
        time.sleep(0.05)
    raise KeyError("label")
begun.touch()
time.sleep(4)
print("written", flush=True)
"""


@pytest.mark.slow
def test_who_writes_results_while_another_process_fails_may_finish_and_process_0_goes_last(
    tmp_path,
):
    """JAX's coordinator is in process 0: when it went at once, the runtime aborted the writer with
    a C++ stack."""
    address = f"127.0.0.1:{processes.free_port()}"
    words = [
        [sys.executable, "-c", OUTSIDE, address, str(n), str(tmp_path / "begun")] for n in range(3)
    ]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    all_three = [subprocess.Popen(each, **pipes) for each in words]
    first, writer, victim = (process.communicate(timeout=120) for process in all_three)
    assert [process.returncode for process in all_three] == [71, 71, 1]
    line = "decibo: process 2 failed: KeyError: 'label'. All processes of the run end.\n"
    assert writer == ("written\n", line)
    assert first == ("", line)
    assert victim[1].endswith("KeyError: 'label'\n")


OWN = """
import jax.numpy as jnp
import numpy as np

import decibo


def make(spoilt):
    def data(agent):
        if agent == 3 and spoilt == "missing":
            return np.loadtxt("nowhere/agent3.csv")
        return np.full(2, np.nan if agent == 3 else 1.0)

    outer = lambda x, y, d: jnp.sum((y - d) ** 2)
    return decibo.Problem(outer, lambda x, y, d: jnp.sum((y - x) ** 2), data, np.zeros(2), np.zeros(2), agents=4)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoilt", "code", "said"),
    [("missing", 3, "nowhere/agent3.csv not found"), ("nan", 2, "outer of agent 3 is nan there")],
)
def test_a_command_says_what_is_wrong_with_the_data_of_another_process(
    tmp_path, spoilt, code, said
):
    (tmp_path / "own.py").write_text(f'{OWN}\nproblem = make("{spoilt}")\n')
    words = [sys.executable, "-m", "decibo", "launch", "-n", "2", "--", "run", "own.py"]
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == code, done.stderr
    own, supervisor = (
        [line for line in done.stderr.splitlines() if line.startswith(who)] for who in WHO
    )
    # that of the process that knows, and that of the supervisor
    assert len(own) == len(supervisor) == 1
    assert said in own[0]
    assert "process 1 (agents 2 to 3) failed: " in supervisor[0]
    assert said in supervisor[0]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_launch_passes_a_signal_on_and_ends_as_the_table_of_exit_codes_says(tmp_path, number):
    child = (
        "import os, pathlib, time; pathlib.Path(os.environ['DECIBO_PROCESS']).touch();"
        " time.sleep(100)"
    )
    words = [sys.executable, "-m", "decibo", "launch", "-n", "2", "--", "python", "-c", child]
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        while len(list(tmp_path.iterdir())) < 2:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(number)
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 130, said


# The function or message that sends something, and the words for it in the table of the guide.
SENT = {
    "total": "sums over its agents",
    "gather": "the variables of its agents",
    "maximum": "whether its numbers are finite",
    "check_same": "32-bit digests of what must be the same everywhere",
    "share": "the shapes of its agents' data",
    "newest": "the newest checkpoint that it sees",
    "hold": "the newest checkpoint that it sees",
    "barrier": "that it has come to a point where all wait",
    "process": "its number, host name, process number",
    "inside": "signs of life",
    "failed": "the first line of its error",
    "leaving": "the first line of its error",
}


@pytest.mark.slow
def test_nothing_leaves_a_process_but_what_the_guide_lists(tmp_path):
    words = [
        sys.executable,
        "-m",
        "decibo",
        "launch",
        "-n",
        "2",
        "python",
        str(HERE / "_sent.py"),
        str(tmp_path),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "Gloo" not in done.stdout + done.stderr
    guide = (ROOT / "docs" / "how-to" / "cluster.md").read_text()
    table = guide[guide.index("| what leaves a process") :].split("\n\n")[0]
    assert [words for words in SENT.values() if words not in table] == []
    for process in (0, 1):
        found = json.loads((tmp_path / f"{process}.json").read_text())
        assert found["leaked"] == 0
        assert found["bytes"] > 100
        assert {"check_same", "inside"} <= set(found["names"]) <= set(SENT)
