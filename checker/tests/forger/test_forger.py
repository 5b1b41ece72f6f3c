"""The checker against the forger: whatever it supports is true, and whatever is broken gets a
documented verdict."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest

from bnncert_check import ACCEPT, ERROR, REJECT, CannotCheck, Verdict, check_certificate, read_model
from bnncert_check.model import Model
from bnncert_check.verdict import ERRORS, REJECTIONS
from forger.breaks import break_something
from forger.forgery import Forgery, write
from forger.graphs import hostile, is_network, random_net
from forger.laws import random_posterior
from forger.line_laws import has_form, hidden_layer
from forger.nets import Net, Random
from forger.questions import forge
from forger.replies import has_relus

KNOWN = {ACCEPT: {None: ""}, REJECT: REJECTIONS, ERROR: ERRORS}
SHOULD = 1e-6  # beyond the truth and its error: a false support


class Adversary:
    """Forges, checks and compares; counts what came of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.counts: Counter[str] = Counter()

    def attempt(self, seed: int) -> None:
        r = np.random.default_rng(seed)
        net = random_net(r)
        if r.random() < 0.15:
            net = hostile(r, net)
            if not is_network(net):
                self._refused(r, net, seed)
                return
            self.counts["hostile graphs that are networks"] += 1
        self._conclude(r, forge(r, net), seed)

    def attempt_laws(self, seed: int, fits: Callable[[Net], bool] = has_form) -> None:
        """The same with laws alone, of networks that end in a hidden layer and are fit for it."""
        r = np.random.default_rng(seed)
        net = next(net for net in iter(lambda: hidden_layer(r), None) if fits(net))
        self._conclude(r, forge(r, net, laws=True), seed)

    def _conclude(self, r: Random, made: Forgery, seed: int) -> None:
        broken = break_something(r, made) if r.random() < 0.35 else None
        model = self._model(made)
        if model is None:
            self.counts["posterior refused"] += 1
            return
        verdict = self._check(made, model, seed)
        if verdict is None:
            return
        self.counts[
            f"{made.header['kind']} {verdict.status}"
            if broken is None
            else f"broken {verdict.status}"
        ] += 1
        if made.net.is_graph:
            self.counts[f"graphs {verdict.status}"] += 1
        if verdict.supported is not None:
            self._compare(made, verdict, seed, model)

    def _refused(self, r: Random, net: Net, seed: int) -> None:
        """A description that is no network must be refused, whatever its posterior."""
        content = random_posterior(r, net).content(net)
        with pytest.raises(CannotCheck) as caught:
            read_model(write(self.folder / "p.safetensors", content))
        assert caught.value.code in ERRORS, (seed, caught.value)
        self.counts["hostile graphs refused"] += 1

    def _model(self, made: Forgery) -> Model | None:
        """None where it is a mixture of what mixtures are not for, which must be refused."""
        path, families = (
            write(self.folder / "p.safetensors", made.posterior.content(made.net)),
            made.posterior.families,
        )
        if not made.posterior.mixture or families <= {"normal", "low-rank-normal"}:
            return read_model(path)
        with pytest.raises(CannotCheck, match="mixtures are of Gaussians"):
            read_model(path)
        return None

    def _check(self, made: Forgery, model: Model, seed: int) -> Verdict | None:
        try:
            content = made.seal()
        except (
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
        ):  # broken so that not even digests can be made
            self.counts["not a file"] += 1
            return None
        verdict = check_certificate(write(self.folder / "c.safetensors", content), model)
        assert verdict.code in KNOWN[verdict.status], (seed, verdict)
        assert verdict.code != "digest-mismatch" or _dtypes_changed(made), (seed, verdict)
        return verdict

    def _compare(self, made: Forgery, verdict: Verdict, seed: int, model: Model) -> None:
        assert verdict.supported is not None
        lower, upper = verdict.supported
        if made.net.is_graph:
            self.counts["graphs: bounds that say something"] += _says(verdict)
        if verdict.quantity == "P_safe":
            self.counts["lower bounds that say something"] += lower > 0
            self.counts["upper bounds that say something"] += upper < 1
            for what, name in (
                ("lines", "law.slopes"),
                ("anchors", "law.anchors"),
                ("trunks", "law.lower"),
            ):
                if any(key.endswith(name) for key in made.tensors):
                    self.counts[f"{what}: bounds that say something"] += lower > 0 or upper < 1
            if any(key.endswith("law.center") for key in made.tensors):
                self.counts["replies: upper bounds that say something"] += upper < 1
            if lower <= 0 and upper >= 1:
                return
            truth, error = made.p_safe()
            assert lower <= truth + error + SHOULD, (seed, lower, truth, error)
            assert upper >= truth - error - SHOULD, (seed, upper, truth, error)
            return
        means, gaps, error = made.predictive()
        self.counts[f"{verdict.quantity}: bounds that say something"] += lower > 0 or upper < 1
        assert lower <= means.min() + error + SHOULD, (seed, lower, means.min(), error)
        assert upper >= means.max() - error - SHOULD, (seed, upper, means.max(), error)
        if verdict.quantity == "softmax":
            self._gap(made, float(gaps.min()) + error + SHOULD, seed, model)

    def _gap(self, made: Forgery, false: float, seed: int, model: Model) -> None:
        """A lead beyond the truth must be refused."""
        if false < 1:
            claimed = deepcopy(made)
            claimed.header["claim"]["gap"] = float(false).hex()
            verdict = self._check(claimed, model, seed)
            assert verdict is not None
            assert verdict.code == "gap-too-high", (seed, false, verdict)
            self.counts["false gaps refused"] += 1

    def report(self) -> None:
        """Shown with -s."""
        print("\n" + json.dumps(dict(sorted(self.counts.items())), indent=1))


def _says(verdict: Verdict) -> bool:
    """Whether a bound says something."""
    assert verdict.supported is not None
    return verdict.supported[0] > 0 or verdict.supported[1] < 1


def _dtypes_changed(made: Forgery) -> bool:
    """Digests are of float64, so those of a question in another type are of other numbers."""
    return any(made.tensors[name].dtype != np.float64 for name in ("x", "rows", "offsets"))


@pytest.mark.parametrize("block", range(2))
def test_nothing_false_is_supported(block: int, tmp_path: Path) -> None:
    adversary = Adversary(tmp_path)
    for seed in range(10_000 * block, 10_000 * block + 800):
        adversary.attempt(seed)
    adversary.report()
    assert adversary.counts["lower bounds that say something"] >= 30
    assert adversary.counts["upper bounds that say something"] >= 15
    assert adversary.counts["graphs: bounds that say something"] >= 15
    assert adversary.counts["hostile graphs refused"] >= 15


def by_laws(folder: Path, seeds: range, fits: Callable[[Net], bool] = has_form) -> Counter[str]:
    adversary = Adversary(folder)
    for seed in seeds:
        adversary.attempt_laws(seed, fits)
    adversary.report()
    return adversary.counts


def test_nothing_false_is_supported_by_lines(tmp_path: Path) -> None:
    counts = by_laws(tmp_path, range(10**5, 10**5 + 240))
    assert counts["lines: bounds that say something"] >= 30
    assert counts["trunks: bounds that say something"] >= 6


def test_nothing_false_is_supported_by_anchors(tmp_path: Path) -> None:
    """One input, which moves."""
    seeds = range(2 * 10**5, 2 * 10**5 + 240)
    counts = by_laws(tmp_path, seeds, lambda net: net.input_shape == (1,))
    assert counts["anchors: bounds that say something"] >= 8


def test_nothing_false_is_supported_by_replies(tmp_path: Path) -> None:
    """ReLUs that read the input."""
    counts = by_laws(tmp_path, range(3 * 10**5, 3 * 10**5 + 300), has_relus)
    assert counts["replies: upper bounds that say something"] >= 5


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_nothing_false_is_supported_at_length(block: int, tmp_path: Path) -> None:
    """10⁵ forgeries in all."""
    adversary = Adversary(tmp_path)
    for seed in range(10**6 + 10_000 * block, 10**6 + 10_000 * (block + 1)):
        adversary.attempt(seed)
        if seed % 10 == 0:
            adversary.attempt_laws(seed, has_relus if seed % 20 else has_form)
    adversary.report()
