"""The statement of a report: what a folder of results is about, in sentences that can be quoted,
and the particulars that identify it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bnncert.evidence.predictive import MEAN
from bnncert.model.standardisation import Column
from bnncert.results.manifest import (
    Around,
    ClassKept,
    HalfSpace,
    Inputs,
    Manifest,
    OutputWithin,
    Question,
    Source,
    Stated,
    Subject,
    VnnLib,
)
from bnncert.results.rows import P_SAFE

LISTED = 4  # radii that are written out

AROUND = {
    "linf": "every point whose coordinates each differ from those of the input by at most {}",
    "l2": "every point whose Euclidean distance from the input is at most {}",
    "l1": "every point whose coordinates differ from those of the input by at most {} in sum",
    "box": "every point between the ends that are given for each entry",
}
LIMITS = (
    "Nothing is said about inputs outside these regions, about how likely any input is, or about "
    "whether the posterior is the right one."
)


def statement(manifest: Manifest) -> list[str]:
    """Sentences in the order in which people ask: of whom, where, what, how much, how."""
    question = manifest.question
    drawn = drawn_from(question.subjects)
    region = _region(question.region, manifest.features)
    condition = _condition(question, manifest.outputs)
    if question.quantity == P_SAFE:
        asked = (
            f"P_safe is the probability that a network drawn at random from {drawn} {condition} at "
            f"{region}, at all of these points at once."
        )
        threshold = f"The question is whether P_safe is at least {question.at_least}."
    else:
        asked = f"The networks of {drawn} are averaged. {condition} at {region}."
        threshold = "The question is not how many networks are safe, but whether their mean is."
    found = [asked, *_inputs(question.inputs), threshold]
    if isinstance(question.condition, VnnLib):
        found += _property(question.condition)
    return [*found, f"Answered by {answered_by(manifest)}.", LIMITS]


def particulars(manifest: Manifest) -> list[tuple[str, str]]:
    """What identifies the question and the answer, by name."""
    question = manifest.question
    found: list[tuple[str, str]] = []
    for each in question.subjects:
        found += [("posterior", each.name), *_source("posterior file", each.source)]
        found += [("family", f"{each.family}, {each.weights:,} weights")]
        found += [("digest of the posterior", each.posterior)]
        found += [("digest of the architecture", each.architecture)]
    if question.inputs is not None:
        found += _asked_of(question.inputs, question.region)
    if isinstance(question.condition, VnnLib):
        found += _source("VNN-LIB file", question.condition.source)
    found += [("seed", str(manifest.seed)), ("date", manifest.date)]
    found += [("versions", _listed(manifest.versions)), ("machine", _listed(manifest.machine))]
    return [*found, ("command", manifest.command or "asked from Python")]


def _asked_of(inputs: Inputs, region: Around) -> list[tuple[str, str]]:
    if region.lower:  # one region, whose parts are certified
        return _source("region file", inputs.source)
    kind = "inputs from the file" if inputs.source.is_file else "data set"
    selected = f"{inputs.select}, {inputs.count} in all"
    return [*_source(kind, inputs.source), ("inputs", selected)]


def name_of(columns: Sequence[Column], index: int, kind: str) -> str:
    """ "class 7 (sneaker)" """
    return f"{kind} {index}" + (f" ({columns[index].name})" if index < len(columns) else "")


def is_measured(columns: Sequence[Column]) -> bool:
    """Whether the network's own numbers are others than those that were measured."""
    return any((column.mean, column.std) != (0, 1) for column in columns)


def drawn_from(subjects: Sequence[Subject]) -> str:
    """What networks are drawn from."""
    names = ", ".join(f"“{each.name}”" for each in subjects)
    if len(subjects) > 1:
        return f"one of the posteriors {names}"
    return f"the posterior {names} ({subjects[0].family}, {subjects[0].weights:,} weights)"


def _region(region: Around, features: Sequence[Column]) -> str:
    said = AROUND[region.norm].format(_radius(region.eps))
    if is_measured(features) and region.norm != "box":
        said += " standard deviations of that coordinate"
    if region.clip is not None:
        said += f" and whose coordinates lie between {region.clip[0]:g} and {region.clip[1]:g}"
    if region.lower:
        said += f"; together the entries cover {_ends(region, features)}"
    return said


def _ends(region: Around, features: Sequence[Column]) -> str:
    """As they were measured."""
    sides = []
    for i, (low, high) in enumerate(zip(region.lower, region.upper, strict=True)):
        column = features[i] if i < len(features) else Column("")
        measured = f"from {column.measured(low):.6g} to {column.measured(high):.6g}"
        sides.append(f"{name_of(features, i, 'coordinate')} {measured}")
    return ", ".join(sides)


def _radius(eps: Sequence[float]) -> str:
    if not eps:
        return "a radius that was searched for"
    texts = [f"{each!r}" for each in eps]
    if len(eps) == 1:
        return f"ε = {texts[0]}"
    if len(eps) <= LISTED:
        return f"ε, for ε = {', '.join(texts[:-1])} and {texts[-1]} in turn"
    return f"ε, which is from {texts[0]} to {texts[-1]}"


def _condition(question: Question, outputs: Sequence[Column]) -> str:
    asked = question.condition
    if question.quantity != P_SAFE:
        return _averaged(question, outputs)
    if isinstance(asked, ClassKept):
        rival = "every other class"
        if asked.target is not None:
            rival = name_of(outputs, asked.target, "class")
        return f"gives the label of the input a larger output than {rival}"
    if isinstance(asked, OutputWithin):
        return f"keeps {_output(asked, outputs)} {_within(asked, outputs)}"
    if isinstance(asked, HalfSpace):
        terms = " + ".join(
            f"{weight:g} · {name_of(outputs, i, 'output')}"
            for i, weight in enumerate(asked.normal)
            if weight
        )
        return f"keeps {terms} above {asked.bound:g}"
    if isinstance(asked, VnnLib):
        return f"has no counterexample as the VNN-LIB file “{asked.source.name}” describes them"
    if isinstance(asked, Stated):
        return f"satisfies “{asked.text}”"
    return "keeps every output row of the entry’s certificate positive"


def _averaged(question: Question, outputs: Sequence[Column]) -> str:
    asked = question.condition
    if question.quantity == MEAN:
        if isinstance(asked, OutputWithin):
            return f"Bounded is the mean of {_output(asked, outputs)}, which is to stay " + _within(
                asked, outputs
            )
        return "Bounded is the mean of the output row of the entry’s certificate"
    return (
        "Bounded is the mean of their softmax probability of the label, and by how much it exceeds "
        "that of every other class"
    )


def _output(asked: OutputWithin, outputs: Sequence[Column]) -> str:
    return name_of(outputs, asked.output, "output")


def _within(asked: OutputWithin, outputs: Sequence[Column]) -> str:
    if asked.tolerance is None:
        return "inside the interval that is given for each entry"
    if asked.output < len(outputs):
        measured = asked.tolerance * outputs[asked.output].std
        if is_measured(outputs):
            return f"within {measured:.6g} of the target of the input, as it was measured,"
    return f"within {asked.tolerance:g} of the target of the input"


def _inputs(inputs: Inputs | None) -> list[str]:
    if inputs is None:
        return []
    which = "all" if inputs.select == ":" else f"numbers {inputs.select}"
    what = "file" if inputs.source.is_file else "data set"
    some = f"{inputs.count} input" + ("" if inputs.count == 1 else "s")
    return [f"It was asked of {some}: {which} of the {what} “{inputs.source.name}”."]


def _property(asked: VnnLib) -> list[str]:
    found = ["The file states the counterexample; its whole text stands below."]
    if not asked.exact:
        notes = "; ".join(asked.notes)
        found.append(f"What is certified is harder to satisfy than the file: {notes}.")
    return found


def answered_by(manifest: Manifest) -> str:
    """Methods with the options that they were given."""
    said = "; then ".join(
        f"{method.name} ({_listed(_given(method.options)) or 'no options'})"
        for method in manifest.methods
    )
    drawn = manifest.estimate
    return said + (f"; beside it {drawn} networks were drawn for estimates" if drawn else "")


def _given(options: Mapping[str, object]) -> dict[str, str]:
    return {name: plain(value) for name, value in options.items() if value is not None}


def plain(value: object) -> str:
    """A value for people."""
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _listed(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items())


def _source(name: str, source: Source | None) -> list[tuple[str, str]]:
    return [] if source is None else [(name, f"{source.name}, SHA-256 {source.sha256}")]
