"""What was checked, in the checker's own words: from the certificates that it accepted, and what
the manifest says besides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from bnncert_check.grammar import written
from bnncert_check.manifest import MANIFEST, Manifest
from bnncert_check.model import Model
from bnncert_check.verdict import ACCEPT, P_SAFE, Verdict

SHOWN = 8  # kinds of questions that are written out


def statement(manifest: Manifest | None, model: Model, verdicts: Sequence[Verdict]) -> list[str]:
    """Sentences: of which posterior, what was proved, how much, and what was asked."""
    accepted = [verdict for verdict in verdicts if verdict.status == ACCEPT]
    proved = [verdict for verdict in accepted if verdict.claimed is not None]
    # By their numbers: the index of a line, and its method, are what it calls them.
    inputs = len({verdict.input for verdict in proved})
    words = [
        f"Posterior of digest {model.posterior_digest}: {len(verdicts)} results read, "
        f"{len(accepted)} accepted, {len(proved)} of them with a certificate, "
        f"about {inputs} input{'s' * (inputs != 1)}.",
        *_questions(proved),
    ]
    if manifest is None:
        return [*words, f"There is no {MANIFEST}: what was asked is known from certificates alone."]
    if manifest.at_least is not None:
        words.append(_settled(proved, len(accepted), manifest.at_least))
    return [*words, _asked(manifest, len(verdicts))]


def _questions(proved: Sequence[Verdict]) -> list[str]:
    """Of every kind of question how many certificates; classes are told from one another below."""
    kinds = Counter(
        (
            verdict.quantity,
            verdict.question.replace(f"class {verdict.label} before", "its class before"),
        )
        for verdict in proved
    )
    words = [
        f"{count} bound {quantity} of: {question}."
        for (quantity, question), count in kinds.most_common(SHOWN)
    ]
    return words + [f"And {len(kinds) - SHOWN} kinds more."] * (len(kinds) > SHOWN)


def _settled(proved: Sequence[Verdict], accepted: int, at_least: Fraction) -> str:
    bounds = [verdict.claimed or (0.0, 1.0) for verdict in proved]
    holds = sum(Fraction(lower) >= at_least for lower, _ in bounds)
    fails = sum(Fraction(upper) < at_least for _, upper in bounds)
    return (
        f"{P_SAFE} >= {written(at_least)} is proved of {holds}, disproved of {fails}, "
        f"open of {accepted - holds - fails}."
    )


def _asked(manifest: Manifest, count: int) -> str:
    radii = f", radii {', '.join(map(repr, sorted(manifest.eps)))}" if manifest.eps else ""
    some = "" if manifest.count is None else f" of {manifest.count} inputs, {count} results here"
    return (
        f"{MANIFEST} asks {manifest.condition.describe()}, norm {manifest.norm}{radii}{some}; "
        "what is accepted agrees with it."
    )
