"""Data sets in a folder and over HTTP; none of the machine's own."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bnncert import data
from published_data import FILES, cifar10, idx, pin, sha256


@pytest.fixture(autouse=True)
def no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(data.FOLDER, raising=False)


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of small files in the place of MNIST and CIFAR-10, their hashes pinned; no network
    beyond it."""
    folder = tmp_path / "published"
    folder.mkdir()
    for name, array in FILES.items():
        (folder / name).write_bytes(gzip.compress(idx(array)))
    hashes = {name: sha256(folder / name) for name in FILES}
    pin(monkeypatch, files=hashes, url="http://127.0.0.1:9/")  # the discard port: nobody answers
    hashes = {"cifar-10-binary.tar.gz": sha256(cifar10(folder / "cifar-10-binary.tar.gz"))}
    for split in data.SPLITS:
        pin(monkeypatch, "cifar10", split, files=hashes, url="http://127.0.0.1:9/")
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pooch = pytest.importorskip("pooch", reason="needs pooch: pip install 'bnncert[data]'")
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "cache" / project)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return tmp_path / "cache"


@pytest.fixture
def server(published: Path) -> Iterator[str]:
    """The published folder over HTTP."""
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(QuietHandler, directory=str(published))
    ) as http:
        thread = threading.Thread(target=partial(http.serve_forever, poll_interval=0.01))
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}/"
        http.shutdown()
        thread.join()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name in the base class)
        pass
