"""The checker as a program: every verdict it knows, hostile files, posteriors, result folders, the command line."""

from __future__ import annotations

import io
import json
import math
import os
import pickle
import resource
import runpy
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from unittest.mock import patch

import numpy as np
import pytest
import torch
from flint import ctx
from numpy.typing import NDArray
from safetensors.numpy import load, save
from torch import Tensor

from bnncert import Box, Problem, certify, load_posterior, save_posterior
from bnncert.correlated import LowRankNormal, Mixture
from bnncert.layers import Activation, Dense, Flatten, LeakyReLU, ReLU, Sigmoid, Tanh
from bnncert.methods import GIE, PIE, Concentration, Method
from bnncert.network import Network, mlp
from bnncert.posterior import Laplace, Normal, Posterior, StudentT, TruncatedNormal, Uniform
from bnncert.results import result_folder
from bnncert.specification import Region, Specification, ball, class_robust, explicit_box, half_space, output_interval
from bnncert_check import ACCEPT, ERROR, REJECT, CannotCheck, Verdict, arithmetic, check_certificate, files, read_model
from bnncert_check.__main__ import _with_progress, main, run
from bnncert_check.activations import _curve_intercept
from bnncert_check.arithmetic import BITS
from bnncert_check.files import strict_json
from bnncert_check.folder import check_results, read_results
from bnncert_check.mass import DOWN, UP, WeightBox, mass
from bnncert_check.model import FIELDS
from bnncert_check.model import Posterior as Weights
from bnncert_check.verdict import ERRORS, EXIT_CODES, REJECTIONS
from scenarios import gaussian, vector

Header: TypeAlias = dict[str, Any]
Tensors: TypeAlias = dict[str, NDArray[Any]]
Outcome = TypeVar("Outcome")

SOURCE = Path(__file__).parents[1] / "src"
SECONDS, KIBIBYTES = 2.0, 512 * 2**10  # that a refusal may take


def parse(path: Path) -> tuple[Header, Tensors]:
    content = path.read_bytes()
    index = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return json.loads(index["__metadata__"]["bnncert"]), load(content)


class Workshop:
    """A folder with a posterior p, and three certificates for it: of cells, of one box, and of concentration."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        network = Network((1,), (Dense(1, 1, bias=False), ReLU(), Dense(1, 1, bias=False)))
        posterior = Normal(vector(1.0, 1.0), vector(0.1, 0.1))
        self.posterior = folder / "p.safetensors"
        save_posterior(self.posterior, network, posterior)
        self.model = read_model(self.posterior)
        interval = output_interval(ball(vector(1.0).reshape(1, 1), 0.1), 0.3, 3.0)
        above = half_space(ball(vector(1.0).reshape(1, 1), 0.1), vector(1.0), 1.3)
        methods = {
            "cells": (interval, PIE(samples=3)),
            "box": (interval, PIE(samples=1)),
            "lower": (interval, Concentration()),
            "upper": (above, Concentration(upper=True)),
        }
        for name, (spec, method) in methods.items():
            found = certify(Problem(network, posterior, spec), method)[0].certificate
            assert found is not None
            found.write(folder / f"{name}.safetensors")

    def read(self, name: str) -> tuple[Header, Tensors]:
        return parse(self.folder / f"{name}.safetensors")

    def check(self, content: bytes) -> Verdict:
        path = self.folder / "changed.safetensors"
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        return check_certificate(path, self.model)

    def edited(self, name: str, place: str, value: Any) -> Verdict:
        """What the checker says of the certificate after an edit of its header or tensors."""
        header, tensors = self.read(name)
        edit(header, tensors, place, value)
        return self.check(save(tensors, {"bnncert": json.dumps(header)}))


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("workshop"))


@pytest.mark.parametrize("name", ["cells", "box", "lower", "upper"])
def test_certificates_are_accepted_with_all_that_is_known(name: str, workshop: Workshop) -> None:
    verdict = check_certificate(workshop.folder / f"{name}.safetensors", workshop.model)
    assert (verdict.status, verdict.code, verdict.message) == (ACCEPT, None, "")
    assert verdict.claimed is not None
    assert verdict.supported is not None
    assert verdict.supported[0] >= verdict.claimed[0]
    assert verdict.supported[1] <= verdict.claimed[1]
    assert verdict.eps == 0.1
    assert verdict.label is None
    assert verdict.question.endswith("positive on linf ball of radius 0.1")
    assert 0 < verdict.seconds < SECONDS


# --- Every verdict ---

# Edits by the code they lead to: the certificate, where in its header or tensors, and the new value; "" is acceptance.
STEPS, CUTS, PARENT, APART = (
    f"evidence/{place}" for place in ("boxes/0/steps", "union/cells/0/cuts", "union/cells/0/parent", "union/separators")
)
T, UPPER, ROW = (f"evidence/components/0/{place}" for place in ("lower/t", "upper", "upper/row"))
X, ROWS = "tensors/x", "tensors/rows"
EDITS: dict[str, list[tuple[str, str, Any]]] = {
    "": [
        ("box", X, np.ones(1, np.float32)), ("lower", "method", None), ("lower", "versions", []),
        ("lower", "extra", "thing"), ("box", "evidence", (3, "inclusion-exclusion")),
    ],
    "digest-mismatch": [
        ("box", ROWS, np.ones((2, 1))), ("box", "tensors/offsets", np.ones(2)), ("box", X, np.zeros(1)),
        ("box", "region/eps", "0x1p-9"), ("box", "region/norm", "l2"), ("box", "region/clip", [0, 2]),
        *(("box", f"digests/{part}", "0" * 64) for part in ("architecture", "posterior", "specification", "problem")),
    ],
    "claim-not-a-probability": [
        ("box", "claim/lower", value) for value in ("-0x1p-1", "0x1.8p0", "nan", "inf", "-0x1p-1074")
    ],
    "region-empty": [("box", "region/clip", value) for value in ([5, 6], ["nan", 1], [1, 0])],
    "box-empty": [("box", STEPS, -1), ("cells", CUTS, [[0, "0x1p0", "0x1.fp-1"]])],
    "row-not-positive": [("box", STEPS, 1000), ("box", "evidence/growth/step", 10)],
    "cell-outside-parent": [("cells", CUTS, [[0, *ends]]) for ends in (("-0x1p9", "0x1p9"), ("nan", "nan"))],
    "cells-overlap": [("cells", APART, []), ("cells", "evidence/union", {"rule": "cells"})],
    "threshold-not-positive": [("lower", T, value) for value in ("0x0p0", "-0x1p0", "inf", "nan")],
    "slope-out-of-range": [("lower", "tensors/c0.lower_slopes1", np.array([value])) for value in (1.5, -5e-324)],
    "point-outside-region": [("upper", "tensors/c0.point", np.array([value])) for value in (1.11, 0.89)],
    "probability-too-high": [
        ("lower", "claim/lower", "0x1p0"), ("lower", T, "0x1p-1000"),
        ("box", "evidence/boxes", []), ("box", "evidence", (3, "bonferroni")),
    ],
    "upper-too-low": [("box", "claim/upper", "0x1.fffffffffffffp-1"), ("upper", UPPER, None)],
    "malformed": [
        ("box", "claim/lower", 0.5), ("box", "claim/lower", "0x1p99999"), ("box", "claim", 7), ("box", "digests", []),
        ("box", "region", None), ("box", "region/norm", "box"), ("box", "region/eps", "-0x1p-9"),
        ("box", "region/eps", "inf"), ("box", "region/eps", None), ("box", "region/clip", [0, "inf"]),
        ("box", ROWS, np.zeros((0, 1))), ("box", ROWS, np.zeros((2, 2))), ("box", ROWS, np.array(1.0)),
        ("box", X, np.array([np.nan])), ("box", X, np.ones(1, np.int8)), ("box", X, np.ones((1, 1))),
        ("box", STEPS, "1"), ("box", STEPS, True), ("box", STEPS, 10**400), ("box", "evidence/boxes/0/draw", 7),
        ("box", "evidence/boxes", {"a": 1}), ("cells", PARENT, 9), ("cells", PARENT, -1),
        ("cells", CUTS, [[2, "0x1p0", "0x1p0"]]), ("cells", APART, [[1, 0]]), ("lower", "evidence/components", []),
        ("lower", "tensors/c0.upper_slopes1", np.ones(2)), ("lower", "kind", "boxes"), ("upper", ROW, 1),
        ("upper", ROW, 0.0), ("box", "evidence", []),
    ],
    "unsupported": [
        ("box", "schema", "bnncert-certificate/2"), ("box", "kind", "magic"), ("box", "region/norm", "l3"),
        ("box", "evidence/union/rule", "magic"), ("box", "evidence", (17, "inclusion-exclusion")),
    ],
    "not-finite": [("box", STEPS, 1e308)],
}  # fmt: skip
FOLDERS, ELSEWHERE = {"certificate-missing", "result-mismatch"}, {"unreadable", "arithmetic"}  # tested below
NETWORKS = {"network-counted-twice", "network-not-refuted"}  # tested in test_check_networks.py
DECISIONS = {"gap-too-high"}  # tested in test_check_decision.py
LEAVES = {"multiplier-negative", "leaves-do-not-cover"}  # tested in test_check_refine.py


def edit(header: Header, tensors: Tensors, place: str, value: Any) -> None:
    """Change one thing; a number of boxes and a rule stand for evidence of so many equal boxes."""
    *path, last = [int(part) if part.isdigit() else part for part in place.split("/")]
    inner: Any = {**header, "tensors": tensors} if path else header
    for part in path:
        inner = inner[part]
    if isinstance(value, tuple):
        value = inner[last] | {"boxes": inner[last]["boxes"] * value[0], "union": {"rule": value[1]}}
    inner[last] = value


@pytest.mark.parametrize("code", EDITS)
def test_edits_lead_to_every_verdict(code: str, workshop: Workshop) -> None:
    for name, place, value in EDITS[code]:
        verdict = workshop.edited(name, place, value)
        status = ACCEPT if not code else REJECT if code in REJECTIONS else ERROR
        assert (verdict.status, verdict.code or "") == (status, code), (name, place, value)
        assert bool(verdict.message) == bool(code)
        assert "\n" not in verdict.message


def test_no_verdict_is_left_out() -> None:
    known = {*EDITS, *FOLDERS, *ELSEWHERE, *NETWORKS, *DECISIONS, *LEAVES}
    assert known == {"", *REJECTIONS, *ERRORS}
    assert not {*REJECTIONS} & {*ERRORS}


def test_arithmetic_that_is_not_ieee_is_refused(workshop: Workshop) -> None:
    with patch.object(arithmetic.np, "full", lambda *_: np.zeros(2)):  # as if subnormals were flushed
        verdict = workshop.edited("box", "seed", 0)
    assert (verdict.status, verdict.code) == (ERROR, "arithmetic")


def test_flushed_subnormals_are_noticed(workshop: Workshop) -> None:
    """As torch flushes them, for the whole thread, they also compare equal to zero."""
    assert torch.set_flush_denormal(True)
    try:
        verdict = workshop.edited("box", "seed", 0)
    finally:
        torch.set_flush_denormal(False)
    assert verdict.code == "arithmetic"


# --- Hostile files ---


def raw(text: str, data: bytes = b"") -> bytes:
    """A safetensors file with this index."""
    return len(text.encode()).to_bytes(8, "little") + text.encode() + data


def header_of(text: str) -> bytes:
    return raw(json.dumps({"__metadata__": {"bnncert": text}}))


def tensor(shape: object, start: object, stop: object, dtype: object = "F64") -> bytes:
    """A file of 64 bytes with one tensor."""
    metadata = {"bnncert": json.dumps({"schema": "bnncert-certificate/1"})}
    entry = {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}
    return raw(json.dumps({"__metadata__": metadata, "x": entry}), b"\0" * 64)


HOSTILE: dict[str, bytes] = {
    "empty": b"",
    "seven bytes": b"\0" * 7,
    "no index": b"\0" * 8,
    "huge index": (2**63).to_bytes(8, "little") + b"{}",
    "index beyond the file": (10**6).to_bytes(8, "little") + b"{}",
    "not JSON": raw("not JSON at all"),
    "not text": (4).to_bytes(8, "little") + b"\xff\xfe\xfd\xfc",
    "a list": raw("[]"),
    "no metadata": raw("{}"),
    "metadata of others": raw('{"__metadata__": {"format": "pt"}}'),
    "metadata a number": raw('{"__metadata__": 7}'),
    "header not JSON": header_of("{"),
    "header a number": raw('{"__metadata__": {"bnncert": 7}}'),
    "deep index": raw("[" * 10**5 + "]" * 10**5),
    "deep header": header_of("[" * 10**5),
    "nan": header_of('{"eps": NaN}'),
    "infinity": header_of('{"eps": -Infinity}'),
    "number of many digits": header_of('{"eps": ' + "9" * 5000 + "}"),
    "tensor a number": raw(json.dumps({"__metadata__": {"bnncert": "{}"}, "x": 7})),
    "tensor without offsets": raw(json.dumps({"__metadata__": {"bnncert": "{}"}, "x": {"dtype": "F64", "shape": [1]}})),
    "tensor beyond the file": tensor([100], 0, 800),
    "tensor before the file": tensor([1], -8, 0),
    "tensor backwards": tensor([1], 16, 8),
    "tensor of negative shape": tensor([-1, -1], 0, 8),
    "tensor of huge shape": tensor([2**40, 2**40], 0, 64),
    "tensor empty and huge": tensor([0, 2**70], 0, 0),
    "tensor of fractions": tensor([1.0], 0, 8),
    "tensor of truths": tensor([True], 0, 8),
    "tensor of text": tensor("12", 0, 8),
    "tensor of another length": tensor([2], 0, 8),
    "tensor of objects": tensor([1], 0, 8, "O"),
    "tensor of no type": tensor([1], 0, 8, None),
}


def cheaply(action: Callable[[], Outcome]) -> Outcome:
    """What the action returns, which took little time and memory."""
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = action()
    assert time.perf_counter() - started < SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < KIBIBYTES
    return outcome


def refusal(posterior: Path) -> str | None:
    """The code with which a posterior file is refused."""
    try:
        read_model(posterior)
    except CannotCheck as reason:
        return reason.code
    return None


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_certificates_are_refused_cheaply(name: str, workshop: Workshop) -> None:
    verdict = cheaply(lambda: workshop.check(HOSTILE[name]))
    assert (verdict.status, verdict.code) == (ERROR, "unreadable")


def test_the_length_of_the_index_is_limited(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGEST_HEADER", 99)
    assert workshop.edited("box", "seed", 0).code == "unreadable"


def test_a_truncated_certificate_is_never_accepted(workshop: Workshop) -> None:
    content = (workshop.folder / "box.safetensors").read_bytes()
    for length in range(0, len(content), 7):
        assert workshop.check(content[:length]).status == ERROR


def test_tensors_may_share_their_bytes(workshop: Workshop) -> None:
    """They are read one by one, so nothing rests on where they lie."""
    header, tensors = workshop.read("lower")
    shared = {name: value for name, value in tensors.items() if name != "c0.upper_slopes1"}
    assert np.array_equal(tensors["c0.lower_slopes1"], tensors["c0.upper_slopes1"])
    content = save(shared, {"bnncert": json.dumps(header)})
    size = int.from_bytes(content[:8], "little")
    index = json.loads(content[8 : 8 + size])
    index["c0.upper_slopes1"] = index["c0.lower_slopes1"]
    assert workshop.check(raw(json.dumps(index)) + content[8 + size :]).status == ACCEPT


class Bomb:
    """Unpickling it would leave a file behind."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("exploded",)


def archive(members: dict[str, bytes], size: int | None = None, method: int = zipfile.ZIP_STORED) -> bytes:
    """An .npz of these members; size: what it says that each of them unpacks to."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        for name, content in members.items():
            file.writestr(name, content)
        for entry in file.infolist():
            entry.file_size = entry.file_size if size is None else size
    return buffer.getvalue()


def npy(header: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + b"\0" * 64


def array(shape: str, descr: str = "'<f8'") -> bytes:
    return npy("{'descr': " + descr + ", 'fortran_order': False, 'shape': " + shape + "}\n")


def objects() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array([Bomb()]), allow_pickle=True)
    return buffer.getvalue()


def corrupt(content: bytes) -> bytes:
    changed = bytearray(content)
    for i in range(60, 120):
        changed[i] ^= 255
    return bytes(changed)


NOISE = np.random.default_rng(0).bytes(999)
ARCHIVES: dict[str, tuple[bytes, str]] = {
    "pickle": (pickle.dumps(Bomb()), "unreadable"),
    "empty": (b"", "unreadable"),
    "text": (b"not an archive", "unreadable"),
    "pickle in an archive": (archive({"W0_mean.npy": pickle.dumps(Bomb())}), "malformed"),
    "objects": (archive({"W0_mean.npy": objects()}), "unreadable"),
    "bomb": (archive({"W0_mean.npy": b"\0" * 2**20}, 2**34 + 1, zipfile.ZIP_DEFLATED), "unreadable"),
    "many bombs": (archive({f"W{i}_mean.npy": b"" for i in range(9)}, 2**31), "unreadable"),
    "nothing": (archive({}), "malformed"),
    "other arrays": (archive({"weights.npy": array("(2, 1)")}), "malformed"),
    "huge shape": (archive({"W0_mean.npy": array("(20000000000, 1000)")}), "unreadable"),
    "huger shape": (archive({"W0_mean.npy": array("(" + "9" * 30 + ",)")}), "unreadable"),
    "negative shape": (archive({"W0_mean.npy": array("(-2, 1)")}), "unreadable"),
    "truncated": (archive({"W0_mean.npy": array("(2000, 1)")}), "unreadable"),
    "whole numbers": (archive({"W0_mean.npy": array("(2, 1)", "'<i8'")}), "malformed"),
    "text inside": (archive({"W0_mean.npy": array("(2, 1)", "'<U4'")}), "malformed"),
    "three dimensions": (archive({"W0_mean.npy": array("(2, 1, 1)")}), "malformed"),
    "corrupt deflate": (corrupt(archive({"W0_mean.npy": NOISE}, method=zipfile.ZIP_DEFLATED)), "unreadable"),
    "corrupt bzip2": (corrupt(archive({"W0_mean.npy": NOISE}, method=zipfile.ZIP_BZIP2)), "unreadable"),
}
BROKEN = {
    "corrupt lzma": corrupt(archive({"W0_mean.npy": bytes(range(256)) * 9}, method=zipfile.ZIP_LZMA)),
    "header without end": archive({"W0_mean.npy": npy("{'descr': '<f8', 'shape': (2,\n")}),
}


def refused(content: bytes, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """The code with which an archive is refused; nothing in it is executed."""
    monkeypatch.chdir(folder)
    (folder / "p.npz").write_bytes(content)
    code = cheaply(lambda: refusal(folder / "p.npz"))
    assert [path.name for path in folder.iterdir()] == ["p.npz"]
    return code


@pytest.mark.parametrize("name", ARCHIVES)
def test_hostile_archives_are_refused_cheaply(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content, code = ARCHIVES[name]
    assert refused(content, tmp_path, monkeypatch) == code


@pytest.mark.parametrize("name", BROKEN)
def test_broken_archives_are_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refused(BROKEN[name], tmp_path, monkeypatch) == "unreadable"


def test_a_bomb_does_go_off_when_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickle.dumps(Bomb()))
    assert (tmp_path / "exploded").is_dir()


# --- Posterior files ---


def question(network: Network, center: Tensor, region: Region | None = None, wrong: bool = False) -> Specification:
    """The class that the central network prefers at an input, or the other one, in a small region around it."""
    x = vector(0.3, 0.6).reshape(1, *network.input_shape)
    label = network.forward(center, x).argmax(-1)
    return class_robust(region or ball(x, 0.01), 1 - label if wrong else label, 2)


def families(size: int) -> dict[str, tuple[Posterior, Method]]:
    """Every family with a method that can certify it; some weights are deterministic where that is possible."""
    generator = torch.Generator().manual_seed(0)
    mean, some = gaussian(size, generator=generator), torch.full((size,), 0.02, dtype=torch.float64)
    some[::4] = 0
    none, boxes = torch.zeros_like(mean), PIE(samples=3, step=1.0)
    factor = 0.02 * gaussian(size, 2, generator=generator)
    return {
        "normal": (Normal(mean, some), boxes),
        "no noise": (Normal(mean, none), boxes),
        "laplace": (Laplace(mean, some), boxes),
        "student-t": (StudentT(mean, some, none + 3), boxes),
        "uniform": (Uniform(mean - some, mean + some), boxes),
        "truncated-normal": (TruncatedNormal(mean, some + 0.01, mean - 0.02, mean + 0.05), boxes),
        "low-rank-normal": (LowRankNormal(mean, some, factor), Concentration()),
        "shared noise only": (LowRankNormal(mean, none, factor), Concentration()),
        "no noise at all": (Normal(mean, none), Concentration()),
        "mixture": (Mixture((0.25, 0.75), (Normal(mean, some), LowRankNormal(mean, some, factor))), Concentration()),
    }


def certified(network: Network, posterior: Posterior, spec: Specification, method: Method, path: Path) -> Path:
    """A new certificate, beside its posterior file, that is accepted and claims something."""
    if path.suffix == ".safetensors":
        save_posterior(path, network, posterior)
    certificate = certify(Problem(network, posterior, spec), method)[0].certificate
    assert certificate is not None
    certificate.write(path.with_name("c.safetensors"))
    verdict = check_certificate(path.with_name("c.safetensors"), read_model(path))
    assert verdict.status == ACCEPT, verdict
    return path.with_name("c.safetensors")


@pytest.mark.parametrize("name", families(1))
def test_every_family_is_read_and_checked(name: str, tmp_path: Path) -> None:
    network = Network((1, 2), (Flatten(), Dense(2, 2, bias=False), ReLU(), Dense(2, 2)))
    posterior, method = families(network.size)[name]
    path = certified(network, posterior, question(network, posterior.center), method, tmp_path / "p.safetensors")
    header, tensors = parse(path)
    other = {"boxes": "concentration", "concentration": "boxes"}[header["kind"]]
    evidence = {"components": [{}, {}][: 1 + (name == "mixture")], "boxes": []}
    path.write_bytes(save(tensors, {"bnncert": json.dumps(header | {"kind": other, "evidence": evidence})}))
    code = "malformed" if isinstance(posterior, Normal) else "unsupported"  # which both kinds of evidence are for
    assert check_certificate(path, read_model(tmp_path / "p.safetensors")).code == code


@pytest.mark.parametrize("family", [family for family in FIELDS if family not in ("low-rank-normal", "empirical")])
@pytest.mark.parametrize("side", [DOWN, UP])
def test_odd_intervals_have_the_mass_they_should(family: str, side: int) -> None:
    """One beside an atom has none; that of everything is 1, or nearly so."""
    values = {"mean": 0.0, "loc": 0.0, "std": 1.0, "scale": 1.0, "df": 3.0, "low": -1.0, "high": 1.0}
    atom = values | dict.fromkeys(("std", "scale", "low", "high"), 0.0)
    posterior = Weights(family, {name: np.array([values[name], atom[name]]) for name in FIELDS[family]})

    def of(*ends: tuple[float, float]) -> float:
        return mass(posterior, WeightBox(*np.array(ends).T), side)

    assert of((-9, 9), (0.1, 0.2)) == 0
    assert 0.999 < of((-1e3, 1e3), (0, 0)) < 1.001
    assert 0 < of((0.2, 0.3), (0, 1)) < 0.2


def test_tiny_slopes_of_a_sigmoid_are_sound() -> None:
    """Where the point of equal slopes is too far out to be computed, a line below everything is taken."""
    with ctx.workprec(BITS):
        lines = [_curve_intercept(kind, 1, 2.0**-200, -100.0, 100.0) for kind in ("Sigmoid", "Tanh")]
    assert -1e-40 < lines[0] < 0
    assert -1 - 1e-15 < lines[1] <= -1


@pytest.mark.parametrize("activation", [ReLU(), LeakyReLU(), LeakyReLU(0.0), Tanh(), Sigmoid()], ids=repr)
@pytest.mark.parametrize("method", [GIE(samples=3), Concentration(), Concentration(upper=True)], ids=["g", "l", "u"])
@pytest.mark.parametrize("norm", ["linf", "l2", "l1", "box"])
def test_every_norm_and_activation(activation: Activation, method: Method, norm: str, tmp_path: Path) -> None:
    """Also of a wrong class, which has an upper bound."""
    network, x = mlp(2, 3, 2, activation=activation), vector(0.3, 0.6).reshape(1, 2)
    posterior = families(network.size)["normal"][0]
    region = explicit_box(Box(x - 0.02, x + 0.01)) if norm == "box" else ball(x, 0.02, norm, (0.0, 0.9))
    wrong = method == Concentration(upper=True)
    spec = question(network, posterior.center, region, wrong)
    header, _ = parse(certified(network, posterior, spec, method, tmp_path / "p.safetensors"))
    assert (header["claim"]["upper"] != "0x1.0000000000000p+0") == wrong


NPZ: dict[str, dict[str, Any]] = {
    "plain": {},
    "float32": {"dtype": np.float32},
    "float16": {"dtype": np.float16},
    "without bias": {"bias": False},
    **{name: {"meta": [name, "linear"]} for name in ("relu", "leaky_relu", "tanh", "sigmoid", "linear")},
    "softmax": {"meta": ["relu", "softmax"]},
    "relu at the end": {"meta": ["tanh", "relu"]},
}


def npz(path: Path, dtype: Any = np.float64, bias: bool = True, meta: Any = None) -> None:
    random = np.random.default_rng(0)
    shapes = {"W0": (2, 3), "b0": (3,), "W1": (3, 2), "b1": (2,)}
    kept = {name: shape for name, shape in shapes.items() if bias or name[0] == "W"}
    arrays = {f"{name}_mean": random.normal(0.5, 0.5, shape).astype(dtype) for name, shape in kept.items()}
    arrays |= {f"{name}_std": np.full(shape, 0.01, dtype) for name, shape in kept.items()}
    np.savez(path, **arrays, **({"meta": json.dumps({"activations": meta})} if meta else {}))


@pytest.mark.parametrize("name", NPZ)
def test_npz_posteriors_are_read_and_checked(name: str, tmp_path: Path) -> None:
    npz(tmp_path / "p.npz", **NPZ[name])
    network, posterior = load_posterior(tmp_path / "p.npz")
    region = ball(vector(0.3, 0.6).reshape(1, 2), 0.01)
    certified(network, posterior, half_space(region, vector(1.0, 1.0), -1.0), Concentration(), tmp_path / "p.npz")


def description(*layers: Any, **changes: Any) -> Header:
    return {"network": {"input_shape": [1], "layers": layers}, "family": "normal"} | changes


DENSE, MIXTURE = {"type": "Dense", "inputs": 1, "outputs": 1, "bias": False}, {"family": "mixture"}
MODELS: dict[str, tuple[Header, str]] = {
    "no network": ({"family": "normal"}, "malformed"),
    "no weights": (description({"type": "ReLU"}), "malformed"),
    "unknown layer": (description({"type": "BatchNorm2d"}), "unsupported"),
    "widths disagree": (description({**DENSE, "inputs": 2}), "malformed"),
    "unknown field": (description({**DENSE, "groups": 2}), "malformed"),
    "slope of a ReLU": (description(DENSE, {"type": "ReLU", "slope": 0.1}), "malformed"),
    "slope of 1": (description(DENSE, {"type": "LeakyReLU", "slope": 1.0}), "malformed"),
    "no slope": (description(DENSE, {"type": "LeakyReLU"}), "malformed"),
    "unknown family": (description(DENSE, family="cauchy"), "unsupported"),
    "missing tensors": (description(DENSE, DENSE), "malformed"),
    "negative scale": (description(DENSE, family="laplace"), "malformed"),
    "empty interval": (description(DENSE, family="uniform"), "malformed"),
    "no degrees of freedom": (description(DENSE, family="student-t"), "malformed"),
    "no components": (description(DENSE, **MIXTURE, weights=[], components=[]), "malformed"),
    "too few components": (description(DENSE, **MIXTURE, weights=["0x1p0"], components=[]), "malformed"),
    "weights below one": (description(DENSE, **MIXTURE, weights=["0x1p-1"], components=[{}]), "malformed"),
    "negative weight": (description(DENSE, **MIXTURE, weights=["-0x1p0", "0x1p1"], components=[{}, {}]), "malformed"),
    "mixture inside": (description(DENSE, **MIXTURE, weights=["0x1p0"], components=[MIXTURE]), "unsupported"),
    "another schema": (description(DENSE, schema="bnncert-posterior/0"), "unsupported"),
}


@pytest.mark.parametrize("name", MODELS)
def test_malformed_posteriors_are_refused(name: str, tmp_path: Path) -> None:
    header, code = MODELS[name]
    values = {"mean": 1.0, "std": 1.0, "loc": 1.0, "scale": -1.0, "low": 1.0, "high": 0.0, "df": 0.0}
    if name == "no degrees of freedom":
        values["scale"] = 1.0
    tensors = {f"W0_{field}": np.array([[value]]) for field, value in values.items()}
    own = {"schema": "bnncert-posterior/1"} | header
    (tmp_path / "p.safetensors").write_bytes(save(tensors, {"bnncert": json.dumps(own)}))
    assert refusal(tmp_path / "p.safetensors") == code


FLATTEN = {"type": "Flatten"}
POOL = {"kernel": [2, 2], "stride": [1, 1]}
CONV = {"type": "Conv2d", **POOL, "padding": [0, 0], "in_channels": 1, "out_channels": 1, "bias": False}
SEEING = {"Conv2d": CONV, "AvgPool2d": {"type": "AvgPool2d", **POOL}, "MaxPool2d": {"type": "MaxPool2d", **POOL}}
PAIRS = ("kernel", "stride", "padding")
NOT_PAIRS: dict[str, Any] = {"one": [1], "three": [1, 1, 1], "a number": 1, "text": ["1", "1"], "nothing": None}


def seen(*layers: Header, folder: Path, shape: tuple[int, ...] = (1, 3, 3)) -> str | None:
    """The code with which a network on images is refused, whose tensor is of the size that its convolution says."""
    size = next(layer for layer in layers if layer["type"] == "Conv2d").get("kernel")
    known = isinstance(size, list) and all(type(n) is int and n >= 0 for n in size)
    weights = np.ones((1, 1, *(size if known else (2, 2))))
    header = description(network={"input_shape": shape, "layers": [*layers, FLATTEN]}, schema="bnncert-posterior/1")
    tensors = {f"W0_{field}": weights for field in ("mean", "std")}
    (folder / "p.safetensors").write_bytes(save(tensors, {"bnncert": json.dumps(header)}))
    return refusal(folder / "p.safetensors")


def changed(kind: str, folder: Path, **changes: Any) -> str | None:
    """The code with which the layer is refused after some changes, a pool after a convolution."""
    layer = SEEING[kind] | changes
    return seen(*([layer] if kind == "Conv2d" else [CONV, layer]), folder=folder)


@pytest.mark.parametrize("kind", SEEING)
def test_layers_of_images_have_every_field_and_no_other(kind: str, tmp_path: Path) -> None:
    layer = SEEING[kind]
    assert changed(kind, tmp_path) is None
    for field in layer.keys() - {"type"}:
        without = {name: value for name, value in layer.items() if name != field}
        assert seen(*([without] if kind == "Conv2d" else [CONV, without]), folder=tmp_path) == "malformed", field
    for field in {"groups", "padding"} - layer.keys():
        assert changed(kind, tmp_path, **{field: [0, 0]}) == "malformed", field


@pytest.mark.parametrize("kind", SEEING)
@pytest.mark.parametrize("name", NOT_PAIRS)
def test_pairs_are_two_numbers(kind: str, name: str, tmp_path: Path) -> None:
    for field in SEEING[kind].keys() & PAIRS:
        assert changed(kind, tmp_path, **{field: NOT_PAIRS[name]}) == "malformed", field


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("in_channels", 2),
        ("in_channels", "1"),
        ("out_channels", 2),  # the tensor is of 1
        ("out_channels", 0),
        ("out_channels", "1"),
        ("kernel", [0, 0]),
        ("bias", True),  # there is no tensor
        ("bias", "no"),
        ("bias", None),
    ],
)
def test_a_convolution_must_fit_its_input_and_its_tensors(field: str, value: Any, tmp_path: Path) -> None:
    assert changed("Conv2d", tmp_path, **{field: value}) == "malformed"


@pytest.mark.parametrize("kind", SEEING)
@pytest.mark.parametrize("shape", [(), (9,), (3, 3), (1, 1, 3, 3)], ids=str)
def test_layers_of_images_take_one_image(kind: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    """The layer comes first; an image of 3 x 3 is what it and the next one can take."""
    layers = [SEEING[kind], *([] if kind == "Conv2d" else [CONV])]
    assert seen(*layers, folder=tmp_path) is None
    assert seen(*layers, folder=tmp_path, shape=shape) == "malformed"
    assert seen(CONV, FLATTEN, SEEING[kind], folder=tmp_path) == "malformed"


# Pairs with which no window lies on an image of 3 x 3 or 2 x 2, or where it lies cannot be said.
WINDOWS: dict[str, dict[str, Any]] = {
    "kernel larger than the image": {"kernel": [4, 4]},
    "kernel much larger": {"kernel": [6, 6]},
    "kernel of nothing": {"kernel": [0, 0]},
    "kernel of fractions": {"kernel": [2.0, 2.0]},
    "no stride": {"stride": [0, 1]},
    "stride backwards": {"stride": [-1, -1]},
    "stride of fractions": {"stride": [1.5, 1.0]},
    "negative padding": {"padding": [-1, -1]},
    "padding of fractions": {"padding": [0.5, 0.5]},
}
MEANINGLESS = [(kind, name) for kind in SEEING for name in WINDOWS if {*WINDOWS[name]} <= {*SEEING[kind]}]


@pytest.mark.parametrize(("kind", "name"), [case for case in MEANINGLESS if case != ("Conv2d", "kernel of nothing")])
def test_windows_that_mean_nothing_are_refused(kind: str, name: str, tmp_path: Path) -> None:
    assert changed(kind, tmp_path, **WINDOWS[name]) == "malformed"


@pytest.mark.parametrize("meta", ['{"activations": ["relu"]}', '{"activations": ["relu", "gelu"]}', "[]", "{", "NaN"])
def test_malformed_meta_is_refused(meta: str, tmp_path: Path) -> None:
    npz(tmp_path / "p.npz")
    np.savez(tmp_path / "p.npz", **{**np.load(tmp_path / "p.npz"), "meta": meta})
    assert refusal(tmp_path / "p.npz") == "malformed"


# --- Result folders ---


def results(workshop: Workshop, *lines: dict[str, Any]) -> Path:
    """A folder whose results say what the certificate `lower` says, except for the changes of each line."""
    header, _ = workshop.read("lower")
    said = {end: float.fromhex(header["claim"][end]) for end in ("lower", "upper")}
    said |= {"eps": 0.1, "label": None, "certificate": "lower.safetensors"}
    (workshop.folder / "results.jsonl").write_text("".join(json.dumps(said | line) + "\n" for line in lines))
    return workshop.folder


def line(workshop: Workshop, **changes: Any) -> Verdict:
    """The verdict of one result."""
    folder = results(workshop, changes)
    return next(check_results(folder, read_results(folder), workshop.model))


def test_a_folder_of_the_prover_is_accepted(tmp_path: Path) -> None:
    network = mlp(2, 3, 2)
    posterior = families(network.size)["normal"][0]
    x = torch.rand(5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = network.forward(posterior.center, x).argmax(-1)
    labels[0] = 1 - labels[0]  # misclassified: nothing is claimed
    found = certify(Problem(network, posterior, class_robust(ball(x, 0.01), labels, 2)), PIE(samples=2, step=1.0))
    with result_folder(tmp_path / "out") as store:
        store(found)
    save_posterior(tmp_path / "p.safetensors", network, posterior)
    folder, model = tmp_path / "out", read_model(tmp_path / "p.safetensors")
    verdicts = list(check_results(folder, read_results(folder), model))
    assert [verdict.status for verdict in verdicts] == [ACCEPT] * 5
    assert [verdict.message for verdict in verdicts] == ["claims nothing", "", "", "", ""]
    assert [verdict.label for verdict in verdicts[1:]] == labels[1:].tolist()
    lines = read_results(folder)
    lines[2]["label"] = 1 - lines[2]["label"]
    codes = [verdict.code for verdict in check_results(folder, lines, model)]
    assert codes == [None, None, "result-mismatch", None, None]


def test_lines_must_say_what_their_certificates_say(workshop: Workshop) -> None:
    assert line(workshop).status == ACCEPT
    assert line(workshop, lower=0, upper=1, certificate=None).status == ACCEPT
    for changes in ({"lower": 0.999}, {"upper": 0.9}, {"eps": 0.2}, {"eps": None}, {"lower": "0.5"}):
        assert line(workshop, **changes).code == "result-mismatch"
    assert line(workshop, certificate=None, lower=0, upper=0.9).code == "certificate-missing"
    assert line(workshop, certificate="nowhere.safetensors").code == "unreadable"
    assert line(workshop, certificate="box.safetensors").code == "result-mismatch"


def test_a_label_needs_a_certificate_about_that_label(workshop: Workshop) -> None:
    """The certificate is about an interval of outputs; it could be about anything that is trivially true."""
    assert line(workshop, label=7).code == "result-mismatch"


def bundle(workshop: Workshop, method: int = zipfile.ZIP_STORED) -> Path:
    path = workshop.folder / "bundle.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.write(workshop.folder / "lower.safetensors", "lower.safetensors")
    return path


def test_certificates_may_lie_in_bundles(workshop: Workshop) -> None:
    """A zip archive that compresses nothing is read like a folder; anything else is refused."""
    alone = check_certificate(workshop.folder / "lower.safetensors", workshop.model)
    path = bundle(workshop)
    found = check_certificate(path / "lower.safetensors", workshop.model)
    assert (found.status, found.claimed, found.supported) == (ACCEPT, alone.claimed, alone.supported)
    assert line(workshop, certificate="bundle.zip/lower.safetensors").status == ACCEPT
    assert line(workshop, certificate="bundle.zip/lower.safetensors", lower=0.9999).code == "result-mismatch"
    assert line(workshop, certificate="bundle.zip/nothing.safetensors").code == "unreadable"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1  # its check sum is wrong now
    path.write_bytes(content)
    assert check_certificate(path / "lower.safetensors", workshop.model).code == "unreadable"
    path.write_bytes(b"no archive")
    assert check_certificate(path / "lower.safetensors", workshop.model).code == "unreadable"
    packed = bundle(workshop, zipfile.ZIP_DEFLATED) / "lower.safetensors"
    assert "compressed" in check_certificate(packed, workshop.model).message


def test_lines_about_other_posteriors_are_left_out_and_counted(
    workshop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, own = results(workshop, {}), workshop.model.posterior_digest
    results(workshop, {"posterior": "another", "lower": 1.0}, {"posterior": own})
    (verdict,) = check_results(folder, read_results(folder), workshop.model)
    assert verdict.status == ACCEPT
    assert run(folder, workshop.posterior, as_json=False) == 0
    assert capsys.readouterr().err == "1 results speak of other posteriors and are not checked\n"
    results(workshop, {"posterior": "another"})
    assert run(folder, workshop.posterior, as_json=False) == 2
    assert "speaks of this posterior" in capsys.readouterr().out
    assert run(bundle(workshop) / "lower.safetensors", workshop.posterior, as_json=False) == 0


PATHS = ["../p.safetensors", "../../../../../etc/passwd", "/etc/passwd", 7, ["lower.safetensors"], {}, "out"]


@pytest.mark.parametrize("path", PATHS, ids=str)
def test_paths_do_not_leave_the_folder(path: object, workshop: Workshop, tmp_path: Path) -> None:
    (workshop.folder / "out").unlink(missing_ok=True)
    (workshop.folder / "out").symlink_to(tmp_path)
    verdict = line(workshop, certificate=path)
    assert (verdict.status, verdict.code) == (ERROR, "malformed")


@pytest.mark.parametrize("path", ["a\0b", "\ud800", "loop"])
def test_impossible_paths_are_refused(path: str, workshop: Workshop) -> None:
    (workshop.folder / "loop").unlink(missing_ok=True)
    (workshop.folder / "loop").symlink_to("loop")
    assert line(workshop, certificate=path).status == ERROR


@pytest.mark.parametrize("text", [None, "{", "7", "\n", "NaN", "[" * 10**5, "\udcff"], ids=lambda t: repr(t)[:9])
def test_results_that_cannot_be_read(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "results.jsonl").write_text(text, errors="surrogateescape")
    with pytest.raises(CannotCheck) as reason:
        read_results(tmp_path)
    assert reason.value.code == "unreadable"


# --- The command line ---


def program(*arguments: object, module: str = "bnncert_check", options: tuple[str, ...] = ()) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `python -m MODULE ARGUMENTS`."""
    command = [sys.executable, *options, "-m", *module.split(), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    return done.returncode, done.stdout, done.stderr


def without_seconds(text: str) -> list[str]:
    return [row for row in text.splitlines() if '"seconds"' not in row]


@pytest.fixture(scope="module")
def targets(workshop: Workshop) -> dict[str, Path]:
    """What to check, by the exit code it should lead to."""
    header, tensors = workshop.read("lower")
    header["claim"]["lower"] = "0x1p0"
    (workshop.folder / "high.safetensors").write_bytes(save(tensors, {"bnncert": json.dumps(header)}))
    return {
        "accept": workshop.folder / "lower.safetensors",
        "reject": workshop.folder / "high.safetensors",
        "error": workshop.folder / "nowhere",
        "folder": workshop.folder,
    }


CODES = {"accept": 0, "reject": 1, "error": 2, "folder": 1}


@pytest.mark.parametrize("name", CODES)
def test_both_programs_say_the_same(name: str, targets: dict[str, Path], workshop: Workshop) -> None:
    results(workshop, {}, {"certificate": None}, {"certificate": "nowhere"})
    for option in ([], ["--json"]):
        arguments = [targets[name], "--posterior", workshop.posterior, *option]
        code, text, error = program(*arguments)
        other = program(*arguments, module="bnncert check")
        assert (code, error) == (CODES[name], "")
        assert (other[0], without_seconds(other[1]), other[2]) == (code, without_seconds(text), "")


def test_it_says_in_words_what_was_certified(
    targets: dict[str, Path], workshop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    said = {}
    for name in ("accept", "reject", "error"):
        assert run(targets[name], workshop.posterior, False) == CODES[name]
        said[name] = capsys.readouterr().out
        assert said[name].count("\n") == 1
    assert " <= P_safe <= 1.0: 2 output rows positive on linf ball of radius 0.1\n" in said["accept"]
    assert said["reject"].startswith(f"REJECT  {targets['reject']}  probability-too-high: claimed P_safe >= 1.0, ")
    assert said["error"].startswith(f"ERROR  {targets['error']}  unreadable: ")
    folder = results(workshop, {}, {"certificate": None, "lower": 0, "upper": 1})
    assert run(folder, workshop.posterior, False) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].endswith("results.jsonl:2  claims nothing")
    assert lines[2] == "ACCEPT: 2 ACCEPT, 0 REJECT, 0 ERROR"


def test_rejections_come_before_errors(workshop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad, lost = {}, {"certificate": None}, {"certificate": "nowhere"}
    for lines, code in (([good, lost], 2), ([good, bad], 1), ([good], 0), ([lost, bad, good], 1)):
        assert run(results(workshop, *lines), workshop.posterior, False) == code
    assert "REJECT: 1 ACCEPT, 1 REJECT, 1 ERROR" in capsys.readouterr().out


def test_json_has_every_verdict(workshop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    folder = results(workshop, {}, {"certificate": None})
    assert run(folder, workshop.posterior, True) == 1
    said = json.loads(capsys.readouterr().out)
    assert list(said) == ["verdict", "certificates"]
    assert said["verdict"] == REJECT
    assert [list(entry) for entry in said["certificates"]] == [[field.name for field in fields(Verdict)]] * 2
    assert [entry["code"] for entry in said["certificates"]] == [None, "certificate-missing"]
    assert said["certificates"][0]["claimed"][1] == 1.0


MISTAKES = {
    "no certificate": ("nowhere", "p.safetensors", "does not exist"),
    "no posterior": ("lower.safetensors", "nowhere", "no such file"),
    "posterior is a folder": ("lower.safetensors", ".", "no such file"),
    "posterior is a certificate": ("lower.safetensors", "box.safetensors", "is not of schema bnncert-posterior/1"),
    "certificate is a posterior": ("p.safetensors", "p.safetensors", "is not of schema bnncert-certificate/1"),
    "folder without results": ("empty", "p.safetensors", "not a folder of results"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_get_one_line(name: str, workshop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    target, posterior, message = MISTAKES[name]
    (workshop.folder / "empty").mkdir(exist_ok=True)
    assert run(workshop.folder / target, workshop.folder / posterior, False) == 2
    said = capsys.readouterr().out
    assert said.startswith("ERROR  ")
    assert message in said
    assert said.count("\n") == 1


def test_a_folder_with_no_results_is_not_accepted(tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_text("")
    with pytest.raises(CannotCheck, match="is empty"):
        read_results(tmp_path)


def test_json_is_strict(
    workshop: Workshop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where Arb gives up, so that what is supported is not known."""
    monkeypatch.setattr("bnncert_check.certificate._supported", lambda *_: ((math.nan, 1.0), 0.0))
    assert run(workshop.folder / "lower.safetensors", workshop.folder / "p.safetensors", True) == 2
    assert strict_json(capsys.readouterr().out)["certificates"][0]["code"] == "not-finite"


def test_a_name_too_long_is_a_mistake(workshop: Workshop) -> None:
    assert run(Path("a" * 300), workshop.posterior, False) == 2


def test_a_path_cannot_pretend_to_be_a_verdict(workshop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    run(results(workshop, {"certificate": "x\nACCEPT  all is well"}), workshop.posterior, False)
    assert capsys.readouterr().out.count("\n") == 1


def test_the_program_itself(targets: dict[str, Path], workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["bnncert_check", str(targets["reject"]), "--posterior", str(workshop.posterior)])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == EXIT_CODES[REJECT]
    monkeypatch.delitem(sys.modules, "bnncert_check.__main__")
    with pytest.raises(SystemExit) as end:
        runpy.run_module("bnncert_check", run_name="__main__")
    assert end.value.code == EXIT_CODES[REJECT]


def test_options_are_explained_without_a_traceback() -> None:
    assert program("--help")[0] == 0
    code, _, error = program("only-a-target")
    assert code == 2
    assert "--posterior" in error
    assert "Traceback" not in error


class Terminal(io.StringIO):
    """Standard error that is, or is not, a terminal."""

    def __init__(self, is_one: bool) -> None:
        super().__init__()
        self.isatty = lambda: is_one  # type: ignore[method-assign]


def test_progress_is_shown_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts = [Verdict(str(i), ACCEPT) for i in range(3)]
    for is_one in (False, True):
        terminal = Terminal(is_one)
        monkeypatch.setattr(sys, "stderr", terminal)
        assert list(_with_progress(iter(verdicts), 3)) == verdicts
        shown = terminal.getvalue()
        assert shown.count("\r") == 3 * is_one
    assert shown.startswith("\rchecking [##########                    ] 1/3\r")
    assert shown.endswith("[##############################] 3/3\n")


ALONE = """
import sys
class Blocker:
    names = {"torch", "scipy", "safetensors", "typer", "rich", "jinja2", "matplotlib", "bnncert"}
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names:
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Blocker())
sys.path.insert(0, sys.argv.pop(1))
from bnncert_check.__main__ import main
try:
    main()
finally:
    assert not Blocker.names & {name.split(".")[0] for name in sys.modules}
    try:
        import bnncert
    except ImportError:
        print("alone")
"""


def test_it_runs_alone(targets: dict[str, Path], workshop: Workshop) -> None:
    """Where neither bnncert nor what that needs can be imported."""
    for name in ("accept", "reject"):
        command = [sys.executable, "-I", "-c", ALONE, SOURCE, targets[name], "--posterior", workshop.posterior]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=100)
        assert (done.returncode, done.stderr) == (CODES[name], "")
        assert done.stdout.endswith("alone\n")


@pytest.mark.parametrize("name", ["accept", "reject", "error"])
def test_verdicts_do_not_rest_on_assertions(name: str, targets: dict[str, Path], workshop: Workshop) -> None:
    code, text, error = program(targets[name], "--posterior", workshop.posterior, options=("-O",))
    assert (code, error) == (CODES[name], "")
    assert text.startswith(name.upper())


def test_every_reason_is_documented() -> None:
    page = (Path(__file__).parent.parent / "docs" / "trust.md").read_text(encoding="utf-8")
    assert all(f"| `{code}` |" in page for code in REJECTIONS | ERRORS)
