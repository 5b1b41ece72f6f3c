"""score: how good, how calibrated and how wide a posterior is, and how that is shown."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bnncert.cli.options import Device, Posterior, device_named
from bnncert.errors import InputError

if TYPE_CHECKING:
    from bnncert.data import Dataset
    from bnncert.model.standardisation import Standardisation
    from bnncert.train import BayesByBackprop, Scores

# Of the recipe in a posterior's notes: what its scores depend on.
SAID: dict[str, type | tuple[type, ...]] = {
    "data": str,
    "prior": str,
    "prior_std": (int, float),
    "noise_std": (int, float),
}


def register(app: typer.Typer) -> None:
    app.command()(score)


def score(
    posterior: Posterior,
    data: Annotated[
        str | None,
        typer.Option(
            help="Data set (its test split), or all of an .npz with x and y.",
            show_default="what its training kept out",
        ),
    ] = None,
    select: Annotated[
        str, typer.Option(help="Which examples: START:STOP, one index, or a list 3,7,12.")
    ] = ":",
    prior: Annotated[
        str | None,
        typer.Option(
            help="fixed, or fan-in: narrower by the root of a weight's fan-in.",
            show_default="that of its training, else fixed",
        ),
    ] = None,
    prior_std: Annotated[
        float | None,
        typer.Option(
            help="Standard deviation of the prior N(0, s²).",
            show_default="that of its training, else 1",
        ),
    ] = None,
    noise_std: Annotated[
        float | None,
        typer.Option(
            help="Regression: standard deviation of the targets' noise.",
            show_default="that of its training",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON.")] = False,
    device: Device = "cpu",
) -> None:
    """Estimate accuracy, calibration and width of a posterior.

    From networks drawn from a fixed seed; its divergence from the prior, too. For a
    regression: error, likelihood and coverage. What the file says about its training need not be
    given.
    """
    from bnncert.importers import load_posterior
    from bnncert.train import BayesByBackprop
    from bnncert.zoo.recipes import score_on

    network, weights = load_posterior(posterior)
    said = _said(posterior)
    given = {"prior": prior, "prior_std": prior_std, "noise_std": noise_std}
    settings = said | {name: value for name, value in given.items() if value is not None}
    settings.pop("data", None)
    recipe = BayesByBackprop(epochs=1, **settings)
    examples = _examples(data, said.get("data"), select, network.standardisation)
    if examples.y is not None and examples.y.is_floating_point() and recipe.noise_std is None:
        raise InputError(f"targets of {examples.name!r} are no classes; give --noise-std")
    found = score_on(examples, network, weights, recipe, device_named(device))
    if as_json:
        print(json.dumps(_line(posterior, examples.name, recipe) | asdict(found)))
    else:
        show(found, examples.name, recipe)


def show(found: Scores, data: str, recipe: BayesByBackprop) -> None:
    """A line for each figure."""
    from bnncert.train.scores import DRAWS

    print(f"  {found.examples} examples, {DRAWS} networks drawn:")
    for name, value in _figures(found, data, recipe):
        print(f"  {name:<18} {value}")


def _figures(found: Scores, data: str, recipe: BayesByBackprop) -> list[tuple[str, str]]:
    figures = []
    if found.accuracy is not None:
        drawn = f"{_percent(found.drawn_accuracy)} of drawn networks"
        figures += [("accuracy", f"{_percent(found.accuracy)} at the mean, {drawn}")]
    if found.rmse is not None:
        figures += [("RMSE at the mean", f"{found.rmse:.4g}")]
    figures += [("NLL", f"{found.nll:.4g}")]
    if found.coverage is not None:
        figures += [("coverage", f"{_percent(found.coverage)} by the 95 % interval")]
    if found.calibration_error is not None:
        figures += [("calibration error", _percent(found.calibration_error))]
    if found.kl is not None:
        root = " / √fan-in" if recipe.prior == "fan-in" else ""
        figures += [("KL to the prior", f"{found.kl:.4g}, s = {recipe.prior_std:g}{root}")]
    if found.std is not None:
        figures += [("median σ by layer", ", ".join(f"{std:.2g}" for std in found.std))]
    return figures + _told_apart(found, data)


def _told_apart(found: Scores, data: str) -> list[tuple[str, str]]:
    from bnncert.data import COUNTERPART

    if data not in COUNTERPART:
        return []
    other = COUNTERPART[data]
    if found.auroc is None:
        return [("entropy AUROC", f"left out: {other} is not at hand")]
    return [("entropy AUROC", f"{found.auroc:.4f} against {other}")]


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.2f} %"


def _line(posterior: Path, data: str, recipe: BayesByBackprop) -> dict[str, Any]:
    from bnncert.data import COUNTERPART

    return {
        "posterior": str(posterior),
        "data": data,
        "other": COUNTERPART.get(data),
        "prior": recipe.prior,
        "prior_std": recipe.prior_std,
        "noise_std": recipe.noise_std,
    }


def _examples(
    given: str | None, said: str | None, select: str, own: Standardisation | None
) -> Dataset:
    from bnncert.data import inputs_for
    from bnncert.question import selection

    if given is None and said is None:
        raise InputError("the posterior does not say what it was trained on; give --data")
    found = inputs_for(own, given) if given is not None else inputs_for(own, said or "", "test")
    indices = selection(select, len(found.x))
    return replace(found, x=found.x[indices], y=None if found.y is None else found.y[indices])


def _said(path: Path) -> dict[str, Any]:
    """What the notes of a posterior say about its training; notes may be anybody's."""
    from bnncert.importers.native import load_notes

    notes = load_notes(path) if path.suffix == ".safetensors" else {}
    recipe = notes.get("recipe")
    known = recipe if isinstance(recipe, dict) else {}
    return {name: known[name] for name, kind in SAID.items() if isinstance(known.get(name), kind)}
