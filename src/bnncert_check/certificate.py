"""One certificate against one posterior: everything it claims is computed again."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from flint import arb, ctx

from bnncert_check.arithmetic import BITS, Array, lower_float, require_ieee_arithmetic, upper_float
from bnncert_check.concentration import Proof, failure, open_widths
from bnncert_check.files import UNREADABLE, Tensors, digest, numbers, read_safetensors
from bnncert_check.layers import Activation, Conv, Dense
from bnncert_check.linear import row_bounds
from bnncert_check.mass import WeightBox, alternating_mass, cells_mass, cut
from bnncert_check.model import Model, Posterior
from bnncert_check.predictive import direction_means, network_means, softmax_means
from bnncert_check.region import Region, point_region, read_region
from bnncert_check.splits import Tree, covers
from bnncert_check.verdict import ACCEPT, ERROR, MEAN, P_SAFE, SOFTMAX, Bounds, CannotCheck, Reason, Rejected, Verdict

SCHEMA = "bnncert-certificate/1"
MOST_BOXES = 16  # that inclusion-exclusion may intersect


@dataclass(frozen=True)
class Question:
    """Safe iff rows·y + offsets > 0 for all rows and all x of the region."""

    region: Region
    clip: tuple[float, float] | None
    rows: Array
    offsets: Array

    def describe(self) -> str:
        """In words, so that a reader sees what was certified."""
        size = "a box" if self.region.norm == "box" else f"{self.region.norm} ball of radius {self.region.eps!r}"
        clip = f" within [{self.clip[0]!r}, {self.clip[1]!r}]" if self.clip else ""
        rivals = sorted(set(np.flatnonzero(self.rows == -1) % self.rows.shape[1]))
        others = "every other" if len(rivals) == self.rows.shape[1] - 1 else ", ".join(map(str, rivals))
        rows = f"{len(self.rows)} output rows positive" if self.label is None else f"class {self.label} before {others}"
        return f"{rows} on {size}{clip}"

    def settled(self, bounds: Bounds, gap: float | None) -> bool:
        """Whether bounds of the predictive mean, of the label or of the first row's direction, answer the question."""
        if gap is not None:
            return gap > 0
        ends = [bounds[0] if np.array_equal(row, self.rows[0]) else -bounds[1] for row in self.rows]
        return all(end > -offset for end, offset in zip(ends, self.offsets.tolist(), strict=True))

    @property
    def label(self) -> int | None:
        """The class that every row puts before another one; None if the rows say something else."""
        label = int(self.rows[0].argmax())
        rivals = np.eye(self.rows.shape[1])[self.rows.argmin(-1)]
        differences = np.eye(self.rows.shape[1])[label] - rivals
        says = np.array_equal(self.rows, differences) and not (rivals[:, label].any() or self.offsets.any())
        return label if says else None


def check_certificate(path: Path, model: Model) -> Verdict:
    """ACCEPT only if the evidence supports the whole claim; whatever is wrong becomes a verdict, not an exception."""
    started = time.perf_counter()
    verdict = Verdict(str(path), ACCEPT)
    try:
        with ctx.workprec(BITS), np.errstate(all="ignore"):
            require_ieee_arithmetic()
            header, tensors = read_safetensors(path, SCHEMA)
            claimed, gap = _claim(header)
            quantity = header["kind"] if header["kind"] in (SOFTMAX, MEAN) else P_SAFE
            verdict = replace(verdict, claimed=claimed, gap=gap, quantity=quantity)
            question = _question(header, tensors, model)
            eps = None if question.region.norm == "box" else question.region.eps
            verdict = replace(verdict, question=question.describe(), label=question.label, eps=eps)
            _check_digests(header, question, tensors["x"].shape, model)
            supported, lead = _supported(header, tensors, question, model)
            if any(map(math.isnan, (*supported, lead))):
                raise CannotCheck("not-finite", "a probability could not be computed")
            verdict = replace(verdict, supported=supported)
            _compare(claimed, supported, quantity)
            if gap is not None and not gap <= lead:
                raise Rejected("gap-too-high", f"claimed a lead of {gap!r}, supported is {lead!r}")
            decided = None if quantity == P_SAFE else question.settled(claimed, gap)
            verdict = replace(verdict, decided=decided)
    except Reason as reason:
        verdict = replace(verdict, status=reason.status, code=reason.code, message=reason.message)
    except UNREADABLE as error:
        verdict = replace(verdict, status=ERROR, code="malformed", message=f"the certificate is malformed ({error!r})")
    return replace(verdict, seconds=time.perf_counter() - started)


def _claim(header: dict[str, Any]) -> tuple[Bounds, float | None]:
    """Lower and upper bound, and for softmax the gap."""
    lower, upper = (float.fromhex(header["claim"][end]) for end in ("lower", "upper"))
    gap = float.fromhex(header["claim"]["gap"]) if header["kind"] == SOFTMAX else None
    within = math.isfinite(lower) and math.isfinite(upper) if header["kind"] == MEAN else lower >= 0 and upper <= 1
    if not (within and lower <= upper and -1 <= (gap or 0) <= 1):
        raise Rejected("claim-not-a-probability", f"the claim is {lower} to {upper}, gap {gap}")
    return (lower, upper), gap


def _question(header: dict[str, Any], tensors: Tensors, model: Model) -> Question:
    region, clip = read_region(header["region"], tensors, model.input_shape)
    count = len(tensors["rows"])
    if not count:
        raise CannotCheck("malformed", "there are no output rows")
    rows = numbers(tensors, "rows", (count, model.outputs))
    return Question(region, clip, rows, numbers(tensors, "offsets", (count,)))


def _check_digests(header: dict[str, Any], question: Question, shape: tuple[int, ...], model: Model) -> None:
    region = question.region
    ends = [end.reshape(1, *shape) for end in (region.lower, region.upper)]
    extent = ends if region.norm == "box" else [np.array([region.eps])]
    arrays = [region.x.reshape(1, *shape), *extent, question.rows[None], question.offsets[None]]
    specification = digest({"norm": region.norm, "clip": question.clip}, arrays)
    parts = {"architecture": model.architecture_digest, "posterior": model.posterior_digest}
    parts |= {"specification": specification, "problem": digest([*parts.values(), specification])}
    for name, value in parts.items():
        if header["digests"][name] != value:
            raise Rejected("digest-mismatch", f"the digest of the {name} is another: is this the right posterior?")


def _supported(header: dict[str, Any], tensors: Tensors, question: Question, model: Model) -> tuple[Bounds, float]:
    """The bounds that the evidence supports, and the gap of a softmax; 0 where there is none."""
    match header["kind"]:
        case "boxes":
            return (_boxes(header["evidence"], tensors, question, model), 1.0), 0.0
        case "concentration":
            return _concentration(header["evidence"]["components"], tensors, question, model), 0.0
        case "networks":
            return _networks(header["evidence"], tensors, question, model), 0.0
        case "softmax" | "mean":
            return _predictive(header, tensors, question, model)
    raise CannotCheck("unsupported", f"evidence of kind {header['kind']!r} is not known")


def _compare(claimed: Bounds, supported: Bounds, quantity: str) -> None:
    if not claimed[0] <= supported[0]:
        message = f"claimed {quantity} >= {claimed[0]!r}, supported is {supported[0]!r}"
        raise Rejected("probability-too-high", message)
    if not claimed[1] >= supported[1]:
        raise Rejected("upper-too-low", f"claimed {quantity} <= {claimed[1]!r}, supported is {supported[1]!r}")


def _predictive(header: dict[str, Any], tensors: Tensors, question: Question, model: Model) -> tuple[Bounds, float]:
    """Weighted sums over the components, or means over the networks, of lower bounds of the mean, of 1 minus it (or of
    its negative), and of the gap."""
    softmax, rows = header["kind"] == SOFTMAX, question.rows
    if softmax and (question.label is None or len({int(row.argmin()) for row in rows}) != model.outputs - 1):
        raise CannotCheck("unsupported", "a predictive probability needs one class against every other")
    if not softmax and not all(np.array_equal(row, rows[0]) or np.array_equal(row, -rows[0]) for row in rows):
        raise CannotCheck("unsupported", "a predictive mean needs output rows of one direction")
    rows, region = rows if softmax else rows[:1], question.region
    if model.components[0].family == "empirical":
        samples = model.components[0].fields["samples"]
        weights, found = (1.0,) * len(samples), [network_means(model, w, region, rows, softmax) for w in samples]
    else:
        weights, found = model.weights, []
        entries = header["evidence"]["components"]
        for i, (posterior, entry) in enumerate(zip(model.components, entries, strict=True)):
            if posterior.family not in ("normal", "low-rank-normal"):
                raise CannotCheck("unsupported", f"predictive means need a Gaussian posterior, not {posterior.family}")
            below = _proof(entry["lower"], f"c{i}.", tensors, len(rows), model)
            above = _proof(entry["upper"], f"c{i}.upper.", tensors, len(rows), model)
            means = softmax_means if softmax else direction_means
            found.append(means(model, posterior, region, rows, (below, above)))
    total = sum(map(arb, weights), arb(0))
    low, high, lead = (
        sum((arb(weight) * means[k] for weight, means in zip(weights, found, strict=True)), arb(0)) / total
        for k in range(3)
    )
    if not softmax:
        return (lower_float(low), upper_float(-high)), 0.0
    return (max(lower_float(low), 0.0), min(upper_float(1 - high), 1.0)), lower_float(lead)


def _boxes(evidence: dict[str, Any], tensors: Tensors, question: Question, model: Model) -> float:
    """The mass of a union of weight boxes, on each of which every row is positive."""
    (posterior, *others) = model.components
    if others or posterior.family in ("low-rank-normal", "empirical"):
        raise CannotCheck("unsupported", "boxes need a posterior of independent weights")
    boxes = [_box(evidence, i, tensors, posterior) for i in range(len(evidence["boxes"]))]
    for i, box in enumerate(boxes):
        if not (box.lower <= box.upper).all():
            raise Rejected("box-empty", f"box {i} has its ends in the wrong order")
        bounds = row_bounds(model, box, question.region, question.rows, question.offsets)
        for row in np.flatnonzero(~(bounds > 0)).tolist():
            raise Rejected("row-not-positive", f"row {row} is not positive on box {i}: bound {float(bounds[row])!r}")
    return lower_float(_union(evidence["union"], boxes, posterior))


def _box(evidence: dict[str, Any], index: int, tensors: Tensors, posterior: Posterior) -> WeightBox:
    """[w - j v⁻, w + j v⁺] in float64: the box that is proved safe is exactly the one whose mass counts."""
    entry, growth, spread = evidence["boxes"][index], evidence["growth"], posterior.spread
    drawn = entry["draw"] is not None
    center = numbers(tensors, f"center{index}", spread.shape) if drawn else posterior.center
    sides: list[Array] = [np.ones_like(spread)] * 2
    if f"signs{index}" in tensors:
        signs = _whole(tensors, f"signs{index}", spread.shape)
        grown = (signs == 0, signs == 0) if growth["zero_gradient_only"] else (signs <= 0, signs >= 0)
        sides = [1 + _number(growth["rho"]) * side.astype(np.float64) for side in grown]
    step, steps = _number(growth["step"]), _number(entry["steps"])
    widths = [steps * (step * spread * side) for side in sides]
    return WeightBox(center - widths[0], center + widths[1])


def _whole(tensors: Tensors, name: str, shape: tuple[int, ...]) -> Array:
    """An array of small whole numbers."""
    return numbers({name: tensors[name].astype(np.float64)}, name, shape)


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise CannotCheck("malformed", f"{value!r} is not a number")
    return float(value)


def _union(union: dict[str, Any], boxes: list[WeightBox], posterior: Posterior) -> arb:
    match union["rule"]:
        case "cells" if "cells" not in union:
            return cells_mass(posterior, boxes, {})
        case "cells":
            size = len(posterior.center)
            cells = [cut(boxes[_index(cell["parent"], len(boxes))], _cuts(cell, size)) for cell in union["cells"]]
            separators = {(a, b): _index(d, size) for a, b, d in union["separators"]}
            return cells_mass(posterior, cells, separators)
        case "inclusion-exclusion" if len(boxes) <= MOST_BOXES:
            return alternating_mass(posterior, boxes, len(boxes))
        case "bonferroni":
            return alternating_mass(posterior, boxes, 2)
    raise CannotCheck("unsupported", f"union rule {union['rule']!r} of {len(boxes)} boxes is not known")


def _cuts(cell: dict[str, Any], size: int) -> list[tuple[int, float, float]]:
    return [(_index(d, size), float.fromhex(low), float.fromhex(high)) for d, low, high in cell["cuts"]]


def _index(value: Any, count: int) -> int:
    if type(value) is not int or not 0 <= value < count:
        raise CannotCheck("malformed", f"{value!r} is not an index below {count}")
    return value


def _networks(evidence: dict[str, Any], tensors: Tensors, question: Question, model: Model) -> Bounds:
    """The shares of an empirical posterior's networks that are verified on the region, and not refuted in it."""
    if model.components[0].family != "empirical":
        raise CannotCheck("unsupported", "a list of networks needs an empirical posterior")
    samples, rows, offsets = model.components[0].fields["samples"], question.rows, question.offsets
    verified = [_index(s, len(samples)) for s in evidence["verified"]]
    refuted = [_index(s, len(samples)) for s, _, _ in evidence["refuted"]]
    if len({*verified, *refuted}) != len(verified) + len(refuted):
        raise Rejected("network-counted-twice", "a network is listed more than once")
    for s in verified:
        bounds = row_bounds(model, WeightBox(samples[s], samples[s]), question.region, rows, offsets)
        if not (bounds > 0).all():
            raise Rejected("row-not-positive", f"network {s} is not proved safe: bound {float(bounds.min())!r}")
    for s, p, r in evidence["refuted"]:
        point = _point(tensors["points"][_index(p, len(tensors["points"]))], question, model)
        row = slice(_index(r, len(rows)), r + 1)
        bound = row_bounds(model, WeightBox(samples[s], samples[s]), point, -rows[row], -offsets[row])
        if not (bound >= 0).all():
            raise Rejected("network-not-refuted", f"row {r} of network {s} is not proved to fail at point {p}")
    return lower_float(arb(len(verified)) / len(samples)), upper_float(1 - arb(len(refuted)) / len(samples))


def _concentration(components: list[dict[str, Any]], tensors: Tensors, question: Question, model: Model) -> Bounds:
    """Weighted sums over the posterior's components of 1 - failure, and of 1 - (1 - failure of a row's failure)."""
    lower, upper, total = arb(0), arb(0), sum(map(arb, model.weights), arb(0))
    for i, (weight, posterior, entry) in enumerate(zip(model.weights, model.components, components, strict=True)):
        if posterior.family not in ("normal", "low-rank-normal"):
            raise CannotCheck("unsupported", f"concentration needs a Gaussian posterior, not {posterior.family}")
        failing = _failure(entry["lower"], f"c{i}.", tensors, question, model, posterior)
        lower += arb(weight) * arb(max(lower_float(1 - failing), 0.0))
        upper += arb(weight) * (_upper(entry["upper"], i, tensors, question, model, posterior) if entry["upper"] else 1)
    return lower_float(lower / total), min(upper_float(upper / total), 1.0)


def _failure(
    entry: dict[str, Any], prefix: str, tensors: Tensors, question: Question, model: Model, posterior: Posterior
) -> arb:
    """Of the rows on the region: by one proof, or on its two parts beyond and before a cut, which share the cut."""
    region = question.region
    if "at" not in entry:
        proof = _proof(entry, prefix, tensors, len(question.rows), model)
        return failure(model, posterior, region, question.rows, question.offsets, proof)
    at, dimension = float.fromhex(entry["at"]), _index(entry["dimension"], len(region.x))
    if not region.lower[dimension] <= at <= region.upper[dimension]:
        raise Rejected("region-empty", f"the cut of {prefix!r} leaves one of its parts empty")
    below, above = region.upper.copy(), region.lower.copy()
    below[dimension], above[dimension] = at, at
    parts = {"below": replace(region, upper=below), "above": replace(region, lower=above)}
    return sum(
        (
            _failure(entry[side], f"{prefix}{number}", tensors, replace(question, region=part), model, posterior)
            for number, (side, part) in enumerate(parts.items())
        ),
        arb(0),
    )


def _upper(
    entry: dict[str, Any], index: int, tensors: Tensors, question: Question, model: Model, posterior: Posterior
) -> arb:
    """P_safe <= P(not (row r <= 0 at the point)), for a point of the region."""
    point = _point(tensors[f"c{index}.point"], question, model)
    row = _index(entry["row"], len(question.rows))
    proof = _proof(entry["failure"], f"c{index}.upper.", tensors, 1, model)
    rows, offsets = -question.rows[row : row + 1], -question.offsets[row : row + 1]
    return arb(min(upper_float(failure(model, posterior, point, rows, offsets, proof)), 1.0))


def _point(tensor: Array, question: Question, model: Model) -> Region:
    """One point of the question's region."""
    point = numbers({"point": tensor}, "point", model.input_shape).reshape(-1)
    if not question.region.contains(point, question.clip):
        raise Rejected("point-outside-region", "a point that should break a network is not in the input region")
    return point_region(point)


def _proof(entry: dict[str, Any], prefix: str, tensors: Tensors, rows: int, model: Model) -> Proof:
    """Threshold and slopes, whatever they are as long as the theorem speaks of them."""
    t = float.fromhex(entry["t"])
    if not 0 < t < math.inf:
        raise Rejected("threshold-not-positive", f"the threshold of {prefix!r} is {t}")
    proof = Proof(t, {}, {}, {}, {})
    width = math.prod(model.input_shape)
    for layer in model.layers:
        if not isinstance(layer, Activation):
            width = layer.outputs
            if isinstance(layer, Conv) and (name := f"{prefix}refined{layer.position}") in tensors:
                proof.refined[layer.position] = _whole(tensors, name, (width,)) != 0
            continue
        for name, target in (("lower_slopes", proof.lower), ("upper_slopes", proof.upper)):
            target[layer.position] = _slopes(tensors, f"{prefix}{name}{layer.position}", (width,))
        own = f"{prefix}row_slopes{layer.position}"
        if own in tensors:
            proof.rows[layer.position] = _slopes(tensors, own, (rows, width))
    return _with_trees(proof, entry, prefix, tensors, rows, model) if "trees" in entry else proof


def _with_trees(proof: Proof, entry: dict[str, Any], prefix: str, tensors: Tensors, rows: int, model: Model) -> Proof:
    """The proof with its leaves, which must cover the region."""
    name, total = f"{prefix}open", sum(open_widths(model).values())
    numbered = _whole(tensors, name, tensors[name].shape[:1]).astype(np.int64)
    if not ((numbered >= 0) & (numbered < total)).all() or len(np.unique(numbered)) != len(numbered):
        raise CannotCheck("malformed", f"tensor {name!r} does not number neurons, each once")
    trees = {}
    for tree in entry["trees"]:
        own = f"{prefix}tree{_index(tree['row'], rows)}."
        trees[tree["row"]] = _with_common(_tree(own, tensors, len(numbered)), tree["scale"], own, tensors, model)
    return replace(proof, open=numbered, trees=trees)


def _tree(prefix: str, tensors: Tensors, count: int) -> Tree:
    leaves, depth = tensors[f"{prefix}paths"].shape
    paths = _whole(tensors, f"{prefix}paths", (leaves, depth)).astype(np.int64)
    multipliers = numbers(tensors, f"{prefix}multipliers", (leaves, depth))
    if not (np.abs(paths) <= count).all():
        raise CannotCheck("malformed", f"tensor '{prefix}paths' splits neurons that are not listed")
    if not (multipliers >= 0).all():
        raise Rejected("multiplier-negative", f"tensor '{prefix}multipliers' holds a number below 0")
    if not covers(paths):
        raise Rejected("leaves-do-not-cover", f"the leaves of {prefix!r} are not all the ends of a binary tree")
    return Tree(paths, multipliers, _slopes(tensors, f"{prefix}slopes", (leaves, count)))


def _slopes(tensors: Tensors, name: str, shape: tuple[int, ...]) -> Array:
    slopes = numbers(tensors, name, shape)
    if not ((slopes >= 0) & (slopes <= 1)).all():
        raise Rejected("slope-out-of-range", f"tensor {name!r} holds a slope outside [0, 1]")
    return slopes


def _with_common(tree: Tree, scale: str | None, prefix: str, tensors: Tensors, model: Model) -> Tree:
    """The tree with what the common-noise bound needs, whatever it is as long as λ is positive."""
    if scale is None:
        return tree
    value = float.fromhex(scale)
    if not 0 < value < math.inf:
        raise Rejected("threshold-not-positive", f"the scale of {prefix!r} is {value}")
    rows, centers = dict[int, Array](), dict[int, Array]()
    for layer in model.layers:
        if isinstance(layer, Dense):
            for found, word, size in ((rows, "rows", layer.outputs), (centers, "centers", layer.inputs)):
                if (name := f"{prefix}{word}{layer.position}") in tensors:
                    found[layer.position] = numbers(tensors, name, (size,))
    return replace(tree, scale=value, rows=rows, centers=centers)
