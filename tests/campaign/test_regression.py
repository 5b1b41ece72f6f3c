"""Campaigns of regressions: measured values in the file, standardised ones for the posteriors."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bnncert import InputError, load_posterior, mlp, save_posterior
from bnncert.campaign.store import open_store
from bnncert.campaign.table import write_results
from bnncert.model.standardisation import Column, Standardisation
from bnncert.posteriors import Normal
from bnncert_check.folder import check_results, read_results
from bnncert_check.model import read_model
from campaigns import run_here, write_campaign
from scenarios import gaussian

OWN = Standardisation(
    (Column("a", 5.0, 2.0), Column("b", -1.0, 0.5)), (Column("p", 100.0, 10.0), Column("q"))
)


def write(folder: Path, second: Standardisation) -> Path:
    """Two posteriors of networks with two outputs, and the table of measured values that the mean
    of both fits."""
    path = write_campaign(folder, inputs="t.csv", eps=[0.01], tolerance=20.0, output=0)
    network = replace(mlp(2, 6, 2), standardisation=OWN)
    mean = gaussian(network.size, generator=torch.Generator().manual_seed(2))
    for name, std, own in (("narrow", 1e-3, OWN), ("wide", 2e-3, second)):
        save_posterior(
            folder / f"{name}.safetensors",
            replace(network, standardisation=own),
            Normal(mean, torch.full_like(mean, std)),
        )
    z = gaussian(3, 2, generator=torch.Generator().manual_seed(3))
    y = network.forward(mean, z)
    columns = [5 + 2 * z[:, 0], -1 + z[:, 1] / 2, 100 + 10 * y[:, 0], y[:, 1]]
    np.savetxt(
        folder / "t.csv", torch.stack(columns, 1), delimiter=",", header="a,b,p,q", comments=""
    )
    return path


def test_a_campaign_is_asked_in_measured_values_and_checked(tmp_path: Path) -> None:
    path = write(tmp_path, OWN)
    assert run_here(path, tmp_path / "run").errors == 0
    with open_store(tmp_path / "run") as store:
        write_results(store)
    lines = read_results(tmp_path / "run")
    assert {line["status"] for line in lines} == {"certified"}
    for line in lines:
        spec = json.loads(line["spec"])
        assert float.fromhex(spec["tolerance"]) == 2.0
    for name in ("narrow", "wide"):
        model = read_model(tmp_path / f"{name}.safetensors")
        verdicts = list(check_results(tmp_path / "run", lines, model))
        assert [verdict.status for verdict in verdicts] == ["ACCEPT"] * 3


def test_one_campaign_has_one_standardisation(tmp_path: Path) -> None:
    other = replace(OWN, outputs=(Column("p", 0.0, 1.0), Column("q")))
    path = write(tmp_path, other)
    assert load_posterior(tmp_path / "wide.safetensors")[0].standardisation == other
    with pytest.raises(InputError, match=r"posteriors are standardised differently.*give each a"):
        run_here(path, tmp_path / "run")
