"""Whatever happens to the files of a checkpoint, the one before is used, and never a state that is
not the run's."""

import io
import json
import os
import random
import shutil
import warnings
import zipfile
from dataclasses import replace

import jax
import numpy as np
import pytest

import decibo
from decibo.errors import CorruptedFileError
from decibo.files import encode_record, sha256
from decibo.run import checkpoint_files
from decibo.run.checkpoint import Checkpoints
from decibo.run.run import begin
from decibo.run.solve import prepare

STEPS = 60
NEWEST = "step-00000060"
BEFORE = "step-00000040"


class World:
    """A run with checkpoints of steps 20, 40 and 60, and what `solve` does when it resumes, without
    compiling again."""

    def __init__(self, folder):
        parts = (decibo.problems.quadratic(4, seed=1), decibo.ring(4), decibo.ahead_exact())
        self.folder = folder
        decibo.solve(
            *parts, steps=STEPS, every=10, progress=False, checkpoint=Checkpoints(folder, every=20)
        )
        setup = prepare(
            *parts, steps=STEPS, every=10, checkpoints=Checkpoints(folder, every=20, resume=True)
        )
        assert setup.checkpointer is not None
        self.checkpointer = setup.checkpointer
        self.start = begin(setup)
        shorter = shutil.copytree(folder, folder.with_name("shorter"))
        shutil.rmtree(shorter / NEWEST)
        self.states = {NEWEST: self.restore(folder)[0], BEFORE: self.restore(shorter)[0]}

    def restore(self, folder):
        """The state that a run in this folder resumes from, and the warnings."""
        checkpoints = replace(self.checkpointer.checkpoints, folder=folder)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run = replace(self.checkpointer, checkpoints=checkpoints).restore(self.start, STEPS)
        return run, [str(warning.message) for warning in caught]

    def is_state(self, run, name):
        both = zip(jax.tree.leaves(run), jax.tree.leaves(self.states[name]), strict=True)
        return all(np.array_equal(a, b, equal_nan=True) for a, b in both)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("damage") / "kept")


@pytest.fixture
def kept(world, tmp_path):
    return shutil.copytree(world.folder, tmp_path / "kept")


def sealed(folder, **changes):
    """Change the manifest and make all checksums fit, as damage never does."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for name in manifest["files"]:
        if (folder / name).is_file():
            manifest["files"][name] = sha256(folder / name)
    del manifest["checksum"]
    for name, value in changes.items():
        if value is None:
            del manifest[name]
        else:
            manifest[name] = value
    kind, version = manifest.pop("kind"), manifest.pop("format")
    (folder / "manifest.json").write_bytes(encode_record(kind, version, manifest))


def arrays(folder, name, change):
    """Change the arrays in a file and make all checksums fit."""
    path = next(folder.glob(name))
    with np.load(path) as file:
        content = dict(file)
    change(content)
    out = io.BytesIO()
    np.savez(out, **content)
    path.write_bytes(out.getvalue())
    sealed(folder)


def used_the_one_before(world, kept, words):
    run, told = world.restore(kept)
    assert len(told) == 1
    assert NEWEST in told[0]
    assert words in told[0]
    assert told[0].endswith("Continuing from step 40 instead.")
    return world.is_state(run, BEFORE)


def test_a_sound_checkpoint_is_used_without_a_word(world, kept):
    run, told = world.restore(kept)
    assert told == []
    assert run.step == 60
    assert world.is_state(run, NEWEST)
    assert not world.is_state(run, BEFORE)


def test_one_flipped_bit_anywhere(world, kept):
    """Every file, the manifest included: every bit of the small ones, a sample of the large."""
    drawn = random.Random(0)
    newest = kept / NEWEST
    for path in sorted(newest.iterdir()):
        content = path.read_bytes()
        bits = range(8 * len(content))
        for bit in bits if len(bits) < 600 else drawn.sample(bits, 80):
            changed = bytearray(content)
            changed[bit // 8] ^= 1 << bit % 8
            path.write_bytes(changed)
            with pytest.raises(CorruptedFileError, match=NEWEST):
                checkpoint_files.read(newest)
        path.write_bytes(changed)
        assert used_the_one_before(world, kept, "checksum" if path.suffix == ".npz" else "damaged")
        path.write_bytes(content)
    assert world.is_state(world.restore(kept)[0], NEWEST)


@pytest.mark.parametrize("name", ["manifest.json", "shared.npz", "agents-0-3.npz"])
def test_truncated_lost_and_replaced_files(world, kept, name):
    path = kept / NEWEST / name
    content = path.read_bytes()
    for length in (0, 1, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        assert used_the_one_before(world, kept, "")
    path.unlink()
    assert used_the_one_before(world, kept, f"{name} is missing")
    path.symlink_to("/dev/zero")
    assert used_the_one_before(world, kept, f"{name} is missing")
    path.unlink()
    os.mkfifo(path)
    assert used_the_one_before(world, kept, f"{name} is missing")
    path.unlink()
    path.mkdir()
    assert used_the_one_before(world, kept, f"{name} is missing")


MANIFESTS = {
    "another step": ({"step": 58}, "it holds step 58"),
    "no step": ({"step": None}, "KeyError"),
    "a step in words": ({"step": "60"}, "cannot be used"),
    "a step that is true": ({"step": True}, "it holds step True"),
    "no files": ({"files": None}, "KeyError"),
    "a list of files": ({"files": ["shared.npz"]}, "table of words"),
    "no shared file": ({"files": {}}, "shared.npz is missing"),
    "a file elsewhere": ({"files": {"shared.npz": "0", "../../secret": "0"}}, "checksum"),
    "no fingerprint": ({"fingerprint": None}, "KeyError"),
    "a fingerprint in numbers": ({"fingerprint": {"seed": 0}}, "table of words"),
    "no software": ({"software": None}, "KeyError"),
    "another kind": ({"kind": "something else"}, "not a decibo checkpoint"),
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests_whose_checksums_fit(world, kept, name):
    changes, words = MANIFESTS[name]
    sealed(kept / NEWEST, **changes)
    assert used_the_one_before(world, kept, words)


def without(name):
    return lambda content: content.pop(name)


def with_(name, function):
    return lambda content: content.update({name: function(content[name])})


ROW = "agents.variables.x"
AGENTS = {
    "no numbers": (without("agents"), "cannot be read ('agents is not a file in the archive')"),
    "an agent twice": (with_("agents", lambda a: a * 0), "each once"),
    "an agent too many": (with_("agents", lambda a: np.append(a, 4)), "each once"),
    "numbers with a fraction": (with_("agents", lambda a: a.astype(float)), "each once"),
    "a part is missing": (without(ROW), ROW),
    "another part": (lambda content: content.update(other=content[ROW]), "other"),
    "single precision": (with_(ROW, lambda a: a.astype(np.float32)), "cannot be float32"),
    "another shape": (with_(ROW, lambda a: a[:, :-1]), f"{ROW} cannot be"),
    "an axis more": (with_(ROW, lambda a: a[..., None]), f"{ROW} cannot be"),
    "a row less": (with_(ROW, lambda a: a[:-1]), "the same parts"),
    "a scalar": (with_(ROW, lambda a: a[0, 0]), "the same parts"),
    "words": (with_(ROW, lambda a: a.astype(str)), f"{ROW} cannot be"),
    "a pickle": (with_(ROW, lambda a: a.astype(object)), "allow_pickle"),
}
SHARED = {
    "no step": (without("step"), "step"),
    "another step": (with_("step", lambda a: a - 2), "its state is of step 58"),
    "a step with a fraction": (with_("step", lambda a: a + 0.0), "its state is of step"),
    "many steps": (with_("step", lambda a: np.array([60, 60])), "step cannot be"),
    "no records": (without("history.step"), "history.step"),
    "fewer records": (with_("history.outer", lambda a: a[:-1]), "records"),
    "records of the future": (with_("history.step", lambda a: a + 1), "records"),
    "records backwards": (with_("history.step", lambda a: a[::-1]), "records"),
    "a record of no time": (with_("history.outer", lambda a: a[0]), "history.outer cannot be"),
    "a time is missing": (without("seconds.steps"), "seconds.steps"),
    "a time of two numbers": (
        with_("seconds.steps", lambda a: np.array([a, a])),
        "seconds.steps cannot be",
    ),
    "a time in words": (
        with_("seconds.steps", lambda a: np.array("large")),
        "seconds.steps cannot be",
    ),
    "an agent's part": (
        lambda content: content.update({ROW: np.zeros((4, 3))}),
        "it does not hold",
    ),
}


@pytest.mark.parametrize("name", AGENTS)
def test_agents_whose_checksums_fit(world, kept, name):
    change, words = AGENTS[name]
    arrays(kept / NEWEST, "agents-*", change)
    assert used_the_one_before(world, kept, words)


@pytest.mark.parametrize("name", SHARED)
def test_shared_numbers_whose_checksums_fit(world, kept, name):
    change, words = SHARED[name]
    arrays(kept / NEWEST, "shared.npz", change)
    assert used_the_one_before(world, kept, words)


def test_a_file_that_promises_more_than_memory_holds(world, kept):
    path = kept / NEWEST / "shared.npz"
    with zipfile.ZipFile(path, "w") as file:
        header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000000,)}"
        file.writestr(
            "step.npy",
            b"\x93NUMPY\x01\x00" + (len(header) + 1).to_bytes(2, "little") + header + b"\n",
        )
    sealed(kept / NEWEST)
    assert used_the_one_before(world, kept, "arrays cannot be read")


def test_a_checkpoint_under_the_name_of_another(world, kept):
    """Its checksums fit: only the name says that it is another step."""
    shutil.copytree(kept / BEFORE, kept / "step-00000058")
    shutil.rmtree(kept / NEWEST)
    run, told = world.restore(kept)
    assert ["it holds step 40" in words for words in told] == [True]
    assert world.is_state(run, BEFORE)


def test_if_none_is_sound_there_is_one_error_and_nothing_is_run(world, kept):
    for folder in kept.glob("step-*"):
        (folder / "manifest.json").write_text("{")
    with pytest.raises(
        CorruptedFileError, match=r"step-00000060.* is damaged.*The 2 before it.*Start a new run"
    ):
        world.restore(kept)


@pytest.mark.parametrize("known", [1, 2, 3, 4, 99])
def test_another_format_is_rejected_and_not_called_damage(world, kept, known):
    """Formats 1 to 4 had no checksum in the manifest."""
    newest = kept / NEWEST
    sealed(newest, format=known)
    if known < 5:
        manifest = json.loads((newest / "manifest.json").read_text())
        del manifest["checksum"]
        (newest / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(
        decibo.InputError, match=rf"of format {known}, but this version of decibo reads format 5"
    ):
        world.restore(kept)


def test_links_are_removed_and_what_they_lead_to_stays(tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis").write_text("")
    for name in (".writing-00000020-0", "step-00000020"):
        (tmp_path / name).symlink_to(precious)
    checkpoint_files.clear(tmp_path)
    checkpoint_files.remove(tmp_path / "step-00000020")
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]
    assert (precious / "thesis").exists()
