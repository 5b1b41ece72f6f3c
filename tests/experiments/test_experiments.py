"""Experiments: rows, figures drawn from rows alone, and runs that go on where they were
interrupted."""

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from rich.table import Table

from bnncert import InputError
from bnncert.experiments import ALL, EXPERIMENTS, Experiment, Setting, run, subjects, table1
from bnncert.experiments.fig1 import exact
from bnncert.experiments.plots import (
    COLOURS,
    OTHERS,
    draw_bars,
    draw_covers,
    draw_intervals,
    draw_lines,
)
from bnncert.experiments.run import Cell, Row, redraw
from bnncert.experiments.tables import table

QUICK = Setting(quick=True)


@pytest.fixture
def digits_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No other data set can be had."""
    original = subjects.load_inputs

    def only_digits(name: str) -> object:
        if name != "digits":
            raise InputError(f"data set {name!r} cannot be had")
        return original(name)

    monkeypatch.setattr(subjects, "load_inputs", only_digits)
    subjects._tried.cache_clear()
    yield
    subjects._tried.cache_clear()


def draw(rows: list[Row]) -> Figure:
    return draw_lines({"line": [(row["x"], row["y"]) for row in rows]}, "x", "y", "title")


def counting(calls: list[int], fail_at: int | None = None, count: int = 4) -> Experiment:
    """An experiment of a few cells that notes which were computed, and breaks at one of them."""

    def compute(k: int) -> list[Row]:
        if k == fail_at:
            raise KeyboardInterrupt
        calls.append(k)
        return [{"x": k, "y": k * k}]

    def bound(k: int) -> Callable[[], list[Row]]:
        return lambda: compute(k)

    return Experiment("counts", lambda _: [Cell(f"cell {k}", bound(k)) for k in range(count)], draw)


def test_rows_and_figures_are_written(tmp_path: Path) -> None:
    rows = run("squares", counting([]), QUICK, tmp_path)
    assert [row["y"] for row in rows] == [0, 1, 4, 9]
    written = json.loads((tmp_path / "squares.json").read_text())
    assert written["rows"] == rows
    assert written["settings"] == {"quick": True, "published": None, "device": "cpu"}
    assert {"bnncert", "torch", "numpy"} <= set(written["versions"])
    assert written["machine"]["threads"] >= 1
    with (tmp_path / "squares.csv").open() as file:
        assert [row["y"] for row in csv.DictReader(file)] == ["0", "1", "4", "9"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"squares.{end}" for end in ("csv", "json", "png", "svg")
    ]


@pytest.mark.parametrize("torn", [False, True])
def test_an_interrupted_run_goes_on(tmp_path: Path, torn: bool) -> None:
    calls: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        run("squares", counting(calls, fail_at=2), QUICK, tmp_path)
    partial = tmp_path / "squares.partial.jsonl"
    if torn:  # killed in the middle of a line
        partial.write_text(partial.read_text() + '{"key": "cell 2", "ro')
    rows = run("squares", counting(calls), QUICK, tmp_path)
    assert calls == [0, 1, 2, 3]
    assert [row["y"] for row in rows] == [0, 1, 4, 9]
    assert not partial.exists()


def test_an_interrupted_run_with_other_settings_is_not_used(tmp_path: Path) -> None:
    calls: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        run("squares", counting(calls, fail_at=2), QUICK, tmp_path)
    run("squares", counting(calls), Setting(), tmp_path)
    assert calls == [0, 1, 0, 1, 2, 3]


def test_a_finished_run_is_kept_only_when_asked(tmp_path: Path) -> None:
    calls: list[int] = []
    for keep in (True, True, False):
        run("squares", counting(calls), QUICK, tmp_path, keep=keep)
    assert calls == 2 * [0, 1, 2, 3]
    run("squares", counting(calls, count=5), QUICK, tmp_path, keep=True)  # other cells
    assert calls[8:] == [0, 1, 2, 3, 4]


def test_figures_come_from_the_rows_alone(tmp_path: Path) -> None:
    experiment = counting([])
    run("squares", experiment, QUICK, tmp_path)
    before = (tmp_path / "squares.svg").read_bytes()
    redraw("squares", experiment, tmp_path)
    assert (tmp_path / "squares.svg").read_bytes() == before
    written = json.loads((tmp_path / "squares.json").read_text())
    written["rows"][3]["y"] = 100
    (tmp_path / "squares.json").write_text(json.dumps(written))
    redraw("squares", experiment, tmp_path)
    assert (tmp_path / "squares.svg").read_bytes() != before


def test_the_two_weight_example(tmp_path: Path) -> None:
    rows = run("fig1", EXPERIMENTS["fig1"], QUICK, tmp_path)
    lower = {row["method"]: row["lower"] for row in rows}
    drawn = torch.randn(10**6, 2, generator=torch.Generator().manual_seed(0))
    share = float((drawn[:, 0].clamp_min(0) * drawn[:, 1] <= 1).double().mean())
    assert rows[0]["P_safe"] == exact() == pytest.approx(share, abs=1e-3)
    assert lower["sampling"] < lower["PIE"] < lower["GIE"] < exact()  # on these draws


@pytest.mark.usefixtures("digits_only")
@pytest.mark.parametrize(
    "name", [name for name in ALL if name not in ("size", "noise", "fig1", "training")]
)
def test_every_experiment_runs_without_downloads(name: str, tmp_path: Path) -> None:
    """On the shipped digits network; no certified bound exceeds the certified upper bound or 100
    %."""
    rows = run(name, EXPERIMENTS[name], QUICK, tmp_path)
    assert {row["network"] for row in rows} == {"digits"}
    assert all(0 <= row["lower"] <= row.get("upper", 100) <= 100 for row in rows if "lower" in row)
    assert (tmp_path / f"{name}.png").stat().st_size > 5000


@pytest.mark.usefixtures("digits_only")
def test_what_is_missing_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    subjects._say.cache_clear()
    for _ in range(2):
        subjects.subjects(QUICK, ("1x128", "2x50"))
    assert [line.split(":")[0] for line in capsys.readouterr().err.splitlines()] == [
        "1x128",
        "2x50",
        "MNIST is out of reach",
    ]


@pytest.mark.usefixtures("digits_only")
def test_only_quick_runs_make_do_with_digits() -> None:
    with pytest.raises(InputError, match="BNNCERT_DATA"):
        subjects.subjects(Setting())


@pytest.mark.usefixtures("digits_only")
def test_concentration_is_never_below_the_boxes(tmp_path: Path) -> None:
    rows = run("table1", EXPERIMENTS["table1"], QUICK, tmp_path)
    lower = {row["method"]: row["lower"] for row in rows}
    assert lower["concentration"] <= lower["ceiling"] + 1e-9
    assert max(lower[name] for name in ("sampling", "PIE", "GIE")) <= lower["concentration"]
    assert lower["PIE as published"] <= lower["PIE"] + 1e-9
    assert table1.BARS[-1] == "ceiling"


def test_published_posteriors_are_looked_for_in_the_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="1x128"):
        subjects.subjects(Setting(published=tmp_path), ("1x128",))


def test_quick_figures_say_so(tmp_path: Path) -> None:
    run("quick", counting([]), QUICK, tmp_path)
    run("whole", counting([]), Setting(), tmp_path)
    # letters are paths in an SVG: the figure itself is asked
    figures = {}
    for name in ("quick", "whole"):
        redraw(name, Experiment("", lambda _: [], keeping(figures, name)), tmp_path)
    assert "quick" in figures["quick"].get_supylabel()
    assert figures["whole"].get_supylabel() == ""


def keeping(figures: dict[str, Figure], name: str) -> Callable[[list[Row]], Figure]:
    def drawn(rows: list[Row]) -> Figure:
        figures[name] = draw(rows)
        return figures[name]

    return drawn


def test_the_table_of_networks_and_methods() -> None:
    rows: list[Row] = [
        {"network": network, "eps": 0.5, "method": method, "lower": lower, "boxes": [1]}
        for network, method, lower in (("a", "PIE", 1.25), ("a", "GIE", 2.0), ("b", "PIE", None))
    ]
    assert cells(table(rows)) == [
        ["method", "a, ε 0.5", "b, ε 0.5"],
        ["PIE", "1.25", "–"],
        ["GIE", "2", "–"],
    ]


def test_rows_that_no_cross_table_holds_are_all_shown() -> None:
    """Two of one network and method, or without them; never the lists that figures need."""
    rows: list[Row] = [{"x": 1, "y": 0.123456, "boxes": [1, 2]}, {"x": 2, "z": "w"}]
    assert cells(table(rows)) == [["x", "y", "z"], ["1", "0.1235", "–"], ["2", "–", "w"]]
    twice: list[Row] = [{"method": "PIE", "network": "a", "eps": 0, "lower": k} for k in (1, 2)]
    assert cells(table(twice))[1:] == [["PIE", "a", "0", "1"], ["PIE", "a", "0", "2"]]


def cells(made: Table) -> list[list[str]]:
    columns = [[str(column.header), *map(str, column.cells)] for column in made.columns]
    return [list(line) for line in zip(*columns, strict=True)]


def test_centres_are_what_boxes_grew_from() -> None:
    """GIE's boxes reach further on one side, so that their middle is another point."""
    covers = {"GIE": ([(-1.0, 3.0, -2.0, 2.0)], [(0.0, 0.0)], "P")}
    figure = draw_covers(covers, np.ones((3, 3), dtype=bool), (-4, 4), "", ("x", "y"))
    (axis,) = figure.axes
    assert [line.get_xydata().tolist() for line in axis.lines] == [[[0.0, 0.0]]]
    rows = EXPERIMENTS["fig1"].cells(QUICK)[2].compute()
    assert len(rows[0]["centres"]) == len(rows[0]["boxes"])
    for (across, up), (left, right, bottom, top) in zip(
        rows[0]["centres"], rows[0]["boxes"], strict=True
    ):
        assert left < across < right
        assert bottom < up < top


def test_a_method_looks_the_same_in_every_figure() -> None:
    """By colour, in lines, bars and covers; other lines have none of these colours."""
    lines = draw_lines({"PIE, 1 hidden": [(0, 1)], "PIE, 2 hidden": [(0, 2)]}, "x", "y", "").axes[0]
    assert {line.get_color() for line in lines.lines} == {COLOURS["PIE"]}
    assert len({line.get_linestyle() for line in lines.lines}) == 2
    bars = draw_bars({"PIE": {"a": 1.0}}, "y", "").axes[0]
    assert bars.patches[0].get_facecolor() == to_rgba(COLOURS["PIE"])
    assert not set(OTHERS) & set(COLOURS.values())
    (axis,) = draw_covers(
        {"PIE": ([(0, 1, 0, 1)], [], "")}, np.ones((3, 3), dtype=bool), (-4, 4), "", ("x", "y")
    ).axes
    assert axis.patches[0].get_facecolor()[:3] == to_rgba(COLOURS["PIE"])[:3]


def test_values_that_hardly_differ_are_not_blown_up() -> None:
    axis = draw_lines({"GIE": [(0, 20.0), (1, 20.0 - 1e-13)]}, "x", "y", "").axes[0]
    low, high = axis.get_ylim()
    assert high - low >= 10


def test_an_interval_is_open_before_anything_is_known() -> None:
    axis = draw_intervals({"a": [(8.696, 0.0, 35.7)]}, "seconds", "y", "").axes[0]
    assert axis.get_xlim() == (0, pytest.approx(9.13, abs=0.01))
    upper = axis.lines[0]
    assert tuple(np.asarray(upper.get_xydata())[0]) == (0, 100)
