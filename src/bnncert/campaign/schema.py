"""Campaign files: posteriors x inputs x eps x methods, as TOML or YAML, checked before anything is computed."""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

from bnncert.errors import InputError
from bnncert.methods import METHODS, Concentration, Method
from bnncert.methods.concentration import EFFORTS
from bnncert.specification import NORMS

KINDS: dict[str, tuple[type, ...]] = {
    "posteriors": (dict, list),
    "inputs": (str,),
    "select": (str,),
    "eps": (list, int, float),
    "norm": (str,),
    "clip": (list, bool),
    "target": (int,),
    "tolerance": (int, float),
    "methods": (list,),
    "at_least": (int, float),
    "seed": (int,),
    "chunk": (int,),
}
REQUIRED = ("posteriors", "inputs", "eps")
CHUNK = 128  # inputs of a task, where the file does not say: what a crash can lose, and what a device works on at once
WORDS: dict[type, str] = {dict: "a table", list: "a list", str: "text", int: "a whole number", float: "a number"}
WORDS[bool] = "true or false"


@dataclass(frozen=True)
class Campaign:
    """What is asked, with every default filled in.

    clip: a range, False for none, or True for [0, 1] where the inputs are images. at_least: an input is refined by the
    next method only while it is open whether P_safe >= at_least; without it every method answers for every input.
    """

    posteriors: Mapping[str, Path]
    inputs: str
    eps: tuple[float, ...]
    methods: tuple[Method, ...]
    select: str = ":"
    norm: str = "linf"
    clip: tuple[float, float] | bool = True
    target: int | None = None
    tolerance: float | None = None
    at_least: Decimal | None = None
    seed: int = 0
    chunk: int = CHUNK


def read_campaign(path: Path) -> Campaign:
    """The campaign in a file; an `InputError` names the file, the key and the fix."""
    try:
        found = _parsed(path)
        return _campaign(found, path.parent)
    except InputError as error:
        raise InputError(f"campaign {str(path)!r}: {error}") from error


def _parsed(path: Path) -> dict[str, Any]:
    if path.suffix not in (".toml", ".yaml", ".yml"):
        raise InputError("the name has an unknown ending; give a .toml, .yaml or .yml file")
    try:
        text = path.read_text(encoding="utf-8")
        found = tomllib.loads(text) if path.suffix == ".toml" else _yaml(text)
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror}); check the path") from error
    except (ValueError, RecursionError) as error:  # both parsers' errors are ValueErrors here
        raise InputError(f"is not valid {path.suffix[1:].upper()} ({error}); correct it there") from error
    if not isinstance(found, dict):
        raise InputError("is not a table of settings; give keys such as posteriors, inputs and eps")
    return found


def _yaml(text: str) -> object:
    try:
        import yaml
    except ImportError as error:
        raise InputError("YAML needs PyYAML: pip install 'bnncert[campaign]', or write the file as .toml") from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def _campaign(found: dict[str, Any], folder: Path) -> Campaign:
    _known_keys(found, tuple(KINDS), "key")
    for name in REQUIRED:
        if name not in found:
            raise InputError(f"{name!r} is missing; add it")
    for name, value in found.items():
        _typed(name, value, KINDS[name])
    at_least = _threshold(found.get("at_least"))
    rest = {name: found[name] for name in ("select", "target", "tolerance") if name in found}
    return Campaign(
        _posteriors(found["posteriors"], folder),
        _inputs(found["inputs"], folder),
        _radii(found["eps"]),
        _methods(found.get("methods"), at_least),
        norm=_norm(found.get("norm", "linf")),
        clip=_clip(found.get("clip", True)),
        at_least=at_least,
        seed=_within("seed", found.get("seed", 0), 0, 2**31 - 1),
        chunk=_within("chunk", found.get("chunk", CHUNK), 1, 10**6),
        **rest,
    )


def _known_keys(found: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    for name in found:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"choose {', '.join(known)}"
            raise InputError(f"{what} {name!r} is not known; {hint}")


def _typed(name: str, value: object, kinds: tuple[type, ...]) -> None:
    if type(value) not in kinds:  # not isinstance: true is no number
        raise InputError(f"{name!r} is {value!r}; give {' or '.join(WORDS[kind] for kind in kinds)}")


def _posteriors(found: dict[str, Any] | list[Any], folder: Path) -> dict[str, Path]:
    """By name; a list names them after their files. Paths start at the campaign's folder."""
    for entry in found.values() if isinstance(found, dict) else found:
        _typed("posteriors", entry, (str,))
    named = found if isinstance(found, dict) else {Path(entry).stem: entry for entry in found}
    if not found or len(named) < len(found):
        raise InputError("'posteriors' names none, or two files of one name; give each a name of its own: NAME = FILE")
    return {str(name): folder / entry for name, entry in named.items()}


def _inputs(found: str, folder: Path) -> str:
    """A data set's name, or a path that starts at the campaign's folder."""
    return str(folder / found) if found.endswith(".npz") else found


def _radii(found: list[Any] | float) -> tuple[float, ...]:
    values = found if isinstance(found, list) else [found]
    for value in values:
        _typed("eps", value, (int, float))
        if not (math.isfinite(value) and value >= 0):
            raise InputError(f"'eps' holds {value!r}; give finite radii of at least 0")
    if not values or len(set(values)) < len(values):
        raise InputError(f"'eps' is {found!r}; give at least one radius, and each once")
    return tuple(map(float, values))


def _norm(found: str) -> str:
    if found not in NORMS:
        raise InputError(f"'norm' is {found!r}; choose {', '.join(NORMS)}")
    return found


def _clip(found: list[Any] | bool) -> tuple[float, float] | bool:
    if isinstance(found, bool):
        return found
    if len(found) != 2 or not all(type(end) in (int, float) for end in found) or not found[0] <= found[1]:
        raise InputError(f"'clip' is {found!r}; give [LOW, HIGH], or false for none")
    return float(found[0]), float(found[1])


def _threshold(found: float | None) -> Decimal | None:
    """The shortest decimal of the number: a threshold written as 0.95 is 95/100."""
    if found is not None and not 0 <= found <= 1:
        raise InputError(f"'at_least' is {found!r}; give a probability from 0 to 1")
    return None if found is None else Decimal(repr(found))


def _within(name: str, value: int, least: int, most: int) -> int:
    if not least <= value <= most:
        raise InputError(f"{name!r} is {value}; give a whole number from {least} to {most}")
    return value


def _methods(found: list[Any] | None, at_least: Decimal | None) -> tuple[Method, ...]:
    """The methods in order; with a threshold the cheap ones come first, so that the dear ones see what they left."""
    if found is None:
        return (Concentration(),) if at_least is None else tuple(_stage(effort, at_least) for effort in EFFORTS)
    if not found:
        raise InputError("'methods' is empty; leave it out for concentration, or name some")
    methods = [method for entry in found for method in _method(entry)]
    if len(set(methods)) < len(methods):
        raise InputError("'methods' names the same method with the same options twice; give each once")
    return tuple(methods if at_least is None else sorted(methods, key=_cost))


def _stage(effort: int, at_least: Decimal) -> Concentration:
    """Branch and bound stops at the threshold; without it there is nothing to stop."""
    return Concentration(effort, upper=True, at_least=float(at_least) if effort > 1 else None)


def _cost(method: Method) -> tuple[bool, int]:
    """Concentration by effort, then what evaluates its bound many times an input, as it was listed."""
    return (False, method.effort) if isinstance(method, Concentration) else (True, 0)


def _method(entry: object) -> list[Method]:
    """A method by name with options; an option with a list of values stands for one method a value."""
    options = {"name": entry} if isinstance(entry, str) else entry
    if not isinstance(options, dict) or not isinstance(options.get("name"), str):
        raise InputError(f"'methods' holds {entry!r}; give tables with a name, as {{name = \"concentration\"}}")
    name = options["name"]
    if name not in METHODS:
        raise InputError(f"method {name!r} is not known; choose {', '.join(METHODS)}")
    kind = METHODS[name]
    kinds = {name: _kinds(hint) for name, hint in get_type_hints(kind).items() if name in kind.__dataclass_fields__}
    choices = {key: value if isinstance(value, list) else [value] for key, value in options.items() if key != "name"}
    _known_keys(choices, tuple(kinds), f"option of method {name}")
    for key, values in choices.items():
        for value in values:
            _typed(f"{name}.{key}", value, kinds[key])
    return [kind(**dict(zip(choices, values, strict=True))) for values in product(*choices.values())]


def _kinds(hint: Any) -> tuple[type, ...]:
    """What may stand for an option of this type: whole numbers are numbers, and None is said by leaving it out."""
    kinds = tuple(kind for kind in get_args(hint) or (hint,) if kind is not NoneType)
    return (int, *kinds) if float in kinds else kinds
