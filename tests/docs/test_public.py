"""The package as others see it: its names, what importing it costs, and that nothing rests on
assertions."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import bnncert
from scenarios import paper_probability

SOURCE = Path(bnncert.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))


def python(code: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs the code in a fresh interpreter that finds this package."""
    paths = [str(SOURCE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, *options, "-W", "error", "-c", code]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def report(code: str, *options: str) -> dict[str, object]:
    """What the code prints, as JSON."""
    done = python(code, *options)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_all_is_what_is_exported() -> None:
    """Every name of __all__ exists and only the namespaces are modules; type checkers and `import
    *` see the same."""
    names = set(bnncert.__all__)
    assert len(names) == len(bnncert.__all__)
    modules = {name for name in names if isinstance(getattr(bnncert, name), ModuleType)}
    assert modules == {"importers", "layers", "posteriors"}
    assert imported_names(SOURCE / "__init__.py") == names
    space: dict[str, object] = {}
    exec("from bnncert import *", space)
    assert space.keys() - {"__builtins__"} == names


def imported_names(file: Path) -> set[str]:
    """The names that the file's `from bnncert... import` statements bind."""
    tree = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    statements = [
        node
        for node in tree
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bnncert")
    ]
    return {alias.asname or alias.name for statement in statements for alias in statement.names}


def test_certify_is_the_function_whatever_was_imported_before() -> None:
    """Submodules have nearly the same name; importing one first must not hide the function."""
    found = report(IMPORT_ORDERS)
    assert found == dict.fromkeys(found, True)
    assert len(found) == 4


IMPORT_ORDERS = """
import importlib, json, sys
found = {}
for first in ("bnncert._certify", "bnncert.results.rows", "bnncert.cli.certify", "bnncert.methods"):
    for name in [name for name in sys.modules if name.split(".")[0] == "bnncert"]:
        del sys.modules[name]
    importlib.import_module(first)
    from bnncert import certify
    found[first] = callable(certify)
print(json.dumps(found))
"""


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = bnncert.nothing_of_the_kind


def test_the_command_line_starts_without_torch() -> None:
    """--help must not wait for torch."""
    loaded = "{name: name in sys.modules for name in ('torch', 'scipy')}"
    code = f"import json, sys, bnncert.cli; print(json.dumps({loaded}))"
    assert report(code) == {"torch": False, "scipy": False}


def test_the_package_has_a_version_and_every_file_a_first_line() -> None:
    """__version__ is a number, and each file says what it holds."""
    assert bnncert.__version__.split(".")[0].isdigit()
    assert [
        file.name for file in FILES if not file.read_text(encoding="utf-8").startswith('"""')
    ] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_nothing_rests_on_an_assertion(file: Path) -> None:
    """No assert statement and no __debug__ in the package: python -O would remove what they
    check."""
    tree = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    lines = [
        node.lineno
        for node in tree
        if isinstance(node, ast.Assert) or (isinstance(node, ast.Name) and node.id == "__debug__")
    ]
    assert not lines


CORE = {
    "jinja2",
    "markupsafe",
    "matplotlib",
    "numpy",
    "rich",
    "safetensors",
    "scipy",
    "torch",
    "typer",
}
EXTRAS = {
    "bench/verdicts.py": {"bnncert_check"},
    "campaign/executors.py": {"distributed"},
    "campaign/schema.py": {"yaml"},
    "campaign/table.py": {"pyarrow"},
    "cli/check.py": {"bnncert_check"},
    "cli/demo.py": {"bnncert_check"},
    "data/fetch.py": {"pooch"},
    "data/load.py": {"sklearn"},
    "exporters/networks.py": {"onnx"},
    "importers/onnx.py": {"onnx"},
    "results/notebook.py": {"IPython"},
    "results/sequence.py": {"pandas"},
    "zoo/heads.py": {"laplace"},
}


def test_the_package_imports_what_it_declares_and_nothing_else() -> None:
    """Outside of the core each library is imported by one file that needs it; markupsafe is a part
    of jinja2."""
    known = CORE | {"bnncert"} | sys.stdlib_module_names
    found = {str(file.relative_to(SOURCE)): imported_libraries(file) - known for file in FILES}
    assert {name: others for name, others in found.items() if others} == EXTRAS


def imported_libraries(file: Path) -> set[str]:
    """The first parts of all names that the file imports, wherever it does."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return {name.split(".")[0] for name in names}


OPTIMISED = """
import json, math, torch
from bnncert import GIE, PIE, Box, InputError, Network, Problem, Sampling
from bnncert.layers import Dense, ReLU
from bnncert.posteriors import Normal
from bnncert import ball, certify, half_space

one = torch.ones(1, 1, dtype=torch.float64)
network = Network((1,), (Dense(1, 1, bias=False), ReLU(), Dense(1, 1, bias=False), ReLU()))
posterior = Normal(torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64))
problem = Problem(network, posterior, half_space(ball(one, 0.0), torch.tensor([-1.0]), -1.0))
methods = [Sampling(samples=3), PIE(samples=3), GIE(samples=3)]
results = [certify(problem, method, seed=1)[0] for method in methods]
wrong = [
    lambda: ball(one * math.nan, 0.1),
    lambda: ball(one, -0.1),
    lambda: ball(one.float(), 0.1),
    lambda: ball(one, 0.1, clip=(2.0, 3.0)),
    lambda: Box(one, -one),
    lambda: Box(one * math.nan, one),
    lambda: Normal(one[0], -one[0]),
    lambda: Normal(one[0].float(), one[0].float()),
    lambda: Network((2,), (Dense(1, 1),)),
    lambda: Problem(network, Normal(one[0], one[0]), problem.specification),
    lambda: certify(problem, PIE(samples=1), seed=-1),
]
refused = 0
for build in wrong:
    try:
        build()
    except InputError:
        refused += 1
# y = 1, on the edge
exact = Normal(torch.ones(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64))
tie = certify(Problem(network, exact, problem.specification), PIE(samples=1))
print(json.dumps({
    "debug": __debug__, "lower": [r.lower for r in results],
    "certificates": [bool(r.certificate) for r in results],
    "refused": refused, "wrong": len(wrong), "tie": tie[0].lower,
}))
"""


def test_everything_holds_under_optimisation() -> None:
    """python -O: the 2-D example gets the same numbers and certificates, wrong input is refused, a
    tie is not safe."""
    optimised, printed = report(OPTIMISED, "-O"), io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(OPTIMISED, {})
    plain = json.loads(printed.getvalue())
    assert (plain.pop("debug"), optimised.pop("debug")) == (True, False)
    assert optimised == plain
    assert all(0 < lower <= paper_probability() for lower in plain["lower"])
    assert plain["certificates"] == [True] * 3
    assert plain["refused"] == plain["wrong"]
    assert plain["tie"] == 0.0
