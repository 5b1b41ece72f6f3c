"""The suite as files, which any tool can read: what `make` writes and `run` asks about.

    suite/index.json                 the size, and the names of the instances in their order
    suite/truths.json                what is known of them; not for tools
    suite/posteriors/NAME.safetensors
    suite/instances/NAME.json        the question in numbers, and the name of its posterior
    suite/instances/NAME.vnnlib      the same question, stating the counterexample

Equal recipes give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bnncert.bench.recipes import Recipe
from bnncert.errors import InputError
from bnncert.exporters.properties import vnnlib
from bnncert.files.digest import digest
from bnncert.files.tensors import write_atomically
from bnncert.importers import load_posterior, save_posterior
from bnncert.model.box import Box
from bnncert.model.problem import Problem
from bnncert.model.specification import Specification, explicit_box
from bnncert.zoo.recipes import trained_path

SCHEMA = "bnncert-instance/1"
SUITE, INDEX, TRUTHS = "suite", "index.json", "truths.json"
INSTANCES, POSTERIORS = "instances", "posteriors"
FOR_READERS = ("track", "about", "catches")  # fields of an instance that no answer depends on


@dataclass(frozen=True)
class Truth:
    """What is known of an instance: a larger lower bound, or a smaller upper bound, is wrong."""

    lower_at_most: Fraction
    upper_at_least: Fraction


@dataclass(frozen=True, eq=False)
class Instance:
    """One question of the suite, read from its files."""

    path: Path
    fields: dict[str, Any]
    truth: Truth | None

    @property
    def name(self) -> str:
        return str(self.fields["name"])

    @property
    def track(self) -> str:
        return str(self.fields["track"])

    @property
    def quantity(self) -> str:
        return str(self.fields["quantity"])

    @property
    def threshold(self) -> Fraction:
        return Fraction(self.fields["threshold"])

    @property
    def timeout(self) -> float:
        return float(self.fields["timeout"])

    @property
    def posterior(self) -> Path:
        return self.path.parent / str(self.fields["posterior"])

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the question and of the posterior's file, as they are at the first reading:
        answers to another one are of no use, and a program that is asked could change them."""
        asked = {name: value for name, value in self.fields.items() if name not in FOR_READERS}
        try:
            content = self.posterior.read_bytes()
        except OSError as error:
            raise InputError(
                f"instance {self.name!r} lacks a file ({error}); bnncert bench make writes it"
            ) from error
        return digest([asked, sha256(content).hexdigest()])

    def problem(self) -> Problem:
        network, posterior = load_posterior(self.posterior)
        return Problem(network, posterior, self.specification(network.input_shape))

    def specification(self, shape: Sequence[int]) -> Specification:
        """Rows that say the same once."""
        ends = (_tensor(self.fields[name]).reshape(1, *shape) for name in ("lower", "upper"))
        label = self.fields["label"]
        return Specification(
            explicit_box(Box(*ends)),
            _tensor(self.fields["rows"]).unsqueeze(0),
            _tensor(self.fields["offsets"]).unsqueeze(0),
            None if label is None else torch.tensor([label]),
        ).distinct()


def make(
    recipes: Sequence[Recipe], folder: Path, on_each: Callable[[Recipe], None] = lambda _: None
) -> Path:
    """Write the suite of the recipes into FOLDER/suite, the index last, and return its path.

    Instances of another size or track that are there stay.
    """
    suite = folder / SUITE
    before = [instance.name for instance in read_suite(folder)] if suite.exists() else []
    names = list(dict.fromkeys([*before, *(recipe.name for recipe in recipes)]))
    for part in (INSTANCES, POSTERIORS):
        (suite / part).mkdir(parents=True, exist_ok=True)
    written = set()
    for recipe in recipes:
        if recipe.posterior not in written:
            save_posterior(suite / POSTERIORS / f"{recipe.posterior}.safetensors", *recipe.model())
            written.add(recipe.posterior)
        _write(recipe, suite / INSTANCES)
        on_each(recipe)
    known = _known()
    truths = {name: known[name] for name in names if name in known}
    write_atomically(suite / TRUTHS, _json(truths))
    write_atomically(suite / INDEX, _json({"schema": SCHEMA, "instances": names}))
    return suite


def missing(recipes: Sequence[Recipe]) -> list[str]:
    """Networks of the zoo that recipes need and that the user has not trained."""
    needed = dict.fromkeys(recipe.needs for recipe in recipes if recipe.needs)
    return [name for name in needed if not trained_path(name).is_file()]


def read_suite(folder: Path) -> list[Instance]:
    """The instances in FOLDER/suite, in their order."""
    suite = folder / SUITE
    try:
        names = json.loads((suite / INDEX).read_text(encoding="utf-8"))["instances"]
        truths = json.loads((suite / TRUTHS).read_text(encoding="utf-8"))
        return [_read(suite / INSTANCES / f"{name}.json", truths.get(name)) for name in names]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{str(suite)!r} is no suite of instances ({error}); write one with bnncert bench make"
        ) from error


def read_instance(path: Path) -> Instance:
    """One instance by itself; what is known of its truth stays out of it."""
    return _read(path, None)


def _read(path: Path, known: dict[str, str] | None) -> Instance:
    fields = json.loads(path.read_text(encoding="utf-8"))
    if fields["schema"] != SCHEMA:
        raise ValueError(f"{path.name} is not {SCHEMA}")
    truth = None if known is None else Truth(**{name: Fraction(end) for name, end in known.items()})
    return Instance(path, fields, truth)


def _write(recipe: Recipe, folder: Path) -> None:
    specification = recipe.question()
    region = specification.region
    labels = specification.labels
    fields = {
        "schema": SCHEMA,
        "name": recipe.name,
        "track": recipe.track,
        "about": recipe.about,
        "catches": recipe.catches,
        "quantity": recipe.quantity,
        "threshold": recipe.threshold,
        "timeout": recipe.timeout,
        "posterior": f"../{POSTERIORS}/{recipe.posterior}.safetensors",
        "property": f"{recipe.name}.vnnlib",
        "lower": region.box.lower.flatten().tolist(),
        "upper": region.box.upper.flatten().tolist(),
        "rows": specification.rows[0].tolist(),
        "offsets": specification.offsets[0].tolist(),
        "label": None if labels is None else int(labels),
    }
    write_atomically(folder / f"{recipe.name}.json", _json(fields))
    write_atomically(folder / f"{recipe.name}.vnnlib", vnnlib(specification).encode())


def _known() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(
        (files("bnncert.bench") / TRUTHS).read_text(encoding="utf-8")
    )
    return found


def _json(value: object) -> bytes:
    return (json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1) + "\n").encode()


def _tensor(values: Sequence[Any]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)
