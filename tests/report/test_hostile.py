"""What a hostile folder can do to the report: no text becomes markup."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from bnncert import InputError
from bnncert.report.page import write_report
from report_folders import verdicts, write_folder
from report_pages import HOSTILE, written


def hostile_folder(folder: Path) -> list[dict[str, Any]]:
    """Every text of lines and certificates is an attempt to break out of where it stands."""
    name = f"certificates/{HOSTILE}/{{}}.safetensors"
    return write_folder(
        folder,
        8,
        line=lambda i, own: (
            own | {"method": HOSTILE, "certificate": own["certificate"] and name.format(i)}
        ),
        digests=dict.fromkeys(("architecture", "posterior", "specification", "problem"), HOSTILE),
        region={"norm": HOSTILE, "clip": [0.0, 1.0], "eps": HOSTILE},
        method={"name": HOSTILE, HOSTILE: HOSTILE},
        versions={HOSTILE: HOSTILE},
        kind=HOSTILE,
        evidence={"components": [{"weight": HOSTILE, "upper": None}]},
    )


def test_no_text_becomes_markup(tmp_path: Path) -> None:
    """A page about hostile texts has the elements and attributes of an innocent one, and tells them
    as they are."""
    folder = tmp_path / HOSTILE.replace("/", "∕") / "run"
    lines = hostile_folder(folder)
    bad = dict.fromkeys(range(8), HOSTILE)
    verdicts(folder, lines, status=dict.fromkeys(range(8), "REJECT"), code=bad, message=bad)
    innocent = write_folder(tmp_path / "innocent", 8)
    verdicts(tmp_path / "innocent", innocent, status=dict.fromkeys(range(8), "REJECT"))
    page, plain = written(folder), written(tmp_path / "innocent")
    assert page.tags == plain.tags
    assert Counter(name for name, _ in page.attributes) == Counter(
        name for name, _ in plain.attributes
    )
    assert page.scripts[1] == plain.scripts[1]
    assert "<script>alert" not in page.text
    for name in ("method", "norm", "kind of evidence", "digest of the problem"):
        assert page.facts(1)[name] == HOSTILE
    assert page.facts(1)["reason"] == f"{HOSTILE}: {HOSTILE}"
    assert page.facts(1)["certificate"] == lines[1]["certificate"]
    assert HOSTILE in page.words


def test_no_text_becomes_markup_in_evidence(tmp_path: Path) -> None:
    growth = {"step": 0.5, "rho": 0.2, "zero_gradient_only": False}
    evidence = {
        "bound": HOSTILE,
        "growth": growth,
        "boxes": [{"draw": HOSTILE, "steps": HOSTILE}] * 2,
        "union": {"rule": HOSTILE},
    }
    centers = {f"center{i}": torch.zeros(2).double() for i in range(2)}
    write_folder(tmp_path / "run", 8, more=centers, kind="boxes", evidence=evidence)
    page = written(tmp_path / "run")
    assert page.tags["script"] == 2
    assert sum(HOSTILE in text for text in page.data["texts"]) >= 2


@pytest.mark.parametrize("label", [HOSTILE, 1.5, True, [1]])
def test_labels_are_whole_numbers(label: object, tmp_path: Path) -> None:
    write_folder(tmp_path / "run", 4, line=lambda _, own: own | {"label": label})
    with pytest.raises(InputError, match=r"line 1 of .* is malformed"):
        write_report(tmp_path / "run")


def test_the_page_needs_and_allows_nothing_from_outside(tmp_path: Path) -> None:
    write_folder(tmp_path / "run", 40)
    page = written(tmp_path / "run")
    assert not re.search(r"https?:|@import|@font-face|url\((?!#)", page.text)
    links = [
        value or ""
        for name, value in page.attributes
        if name in ("src", "href", "action", "srcset")
    ]
    assert all(link.startswith("data:") for link in links)
    assert not [name for name, _ in page.attributes if name.startswith("on") or name == "style"]


def test_the_content_security_policy_allows_this_script_and_style_alone(tmp_path: Path) -> None:
    write_folder(tmp_path / "run", 4)
    page = written(tmp_path / "run")
    policy = next(
        value
        for name, value in page.attributes
        if name == "content" and "default-src" in (value or "")
    )
    style = re.search(r"<style>(.*?)</style>", page.text, re.DOTALL)
    assert style
    assert policy == (
        f"default-src 'none'; style-src '{_hash(style[1])}'; script-src "
        f"'{_hash(page.scripts[1])}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    assert page.text.index("Content-Security-Policy") < page.text.index("<style")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_odd_characters_can_be_written(tmp_path: Path) -> None:
    """Half a surrogate pair is no character: the page shows a question mark instead of failing."""
    write_folder(tmp_path / "run", 4, line=lambda _, own: own | {"method": "half \ud800\u2028"})
    assert "half ?\u2028" in written(tmp_path / "run").words
