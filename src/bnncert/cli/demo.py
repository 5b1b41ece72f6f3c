"""The demo: a small BNN as wide as its data leave it, certified on test images by every method, and
checked."""

from __future__ import annotations

import shutil
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from bnncert._certify import certify
from bnncert.console import percent
from bnncert.data import load_inputs
from bnncert.errors import InputError
from bnncert.importers import load_posterior
from bnncert.methods import GIE, PIE, Concentration, Method, Sampling
from bnncert.model.problem import Problem
from bnncert.model.specification import ball, class_robust
from bnncert.results.rows import Status
from bnncert.zoo.recipes import posterior_path, shipped_index

NETWORK = "digits-robust"
IMAGES = 20
EPS = 0.02
METHODS: tuple[Method, ...] = (Sampling(step=4.0), PIE(), GIE(), Concentration(upper=True))
WELCOME = """{name}: a 64-64-10 Bayesian network for digits, prior N(0, 1), trained with the full \
evidence lower bound and the certified bound in its likelihood (bnncert train --robust)
test accuracy at the mean {accuracy:.1f} %, median σ {std:.2g}"""
GOODBYE = """posterior, results and certificates are in {out}
Checked again:   bnncert check {out}/concentration --posterior {out}/posterior.safetensors
Train it again:  bnncert zoo train digits-robust --out mine.safetensors
Your own model:  bnncert certify POSTERIOR.npz --inputs INPUTS.npz --eps 0.01 --out results
(arrays W0_mean [in, out], b0_mean, W0_std, b0_std, W1_mean, ... in the one; x and y in the other)\
"""


def run_demo(out: Path) -> None:
    """Everything from a trained posterior to checked certificates, offline."""
    console = Console()
    path = posterior_path(NETWORK)
    network, posterior = load_posterior(path)
    known = shipped_index()[NETWORK]
    console.print(
        WELCOME.format(name=NETWORK, accuracy=100 * known["accuracy"], std=known["std"]),
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    data = load_inputs("digits")
    if data.y is None:
        raise InputError("data set 'digits' came without labels; reinstall scikit-learn")
    out.mkdir(parents=True, exist_ok=True)
    saved = out / "posterior.safetensors"
    shutil.copyfile(path, saved)
    region = ball(data.x[:IMAGES].flatten(1), EPS, clip=(0, 1))
    problem = Problem(network, posterior, class_robust(region, data.y[:IMAGES], network.outputs))
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


def _certified(problem: Problem, method: Method, out: Path) -> tuple[str, ...]:
    """Certify, write results and certificates, and say it in cells: means over all images."""
    results = certify(problem, method)
    results.save(out)
    lower, upper = (
        sum(getattr(r, end) for r in results) / len(results) for end in ("lower", "upper")
    )
    certified = sum(result.status == Status.CERTIFIED for result in results)
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
