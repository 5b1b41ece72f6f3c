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

RESULTS, DECISIONS = "results.jsonl", "decisions.jsonl"  # of P_safe, and of predictive means


def read_results(folder: Path) -> list[dict[str, Any]]:
    path = _file(folder)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        results = [dict(strict_json(line)) for line in lines]
    except UNREADABLE as error:
        raise CannotCheck("unreadable", f"{str(folder)!r} is not a folder of results ({error})") from error
    if not results:
        raise CannotCheck("unreadable", f"{str(path)!r} is empty")
    return results


def _file(folder: Path) -> Path:
    """Decisions where there are no results; both together are not written by one run, and only one could be checked."""
    results, decisions = folder / RESULTS, folder / DECISIONS
    if results.exists() and decisions.exists():
        raise CannotCheck("malformed", f"{str(folder)!r} holds both {RESULTS} and {DECISIONS}")
    return decisions if decisions.exists() else results


def speaks_of(result: dict[str, Any], model: Model) -> bool:
    """Whether a line is about this posterior: it is, unless it names another, as lines of campaigns can."""
    return bool(result.get("posterior", model.posterior_digest) == model.posterior_digest)


def check_results(folder: Path, results: list[dict[str, Any]], model: Model) -> Iterator[Verdict]:
    """One verdict a line about this posterior; a line that claims nothing (0 <= P_safe <= 1) needs no certificate."""
    path = _file(folder)
    for number, result in enumerate(results, 1):
        if speaks_of(result, model):
            yield _check_line(folder, f"{path}:{number}", result, model)


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
