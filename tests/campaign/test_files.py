"""Campaign files: what they may say, and what is wrong in one line."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from bnncert import Concentration
from bnncert.campaign.plan import read_shard
from bnncert.campaign.schema import read_campaign
from bnncert.errors import InputError
from campaigns import plan_of, write_campaign

METHODS = {"effort": [{"name": "concentration", "effort": 7}], "word": [{"name": "magic"}]}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": ({"epsilon": 0.1}, "key 'epsilon' is not known; did you mean 'eps'?"),
    "nothing close": ({"zzz": 1}, "key 'zzz' is not known; choose posteriors"),
    "no inputs": ({"inputs": None}, "'inputs' is missing"),
    "no eps": ({"eps": []}, "at least one radius"),
    "negative eps": ({"eps": [-0.1]}, "eps is -0.1; give a finite radius of at least 0"),
    "infinite eps": ({"eps": [float("inf")]}, "eps is inf; give a finite radius of at least 0"),
    "eps twice": ({"eps": [0.1, 0.1]}, "each once"),
    "eps text": ({"eps": "0.1"}, "'eps' is '0.1'; give a list or a whole number or a number"),
    "eps true": ({"eps": [True]}, "'eps' is True"),
    "chunk 0": ({"chunk": 0}, "'chunk' is 0"),
    "seed": ({"seed": -1}, "'seed' is -1"),
    "threshold": ({"at_least": 1.5}, "(at least) '1.5' is not a probability"),
    "norm": ({"norm": "l3"}, "norm 'l3' is not known; choose linf"),
    "clip": ({"clip": [1, 0]}, "clip range (1.0, 0.0) is empty"),
    "clip of three": ({"clip": [0, 1, 2]}, "'clip' is [0, 1, 2]"),
    "no methods": ({"methods": []}, "'methods' is empty"),
    "method without a name": ({"methods": [{"effort": 1}]}, "tables with a name"),
    "unknown method": ({"methods": METHODS["word"]}, "method 'magic' is not known"),
    "unknown option": ({"methods": [{"name": "pie", "steps": 1}]}, "did you mean 'step'?"),
    "option's type": (
        {"methods": [{"name": "pie", "samples": 1.5}]},
        "'pie.samples' is 1.5; give a whole number",
    ),
    "option's value": ({"methods": METHODS["effort"]}, "effort is 7"),
    "same method twice": ({"methods": ["concentration", "concentration"]}, "twice"),
    "no posteriors": ({"posteriors": []}, "'posteriors' names none"),
    "posterior twice": (
        {"posteriors": ["narrow.safetensors", "narrow.safetensors"]},
        "two files of one name",
    ),
    "posterior a number": ({"posteriors": [3]}, "'posteriors' is 3"),
    "posterior missing": ({"posteriors": ["nowhere.safetensors"]}, "does not exist"),
    "one posterior, two names": (
        {"posteriors": {"a": "wide.safetensors", "b": "wide.safetensors"}},
        "are the same",
    ),
    "inputs missing": ({"inputs": "nowhere.npz"}, "neither a data set"),
    "select": ({"select": "0:99"}, "leaves the 12 inputs"),
    "select twice": ({"select": "3,3"}, "names an input twice"),
    "target": ({"target": 9}, "posterior 'narrow': target class 9"),
    "tolerance": ({"tolerance": -1.0}, "tolerance is -1.0"),
    "inputs outside": ({"clip": [0.4, 0.6]}, "leaves the clip range"),
    "wrong family": ({"methods": ["enumeration"]}, "family 'normal' is not for method enumeration"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_in_one_line_before_anything_runs(case: str, tmp_path: Path) -> None:
    changes, message = WRONG[case]
    with pytest.raises(InputError) as caught:
        plan_of(write_campaign(tmp_path, **changes))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("c.json", "{}", "unknown ending"),
        ("c.toml", "eps = ", "is not valid TOML"),
        ("c.yaml", "eps: [1", "is not valid YAML"),
        ("c.yaml", "- 1", "is not a table"),
        ("c.toml", None, "cannot be read"),
        ("c.toml", b"\xff", "is not valid TOML"),
    ],
)
def test_files_that_cannot_be_read(
    name: str, text: str | bytes | None, message: str, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=message) as caught:
        read_campaign(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_yaml_says_the_same_as_toml(campaign: Path) -> None:
    path = campaign.with_suffix(".yaml")
    path.write_text(
        "inputs: x.npz\neps: [0.02, 0.2]\nposteriors: [narrow.safetensors, wide.safetensors]\n"
        "methods:\n  - {name: concentration, effort: [0, 1]}\nat_least: 0.9\nchunk: 3\n"
    )
    assert read_campaign(path) == read_campaign(campaign)


def test_defaults_and_the_order_of_methods(tmp_path: Path) -> None:
    """Cheap methods come first where a threshold lets the others be spared; else they stay as they
    are listed."""
    plain = read_campaign(write_campaign(tmp_path, methods=None, at_least=None))
    assert plain.methods == (Concentration(),)
    asked = read_campaign(write_campaign(tmp_path, methods=None, at_least=0.95))
    plain_stages = (Concentration(0, upper=True), Concentration(1, upper=True))
    assert asked.methods == (
        *plain_stages,
        *(Concentration(e, upper=True, at_least=0.95) for e in (2, 3)),
    )
    assert asked.at_least == Decimal("0.95")
    limited = [{"name": "concentration", "effort": 2, "nodes": 50, "time_limit": 3}]
    assert read_campaign(write_campaign(tmp_path, methods=limited)).methods == (
        Concentration(2, False, 50, 3),
    )
    listed = ["pie", {"name": "concentration", "effort": [1, 0]}]
    names = [
        (m.name, getattr(m, "effort", None))
        for m in read_campaign(write_campaign(tmp_path, methods=listed)).methods
    ]
    assert names == [("concentration", 0), ("concentration", 1), ("pie", None)]
    unordered = read_campaign(write_campaign(tmp_path, methods=listed, at_least=None)).methods
    assert [getattr(method, "effort", None) for method in unordered] == [None, 1, 0]


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "1/2/3", "a/b", "-1/2"])
def test_shards_are_parts_of_a_whole(text: str) -> None:
    with pytest.raises(InputError, match="is not I/N"):
        read_shard(text)
