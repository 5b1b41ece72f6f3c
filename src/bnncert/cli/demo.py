"""The demo: train a small BNN on digits, certify test images with every method, check, compare."""

from __future__ import annotations

from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from torch import Tensor

from bnncert._certify import certify
from bnncert.console import percent, progress
from bnncert.data import load_inputs
from bnncert.errors import InputError
from bnncert.importers import save_posterior
from bnncert.methods import GIE, PIE, Concentration, Method, Sampling
from bnncert.model.network import Network, mlp
from bnncert.model.problem import Problem
from bnncert.model.specification import ball, class_robust
from bnncert.posteriors.independent import Normal
from bnncert.results.folder import result_folder
from bnncert.train import BayesByBackprop, accuracy, train

RECIPE = BayesByBackprop(epochs=60, learning_rate=1e-2, kl_weight=1e-6, initial_std=4e-3)
IMAGES = 20
EPS = 0.02
METHODS: tuple[Method, ...] = (Sampling(step=4.0), PIE(), GIE(), Concentration(upper=True))
GOODBYE = """posterior, results and certificates are in {out}
Checked again:   bnncert check {out}/pie --posterior {out}/posterior.safetensors
Your own model:  bnncert certify POSTERIOR.npz --inputs INPUTS.npz --eps 0.01 --out results
(arrays W0_mean [in, out], b0_mean, W0_std, b0_std, W1_mean, ... in the one; x and y in the other)\
"""


def run_demo(out: Path) -> None:
    """Everything from training to certificates, offline."""
    console = Console()
    network, posterior = _train(console)
    out.mkdir(parents=True, exist_ok=True)
    saved = out / "posterior.safetensors"
    save_posterior(saved, network, posterior)
    x, y = _digits("test")
    region = ball(x[:IMAGES], EPS, clip=(0, 1))
    problem = Problem(network, posterior, class_robust(region, y[:IMAGES], network.outputs))
    table = Table(
        title=f"{IMAGES} test images, every perturbation up to {EPS} per pixel: mean bounds",
        title_justify="left",
        box=SIMPLE,
    )
    for name in ("method", "P_safe ≥", "≤", "certified", "calls", "seconds", "accepted"):
        table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    for method in METHODS:
        table.add_row(
            method.name,
            *_certified(problem, method, out / method.name),
            _checked(out / method.name, saved),
        )
    console.print(table)
    console.print(GOODBYE.format(out=out), highlight=False, markup=False, soft_wrap=True)


def _digits(split: str) -> tuple[Tensor, Tensor]:
    """Flattened images and their classes."""
    data = load_inputs("digits", split)
    if data.y is None:
        raise InputError("data set 'digits' came without labels; reinstall scikit-learn")
    return data.x.flatten(1), data.y


def _train(console: Console) -> tuple[Network, Normal]:
    x, y = _digits("train")
    network = mlp(64, 32, 10)
    with progress("training") as bar:
        task = bar.add_task("training", total=RECIPE.epochs, note="")
        posterior = train(
            network, x, y, RECIPE, on_epoch=lambda epoch: bar.update(task, completed=epoch.number)
        ).posterior
    correct = accuracy(network, posterior.mean, *_digits("test"))
    console.print(
        "trained a 64-32-10 Bayesian network on digits: "
        f"{100 * correct:.1f} % test accuracy at the mean"
    )
    return network, posterior


def _certified(problem: Problem, method: Method, out: Path) -> tuple[str, ...]:
    """Certify, write results and certificates, and say it in cells: means over all images."""
    with result_folder(out) as store:
        results = certify(problem, method)
        store(results)
    lower, upper = (
        sum(getattr(r, end) for r in results) / len(results) for end in ("lower", "upper")
    )
    certified = sum(result.status == "certified" for result in results)
    calls = sum(r.bound_calls for r in results)
    seconds = sum(r.seconds for r in results)
    return (
        percent(lower),
        percent(upper, up=True),
        f"{certified} of {len(results)}",
        str(calls),
        f"{seconds:.1f}",
    )


def _checked(results: Path, posterior: Path) -> str:
    """How many results the independent checker accepts."""
    try:
        from bnncert_check import ACCEPT, check_results, read_model, read_results
    except ModuleNotFoundError:
        return "needs bnncert-check"
    lines = read_results(results)
    accepted = sum(
        verdict.status == ACCEPT for verdict in check_results(results, lines, read_model(posterior))
    )
    return f"{accepted} of {len(lines)}"
