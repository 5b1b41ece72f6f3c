"""python -m bnncert_check TARGET --posterior POSTERIOR: exit code 0 accepted, 1 rejected, 2 could
not be checked."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from bnncert_check.certificate import check_certificate
from bnncert_check.files import reading
from bnncert_check.folder import Accepted, check_results, read_results, speaks_of
from bnncert_check.manifest import read_manifest
from bnncert_check.maps import check_map, count_lines, is_map
from bnncert_check.model import read_model
from bnncert_check.radii import check_radii, read_radii
from bnncert_check.statement import statement
from bnncert_check.verdict import (
    ACCEPT,
    ERROR,
    EXIT_CODES,
    MEAN,
    P_SAFE,
    REJECT,
    SOFTMAX,
    CannotCheck,
    Reason,
    Verdict,
)

WIDTH = 30  # of the progress bar
NAMES = {P_SAFE: P_SAFE, SOFTMAX: "predictive probability", MEAN: "predictive mean"}


def run(target: Path, posterior: Path, as_json: bool) -> int:
    """Check a certificate or a folder of results, print the verdicts, and return the exit code."""
    try:
        with reading(f"{str(target)!r} cannot be checked"):
            verdicts, words = _verdicts(target, posterior)
    except Reason as reason:
        verdicts, words = [Verdict(str(target), reason.status, reason.code, reason.message)], []
    found = {verdict.status for verdict in verdicts}
    status = next((status for status in (REJECT, ERROR) if status in found), ACCEPT)
    if as_json:
        print(
            json.dumps(
                {
                    "verdict": status,
                    "statement": words,
                    "certificates": [asdict(verdict) for verdict in verdicts],
                },
                indent=1,
            )
        )
    else:
        for verdict in verdicts:
            print(_line(verdict))
        if len(verdicts) > 1:
            counts = ", ".join(
                f"{sum(v.status == s for v in verdicts)} {s}" for s in (ACCEPT, REJECT, ERROR)
            )
            print(f"{status}: {counts}")
        for sentence in words:
            print(_printable(sentence))
    return EXIT_CODES[status]


def _verdicts(target: Path, posterior: Path) -> tuple[list[Verdict], list[str]]:
    """Of a certificate, or of a folder, of which they are also said in sentences."""
    if not (target.is_dir() or target.is_file() or target.parent.is_file()):
        raise CannotCheck(
            "unreadable",
            f"{str(target)!r} does not exist; name a certificate or a folder of results",
        )
    model = read_model(posterior)
    if not target.is_dir():
        return [check_certificate(target, model)], []
    if is_map(target):
        cells = list(_with_progress(check_map(target, model), count_lines(target)))
        return cells, []
    results = read_results(target)
    count = sum(speaks_of(result, model) for result in results)
    if not count:
        raise CannotCheck("unreadable", f"nothing in {str(target)!r} speaks of this posterior")
    if count < len(results):
        print(
            f"{len(results) - count} results speak of other posteriors and are not checked",
            file=sys.stderr,
        )
    radii = read_radii(target)
    accepted: Accepted = {}
    verdicts = list(_with_progress(check_results(target, results, model, accepted), count))
    words = statement(read_manifest(target), model, verdicts)
    return verdicts + check_radii(target, radii, accepted), words


def _with_progress(verdicts: Iterable[Verdict], total: int) -> Iterator[Verdict]:
    """A bar on standard error, where that is a terminal."""
    for done, verdict in enumerate(verdicts, 1):
        if sys.stderr.isatty():
            bar = "#" * (WIDTH * done // total)
            print(
                f"\rchecking [{bar:<{WIDTH}}] {done}/{total}",
                end="\n" if done == total else "",
                file=sys.stderr,
            )
        yield verdict


def _line(verdict: Verdict) -> str:
    words = [verdict.status, verdict.path]
    if verdict.code:
        words.append(f"{verdict.code}: {verdict.message}")
    elif verdict.claimed:
        ahead = "" if verdict.gap is None else f", ahead by {verdict.gap!r}"
        bounds = (
            f"{verdict.claimed[0]!r} <= {NAMES[verdict.quantity]} <= {verdict.claimed[1]!r}{ahead}"
        )
        words.append(f"{bounds}: {verdict.question}")
    else:
        words.append(verdict.message)
    return _printable("  ".join(words))


def _printable(text: str) -> str:
    """A file's name must not look like a verdict of its own, and any terminal must be able to show
    it."""
    return "".join(c if c.isprintable() and c.isascii() else ascii(c)[1:-1] for c in text)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="bnncert_check",
        description="Check certificates of bnncert independently, in rigorous arithmetic. "
        "Exit code 0: accepted, 1: rejected, 2: could not be checked.",
    )
    parser.add_argument(
        "target",
        type=Path,
        help=(
            "a certificate, also BUNDLE.zip/NAME, or a folder with results.jsonl, "
            "decisions.jsonl or map.json"
        ),
    )
    parser.add_argument(
        "--posterior", type=Path, required=True, help="the posterior: .safetensors or .npz"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object with every verdict"
    )
    arguments = parser.parse_args()
    sys.exit(run(arguments.target, arguments.posterior, arguments.json))


if __name__ == "__main__":
    main()
