"""Result folders: every line of results.jsonl and the certificate it names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from bnncert_check.certificate import check_certificate
from bnncert_check.files import UNREADABLE, strict_json
from bnncert_check.model import Model
from bnncert_check.verdict import ACCEPT, CannotCheck, Reason, Rejected, Verdict

RESULTS = "results.jsonl"


def read_results(folder: Path) -> list[dict[str, Any]]:
    try:
        lines = (folder / RESULTS).read_text(encoding="utf-8").splitlines()
        results = [dict(strict_json(line)) for line in lines]
    except UNREADABLE as error:
        raise CannotCheck("unreadable", f"{str(folder)!r} is not a folder of results ({error})") from error
    if not results:
        raise CannotCheck("unreadable", f"{str(folder / RESULTS)!r} is empty")
    return results


def speaks_of(result: dict[str, Any], model: Model) -> bool:
    """Whether a line is about this posterior: it is, unless it names another, as lines of campaigns can."""
    return bool(result.get("posterior", model.posterior_digest) == model.posterior_digest)


def check_results(folder: Path, results: list[dict[str, Any]], model: Model) -> Iterator[Verdict]:
    """One verdict a line about this posterior; a line that claims nothing (0 <= P_safe <= 1) needs no certificate."""
    for number, result in enumerate(results, 1):
        if speaks_of(result, model):
            yield _check_line(folder, number, result, model)


def _check_line(folder: Path, number: int, result: dict[str, Any], model: Model) -> Verdict:
    path = result.get("certificate")
    verdict = Verdict(f"{folder / RESULTS}:{number}", ACCEPT, message="claims nothing")
    try:
        if path is None:
            if (result.get("lower"), result.get("upper")) != (0, 1):
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
    certified = {"lower": lower, "upper": upper, "eps": verdict.eps, "label": verdict.label}
    for name, value in certified.items():
        if (name != "eps" or value is not None) and result.get(name) != value:
            message = f"{name}: the line says {result.get(name)!r}, its certificate {value!r}"
            raise Rejected("result-mismatch", message)
