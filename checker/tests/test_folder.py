"""Result folders: lines must say what their certificates say, and nothing else."""

from __future__ import annotations

import json
import math
import zipfile
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import torch

from bnncert import Box, Problem, certify, decide, save_posterior
from bnncert.methods import PIE, Concentration
from bnncert.model.network import mlp
from bnncert.model.specification import (
    Specification,
    ball,
    class_robust,
    explicit_box,
    half_space,
    output_interval,
)
from bnncert.model.standardisation import Column, Standardisation
from bnncert.posteriors.empirical import Empirical
from bnncert.posteriors.independent import Normal
from bnncert.results.folder import DECISIONS, result_folder
from bnncert_check import ACCEPT, ERROR, CannotCheck, Verdict, check_certificate, read_model
from bnncert_check.__main__ import run
from bnncert_check.files import digest
from bnncert_check.folder import check_results, read_results
from checking import NOTHING, Workshop, bundle, families, results
from scenarios import vector

ENDS = ("lower", "upper")


def verdicts(workshop: Workshop, *lines: dict[str, Any]) -> list[Verdict]:
    folder = results(workshop, *lines)
    return list(check_results(folder, read_results(folder), workshop.model))


def line(workshop: Workshop, **changes: Any) -> Verdict:
    """The verdict of one result."""
    (verdict,) = verdicts(workshop, changes)
    return verdict


def written(
    folder: Path, problem: Problem, *, decisions: bool = False, **options: Any
) -> list[dict[str, Any]]:
    """The lines of a folder that the prover wrote, beside its posterior p."""
    folder.mkdir(exist_ok=True)
    found = (
        decide(problem) if decisions else certify(problem, options.get("method", Concentration()))
    )
    with result_folder(folder / "out", name=DECISIONS if decisions else "results.jsonl") as store:
        store(found)
    save_posterior(folder / "p.safetensors", problem.network, problem.posterior)
    return read_results(folder / "out")


def codes(folder: Path, lines: list[dict[str, Any]]) -> list[str | None]:
    model = read_model(folder / "p.safetensors")
    return [verdict.code for verdict in check_results(folder / "out", lines, model)]


def test_a_folder_of_the_prover_is_accepted(tmp_path: Path) -> None:
    network = mlp(2, 3, 2)
    posterior = families(network.size)["normal"][0]
    x = torch.rand(5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = network.forward(posterior.center, x).argmax(-1)
    labels[0] = 1 - labels[0]  # misclassified: nothing is claimed
    asked = Problem(network, posterior, class_robust(ball(x, 0.01), labels, 2))
    lines = written(tmp_path, asked, method=PIE(samples=2, step=1.0))
    found = list(check_results(tmp_path / "out", lines, read_model(tmp_path / "p.safetensors")))
    assert [verdict.status for verdict in found] == [ACCEPT] * 5
    assert [verdict.message for verdict in found] == ["claims nothing", "", "", "", ""]
    assert [verdict.label for verdict in found[1:]] == labels[1:].tolist()
    lines[2] |= {"label": 1 - lines[2]["label"], "predicted": 1 - lines[2]["label"]}
    assert codes(tmp_path, lines) == [None, None, "result-mismatch", None, None]


def test_lines_must_say_what_their_certificates_say(workshop: Workshop) -> None:
    assert line(workshop).status == ACCEPT
    assert line(workshop, **NOTHING).status == ACCEPT
    for changes in ({"lower": 0.999}, {"upper": 0.9}, {"eps": 0.2}):
        assert line(workshop, **changes).code == "result-mismatch"
    assert line(workshop, **NOTHING | {"upper": 0.9}).code == "certificate-missing"
    assert line(workshop, certificate="nowhere.safetensors").code == "unreadable"
    assert line(workshop, certificate="box.safetensors").code == "result-mismatch"


WRONG: dict[str, Any] = {
    "index": [None, -1, 0.0, "0", True],
    "label": [-1, 0.0, "0", False, []],
    "target": [-1, "1", True],
    "predicted": [-1, "0"],
    "status": [None, "", "proved", "decided", 1],
    "lower": [None, "0.5", True, [0.5], 10**400],
    "upper": [None, "1"],
    "eps": [None, "everything", "0.1", True, -0.1],
    "certificate": [7, ["lower.safetensors"], {}],
    "answer": ["yes", 1],
    "at_least": [0.5, "half", "1e1000000000", "2", "-0.5", "", "1_0", "1/3"],
    "input": [7],
    "posterior": [7],
    "spec": [{}, "{", "[]", "{}", "7"],
    "output": ["3", True, 10**400],
    "low": ["0.3", False],
    "high": [[3.0]],
    "quantity": ["P_safe"],
    "remark": ["certified for every input"],
}


@pytest.mark.parametrize("name", WRONG)
def test_every_field_of_a_line_has_its_type_and_there_is_no_other(
    name: str, workshop: Workshop
) -> None:
    for value in WRONG[name]:
        verdict = line(workshop, **{name: value})
        assert (verdict.status, verdict.code) == (ERROR, "malformed"), value


@pytest.mark.parametrize(
    "name", ["index", "label", "predicted", "status", "lower", "upper", "eps", "method", "seed"]
)
def test_no_field_of_a_line_may_be_missing(name: str, workshop: Workshop) -> None:
    lines = read_results(results(workshop, {}))
    del lines[0][name]
    (verdict,) = check_results(workshop.folder, lines, workshop.model)
    assert (verdict.code, name in verdict.message) == ("malformed", True)


@pytest.mark.parametrize("line", ["7", "[]", "null", '"certified"'])
def test_a_line_is_an_object(line: str, workshop: Workshop) -> None:
    (workshop.folder / "results.jsonl").write_text(line + "\n")
    (verdict,) = check_results(workshop.folder, read_results(workshop.folder), workshop.model)
    assert verdict.code == "malformed"


def test_a_line_of_all_other_classes_leaves_none_out(tmp_path: Path) -> None:
    """Class 3 always wins; a certificate says that 0 comes before 1 and 2."""
    network, x = mlp(1, 4), vector(0).reshape(1, 1)
    posterior = Normal(vector(0, 0, 0, 0, 1, 0, 0, 2), vector(*[0] * 8))
    rows = vector(1, -1, 0, 0, 1, 0, -1, 0).reshape(1, 2, 4)
    asked = Specification(ball(x, 0.1), rows, vector(0, 0).reshape(1, 2))
    (said,) = written(tmp_path, Problem(network, posterior, asked))
    for target in ({}, {"target": None}, {"target": 1}):
        assert codes(tmp_path, [said | {"label": 0, "predicted": 0} | target]) == [
            "result-mismatch"
        ]
    spec = {"norm": "linf", "eps": (0.1).hex(), "clip": None, "label": 0, "target": None}
    assert codes(tmp_path, [said | {"spec": json.dumps(spec)}]) == ["result-mismatch"]
    assert codes(tmp_path, [said | {"target": 1}]) == ["result-mismatch"]


def test_rows_may_put_a_class_first_where_nobody_named_one(tmp_path: Path) -> None:
    """A half-space is the condition of a class too; a line may leave out the class, not change
    it."""
    network, x = mlp(1, 2), vector(0.5).reshape(1, 1)
    posterior = Normal(vector(0, 0, 1, 0), vector(0.1, 0.1, 0.1, 0.1))
    asked = Problem(network, posterior, half_space(ball(x, 0.1), vector(1, -1), 0.0))
    (said,) = written(tmp_path / "p_safe", asked)
    (mean,) = written(tmp_path / "mean", asked, decisions=True)
    assert said["label"] is None
    assert codes(tmp_path / "p_safe", [said]) == codes(tmp_path / "mean", [mean]) == [None]
    for own in ({"label": 0, "target": 1}, {"label": 0}):
        assert codes(tmp_path / "p_safe", [said | {"predicted": 0} | own]) == [None]
    for other in ({"label": 1, "predicted": 1}, {"target": 1}):
        assert codes(tmp_path / "p_safe", [said | other]) == ["result-mismatch"]


def test_a_line_repeats_the_interval_of_its_certificate(workshop: Workshop) -> None:
    """Or says nothing of it; of the mean network it may say anything."""
    assert line(workshop, low=0.3, high=3.0, output=-7).status == ACCEPT
    for changes in ({"low": 0.3}, {"high": 3.0}, {"low": 0.2, "high": 3.0}):
        assert line(workshop, **changes).code == "result-mismatch"


def test_rows_that_are_no_interval_have_none(tmp_path: Path) -> None:
    """A half-space, and rows of another length than 1."""
    posterior = Normal(vector(1.0, 0.0), vector(0.01, 0.01))
    region = ball(vector(1.0).reshape(1, 1), 0.1)
    half = half_space(region, vector(1.0), 0.5)
    twice = Specification(region, vector(2, -2).reshape(1, 2, 1), vector(0, 6).reshape(1, 2))
    for name, asked in (("half", half), ("twice", twice)):
        (said,) = written(tmp_path / name, Problem(mlp(1, 1), posterior, asked))
        assert codes(tmp_path / name, [said]) == [None]
        assert codes(tmp_path / name, [said | {"low": 0.0, "high": 3.0}]) == ["result-mismatch"]


def test_the_interval_is_in_the_units_of_the_target(tmp_path: Path) -> None:
    """The second output's: mean 10 and standard deviation 4."""
    network = mlp(1, 2)
    own = Standardisation((Column("x"),), (Column("a", 7.0, 3.0), Column("b", 10.0, 4.0)))
    network = replace(network, standardisation=own)
    posterior = Normal(vector(0, 0, 0, 0.5), vector(*[0.01] * 4))
    near = output_interval(ball(vector(0).reshape(1, 1), 0.1), 0.25, 0.75, outputs=2, output=1)
    (said,) = written(tmp_path, Problem(network, posterior, near))
    assert (said["output"], said["low"], said["high"]) == (12.0, 11.0, 13.0)
    assert codes(tmp_path, [said]) == [None]
    assert codes(tmp_path, [said | {"low": 0.25, "high": 0.75}]) == ["result-mismatch"]
    spec = {"norm": "linf", "eps": (0.1).hex(), "clip": None, "y": (0.5).hex()}
    spec |= {"tolerance": (0.25).hex(), "output": 1}
    assert codes(tmp_path, [said | {"spec": json.dumps(spec)}]) == [None]
    assert codes(tmp_path, [said | {"spec": json.dumps(spec | {"output": 0})}]) == [
        "result-mismatch"
    ]
    (decided,) = written(tmp_path / "mean", Problem(network, posterior, near), decisions=True)
    assert (decided["low"], decided["high"]) == (11.0, 13.0)
    assert codes(tmp_path / "mean", [decided]) == [None]
    assert codes(tmp_path / "mean", [decided | {"high": 14.0}]) == ["result-mismatch"]


def test_a_line_names_the_input_of_its_certificate(workshop: Workshop) -> None:
    _, tensors = workshop.read("lower")
    assert line(workshop, input=digest("input", [tensors["x"]])).status == ACCEPT
    assert line(workshop, input=digest("input", [tensors["x"] + 1])).code == "result-mismatch"


def test_one_rival_is_all_rivals_of_two_classes(tmp_path: Path) -> None:
    """So that two lines, one with the rival's name and one without, are about the same."""
    network = mlp(2, 2)
    posterior = Normal(vector(1, 0, 0, 0, 1, 0), vector(*[0.01] * 6))
    asked = Problem(
        network,
        posterior,
        class_robust(ball(vector(0.5, 0.5).reshape(1, 2), 0.1), torch.tensor([0]), 2),
    )
    (said,) = written(tmp_path, asked)
    other = tmp_path / "out" / "copy.safetensors"
    other.write_bytes((tmp_path / "out" / said["certificate"]).read_bytes())
    again = said | {"certificate": "copy.safetensors"}
    assert codes(tmp_path, [said, again | {"target": 1}]) == [None, "result-repeated"]
    stripped = {"label": None, "target": None, "predicted": None}
    assert codes(tmp_path, [said, again | stripped]) == [None, "result-repeated"]
    assert codes(tmp_path, [said | stripped]) == [None]
    named = read_model(tmp_path / "p.safetensors").posterior_digest
    assert codes(tmp_path, [said, again | {"posterior": named}]) == [None, "result-repeated"]


@pytest.mark.parametrize(
    ("rows", "offsets"),
    [
        ([[1, -1, 0]], [0]),
        ([[2, -2, 0]], [0]),
        ([[1, -1, 0], [1, -1, 0]], [0, 0]),
        ([[1, -1, 0], [0.5, -0.5, 0]], [0, 7]),
    ],
)
def test_a_question_counts_once_however_its_rows_are_written(
    rows: list[list[float]], offsets: list[float], tmp_path: Path
) -> None:
    """A factor, or rows that another one implies, make no question of their own."""
    network = mlp(2, 3)
    mean = vector(1, 0, 0, 0, 1, 0, 0, 0, 0)
    posterior, region = Normal(mean, 0 * mean + 0.01), ball(vector(0.5, 0.1).reshape(1, 2), 0.1)
    rival = class_robust(region, torch.tensor([0]), 3, target=1)
    quick = Concentration(effort=0)
    (said,) = written(tmp_path, Problem(network, posterior, rival), method=quick)
    every, rest = (
        class_robust(region, torch.tensor([0]), 3, target=target) for target in (None, 2)
    )
    asked = Specification(region, *(torch.tensor([value]).double() for value in (rows, offsets)))
    (again, whole, other) = (
        found | {"certificate": f"{name}.safetensors"}
        for name, spec in (("again", asked), ("whole", every), ("other", rest))
        for found in written(tmp_path / name, Problem(network, posterior, spec), method=quick)
    )
    for name in ("again", "whole", "other"):
        (store,) = (tmp_path / name / "out").rglob("*.safetensors")
        (tmp_path / "out" / f"{name}.safetensors").write_bytes(store.read_bytes())
    assert again["label"] is None
    assert codes(tmp_path, [said, again]) == [None, "result-repeated"]
    assert codes(tmp_path, [again, said]) == [None, "result-repeated"]
    assert codes(tmp_path, [said, other, whole]) == [None, None, None]


def test_a_decision_answers_nothing_about_p_safe(tmp_path: Path) -> None:
    asked = class_robust(ball(vector(0).reshape(1, 1), 0.0), torch.tensor([0]), 2)
    samples = vector(0, 0, 10, 0, 0, 0, -0.1, 0).reshape(2, 4)
    (said,) = written(tmp_path, Problem(mlp(1, 2), Empirical(samples), asked), decisions=True)
    assert codes(tmp_path, [said]) == [None]
    assert codes(tmp_path, [said | {"answer": "unsat", "at_least": "0.7"}]) == ["malformed"]


def test_words_follow_from_numbers(workshop: Workshop) -> None:
    """A status without what it says, an answer that the bounds do not give, an error with a
    certificate."""
    assert line(workshop, **NOTHING | {"status": "certified"}).code == "result-mismatch"
    assert line(workshop, **NOTHING | {"status": "misclassified"}).code == "result-mismatch"
    assert (
        line(
            workshop, **NOTHING | {"status": "misclassified", "label": 0, "predicted": None}
        ).status
        == ACCEPT
    )
    assert line(workshop, **NOTHING | {"label": 0, "predicted": None}).code == "result-mismatch"
    assert line(workshop, **NOTHING | {"status": "error", "label": 0}).status == ACCEPT
    assert line(workshop, status="unverified").code == "result-mismatch"
    assert line(workshop, status="error").code == "result-mismatch"
    assert line(workshop, answer="unsat", at_least="0.5").status == ACCEPT
    assert line(workshop, answer="unknown", at_least="0.5").code == "result-mismatch"
    assert line(workshop, answer="unsat", at_least="1").code == "result-mismatch"
    assert line(workshop, answer="unsat").code == "malformed"
    assert line(workshop, **NOTHING | {"answer": "unknown", "at_least": "0.5"}).status == ACCEPT
    assert (
        line(workshop, **NOTHING | {"answer": "sat", "at_least": "0.5"}).code == "result-mismatch"
    )


def test_statuses_follow_from_bounds_and_threshold(workshop: Workshop) -> None:
    """Certified, falsified, undecided or misclassified, and none of them for another's numbers;
    the bounds are compared with the decimals of the threshold."""
    claims = {
        name: {end: float.fromhex(workshop.read(name)[0]["claim"][end]) for end in ENDS}
        for name in ("lower", "upper")
    }
    lower, upper = claims["lower"]["lower"], claims["upper"]["upper"]
    refuted = {"certificate": "upper.safetensors", **claims["upper"]}
    cases = (
        ({"at_least": str(Decimal(lower))}, "certified"),
        ({"at_least": str(Decimal(math.nextafter(lower, 1)))}, "undecided"),
        (refuted | {"at_least": str(Decimal(math.nextafter(upper, 1)))}, "falsified"),
        (refuted | {"at_least": str(Decimal(upper))}, "undecided"),
        (NOTHING | {"at_least": "0.95"}, "undecided"),
        (NOTHING | {"at_least": "0"}, "certified"),
        (NOTHING | {"at_least": "0", "label": 0, "predicted": None}, "misclassified"),
    )
    for said, status in cases:
        for other in ("certified", "falsified", "undecided", "unverified", "misclassified"):
            code = None if other == status else "result-mismatch"
            assert line(workshop, **said | {"status": other}).code == code, (said, other)


def test_a_label_needs_a_certificate_about_that_label(workshop: Workshop) -> None:
    """The certificate is about an interval of outputs; it could be about anything that is trivially
    true."""
    assert line(workshop, label=0, predicted=0).code == "result-mismatch"
    for name in ("label", "predicted", "target"):  # there is but one output
        assert line(workshop, **{name: 1}).code == "malformed"


def test_a_label_is_about_every_rival_unless_the_line_names_one(tmp_path: Path) -> None:
    """Class 2 wins everywhere, and class 0 is certified before class 1 only."""
    network = mlp(1, 3)
    mean = vector(0.0, 0.0, 0.0, 1.0, 0.0, 2.0)
    region = ball(vector(0.0).reshape(1, 1), 0.1)
    spec = class_robust(region, [0], 3, target=1)
    lines = written(tmp_path, Problem(network, Normal(mean, 0.01 + 0 * mean), spec))
    assert lines[0]["target"] == 1
    assert lines[0]["lower"] > 0.99
    assert codes(tmp_path, lines) == [None]
    assert codes(tmp_path, [lines[0] | {"target": None}]) == ["result-mismatch"]
    assert codes(tmp_path, [lines[0] | {"target": 2}]) == ["result-mismatch"]
    del lines[0]["target"]
    assert codes(tmp_path, lines) == ["result-mismatch"]


def test_where_there_is_but_one_rival_it_may_be_named(tmp_path: Path) -> None:
    network, mean = mlp(1, 2), vector(0.0, 0.0, 1.0, 0.0)
    spec = class_robust(ball(vector(0.0).reshape(1, 1), 0.1), [0], 2)
    (said,) = written(tmp_path, Problem(network, Normal(mean, 0.01 + 0 * mean), spec))
    assert said["target"] is None
    for target, code in ((None, None), (1, None), (0, "result-mismatch")):
        assert codes(tmp_path, [said | {"target": target}]) == [code]


def test_the_radius_of_a_box_is_its_largest_half_width(tmp_path: Path) -> None:
    network, mean = mlp(2, 2), vector(0.0, 0.0, 0.0, 0.0, 1.0, 0.0)
    x = vector(0.0, 0.0).reshape(1, 2)
    region = explicit_box(Box(x, x + vector(0.5, 0.25)))
    (said,) = written(
        tmp_path, Problem(network, Normal(mean, 0.01 + 0 * mean), class_robust(region, [0], 2))
    )
    assert codes(tmp_path, [said]) == [None]
    for eps in (50.0, 0.125, 0.0):
        assert codes(tmp_path, [said | {"eps": eps}]) == ["result-mismatch"]


def test_a_mean_always_needs_a_certificate(tmp_path: Path) -> None:
    """That it lies between 0 and 1 is no triviality: it is 100."""
    network = mlp(1, 1)
    samples = vector(0.0, 100.0).reshape(1, 2)
    spec = output_interval(ball(vector(0.0).reshape(1, 1), 0.1), 99.0, 101.0)
    (said,) = written(tmp_path, Problem(network, Empirical(samples), spec), decisions=True)
    assert codes(tmp_path, [said]) == [None]
    nothing = {"lower": 0.0, "upper": 1.0, "status": "undecided", "certificate": None}
    assert codes(tmp_path, [said | nothing]) == ["certificate-missing"]


def test_no_two_lines_are_about_one_thing(workshop: Workshop) -> None:
    """Nor do two of them name one certificate, however it is called."""
    other = NOTHING | {"index": 0}
    assert [v.code for v in verdicts(workshop, {}, other)] == [None, "result-repeated"]
    assert [v.code for v in verdicts(workshop, {}, other | {"eps": 0.2})] == [None, None]
    assert [v.code for v in verdicts(workshop, {}, other | {"method": "pie"})] == [None, None]
    assert [v.code for v in verdicts(workshop, {}, {}, {})] == [
        None,
        "result-repeated",
        "result-repeated",
    ]
    (workshop.folder / "link").unlink(missing_ok=True)
    (workshop.folder / "link").symlink_to("lower.safetensors")
    path = bundle(workshop)
    names = [
        "link",
        "./lower.safetensors",
        f"{path.name}/lower.safetensors",
        f"./{path.name}/lower.safetensors",
    ]
    found = [v.code for v in verdicts(workshop, {}, *({"certificate": name} for name in names))]
    assert found == [None, "result-repeated", "result-repeated", None, "result-repeated"]


SPEC = {
    "norm": "linf",
    "eps": (0.1).hex(),
    "clip": None,
    "y": (1.5).hex(),
    "tolerance": (1.0).hex(),
}
OTHER = {
    "norm": "l2",
    "eps": (0.2).hex(),
    "clip": [0, 1],
    "y": (1.0).hex(),
    "tolerance": (2.0).hex(),
}


def test_what_a_campaign_says_that_it_asked_is_compared(tmp_path: Path) -> None:
    """0.5 < y < 2.5 on a ball of radius 0.1."""
    region, mean = ball(vector(1.0).reshape(1, 1), 0.1), vector(0.5, 1.0)
    (said,) = written(
        tmp_path,
        Problem(mlp(1, 1), Normal(mean, 0.01 + 0 * mean), output_interval(region, 0.5, 2.5)),
    )
    assert codes(tmp_path, [said | {"spec": json.dumps(SPEC)}]) == [None]
    for name, value in OTHER.items():
        assert codes(tmp_path, [said | {"spec": json.dumps(SPEC | {name: value})}]) == [
            "result-mismatch"
        ], name
    assert codes(tmp_path, [said | {"spec": json.dumps(SPEC | {"more": 1})}]) == ["malformed"]
    classes = {name: SPEC[name] for name in ("norm", "eps", "clip")} | {"label": 0, "target": None}
    assert codes(tmp_path, [said | {"spec": json.dumps(classes)}]) == ["result-mismatch"]


def test_the_classes_of_a_campaign_are_compared(tmp_path: Path) -> None:
    network, mean = mlp(1, 3), vector(0.0, 0.0, 0.0, 1.0, 0.0, 0.0)
    for folder, target in (("one", 2), ("all", None)):
        spec = class_robust(ball(vector(0.0).reshape(1, 1), 0.1, clip=(-1, 1)), [0], 3, target)
        (tmp_path / folder).mkdir()
        (said,) = written(tmp_path / folder, Problem(network, Normal(mean, 0.01 + 0 * mean), spec))
        asked = {"norm": "linf", "eps": (0.1).hex(), "clip": [-1, 1], "label": 0}
        for named in (None, 1, 2):
            text = json.dumps(asked | {"target": named})
            expected = None if named == target else "result-mismatch"
            assert codes(tmp_path / folder, [said | {"spec": text}]) == [expected]


def test_certificates_may_lie_in_bundles(workshop: Workshop) -> None:
    """A zip archive that compresses nothing is read like a folder; anything else is refused."""
    alone = check_certificate(workshop.folder / "lower.safetensors", workshop.model)
    path = bundle(workshop)
    found = check_certificate(path / "lower.safetensors", workshop.model)
    assert (found.status, found.claimed, found.supported) == (
        ACCEPT,
        alone.claimed,
        alone.supported,
    )
    assert line(workshop, certificate="bundle.zip/lower.safetensors").status == ACCEPT
    assert (
        line(workshop, certificate="bundle.zip/lower.safetensors", lower=0.9999).code
        == "result-mismatch"
    )
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


PATHS = ["../p.safetensors", "../../../../../etc/passwd", "/etc/passwd", "out"]


@pytest.mark.parametrize("path", PATHS)
def test_paths_do_not_leave_the_folder(path: str, workshop: Workshop, tmp_path: Path) -> None:
    (workshop.folder / "out").unlink(missing_ok=True)
    (workshop.folder / "out").symlink_to(tmp_path)
    verdict = line(workshop, certificate=path)
    assert (verdict.status, verdict.code) == (ERROR, "malformed")


@pytest.mark.parametrize("path", ["a\0b", "\ud800", "loop"])
def test_impossible_paths_are_refused(path: str, workshop: Workshop) -> None:
    (workshop.folder / "loop").unlink(missing_ok=True)
    (workshop.folder / "loop").symlink_to("loop")
    assert line(workshop, certificate=path).status == ERROR


UNREADABLE = [None, "{", "\n", "NaN", "[" * 10**5, "\udcff", '{"index": 0, "index": 1}']


@pytest.mark.parametrize("text", UNREADABLE, ids=lambda t: repr(t)[:9])
def test_results_that_cannot_be_read(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "results.jsonl").write_text(text, errors="surrogateescape")
    with pytest.raises(CannotCheck) as reason:
        read_results(tmp_path)
    assert reason.value.code == "unreadable"


def test_a_folder_with_no_results_is_not_accepted(tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_text("")
    with pytest.raises(CannotCheck, match="is empty"):
        read_results(tmp_path)
