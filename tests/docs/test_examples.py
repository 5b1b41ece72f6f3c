"""Every public name has an example in its docstring, and every example gives what it shows."""

from __future__ import annotations

import doctest
import importlib.util
import inspect
import sys
import warnings
from types import ModuleType

import pytest

import bnncert

SPACES = (bnncert, bnncert.layers, bnncert.posteriors, bnncert.importers)
LIBRARIES = {
    "from_laplace": "laplace",
    "from_numpyro": "numpyro",
    "from_onnx": "onnx",
    "from_posteriors": "posteriors",
    "from_pyro": "pyro",
}
METHODS = ("mean", "save", "to_frame")


def public() -> dict[str, object]:
    """What users can name: the namespaces, what is in them, and the methods of results."""
    found: dict[str, object] = {space.__name__: space for space in SPACES}
    for space in SPACES:
        names = [name for name in space.__all__ if name != "__version__"]
        found |= {f"{space.__name__}.{name}": getattr(space, name) for name in names}
    for results in (bnncert.Results, bnncert.Decisions):
        found |= {f"{results.__name__}.{name}": getattr(results, name) for name in METHODS}
    return found


PUBLIC = public()


def example(name: str) -> doctest.DocTest:
    """What the name's own docstring shows, inherited ones apart, among the names of its module."""
    thing = PUBLIC[name]
    home = thing if isinstance(thing, ModuleType) else inspect.getmodule(thing)
    assert home is not None
    told = inspect.cleandoc(thing.__doc__ or "")
    return doctest.DocTestParser().get_doctest(told, dict(vars(home)), name, home.__file__, 0)


def installed(library: str) -> bool:
    """Whether it can be imported; a folder of tests has no code of it."""
    found = importlib.util.find_spec(library)
    return found is not None and found.origin is not None


def test_every_public_name_has_an_example() -> None:
    missing = [name for name in PUBLIC if not example(name).examples]
    assert missing == [], f"without an example: {', '.join(missing)}"


@pytest.mark.parametrize("name", PUBLIC)
def test_the_example_gives_what_it_shows(name: str) -> None:
    library = LIBRARIES.get(name.rpartition(".")[2])
    if library and not installed(library):
        pytest.skip(f"{library} is not installed")
    shown = example(name)
    assert shown.examples, f"{name} has no example"
    with warnings.catch_warnings():
        if library:
            warnings.simplefilter("ignore")  # of other people's code
        said = doctest.DocTestRunner(verbose=False).run(shown, out=sys.stderr.write)
    unread = [each for each in shown.examples if doctest.SKIP in each.options]
    assert said.attempted == len(shown.examples) - len(unread)
    assert not unread or name.endswith(".to_frame"), "only pandas may be missing"
    assert said.failed == 0
