"""One run at a time in a folder, whoever comes second and however the first one ended."""

import os
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from filelock import SoftFileLock

import decibo
from decibo.errors import StorageError
from decibo.run.lock import LOCK, hold

PARTS = (
    decibo.problems.quadratic(4, seed=1),
    decibo.ring(4),
    decibo.methods.sldbo(alpha=0.02, beta=0.1, gamma=0.1),
)


def solve(folder, **options):
    checkpoint = decibo.Checkpoints(folder, every=10)
    return decibo.solve(
        *PARTS, steps=20, every=5, checkpoint=checkpoint, **{"progress": False} | options
    )


def owner(process=None, host=None, started=None):
    """What the lock of this very process would contain, but for these changes."""
    with tempfile.TemporaryDirectory() as folder, SoftFileLock(f"{folder}/lock") as lock:
        mine = Path(lock.lock_file).read_text().splitlines()
    changed = (process, host, started)
    return "".join(
        f"{ours if other is None else other}\n" for ours, other in zip(mine, changed, strict=True)
    )


def test_a_second_run_is_rejected_before_it_writes_anything(tmp_path):
    said = []

    def second(step, steps, latest):
        def attempt():
            with pytest.raises(decibo.InputError) as caught:
                solve(tmp_path)
            said.append(str(caught.value))

        if not said:
            before = sorted(tmp_path.iterdir())
            thread = threading.Thread(target=attempt)
            thread.start()
            thread.join()
            assert sorted(tmp_path.iterdir()) == before

    assert solve(tmp_path, progress=second).steps == 20
    assert f"has been in use by process {os.getpid()} on {socket.gethostname()} since 20" in said[0]
    assert not (tmp_path / LOCK).exists()


def test_the_lock_goes_with_the_run_however_it_ends(tmp_path):
    def fail(step, steps, latest):
        assert (tmp_path / LOCK).exists()
        raise RuntimeError("oh")

    with pytest.raises(RuntimeError, match="oh"):
        solve(tmp_path, progress=fail)
    assert not (tmp_path / LOCK).exists()


def test_who_holds_a_lock_may_ask_again(tmp_path):
    with hold(tmp_path) as one:
        with hold(tmp_path / ".." / tmp_path.name) as two:
            assert one is two
        assert (tmp_path / LOCK).exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("gone", [{"process": 2**22 + 1}, {"started": 1 << 64 | 1}])
def test_the_lock_of_a_process_that_is_gone_is_taken_over_with_a_word(tmp_path, gone):
    (tmp_path / LOCK).write_text(owner(**gone))
    said = r"locked by process \d+, which is no longer running; its lock is taken over"
    with pytest.warns(UserWarning, match=said) as caught:
        solve(tmp_path)
    assert caught[0].filename == __file__  # the line that called decibo
    assert not (tmp_path / LOCK).exists()


def test_the_lock_of_a_killed_process_that_nobody_has_waited_for_is_taken_over(tmp_path):
    code = "import sys; from decibo.run.lock import hold; from pathlib import Path\n"
    code += "with hold(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], **pipes) as process:
        assert process.stdout.readline() == "held\n"
        with (
            pytest.raises(decibo.InputError, match=f"in use by process {process.pid}"),
            hold(tmp_path),
        ):
            pass
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie from here on
        with (
            pytest.warns(UserWarning, match=f"locked by process {process.pid}") as caught,
            hold(tmp_path),
        ):
            pass
        assert caught[0].filename == __file__


def test_the_empty_lock_of_a_process_killed_before_it_wrote_is_taken_over_with_a_word(tmp_path):
    (tmp_path / LOCK).touch()
    said = "locked by a process that is no longer running; its lock is taken over"
    with pytest.warns(UserWarning, match=said) as caught:
        solve(tmp_path)
    assert caught[0].filename == __file__
    assert not (tmp_path / LOCK).exists()


def test_the_lock_of_a_process_that_is_about_to_write_stands(tmp_path):
    (tmp_path / LOCK).touch()
    writer = threading.Timer(0.2, (tmp_path / LOCK).write_text, [owner()])
    writer.start()
    with pytest.raises(decibo.InputError, match="has been in use by process"), hold(tmp_path):
        pass
    assert (tmp_path / LOCK).read_text() == owner()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (lambda: owner(), "has been in use by process .* Wait for it to end"),
        (
            lambda: owner(host="elsewhere"),
            r"on elsewhere since 20.*If it is no longer running, delete .*/\.lock",
        ),
        (lambda: "[" * 100_000, r"\.lock does not say by whom.*If no run uses the folder, delete"),
        (lambda: owner(process="1.0"), "does not say by whom"),
        (lambda: owner(process=2**70), "does not say by whom"),
        (lambda: owner(process=-1), "does not say by whom"),
    ],
)
def test_any_other_lock_stands(tmp_path, content, words):
    text = content()
    (tmp_path / LOCK).write_text(text)
    with pytest.raises(decibo.InputError, match=words):
        solve(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]
    assert (tmp_path / LOCK).read_text() == text


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text(owner(process=2**22 + 1))
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / LOCK).symlink_to(precious)
    with pytest.raises(decibo.InputError, match="does not say by whom"), hold(tmp_path / "kept"):
        pass
    assert precious.exists()


def test_a_run_whose_lock_was_removed_writes_nothing_more(tmp_path):
    def remove(step, steps, latest):
        (tmp_path / LOCK).unlink(missing_ok=True)

    with pytest.raises(
        StorageError, match="was removed or replaced while this run was using the folder"
    ):
        solve(tmp_path, progress=remove)
    assert list(tmp_path.glob("step-*")) == []


@pytest.mark.slow
def test_of_many_processes_at_once_one_takes_over(tmp_path):
    """All find the lock of a dead process at the same moment."""
    code = """
import os, signal, sys
from pathlib import Path
from decibo.run import lock
folder = Path(sys.argv[1])
tell, said = os.pipe()[::-1]

def attempt(number):
    try:
        kept = lock._acquire(folder / ".lock")
        os.write(tell, b"+")
    except Exception:
        os.write(tell, b"-")
    signal.pause()  # alive until all have tried

for _ in range(5):
    (folder / ".lock").write_text(sys.argv[2])
    children = [os.fork() or attempt(number) for number in range(8)]
    print(sum(os.read(said, 1) == b"+" for _ in children))
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
"""
    command = [sys.executable, "-W", "ignore", "-c", code, str(tmp_path), owner(process=2**22 + 1)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "1\n" * 5, done.stderr
