"""MNIST's loader on made-up files; downloads come from this process, never from outside."""

import functools
import gzip
import hashlib
import http.server
import struct
import sys
import threading

import numpy as np
import pytest

from decibo.data import find, mnist
from decibo.data.loaders import MNIST_ARRAYS, MNIST_SUMS, load_mnist
from decibo.errors import CorruptedFileError, InputError, UnreachableError


@pytest.fixture
def files():
    rng = np.random.default_rng(0)
    shapes = [(5, 2, 2), (5,), (3, 2, 2), (3,)]
    arrays = {
        name: rng.integers(0, 9, size=shape).astype(np.uint8)
        for name, shape in zip(MNIST_SUMS, shapes, strict=True)
    }
    return {
        name: struct.pack(f">{1 + a.ndim}i", 0x800 + a.ndim, *a.shape) + a.tobytes()
        for name, a in arrays.items()
    }


@pytest.fixture
def sums(files):
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("DECIBO_DATA", raising=False)


@pytest.fixture
def mirror(tmp_path, files):
    folder = tmp_path / "mirror"
    folder.mkdir()
    for name, content in files.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    return folder


def _save(path, arrays):
    np.savez(path, **arrays)


def _quiet(*args):
    pass


@pytest.fixture
def server(mirror):
    handler = type("Handler", (http.server.SimpleHTTPRequestHandler,), {"log_message": _quiet})
    served = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(handler, directory=str(mirror))
    )
    thread = threading.Thread(target=served.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{served.server_address[1]}/"
    served.shutdown()
    served.server_close()
    thread.join()


@pytest.mark.parametrize("packed", [True, False])
def test_raw_files_are_read(tmp_path, files, sums, packed):
    for name, content in files.items():
        (tmp_path / (name + ".gz" * packed)).write_bytes(
            gzip.compress(content) if packed else content
        )
    arrays, source = load_mnist(tmp_path, sums)
    assert {name: array.shape for name, array in arrays.items()} == {
        "x_train": (5, 2, 2),
        "y_train": (5,),
        "x_test": (3, 2, 2),
        "y_test": (3,),
    }
    assert source == str(tmp_path)


def test_npz_is_checked_by_the_same_sums(tmp_path, files, sums, monkeypatch, server):
    arrays, _ = load_mnist(None, sums, [server])
    _save(tmp_path / "mnist.npz", arrays)
    monkeypatch.setenv("DECIBO_DATA", str(tmp_path))
    again, source = load_mnist(None, sums, [])
    assert source.endswith("mnist.npz")
    assert find("mnist.npz") == tmp_path / "mnist.npz"
    assert all(np.array_equal(arrays[key], again[key]) for key in MNIST_ARRAYS.values())
    arrays["x_test"] = arrays["x_test"] + 1
    _save(tmp_path / "mnist.npz", arrays)
    with pytest.raises(
        CorruptedFileError,
        match=r"mnist\.npz \(x_test\) is damaged.*is \w{64}, but it must be \w{64}",
    ):
        load_mnist(None, sums, [])


def test_download_fills_the_cache_once(tmp_path, server, sums):
    arrays, source = load_mnist(None, sums, ["http://127.0.0.1:9/", server])
    assert source == "downloaded"
    assert sorted(path.name for path in (tmp_path / "cache" / "decibo").iterdir()) == sorted(
        MNIST_SUMS
    )
    again, source = load_mnist(None, sums, [])
    assert source == str(tmp_path / "cache" / "decibo")
    assert np.array_equal(arrays["x_train"], again["x_train"])


def test_a_damaged_download_is_rejected_and_not_kept(tmp_path, mirror, server, sums):
    name = "train-images-idx3-ubyte"
    (mirror / f"{name}.gz").write_bytes(gzip.compress(b"something else"))
    with pytest.raises(CorruptedFileError, match=rf"{name}\.gz is damaged.*{sums[name]}"):
        load_mnist(None, sums, [server])
    assert find(name) is None
    assert not any((tmp_path / "cache" / "decibo").iterdir())


def test_a_damaged_file_is_named(tmp_path, files, sums):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(b"short")
    with pytest.raises(
        CorruptedFileError, match=r"t10k-labels-idx1-ubyte is damaged.*download it again"
    ):
        load_mnist(tmp_path, sums)
    (tmp_path / "mnist.npz").write_bytes(b"not a zip file")
    with pytest.raises(CorruptedFileError, match=r"mnist\.npz is damaged.*x_train, y_train"):
        load_mnist(tmp_path, sums)


def test_half_a_download_counts_as_none(mirror, server, sums):
    path = mirror / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(UnreachableError, match="could not be downloaded"):
        load_mnist(None, sums, [server])


def test_no_network_is_one_clear_error(sums):
    with pytest.raises(
        UnreachableError,
        match=r"train-images.*could not be downloaded.*127\.0\.0\.1.*set DECIBO_DATA",
    ):
        load_mnist(None, sums, ["http://127.0.0.1:9/"])


def test_a_damaged_archive_is_named(tmp_path, files, sums):
    for name, content in files.items():
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content)[:-9])
    with pytest.raises(CorruptedFileError, match=r"train-images-idx3-ubyte\.gz is damaged"):
        load_mnist(tmp_path, sums)


def test_without_pooch(monkeypatch, sums):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ImportError, match=r"needs pooch.*pip install 'decibo\[data\]'"):
        load_mnist(None, sums)


def test_an_empty_folder_is_named(tmp_path):
    with pytest.raises(InputError, match=r"neither mnist\.npz nor the four IDX files"):
        mnist(folder=tmp_path)
