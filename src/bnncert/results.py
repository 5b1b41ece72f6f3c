"""Result folders: `results.jsonl`, one line an input, and `certificates/`, one file an input.

A certificate is named after its input, `000007.safetensors`. With several radii an input it is named after its radius
too, `000007_0.025.safetensors`: the shortest decimal of a float tells it from all others.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bnncert.certificate import Result
from bnncert.errors import InputError
from bnncert.files import write_atomically

RESULTS, CERTIFICATES = "results.jsonl", "certificates"


@contextmanager
def result_folder(folder: Path, several_radii: bool = False) -> Iterator[Callable[[Sequence[Result]], None]]:
    """Gives a function that stores results; the folder changes only when the block ends well.

    Earlier results there are replaced; a folder that holds anything else is refused. several_radii: an input comes
    once for each of several radii, and certificates are named after both.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"output {str(folder)!r} is a file; name a folder")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / RESULTS).is_file():
        raise InputError(f"output folder {str(folder)!r} is not empty and holds no results; name a new folder")
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        (partial / CERTIFICATES).mkdir(parents=True)
    except OSError as error:
        raise InputError(f"output folder {str(folder)!r} cannot be written ({error.strerror}); name another") from error
    lines: list[str] = []

    def store(results: Sequence[Result]) -> None:
        for result in results:
            name = f"{result.index:06d}_{result.eps!r}" if several_radii else f"{result.index:06d}"
            path = f"{CERTIFICATES}/{name}.safetensors" if result.certificate else None
            if result.certificate and path:
                result.certificate.write(partial / path)
            lines.append(result.line(path) + "\n")

    try:
        yield store
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder / CERTIFICATES, ignore_errors=True)
        (partial / CERTIFICATES).rename(folder / CERTIFICATES)
        write_atomically(folder / RESULTS, "".join(lines).encode())
    finally:
        shutil.rmtree(partial, ignore_errors=True)
