"""What this installation can do."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import torch

from bnncert.version import __version__

EXTRAS = {  # module, what needs it, and what pip installs for it
    "bnncert-check": ("bnncert_check", "bnncert check", "bnncert-check"),
    "python-flint": ("flint", "bnncert check", "bnncert-check"),
    "scikit-learn": ("sklearn", "the digits data set", "'bnncert[data]'"),
    "pooch": ("pooch", "downloading data sets", "'bnncert[data]'"),
    "onnx": ("onnx", "networks from ONNX files", "'bnncert[onnx]'"),
    "PyYAML": ("yaml", "campaign files in YAML", "'bnncert[campaign]'"),
    "pyarrow": ("pyarrow", "tables in Parquet", "'bnncert[campaign]'"),
    "distributed": ("distributed", "campaigns on a Dask cluster", "'bnncert[dask]'"),
}


def examine() -> Iterator[tuple[str, str]]:
    """Name and finding, a line each."""
    yield "bnncert", __version__
    yield "python", platform.python_version()
    for package in ("torch", "numpy", "scipy", "safetensors"):
        yield package, _version(package)
    yield "cpu", f"{torch.get_num_threads()} threads"
    yield (
        "cuda",
        torch.cuda.get_device_name()
        if torch.cuda.is_available()
        else "not available; --device cpu",
    )
    yield (
        "float64",
        "ok"
        if _float64_is_exact()
        else "WRONG: arithmetic is not IEEE double; certificates would be void",
    )
    for package, (module, use, source) in EXTRAS.items():
        missing = f"missing ({use}): pip install {source}"
        yield package, _version(package) if find_spec(module) else missing
    yield "BNNCERT_DATA", _data_folder()


def _float64_is_exact() -> bool:
    """Whether products are float64's: a matrix product keeps 2^52 + 1 and rounds 2^53 + 1."""
    ones = torch.ones(2, 1, dtype=torch.float64)
    sums = torch.tensor([[2.0**52, 1.0], [2.0**53, 1.0]], dtype=torch.float64) @ ones
    return sums.flatten().tolist() == [2.0**52 + 1, 2.0**53]


def _data_folder() -> str:
    folder = os.environ.get("BNNCERT_DATA")
    if not folder:
        return "not set; data sets are downloaded"
    return folder if Path(folder).is_dir() else f"{folder} does not exist; correct or unset it"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not found"
