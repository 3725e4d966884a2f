"""The folder of a result is replaced as a whole, or stays as it was."""

import os

import pytest

from studies.paper.suite import replace_folder


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_new_folder_has_the_mode_of_any_other(tmp_path):
    with replace_folder(tmp_path / "folder") as draft:
        (draft / "a").write_text("")
    (tmp_path / "other").mkdir()
    assert (tmp_path / "folder").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_folder_is_replaced_as_a_whole(tmp_path):
    target = tmp_path / "up" / "results"
    with replace_folder(target) as draft:
        (draft / "old").write_text("")
        assert not target.exists()
    with replace_folder(target) as draft:
        (draft / "new").write_text("")
        assert names(target) == ["old"]
    assert names(target) == ["new"]
    assert names(target.parent) == ["results"]


def test_a_link_to_a_folder_is_replaced_and_not_emptied(tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    with replace_folder(tmp_path / "link") as draft:
        (draft / "new").write_text("")
    assert names(tmp_path / "precious") == ["thesis"]
    assert names(tmp_path / "link") == ["new"]
    assert names(tmp_path) == ["link", "precious"]


def test_a_failure_leaves_the_old_folder_or_none(tmp_path):
    target = tmp_path / "a" / "b" / "results"

    def fail():
        with replace_folder(target) as draft:
            (draft / "half").write_text("")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert names(tmp_path) == []
    with replace_folder(target) as draft:
        (draft / "old").write_text("")
    with pytest.raises(KeyboardInterrupt):
        fail()
    assert names(target) == ["old"]
    assert names(target.parent) == ["results"]


def test_a_folder_whose_renaming_fails_gets_its_old_content_back(tmp_path, monkeypatch):
    target = tmp_path / "results"
    with replace_folder(target) as draft:
        (draft / "old").write_text("")
    calls = iter(range(10))
    replace = os.replace

    def second_fails(source, destination):
        if next(calls) == 1:
            raise OSError(5, "Input/output error")
        replace(source, destination)

    monkeypatch.setattr(os, "replace", second_fails)
    with pytest.raises(OSError, match="Input/output"), replace_folder(target) as draft:
        (draft / "new").write_text("")
    assert names(target) == ["old"]
    assert names(tmp_path) == ["results"]
