"""Files and folders are complete or not there at all, whatever fails."""

import errno
import hashlib
import os
import stat
from pathlib import Path

import pytest

from decibo import files
from decibo.errors import CorruptedFileError, InputError, StorageError
from decibo.files import (
    atomic_write,
    check_writable,
    read_checked,
    read_record,
    read_toml,
    sha256,
    synced,
    write_record,
)

pytestmark = pytest.mark.quick


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_text_and_bytes_into_a_new_folder(tmp_path):
    path = atomic_write(tmp_path / "new" / "a.txt", "héllo \ud800")
    assert path.read_bytes() == "héllo ?".encode()
    atomic_write(path, b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff"
    assert names(path.parent) == ["a.txt"]


def test_a_disk_that_becomes_read_only_is_named_with_the_file(tmp_path, monkeypatch):
    def read_only(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(files, "synced", read_only)
    monkeypatch.setattr(Path, "unlink", read_only)
    with pytest.raises(StorageError, match=r"a\.txt could not be written: Read-only file system"):
        atomic_write(tmp_path / "a.txt", "")


def test_permissions_follow_the_umask(tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("")
    path = atomic_write(tmp_path / "ours", "")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_a_link_is_replaced_and_not_followed(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("old")
    (tmp_path / "link").symlink_to(precious)
    atomic_write(tmp_path / "link", "new")
    assert precious.read_text() == "old"
    assert (tmp_path / "link").read_text() == "new"
    assert not (tmp_path / "link").is_symlink()


def test_a_new_file_never_takes_over_an_existing_one(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(FileExistsError), synced(tmp_path / "link"):
        pass
    assert not (tmp_path / "target").exists()


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = atomic_write(tmp_path / "a", "old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        atomic_write(path, "new")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a"]


def test_temporary_names_cannot_be_guessed(tmp_path, monkeypatch):
    seen = []
    replace = os.replace
    monkeypatch.setattr(
        files.os, "replace", lambda old, new: (seen.append(old.name), replace(old, new))
    )
    atomic_write(tmp_path / ("a" * 200), "1")
    atomic_write(tmp_path / ("a" * 200), "2")
    assert len(set(seen)) == 2


def test_links_at_names_that_could_be_guessed_are_left_alone(tmp_path):
    """Names that were made of the number of the process: whoever put a link there had its target
    overwritten."""
    precious = tmp_path / "precious"
    precious.write_text("thesis")
    folder = tmp_path / "shared"
    folder.mkdir()
    for name in (
        f".a.{os.getpid()}.tmp",
        f".writing-probe-{os.getpid()}",
        f".probe.{os.getpid()}.tmp",
        ".writing-50",
    ):
        (folder / name).symlink_to(precious)
    before = names(folder)
    check_writable(folder)
    atomic_write(folder / "a", "ours")
    assert precious.read_text() == "thesis"
    assert names(folder) == sorted([*before, "a"])


def test_checksums_of_bytes_and_files(tmp_path):
    expected = hashlib.sha256(b"abc").hexdigest()
    path = atomic_write(tmp_path / "a", "abc")
    assert sha256(b"abc") == sha256(path) == expected
    assert read_checked(path, expected) == b"abc"
    path.write_text("abd")
    with pytest.raises(CorruptedFileError, match="checksum"):
        read_checked(path, expected)
    with pytest.raises(CorruptedFileError, match="cannot be read: No such file"):
        read_checked(tmp_path / "none")


def test_folders_that_cannot_be_written_to_are_rejected_early(tmp_path):
    assert check_writable(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert names(tmp_path) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file is a file"):
        check_writable(tmp_path / "file" / "a")
    with pytest.raises(InputError, match="Cannot write to /proc/decibo"):
        check_writable(files.Path("/proc/decibo"))


def test_a_record_comes_back_as_it_was_written_and_damage_is_found(tmp_path):
    path = tmp_path / "record.json"
    content = {"agents": {"1": 0.1, "2": [1, None, "é"]}, "big": 2**70, "none": float("inf")}
    write_record(path, "decibo test", 3, content, files.PRIVATE)
    assert read_record(path, "decibo test", 3) == content
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    written = path.read_bytes()
    for bit in range(8 * len(written)):
        changed = bytearray(written)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        try:
            assert read_record(path, "decibo test", 3) == content  # "00E9" for "00e9"
        except CorruptedFileError as error:
            assert "damaged" in str(error)  # noqa: PT017
    path.write_bytes(written)
    with pytest.raises(CorruptedFileError, match="is not a decibo model"):
        read_record(path, "decibo model", 3)
    with pytest.raises(InputError, match=r"is a decibo test of format 3, .* reads format 4"):
        read_record(path, "decibo test", 4)
    with pytest.raises(CorruptedFileError, match="cannot be read: No such file"):
        read_record(tmp_path / "none", "decibo test", 3)


def test_keys_of_a_record_become_text(tmp_path):
    write_record(tmp_path / "a", "decibo test", 1, {"marks": {10: "a", 9: "b"}})
    assert read_record(tmp_path / "a", "decibo test", 1) == {"marks": {"10": "a", "9": "b"}}


def test_settings_in_toml(tmp_path):
    path = atomic_write(tmp_path / "a.toml", "name = 'a'\n[table]\nsteps = 3\n")
    assert read_toml(path, ["name", "table"]) == {"name": "a", "table": {"steps": 3}}
    with pytest.raises(InputError, match=r"has no key table.*Its keys are name, tables.*tables"):
        read_toml(path, ["name", "tables"])
    for text in (b"name = ", b"\xff", b"a = " + b"[" * 100_000):
        path.write_bytes(text)
        with pytest.raises(InputError, match=r"a\.toml is not valid TOML"):
            read_toml(path)
    with pytest.raises(InputError, match=r"none cannot be read: No such file.*Pass the path"):
        read_toml(tmp_path / "none")
