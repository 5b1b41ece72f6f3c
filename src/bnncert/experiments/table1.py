"""The paper's Table 1: accuracy, and mean certified P_safe of sampling, PIE and GIE.

Then our bounds, and what is possible. Box methods: λ = 0.5, the posterior mean as centre, at most
50 bound calls per image; "as published" with forward linear bounds of the logits apart, and GIE
growing by 1 + ρ only where the gradient is 0. Other centres add at most 1e-7 each: their boxes
carry no mass. Sampling takes the best width of a grid.
"""

from __future__ import annotations

from functools import partial

from matplotlib.figure import Figure

from bnncert.attack import surviving
from bnncert.experiments.plots import draw_bars
from bnncert.experiments.run import Cell, Experiment, Row, Setting
from bnncert.experiments.subjects import PAPER, Subject, ceiling, certified, subjects
from bnncert.methods import GIE, PIE, Concentration, Method, Sampling
from bnncert.model.layers import Conv2d

WIDTHS = (4.5, 5.0, 5.5, 6.0, 8.0, 10.0)
PGD_EPS = 0.05
PUBLISHED: dict[str, Method] = {
    "PIE as published": PIE(samples=1, bound="lbp-forward"),
    "GIE as published": GIE(samples=1, bound="lbp-forward", zero_gradient_only=True),
}
OURS: dict[str, Method] = {
    "PIE": PIE(samples=1),
    "GIE": GIE(samples=1),
    "concentration": Concentration(upper=True),
}
BARS = ("sampling", "PIE", "GIE", "concentration", "ceiling")


def cells(setting: Setting) -> list[Cell]:
    found = []
    for subject in subjects(setting, ("1x128", "2x50") if setting.quick else tuple(PAPER)):
        parts = {
            "accuracy": partial(_accuracy, subject, setting),
            "ceiling": partial(_ceiling, subject, setting),
        }
        # It knows dense layers only.
        forward = not any(isinstance(layer, Conv2d) for layer in subject.network.layers)
        widths = WIDTHS[1:3] if setting.quick else WIDTHS
        for name, bound in (
            ({"sampling as published": "lbp-forward"} if forward else {}) | {"sampling": "lbp"}
        ).items():
            methods = [Sampling(samples=1, step=step, bound=bound) for step in widths]
            parts[name] = partial(_best_width, subject, setting, name, methods)
        for name, method in ((PUBLISHED if forward else {}) | OURS).items():
            parts[name] = partial(_certified, subject, setting, name, method)
        found += [Cell(f"{subject.name} {name}", compute) for name, compute in parts.items()]
    return found


def _row(subject: Subject, method: str, **values: float) -> list[Row]:
    paper = PAPER.get(subject.name)
    quoted = {
        "sampling as published": "sampling",
        "PIE as published": "pie",
        "GIE as published": "gie",
    }
    figure = getattr(paper, quoted[method]) if paper and method in quoted else None
    return [
        {"network": subject.name, "eps": subject.eps, "method": method, **values, "paper": figure}
    ]


def _accuracy(subject: Subject, setting: Setting) -> list[Row]:
    """Of the mean network; the paper does not say whether attacked images are clipped to [0, 1]."""
    paper = PAPER.get(subject.name)
    rows = []
    for name, clip in (("PGD", (0.0, 1.0)), ("PGD, not clipped", None)):
        problem = subject.problem(setting.device, PGD_EPS, clip=clip)
        clean, attacked = surviving(problem, problem.posterior.center.unsqueeze(0))
        rows += [
            row | {"paper": paper and paper.pgd}
            for row in _row(subject, name, lower=100 * attacked)
        ]
    return [
        row | {"paper": paper and paper.clean} for row in _row(subject, "clean", lower=100 * clean)
    ] + rows


def _ceiling(subject: Subject, setting: Setting) -> list[Row]:
    return _row(subject, "ceiling", lower=ceiling(subject.problem(setting.device), setting.drawn))


def _best_width(
    subject: Subject, setting: Setting, name: str, methods: list[Sampling]
) -> list[Row]:
    problem = subject.problem(setting.device)
    found = [certified(problem, method) | {"width": method.step} for method in methods]
    return _row(subject, name, **max(found, key=lambda values: values["lower"]))


def _certified(subject: Subject, setting: Setting, name: str, method: Method) -> list[Row]:
    return _row(subject, name, **certified(subject.problem(setting.device), method))


def draw(rows: list[Row]) -> Figure:
    """Certified by each method, a group a network."""
    values = {
        name: {row["network"]: row["lower"] for row in rows if row["method"] == name}
        for name in BARS
    }
    return draw_bars(
        values,
        "mean certified P_safe, %",
        "What each method certifies, and what attacks leave possible",
    )


TABLE1 = Experiment(
    "the paper's Table 1, then our bounds, concentration and the ceiling", cells, draw
)
