"""Published files: those of the folder BNNCERT_DATA names, or a download into the user's cache."""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bnncert.data.published import Published
from bnncert.errors import InputError

FOLDER = "BNNCERT_DATA"
CHUNK = 2**16  # bytes of a download between two looks at its progress


def folder() -> Path | None:
    """The folder BNNCERT_DATA names, if it is set."""
    value = os.environ.get(FOLDER)
    if value and not Path(value).is_dir():
        raise InputError(f"{FOLDER} is {value!r}, which is not a folder; fix or unset it")
    return Path(value) if value else None


def local_files(name: str, published: Published, folder: Path | None) -> list[Path] | None:
    """The published files in `<folder>/<name>` or in the folder itself, if they are all there."""
    for place in [folder / name, folder] if folder else []:
        paths = [place / file for file in published.files]
        if all(path.is_file() for path in paths):
            for path in paths:
                _verify(path, published.files[path.name], published.repacked.get(path.name))
            return paths
    return None


def _verify(path: Path, sha256: str, repacked: str | None) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found not in (sha256, repacked):
        raise InputError(
            f"{str(path)!r} has SHA-256 {found}, not the pinned {sha256}; "
            "download it again or remove it"
        )


@dataclass
class _Progress:
    """What pooch asks of a progress bar: a line on a terminal's stderr, wiped at the end."""

    file: str
    total: int = 0  # bytes, which pooch sets when the server has said
    done: int = 0

    def update(self, count: int) -> None:
        self.done += count
        self._show(
            f"{self.file}: {self.done >> 20} of {self.total >> 20 if self.total else '?'} MiB"
        )

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        self._show("")

    def _show(self, line: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)


def cached_files(name: str, published: Published) -> list[Path]:
    """The published files in the user's cache, where a download has left them."""
    cache = _pooch(name).os_cache("bnncert")
    found = local_files(name, published, cache)
    if found is None:
        raise InputError(f"data set {name!r} is not on this machine")
    return found


def downloaded(name: str, published: Published) -> list[Path]:
    """The published files in the user's cache, fetched when they are not there yet."""
    pooch = _pooch(name)
    # A folder for each data set: several publish files of the same names.
    cache = pooch.os_cache("bnncert") / name
    try:
        for file, sha256 in published.files.items():
            download = pooch.HTTPDownloader(progressbar=_Progress(file), chunk_size=CHUNK)
            pooch.retrieve(
                published.url + file, f"sha256:{sha256}", file, cache, downloader=download
            )
        return [cache / file for file in published.files]
    except (OSError, ValueError) as error:  # no network or no cache; a hash that differs
        reason = " ".join(str(error).split())
        files = " and ".join(published.files)
        raise InputError(
            f"data set {name!r} could not be downloaded ({reason}); "
            f"set {FOLDER} to a folder that holds {files}"
        ) from error


def _pooch(name: str) -> Any:
    try:
        import pooch
    except ImportError as error:
        raise InputError(
            f"data set {name!r} needs pooch: "
            f"pip install 'bnncert[data]', or set {FOLDER} to a folder that holds it"
        ) from error
    return pooch
