"""The project against itself: no lower bound drops and no score falls, on a part of the quick size.

python tests/bench/test_regression.py writes the table anew, where bounds have become better.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

from bnncert.bench.entrants import Own
from bnncert.bench.runs import current, read_answers, run
from bnncert.bench.scores import Score, losses, score, write_scores
from bnncert.bench.suite import make, read_suite
from bnncert.bench.tracks import recipes

TABLE = Path(__file__).with_name("quick.json")
PATIENT = 600.0  # seconds: what is compared is no matter of time
KEPT = ("lower", "points")  # of a row of scores: what is compared
# Of the other tracks, those that take a second or two.
OTHERS = (
    "narrow-1x128-5.1-0.0125",
    "narrow-2x50-3.1-0.04",
    "wide-1x128-kl1-0.1-0",
    "cnn-small-3.1-0.02",
    "head-residual-small-2.1-0.016",
    "control-head-0-0.0625",
    "control-mean-field-2-0.0625",
    "predictive-1x128-2.1-0.0125",
    "samples-3-0.0625",
    "samples-3-0.125",
)
TOOLS = {
    "concentration-1": ("truth", *OTHERS),
    "concentration-2": ("truth", *OTHERS[5:7]),
    "enumeration": ("truth", *OTHERS[8:]),
    "pie": ("truth", *OTHERS[:2]),
}


def scores(folder: Path) -> list[Score]:
    wanted = [one for one in recipes() if one.track == "truth" or one.name in OTHERS]
    make([replace(one, timeout=PATIENT) for one in wanted], folder)
    instances = read_suite(folder)
    for tool, names in TOOLS.items():
        asked = [one for one in instances if one.track in names or one.name in names]
        run(folder, asked, [Own(tool)], workers=1)
    return score(instances, current(read_answers(folder), instances))


def test_no_lower_bound_drops_and_no_score_falls(tmp_path: Path) -> None:
    found = scores(tmp_path)
    assert [one.wrong for one in found if one.wrong] == []
    assert losses(found, TABLE) == []


def test_the_table_speaks_of_every_answer() -> None:
    """Of truth's instances and the others, and of no name that is gone."""
    stored = json.loads(TABLE.read_text(encoding="utf-8"))
    known = {recipe.name for recipe in recipes()}
    truths = {recipe.name for recipe in recipes() if recipe.track == "truth"}
    assert {*OTHERS} <= known
    for tool, names in TOOLS.items():
        assert stored[tool].keys() == (truths | {*names[1:]})


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as new:
        write_scores(TABLE, scores(Path(new)))
    whole = json.loads(TABLE.read_text(encoding="utf-8"))
    lines = [
        f" {json.dumps(tool)}: {{\n"
        + ",\n".join(
            f"  {json.dumps(name)}: {json.dumps({key: row[key] for key in KEPT})}"
            for name, row in rows.items()
        )
        + "\n }"
        for tool, rows in whole.items()
    ]
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
