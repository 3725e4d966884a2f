"""Compiled programs are kept on disk only where nobody else can put theirs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from decibo.cli import cache


@pytest.fixture(autouse=True)
def _plain_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_where_it_is_wanted(tmp_path):
    inside = lambda folder: folder / "programs" / cache.processor()
    assert cache.preferred_folder({}) == inside(Path.home() / ".cache" / "decibo")
    assert cache.preferred_folder({"XDG_CACHE_HOME": str(tmp_path)}) == inside(tmp_path / "decibo")
    assert cache.preferred_folder(
        {"DECIBO_CACHE": str(tmp_path), "XDG_CACHE_HOME": "/elsewhere"}
    ) == inside(tmp_path)


@pytest.mark.parametrize("word", ["off", "OFF", "0", "no", " false "])
def test_switched_off(word):
    assert cache.preferred_folder({"DECIBO_CACHE": word}) is None


def test_a_new_folder_is_the_users_alone(tmp_path):
    folder = tmp_path / "a" / "b"
    assert cache.is_private(folder)
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o707, 0o777])
def test_a_folder_open_to_others_is_rejected(tmp_path, mode):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(mode)
    assert not cache.is_private(folder)


def test_a_folder_that_others_could_replace_is_rejected(tmp_path):
    folder = tmp_path / "shared" / "own"
    folder.mkdir(parents=True, mode=0o700)
    folder.parent.chmod(0o777)
    assert not cache.is_private(folder)
    folder.parent.chmod(0o1777)  # as /tmp: only the owner may rename
    assert cache.is_private(folder)


def test_a_link_is_judged_by_where_it_leads(tmp_path):
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path / "open")
    assert not cache.is_private(tmp_path / "link")


def test_the_oldest_programs_go_when_there_are_too_many(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "LARGEST", 30)
    for k in range(4):
        file = tmp_path / f"{k}-cache"
        file.write_bytes(b"x" * 10)
        os.utime(file, (k, k))
    cache._prune(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["2-cache", "3-cache"]


SCRIPT = """
import sys
import decibo
from decibo.cli import cache
import jax, jax.numpy as jnp
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.jit(lambda x: x + 1)(1.0)  # jax has looked for a cache by now
before = jax.config.jax_compilation_cache_dir
folder = cache.enable()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
def late(x):
    return jnp.sin(x @ x)
jax.jit(late)(jnp.ones((3, 3)))
print(before, folder, len(list(folder.glob("*-cache"))) > 0 if folder else None)
"""


LIBRARY = """
import decibo, jax
decibo.solve(decibo.problems.synthetic(), decibo.ring(10), decibo.ahead_exact(alpha=0.01, gamma=0.01), steps=2)
print(jax.config.jax_compilation_cache_dir, jax.config.jax_enable_compilation_cache)
"""


TWO = {"XLA_FLAGS": f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=2"}


def run(script=SCRIPT, **environment):
    return finished(script, **environment).stdout.split()


def finished(script, **environment):
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "DECIBO"))
    }
    done = subprocess.run(
        [sys.executable, "-c", script], env=kept | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done


def test_a_call_of_the_library_does_not_touch_it(tmp_path):
    assert run(LIBRARY, XDG_CACHE_HOME=str(tmp_path), **TWO) == ["None", "True"]
    assert list(tmp_path.iterdir()) == []


def test_switched_on_by_the_command_line_and_not_on_import(tmp_path):
    folder = tmp_path / "decibo" / "programs" / cache.processor()
    assert run(XDG_CACHE_HOME=str(tmp_path)) == ["None", str(folder), "True"]


@pytest.mark.slow
def test_a_half_written_program_is_compiled_without_a_word(tmp_path):
    run(XDG_CACHE_HOME=str(tmp_path))
    (entry,) = tmp_path.rglob("jit_late-*-cache")
    entry.write_bytes(entry.read_bytes()[:100])
    done = finished(SCRIPT, XDG_CACHE_HOME=str(tmp_path))
    assert done.stdout.split()[-1] == "True"
    assert "cache" not in done.stderr


def test_the_users_own_cache_is_left_alone(tmp_path):
    own = str(tmp_path / "own")
    assert run(XDG_CACHE_HOME=str(tmp_path), JAX_COMPILATION_CACHE_DIR=own) == [own, "None", "None"]
    assert list(Path(own).glob("jit_late-*"))


@pytest.mark.slow
def test_several_devices_of_a_processor_do_without(tmp_path):
    assert run(XDG_CACHE_HOME=str(tmp_path), **TWO) == ["None", "None", "None"]
    own = tmp_path / "own"
    assert run(XDG_CACHE_HOME=str(tmp_path), **TWO, JAX_COMPILATION_CACHE_DIR=str(own))[1:] == [
        "None",
        "None",
    ]
    assert list(own.glob("jit_*"))  # from before the first run
    assert not list(own.glob("jit_late-*"))


def test_a_cache_that_cannot_be_made_does_not_stop_anything(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    assert run(XDG_CACHE_HOME=str(tmp_path / "file")) == ["None", "None", "None"]
