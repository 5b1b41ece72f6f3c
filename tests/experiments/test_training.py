"""Training for certification: the grid, its rows and the figure."""

from dataclasses import replace
from pathlib import Path

from bnncert.experiments import EXPERIMENTS, Setting, run, training
from bnncert.experiments.run import Row
from bnncert.experiments.training import Choice

COLUMNS = {
    "network",
    "kl_weight",
    "kappa",
    "train_eps",
    "prior",
    "seed",
    "accuracy",
    "drawn_accuracy",
    "std",
    "nll",
    "calibration_error",
    "training_seconds",
    "eps",
    "lower",
    "upper",
    "seconds",
}
TIMES = {"training_seconds", "seconds"}


def test_the_quick_run(tmp_path: Path) -> None:
    """The bound in the training is what makes every KL weight certifiable."""
    rows = run("training", EXPERIMENTS["training"], Setting(quick=True), tmp_path)
    assert all(set(row) == COLUMNS for row in rows)
    assert {row["eps"] for row in rows} == set(training.RADII)
    lower = {(row["kl_weight"], row["kappa"], row["eps"]): row["lower"] for row in rows}
    without, within = training.WITHOUT_AND_WITH
    for weight in training.KL_WEIGHTS:
        assert lower[weight, without, 0.05] <= lower[weight, within, 0.05]
        assert lower[weight, within, 0.05] <= lower[weight, within, 0.02]
    assert all(row["accuracy"] > 75 and row["std"] > 0 for row in rows)
    assert (tmp_path / "training.png").stat().st_size > 5000


def test_rows_are_the_same_again() -> None:
    setting = Setting(quick=True)
    first, again = (training.cells(setting)[0].compute() for _ in range(2))
    assert timeless(first) == timeless(again)


def timeless(rows: list[Row]) -> list[Row]:
    return [{key: row[key] for key in COLUMNS - TIMES} for row in rows]


def test_the_grid_holds_every_choice_once() -> None:
    whole = training.choices(quick=False)
    assert len({choice.key for choice in whole}) == len(whole)
    for weight in training.KL_WEIGHTS:
        usual = Choice(weight)
        kappas = {each.kappa for each in whole if replace(each, kappa=0.5) == usual}
        radii = {each.train_eps for each in whole if replace(each, train_eps=0.05) == usual}
        assert (kappas, radii) == (set(training.KAPPAS), set(training.TRAIN_EPS))
    assert set(training.choices(quick=True)) < set(whole)


def test_the_figure_shows_one_prior_one_radius_and_one_seed() -> None:
    usual = {"prior": "fixed", "seed": 0, "train_eps": 0.05, "eps": 0.05, "kl_weight": 1.0}
    shown = [
        usual | {"kappa": kappa, "drawn_accuracy": 90.0 - kappa, "lower": 80.0 * kappa}
        for kappa in training.KAPPAS
    ]
    others = [
        shown[0] | {"prior": "fan-in"},
        shown[0] | {"seed": 1},
        shown[0] | {"train_eps": 0.1},
        shown[0] | {"eps": 0.02},
    ]
    trade, course = training.draw([*shown, *others]).axes
    assert len(trade.lines[0].get_xydata()) == len(shown)
    assert tuple(course.get_xticks()) == training.KAPPAS
