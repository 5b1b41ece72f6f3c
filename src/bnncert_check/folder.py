"""Result folders: every line of results.jsonl or decisions.jsonl, and the certificate it names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from bnncert_check.certificate import check_certificate
from bnncert_check.files import UNREADABLE, strict_json
from bnncert_check.model import Model
from bnncert_check.verdict import ACCEPT, P_SAFE, CannotCheck, Reason, Rejected, Verdict

FILES = ("results.jsonl", "decisions.jsonl")  # of P_safe, and of predictive means
Line = tuple[str, dict[str, Any]]  # where it stands, and what it says


def read_results(folder: Path) -> list[Line]:
    """The lines of every file of results in the folder."""
    lines: list[Line] = []
    try:
        for path in [folder / name for name in FILES if (folder / name).exists()]:
            texts = path.read_text(encoding="utf-8").splitlines()
            lines += [(f"{path}:{number}", dict(strict_json(text))) for number, text in enumerate(texts, 1)]
    except UNREADABLE as error:
        raise CannotCheck("unreadable", f"{str(folder)!r} is not a folder of results ({error})") from error
    if not lines:
        raise CannotCheck("unreadable", f"{str(folder)!r} holds no line of {' or '.join(FILES)}")
    return lines


def check_results(folder: Path, lines: list[Line], model: Model) -> Iterator[Verdict]:
    """One verdict a line; a line that claims nothing (0 <= P_safe <= 1) needs no certificate."""
    for where, result in lines:
        yield _check_line(folder, where, result, model)


def _check_line(folder: Path, where: str, result: dict[str, Any], model: Model) -> Verdict:
    path = result.get("certificate")
    verdict = Verdict(where, ACCEPT, message="claims nothing")
    try:
        if path is None:
            nothing = (result.get("lower"), result.get("upper")) == (0, 1) and result.get("gap") in (None, -1)
            if not nothing or result.get("status") == "decided":
                raise Rejected("certificate-missing", "the line claims something and names no certificate")
            return verdict
        if not _inside(folder, path):
            raise CannotCheck("malformed", f"certificate {path!r} is not a path inside the folder")
        verdict = check_certificate(folder / path, model)
        if verdict.status == ACCEPT:
            _compare(result, verdict)
    except Reason as reason:
        return replace(verdict, status=reason.status, code=reason.code, message=reason.message)
    return verdict


def _inside(folder: Path, path: object) -> bool:
    try:
        return isinstance(path, str) and (folder / path).resolve().is_relative_to(folder.resolve())
    except (*UNREADABLE, RuntimeError):  # odd characters, or links in a circle
        return False


def _compare(result: dict[str, Any], verdict: Verdict) -> None:
    """The line must repeat the certificate's claim and question."""
    lower, upper = verdict.claimed or (None, None)
    certified: dict[str, object] = {"lower": lower, "upper": upper, "eps": verdict.eps, "label": verdict.label}
    if verdict.quantity != P_SAFE or "quantity" in result:
        certified |= {"quantity": verdict.quantity, "gap": verdict.gap}
        certified |= {"status": "decided" if verdict.decided else "undecided"}
    for name, value in certified.items():
        if (name != "eps" or value is not None) and result.get(name) != value:
            message = f"{name}: the line says {result.get(name)!r}, its certificate {value!r}"
            raise Rejected("result-mismatch", message)
