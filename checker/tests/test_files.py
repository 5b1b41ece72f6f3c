"""Hostile files: whatever they hold, they are refused, cheaply."""

from __future__ import annotations

import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from bnncert_check import ERROR, files
from checking import Bomb, Workshop, archive, array, cheaply, npy, objects, raw, refusal


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
    "tensor without offsets": raw(
        json.dumps({"__metadata__": {"bnncert": "{}"}, "x": {"dtype": "F64", "shape": [1]}})
    ),
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


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_certificates_are_refused_cheaply(name: str, workshop: Workshop) -> None:
    verdict = cheaply(lambda: workshop.check(HOSTILE[name]))
    assert (verdict.status, verdict.code) == (ERROR, "unreadable")


def test_the_length_of_the_index_is_limited(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LARGEST_HEADER", 99)
    assert workshop.edited("box", "seed", 0).code == "unreadable"


def test_a_truncated_certificate_is_never_accepted(workshop: Workshop) -> None:
    content = (workshop.folder / "box.safetensors").read_bytes()
    for length in range(0, len(content), 7):
        assert workshop.check(content[:length]).status == ERROR


def test_tensors_share_no_bytes_and_leave_none_out(workshop: Workshop) -> None:
    """What a file holds is what is read of it, once."""
    header, tensors = workshop.read("lower")
    shared = {name: value for name, value in tensors.items() if name != "c0.upper_slopes1"}
    assert np.array_equal(tensors["c0.lower_slopes1"], tensors["c0.upper_slopes1"])
    content = save(shared, {"bnncert": json.dumps(header)})
    size = int.from_bytes(content[:8], "little")
    index = json.loads(content[8 : 8 + size])
    index["c0.upper_slopes1"] = index["c0.lower_slopes1"]
    assert workshop.check(raw(json.dumps(index)) + content[8 + size :]).code == "unreadable"
    assert "overlap" in workshop.check(raw(json.dumps(index)) + content[8 + size :]).message
    assert (
        "belong to no tensor"
        in workshop.check(save(tensors, {"bnncert": json.dumps(header)}) + b"more").message
    )
    twice = (
        json.dumps(json.loads(content[8 : 8 + size]))[:-1] + ', "__metadata__": {"bnncert": "{}"}}'
    )
    assert "occurs twice" in workshop.check(raw(twice) + content[8 + size :]).message


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
    "pickle in an archive": (archive({"W0_mean.npy": pickle.dumps(Bomb())}), "unreadable"),
    "objects": (archive({"W0_mean.npy": objects()}), "unreadable"),
    "bomb": (archive({"W0_mean.npy": b"\0" * 2**20}, 2**27, zipfile.ZIP_DEFLATED), "too-large"),
    "many bombs": (archive({f"W{i}_mean.npy": b"" for i in range(9)}, 2**24), "too-large"),
    "a bomb beside the arrays": (
        archive({"W0_mean.npy": b"", "more.npy": b""}, 2**27),
        "too-large",
    ),
    "an array twice": (
        archive({"W0_mean.npy": array("(8, 1)"), "W0_mean": array("(8, 1)")}),
        "unreadable",
    ),
    "a version of its own": (
        archive({"W0_mean.npy": b"\x93NUMPY\x09\x00" + b"\0" * 64}),
        "unreadable",
    ),
    "endless header": (archive({"W0_mean.npy": npy("{" + " " * 20_000 + "}")}), "unreadable"),
    "header of broken lines": (archive({"W0_mean.npy": npy("1\n  2\n 3")}), "unreadable"),
    "header of a list": (archive({"W0_mean.npy": npy("[1, 2]")}), "unreadable"),
    "header with more": (
        archive(
            {"W0_mean.npy": npy("{'descr': '<f8', 'fortran_order': False, 'shape': (), 'a': 1}")}
        ),
        "unreadable",
    ),
    "packed unusually": (archive({"W0_mean.npy": NOISE}, method=zipfile.ZIP_BZIP2), "unreadable"),
    "text of no length": (
        archive({"meta.npy": array("()", "'<U0'"), "W0_mean.npy": array("(8, 1)")}),
        "unreadable",
    ),
    "numbers for meta": (
        archive({"meta.npy": array("(8,)"), "W0_mean.npy": array("(8, 1)")}),
        "malformed",
    ),
    "a layer too many": (
        archive(
            {
                "W0_mean.npy": array("(8, 1)"),
                "W0_std.npy": array("(8, 1)"),
                "b7_mean.npy": array("(8,)"),
            }
        ),
        "malformed",
    ),
    "a layer left out": (
        archive({"W0_mean.npy": array("(8, 1)"), "W2_mean.npy": array("(8, 1)")}),
        "malformed",
    ),
    "nothing": (archive({}), "malformed"),
    "other arrays": (archive({"weights.npy": array("(2, 1)")}), "malformed"),
    "huge shape": (archive({"W0_mean.npy": array("(20000000000, 1000)")}), "unreadable"),
    "huger shape": (archive({"W0_mean.npy": array("(" + "9" * 30 + ",)")}), "unreadable"),
    "negative shape": (archive({"W0_mean.npy": array("(-2, 1)")}), "unreadable"),
    "truncated": (archive({"W0_mean.npy": array("(2000, 1)")}), "unreadable"),
    "whole numbers": (archive({"W0_mean.npy": array("(8, 1)", "'<i8'")}), "unreadable"),
    "text inside": (archive({"W0_mean.npy": array("(4, 1)", "'<U4'")}), "malformed"),
    "three dimensions": (archive({"W0_mean.npy": array("(8, 1, 1)")}), "malformed"),
    "corrupt deflate": (
        corrupt(archive({"W0_mean.npy": NOISE}, method=zipfile.ZIP_DEFLATED)),
        "unreadable",
    ),
    "corrupt bzip2": (
        corrupt(archive({"W0_mean.npy": NOISE}, method=zipfile.ZIP_BZIP2)),
        "unreadable",
    ),
}
BROKEN = {
    "corrupt lzma": corrupt(
        archive({"W0_mean.npy": bytes(range(256)) * 9}, method=zipfile.ZIP_LZMA)
    ),
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
def test_hostile_archives_are_refused_cheaply(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, code = ARCHIVES[name]
    assert refused(content, tmp_path, monkeypatch) == code


@pytest.mark.parametrize("name", BROKEN)
def test_broken_archives_are_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refused(BROKEN[name], tmp_path, monkeypatch) == "unreadable"


def test_a_bomb_does_go_off_when_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickle.dumps(Bomb()))
    assert (tmp_path / "exploded").is_dir()
