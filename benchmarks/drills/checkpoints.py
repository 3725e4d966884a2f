"""Damage checkpoints in every way, and kill a run while it writes them, and resume.

Of `count` cases each damages the newest checkpoint of a run, or several, and resumes it: the newest
sound one must be used, with a warning for each of the others, or, if none is left, one error must
say so. Every tenth case then runs to the end, and the result must be that of an uninterrupted run
bit for bit; in the others the restored state must be. Damage of the storage (bits, blocks,
truncated, lost, swapped and replaced files) leaves checksums that do not fit; what is changed by
hand (entries of the manifest, names, shapes and types of arrays) has checksums that do. Arrays that
are empty at the start of a run may have any shape later, and are not changed by hand.

Then a hundredth as many cases kill a single process (SIGKILL) once or twice while it writes a
checkpoint every 10 steps, often before there is one, and resume it until it is done: same bits, no
lock, draft or other file left.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np  # noqa: E402
from faults import Outcome  # noqa: E402

import decibo  # noqa: E402
from decibo.errors import CorruptedFileError  # noqa: E402
from decibo.files import sha256  # noqa: E402
from decibo.run.checkpoint import RunState  # noqa: E402
from decibo.run.run import begin  # noqa: E402
from decibo.run.solve import prepare  # noqa: E402

# and automatic step sizes: the richest state
PARTS = (decibo.problems.quadratic(4, seed=1), decibo.ring(4))
STEPS = 80
KEPT = ("step-00000020", "step-00000040", "step-00000060")
PATIENCE = 10  # times the duration of an undisturbed run, after which a resumed one counts as hung
FILE = """
import decibo
problem = decibo.problems.quadratic(4)
steps = 2000
every = 100
checkpoint_every = 10
"""
GROWING = re.compile(r"^history\.|\.(sizes|values|path)$")
# of the folder of a checkpoint; returns what was done, in words
Damage = Callable[[Path, random.Random], str]


def cases(count: int, seed: int, folder: Path) -> Iterator[Outcome]:
    drawn = random.Random(seed)
    yield from damages(count, drawn, folder)
    yield from kills(max(1, count // 100), drawn, folder)


def damages(count: int, drawn: random.Random, folder: Path) -> Iterator[Outcome]:
    world = World(folder)
    kinds = list(DAMAGES)
    for number in range(count):
        kind = kinds[number % len(kinds)]
        copy = shutil.copytree(world.kept, folder / "copy")
        spoilt = 1 + (drawn.random() < 0.2) + (drawn.random() < 0.1)
        done = "; ".join(DAMAGES[kind](copy / name, drawn) for name in KEPT[: -spoilt - 1 : -1])
        yield judged(f"{kind}: {done}", copy, spoilt, world, whole=number % 10 == 0)
        shutil.rmtree(copy)


class World:
    """A run that was killed after three checkpoints, the states in them, and the run as a whole."""

    def __init__(self, folder: Path):
        self.kept = folder / "kept"
        self.whole = solve(self.kept, resume=False)
        shutil.rmtree(self.kept / "step-00000080")  # as if it had been killed before it was done
        self.checkpoints = decibo.Checkpoints(self.kept, every=20, resume=True)
        setup = prepare(
            *PARTS, decibo.ahead_exact(), steps=STEPS, every=10, checkpoints=self.checkpoints
        )
        assert setup.checkpointer is not None
        self.checkpointer = setup.checkpointer
        self.start = begin(setup)
        self.states = []  # of the newest one, of the one before, ...
        shorter = shutil.copytree(self.kept, folder / "shorter")
        for name in KEPT[::-1]:
            self.states.append(self.restored(shorter))
            shutil.rmtree(shorter / name)

    def restored(self, folder: Path) -> RunState:
        """What a run in this folder resumes from."""
        checkpointer = replace(
            self.checkpointer, checkpoints=replace(self.checkpoints, folder=folder)
        )
        with checkpointer.held():
            return checkpointer.restore(self.start, STEPS)


def judged(case: str, copy: Path, spoilt: int, world: World, whole: bool) -> Outcome:
    """Resume from damaged checkpoints, and say what came of it."""
    begun = time.perf_counter()
    flags = {}
    detail = ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            if whole:
                right = same(solve(copy, resume=True), world.whole)
            else:
                both = zip(
                    jax.tree.leaves(world.restored(copy)),
                    jax.tree.leaves(world.states[spoilt]),
                    strict=True,
                )
                right = all(np.array_equal(a, b, equal_nan=True) for a, b in both)
            told = [str(warning.message) for warning in caught]
            flags["wrong"] = not right or len(told) != spoilt
            detail = "; ".join(told)
        except CorruptedFileError as error:
            flags["lost"] = spoilt < len(KEPT)
            detail = str(error)
        except Exception as error:
            flags["traceback"] = True
            detail = f"{type(error).__name__}: {error}"
    flags["leaked"] = any(path.name.startswith(".") for path in copy.iterdir())
    return Outcome(case, detail=detail[:300], seconds=time.perf_counter() - begun, **flags)


def solve(folder: Path, resume: bool) -> decibo.Solution:
    checkpoint = decibo.Checkpoints(folder, every=20, keep=4, resume=resume)
    return decibo.solve(*PARTS, steps=STEPS, every=10, progress=False, checkpoint=checkpoint)


def same(one: decibo.Solution, two: decibo.Solution) -> bool:
    both = zip(jax.tree.leaves(vars(one.agents)), jax.tree.leaves(vars(two.agents)), strict=True)
    histories = all(np.array_equal(one.history[name], two.history[name]) for name in two.history)
    return one.status == two.status and histories and all(np.array_equal(a, b) for a, b in both)


# Damage of the storage


def file_of(folder: Path, drawn: random.Random) -> Path:
    return drawn.choice(sorted(folder.iterdir()))


def bit(folder: Path, drawn: random.Random) -> str:
    path = file_of(folder, drawn)
    content = bytearray(path.read_bytes())
    place = drawn.randrange(8 * len(content))
    content[place // 8] ^= 1 << place % 8
    path.write_bytes(content)
    return f"bit {place} of {path.name}"


def block(folder: Path, drawn: random.Random) -> str:
    path = file_of(folder, drawn)
    content = bytearray(path.read_bytes())
    place = drawn.randrange(len(content))
    length = min(drawn.choice([1, 16, 512]), len(content) - place)
    content[place : place + length] = bytes(255 - byte for byte in content[place : place + length])
    path.write_bytes(content)
    return f"{length} bytes of {path.name} from {place}"


def truncated(folder: Path, drawn: random.Random) -> str:
    path = file_of(folder, drawn)
    length = drawn.randrange(path.stat().st_size)
    os.truncate(path, length)
    return f"{path.name} after {length} bytes"


def longer(folder: Path, drawn: random.Random) -> str:
    path = file_of(folder, drawn)
    with path.open("ab") as file:
        file.write(drawn.randbytes(drawn.choice([1, 100])))
    return path.name


def zeros(folder: Path, drawn: random.Random) -> str:
    path = file_of(folder, drawn)
    path.write_bytes(bytes(path.stat().st_size))
    return path.name


def lost(folder: Path, drawn: random.Random) -> str:
    path = file_of(folder, drawn)
    path.unlink()
    return path.name


def replaced(folder: Path, drawn: random.Random) -> str:
    """By a folder, a pipe that nobody writes to, or a device without an end."""
    path = file_of(folder, drawn)
    path.unlink()
    kind = drawn.choice(["folder", "pipe", "device"])
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    return f"{path.name} by a {kind}"


def swapped(folder: Path, drawn: random.Random) -> str:
    """With the file of another checkpoint, sound in itself."""
    path = file_of(folder, drawn)
    other = drawn.choice([each for each in KEPT if each != folder.name])
    content = (folder.parent / other / path.name).read_bytes()
    if content == path.read_bytes():  # the settings have not changed in between
        return bit(folder, drawn)
    path.write_bytes(content)
    return f"{path.name} of {other}"


def renamed(folder: Path, drawn: random.Random) -> str:
    """An older checkpoint, as a whole, under this one's name."""
    if folder.name == KEPT[0]:
        return bit(folder, drawn)
    other = drawn.choice([each for each in KEPT if each < folder.name])
    shutil.rmtree(folder)
    shutil.copytree(folder.parent / other, folder)
    return f"{other} as {folder.name}"


# Changed by hand: the checksums fit


def seal(folder: Path, manifest: object) -> None:
    content = json.dumps(manifest).encode()
    (folder / "manifest.json").write_bytes(content)
    (folder / "manifest.sha256").write_text(f"{sha256(content)}  manifest.json\n")


def manifest(folder: Path, drawn: random.Random) -> str:
    entries = json.loads((folder / "manifest.json").read_text())
    name = drawn.choice(["kind", "step", "software", "files", "fingerprint", "all"])
    value = drawn.choice(
        [None, True, -1, 2**70, 1.5, "", "x" * 1000, [], [[]], {}, {"a": {}}, {"shared.npz": 0}]
    )
    if name == "all":
        entries = value
    # words, if none: another run, which is no damage
    elif name in ("software", "fingerprint") and value == {}:
        del entries[name]
    else:
        entries[name] = value
    seal(folder, entries)
    return f"{name} is {str(value)[:20]}"


def array(folder: Path, drawn: random.Random) -> str:
    path = drawn.choice(sorted(folder.glob("*.npz")))
    with np.load(path, allow_pickle=False) as file:
        content = dict(file)
    name = drawn.choice([each for each in sorted(content) if not GROWING.search(each)])
    old = content.pop(name)
    what = drawn.choice(["gone", "renamed", "words", "axis", "complex", "empty", "object"])
    new = {
        "renamed": old,
        "words": old.astype(str),
        "axis": old[..., None, None],
        "complex": old.astype(complex)[..., None],
        "empty": np.zeros((0, 7, 7)),
        "object": np.full(old.shape, {}, dtype=object),
    }
    if what != "gone":
        content[name + "'" * (what == "renamed")] = new[what]
    out = io.BytesIO()
    np.savez(out, **content)
    path.write_bytes(out.getvalue())
    entries = json.loads((folder / "manifest.json").read_text())
    entries["files"][path.name] = sha256(path)
    seal(folder, entries)
    return f"{name} in {path.name}: {what}"


DAMAGES: dict[str, Damage] = {
    "bit": bit,
    "block": block,
    "truncated": truncated,
    "longer": longer,
    "zeros": zeros,
    "lost": lost,
    "replaced": replaced,
    "swapped": swapped,
    "renamed": renamed,
    "manifest": manifest,
    "array": array,
    "bit again": bit,  # the likeliest of all
}


# Kills


def kills(count: int, drawn: random.Random, folder: Path) -> Iterator[Outcome]:
    (folder / "run.py").write_text(FILE)
    begun = time.perf_counter()
    started(folder, "run", "run.py", "--out", "calm").wait()
    duration = time.perf_counter() - begun
    expected = arrays(folder / "calm")
    for number in range(count):
        out = folder / f"killed{number}"
        begun = time.perf_counter()
        hits = []
        command = ["run", "run.py", "--out", out.name]
        for _ in range(1 + (drawn.random() < 0.5)):
            process = started(folder, *command)
            hits.append(killed(process, out, drawn, duration))
            command = (
                ["resume", out.name] if (out / "checkpoint" / "settings.json").exists() else command
            )
        code, said, hung = ended(started(folder, *command), PATIENCE * duration)
        left = [
            path.name
            for path in (*out.iterdir(), *(out / "checkpoint").iterdir())
            if path.name.startswith(".")
        ]
        got = arrays(out) if code == 0 else {}
        right = got.keys() == expected.keys() and all(
            np.array_equal(got[name], expected[name]) for name in got
        )
        yield Outcome(
            f"kill: {'; '.join(hits)}",
            lost=code != 0,
            leaked=bool(left),
            hung=hung,
            wrong=code == 0 and not right,
            traceback="Traceback" in said or "report it" in said,
            detail=f"exit {code}, {', '.join(left)} {said[-200:]}",
            seconds=time.perf_counter() - begun,
        )


def started(folder: Path, *words: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "decibo", *words]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def killed(process: subprocess.Popen, out: Path, drawn: random.Random, duration: float) -> str:
    """Kill it at a random moment; every third time as soon as it writes its next checkpoint."""
    deadline = time.perf_counter() + duration * drawn.random()
    eager = drawn.random() < 0.34
    writing = lambda: next((out / "checkpoint").glob(".writing-*"), None)
    while (
        process.poll() is None
        and time.perf_counter() < deadline + duration * eager
        and not (eager and writing())
    ):
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    moment = "while it wrote" if writing() else "in between"
    complete = sorted(path.name for path in (out / "checkpoint").glob("step-*"))
    return (
        f"{moment}, newest {complete[-1] if complete else 'none'}"
        if process.returncode < 0
        else "too late"
    )


def ended(process: subprocess.Popen, seconds: float) -> tuple[int, str, bool]:
    try:
        said = process.communicate(timeout=seconds)[1]
        return process.returncode, said, False
    except subprocess.TimeoutExpired:
        process.kill()
        return -1, process.communicate()[1], True


def arrays(out: Path) -> dict[str, np.ndarray]:
    with np.load(out / "solution.npz", allow_pickle=False) as file:
        return dict(file)
