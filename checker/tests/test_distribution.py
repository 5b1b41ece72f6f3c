"""The checker is a distribution of its own, in step with bnncert and without it."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import bnncert_check
from bnncert.version import __version__

CHECKER = Path(__file__).parents[1]
PACKAGE = Path(bnncert_check.__file__).parent
NEEDED = {"flint": "python-flint", "numpy": "numpy"}  # modules, and what brings them


def project(folder: Path) -> dict[str, object]:
    found = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert isinstance(found, dict)
    return found


def test_versions_are_equal() -> None:
    assert project(CHECKER)["version"] == __version__


def test_both_are_for_the_same_pythons_under_the_same_licence() -> None:
    own, product = project(CHECKER), project(CHECKER.parent)
    for name in ("requires-python", "license", "license-files"):
        assert own[name] == product[name]
    assert (CHECKER / "LICENSE").read_bytes() == (CHECKER.parent / "LICENSE").read_bytes()


def test_it_imports_what_it_says_it_needs_and_nothing_else() -> None:
    imported = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(str(node.module).partition(".")[0])
    assert imported - sys.stdlib_module_names - {"bnncert_check"} == set(NEEDED)
    wanted = project(CHECKER)["dependencies"]
    assert isinstance(wanted, list)
    assert {name.partition(">")[0] for name in wanted} == set(NEEDED.values())


def test_running_it_loads_neither_bnncert_nor_torch() -> None:
    code = (
        "import sys, bnncert_check.__main__; print(*sorted(m.split('.')[0] for m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"bnncert", "torch", "scipy", "safetensors"} & {*done.stdout.split()}
