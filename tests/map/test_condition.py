"""Conditions: what texts and files say, as clauses of alternatives of rows."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bnncert import InputError
from bnncert.map.condition import PREDICTED, Row, load_condition, parse_condition, region_of


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        ("class predicted", [[[PREDICTED]]]),
        ("class 1", [[[((-1, 1, 0), 0), ((0, 1, -1), 0)]]]),
        ("class not 1", [[[((1, -1, 0), 0)], [((0, -1, 1), 0)]]]),
        ("y0 - 2*y1 >= 0.5", [[[((2, -4, 0), -1)]]]),
        ("-1 <= y0 < 1", [[[((1, 0, 0), 1), ((-1, 0, 0), 1)]]]),
        ("y2 >= 0.1", [[[((0, 0, 10), -1)]]]),
        # Rows are bounded together; `and` binds closer than `or`.
        ("y0 >= 1 and y1 >= 2", [[[((1, 0, 0), -1), ((0, 1, 0), -2)]]]),
        (
            "y0 >= 1 or y1 >= 2 and y2 >= 3",
            [[[((1, 0, 0), -1)], [((0, 1, 0), -2), ((0, 0, 1), -3)]]],
        ),
        (
            "y0 >= 1 and (y1 >= 2 or y2 >= 3)",
            [[[((1, 0, 0), -1)]], [[((0, 1, 0), -2)], [((0, 0, 1), -3)]]],
        ),
        (
            "y0 >= 1 or y1 >= 1 and (y2 >= 2 or y2 <= 0)",
            [
                [
                    [((1, 0, 0), -1)],
                    [((0, 1, 0), -1), ((0, 0, 1), -2)],
                    [((0, 1, 0), -1), ((0, 0, -1), 0)],
                ]
            ],
        ),
    ],
)
def test_texts(text: str, clauses: list[list[list[object]]]) -> None:
    found = [
        [
            [atom if isinstance(atom, str) else (atom.coefficients, atom.offset) for atom in each]
            for each in clause
        ]
        for clause in parse_condition(text, 3).clauses
    ]
    assert found == clauses


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it ends too early"),
        ("class", "it ends after 'class' too early"),
        ("class 7", "the network has outputs 0 to 2"),
        ("class not predicted", "'predicted' after 'class not' is not understood"),
        ("y9 >= 1", "output 9 does not exist"),
        ("1 <= 2", "speaks of no output"),
        ("y0 - y0 >= 1", "speaks of no output"),
        ("y0", "it ends after 'y0' too early"),
        ("y0 * y1 >= 1", "is not understood"),
        ("y0 >= 1 and", "it ends after"),
        ("(y0 >= 1", "it ends after"),
        ("y0 >= 1)", "'\\)' after"),
        ("y0 = 1", "'= 1' is not understood"),
        ("y0 >= 1e-400", "more digits than floats hold"),
        ("(" * 70 + "y0 >= 1" + ")" * 70, "parentheses stand in each other"),
        (" and ".join(f"(y0 >= {i} or y1 >= {i})" for i in range(70)), "more than 64 parts"),
        (
            " or ".join(f"(y0>={i} or y1>={i}) and (y2>={i} or y1<={i})" for i in range(20)),
            "more than 64 alternatives",
        ),
    ],
)
def test_bad_texts(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as error:
        parse_condition(text, 3)
    assert "\n" not in str(error.value)


def test_one_output_has_no_classes() -> None:
    with pytest.raises(InputError, match="has one output and so no classes"):
        parse_condition("class 0", 1)
    assert parse_condition("class not 1", 2).clauses == (((Row((1.0, -1.0), 0.0),),),)


def test_rows_and_margins() -> None:
    condition = parse_condition("class predicted and (y0 >= 0.5 or y1 <= 0.25)", 2)
    assert condition.predicted
    labels = torch.tensor([1, 0])
    rows, offsets = condition.rows(condition.clauses[0][0], labels)
    assert rows.tolist() == [[[-1.0, 1.0]], [[1.0, -1.0]]]
    assert offsets.tolist() == [[0.0], [0.0]]
    outputs = torch.tensor([[[0.0, 1.0]], [[1.0, 0.0]]]).double()
    margins = condition.margins(outputs, labels)
    assert margins[0][0].tolist() == [[1.0], [1.0]]
    assert [each.tolist() for each in margins[1]] == [[[-1.0], [1.0]], [[-3.0], [1.0]]]


UNSAFE = """(declare-const X_0 Real)
(declare-const Y_0 Real) (declare-const Y_1 Real)
(assert (>= X_0 0)) (assert (<= X_0 0.5))
(assert (or (and (<= Y_0 1) (<= Y_1 2)) (and (>= Y_0 3))))
"""


def test_vnnlib(tmp_path: Path) -> None:
    path = tmp_path / "p.vnnlib"
    path.write_text(UNSAFE)
    found = load_condition(str(path), 2)
    # Safe: y0 < 3, and one of y0 > 1, y1 > 2.
    assert found.clauses == (
        ((Row((-1.0, 0.0), 3.0),),),
        ((Row((1.0, 0.0), -1.0),), (Row((0.0, 1.0), -2.0),)),
    )
    assert found.text == "no counterexample of p.vnnlib"
    (side,) = region_of(path).dimensions
    assert (side.name, side.ends) == ("X_0", (0.0, 0.5))
    with pytest.raises(InputError, match="the file has 2 outputs, the network 3"):
        load_condition(str(path), 3)
    path.write_text(UNSAFE + "(assert (or (<= X_0 0.1) (>= X_0 0.2)))")
    for read in (lambda: load_condition(str(path), 2), lambda: region_of(path)):
        with pytest.raises(InputError, match="asks about 2 input boxes"):
            read()
