"""Campaign files: posteriors x inputs x eps x methods, as TOML or YAML, checked before all else."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

from bnncert.ask import method_named
from bnncert.concentration.method import BRANCHING, EFFORTS
from bnncert.errors import InputError, closest
from bnncert.methods import Concentration, Method
from bnncert.question import Question, require_kind
from bnncert.results.answers import threshold

ASKED = {
    field.name: field.metadata.get("kinds", (str,))
    for field in dataclasses.fields(Question)
    if field.name != "eps_file"  # campaigns name their items by one radius
}
KINDS: dict[str, tuple[type, ...]] = {
    "posteriors": (dict, list),
    **ASKED,
    "methods": (list,),
    "at_least": (int, float),
    "seed": (int,),
    "chunk": (int,),
}
REQUIRED = ("posteriors", "inputs", "eps")
# Inputs of a task, where the file does not say: what a crash can lose, and what a device works on
# at once.
CHUNK = 128


@dataclass(frozen=True)
class Campaign:
    """What is asked, with every default filled in.

    at_least: an input is refined by the next method only while it is open whether P_safe >=
    at_least; without it every method answers for every input.
    """

    posteriors: Mapping[str, Path]
    question: Question
    methods: tuple[Method, ...]
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
        kind = path.suffix[1:].upper()
        raise InputError(f"is not valid {kind} ({error}); correct it there") from error
    if not isinstance(found, dict):
        raise InputError("is not a table of settings; give keys such as posteriors, inputs and eps")
    return found


def _yaml(text: str) -> object:
    try:
        import yaml
    except ImportError as error:
        raise InputError(
            "YAML needs PyYAML: pip install 'bnncert[campaign]', or write the file as .toml"
        ) from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def _campaign(found: dict[str, Any], folder: Path) -> Campaign:
    for name in found:
        if name not in KINDS:
            hint = closest(str(name), list(KINDS)) or f"choose {', '.join(KINDS)}"
            raise InputError(f"key {name!r} is not known; {hint}")
    for name in REQUIRED:
        if name not in found:
            raise InputError(f"{name!r} is missing; add it")
    for name, value in found.items():
        require_kind(name, value, KINDS[name])
    at_least = threshold(found["at_least"]) if "at_least" in found else None
    return Campaign(
        _posteriors(found["posteriors"], folder),
        _question(found, folder),
        _methods(found.get("methods"), at_least),
        at_least=at_least,
        seed=_within("seed", found.get("seed", 0), 0, 2**31 - 1),
        chunk=_within("chunk", found.get("chunk", CHUNK), 1, 10**6),
    )


def _question(found: dict[str, Any], folder: Path) -> Question:
    asked = {name: value for name, value in found.items() if name in ASKED}
    if asked["inputs"].endswith((".npz", ".csv")):  # a path, which starts at the campaign's folder
        asked["inputs"] = str(folder / asked["inputs"])
    asked["eps"] = _numbers("eps", asked["eps"])
    if not asked["eps"]:
        raise InputError("'eps' is empty; give at least one radius")
    if isinstance(asked.get("clip"), list):
        asked["clip"] = _numbers("clip", asked["clip"])
        if len(asked["clip"]) != 2:
            raise InputError(f"'clip' is {found['clip']!r}; give [LOW, HIGH], or false for none")
    return Question(**asked)


def _numbers(name: str, found: list[Any] | float) -> tuple[float, ...]:
    values = found if isinstance(found, list) else [found]
    for value in values:
        require_kind(name, value, (int, float))
    return tuple(map(float, values))


def _posteriors(found: dict[str, Any] | list[Any], folder: Path) -> dict[str, Path]:
    """By name; a list names them after their files. Paths start at the campaign's folder."""
    for entry in found.values() if isinstance(found, dict) else found:
        require_kind("posteriors", entry, (str,))
    named = found if isinstance(found, dict) else {Path(entry).stem: entry for entry in found}
    if not found or len(named) < len(found):
        raise InputError(
            "'posteriors' names none, or two files of one name; "
            "give each a name of its own: NAME = FILE"
        )
    return {str(name): folder / entry for name, entry in named.items()}


def _within(name: str, value: int, least: int, most: int) -> int:
    if not least <= value <= most:
        raise InputError(f"{name!r} is {value}; give a whole number from {least} to {most}")
    return value


def _methods(found: list[Any] | None, at_least: Decimal | None) -> tuple[Method, ...]:
    """The methods in order; with a threshold cheap ones first: dear ones see what is left."""
    if found is None and at_least is None:
        return (Concentration(),)
    if found is None:
        return tuple(_stage(effort, at_least) for effort in EFFORTS)
    if not found:
        raise InputError("'methods' is empty; leave it out for concentration, or name some")
    methods = [method for entry in found for method in _method(entry)]
    if len(set(methods)) < len(methods):
        raise InputError(
            "'methods' names the same method with the same options twice; give each once"
        )
    return tuple(methods if at_least is None else sorted(methods, key=_cost))


def _stage(effort: int, at_least: Decimal | None) -> Concentration:
    """Branch and bound stops at the threshold; without it there is nothing to stop."""
    enough = float(at_least) if at_least is not None and effort >= BRANCHING else None
    return Concentration(effort, upper=True, at_least=enough)


def _cost(method: Method) -> tuple[bool, int]:
    """Concentration by effort, then what evaluates its bound often per input, as listed."""
    return (False, method.effort) if isinstance(method, Concentration) else (True, 0)


def _method(entry: object) -> Sequence[Method]:
    """A method by name with options.

    An option with a list of values stands for one method per value.
    """
    options = {"name": entry} if isinstance(entry, str) else entry
    if not isinstance(options, dict) or not isinstance(options.get("name"), str):
        raise InputError(
            f"'methods' holds {entry!r}; give tables with a name, as {{name = \"concentration\"}}"
        )
    given = {key: value for key, value in options.items() if key != "name"}
    choices = {key: value if isinstance(value, list) else [value] for key, value in given.items()}
    combinations = product(*choices.values())
    return [
        method_named(options["name"], dict(zip(choices, values, strict=True)))
        for values in combinations
    ]
