"""Posteriors of standardised values as ones of measured values: the same networks, whose
certificates are in measured units."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bnncert import (
    Column,
    InputError,
    Network,
    Standardisation,
    load_posterior,
    mlp,
    save_posterior,
)
from bnncert.importers.measuring import measured
from bnncert.layers import Dense, ReLU, Scale
from bnncert.posteriors import Laplace, LowRankNormal, Mixture, Normal, sample
from bnncert.posteriors.base import Posterior
from commands import Run
from scenarios import gaussian, uniform

OWN = Standardisation(
    (Column("a", 5.1, 2.3), Column("b", -1.7, 0.3), Column("c", 3e3 + 0.1, 1e2 / 3)),
    (Column("p", 100.1, 10.7), Column("q", -7.7, 0.1)),  # none of them a float32
)
DRAWN = 1000
NETWORKS = {
    "dense": mlp(3, 5, 2),
    "no bias": Network((3,), (Dense(3, 5), ReLU(), Dense(5, 2, bias=False))),
    "no dense end": Network((3,), (Dense(3, 2), ReLU(), Scale((2,)))),
}


def posteriors(size: int) -> list[Posterior]:
    generator = torch.Generator().manual_seed(0)
    mean, std = gaussian(size, generator=generator), uniform(size, generator=generator) / 10
    normal = Normal(mean, std)
    low_rank = LowRankNormal(mean, std, gaussian(size, 2, generator=generator) / 10)
    head = LowRankNormal(mean, std, gaussian(4, 1, generator=generator))
    return [normal, low_rank, head, Mixture((0.25, 0.75), (normal, head))]


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("parts", ["both", "inputs", "outputs"])
def test_draws_are_the_same_functions(name: str, parts: str) -> None:
    """The central one up to rounding, the others by their spread: 0.15 is many deviations of it."""
    own = replace(OWN, **{"inputs": {"outputs": ()}, "outputs": {"inputs": ()}}.get(parts, {}))
    network = replace(NETWORKS[name], standardisation=own)
    x = gaussian(4, 3, generator=torch.Generator().manual_seed(1)) * 10
    for posterior in posteriors(network.size):
        made, found = measured(network, posterior)
        assert made.standardisation is not None
        assert made.standardisation.is_identity
        assert [c.name for c in made.standardisation.outputs] == [c.name for c in own.outputs]
        y = network.forward(posterior.center, own.inputs_of(x))
        mean, std = (
            torch.tensor(
                [getattr(column, part) for column in own.outputs] or [default], dtype=torch.float64
            )
            for part, default in (("mean", 0.0), ("std", 1.0))
        )
        torch.testing.assert_close(
            made.forward(found.center, x), mean + std * y, rtol=1e-12, atol=1e-10
        )
        there = std * network.forward(sample(posterior, DRAWN, 0), own.inputs_of(x)).std(0)
        here = made.forward(sample(found, DRAWN, 1), x).std(0)
        assert bool(((here - there).abs() <= 0.15 * there.amax(0)).all())


def test_what_takes_measured_values_stays() -> None:
    plain = mlp(3, 5, 2)
    normal, *_ = posteriors(plain.size)
    with pytest.raises(InputError, match="as they are measured; leave --measured out"):
        measured(plain, normal)
    once = measured(replace(plain, standardisation=OWN), normal)
    with pytest.raises(InputError, match="leave --measured out"):
        measured(*once)
    law = Laplace(normal.center, 0.1 * torch.ones_like(normal.center))
    with pytest.raises(InputError, match="--measured is for Gaussian posteriors, not for laplace"):
        measured(replace(plain, standardisation=OWN), law)


def test_by_commands(run: Run, tmp_path: Path) -> None:
    """The tolerance and the radius are measured, and the checker accepts; a map takes only it."""
    network = replace(mlp(3, 5, 2), standardisation=OWN)
    normal, *_ = posteriors(network.size)
    narrow = Normal(normal.center, 1e-4 * torch.ones_like(normal.center))
    before, after = tmp_path / "p.safetensors", tmp_path / "q.safetensors"
    save_posterior(before, network, narrow)
    assert run("import", before, "--as", "native", "--measured", "--out", after)[0] == 0
    assert load_posterior(after)[0].standardisation is not None
    x = np.array([[5.0, -1.0, 3e3], [4.0, -1.2, 3.1e3]])
    y = 100 + 10 * network.forward(narrow.center, OWN.inputs_of(torch.from_numpy(x)))[:, 0].numpy()
    np.savez(tmp_path / "x.npz", x=x, y=y)
    asked = ("--inputs", tmp_path / "x.npz", "--tolerance", 15, "--output", 0)
    for path, eps in ((before, 0.01), (after, 0.005)):
        out = tmp_path / path.stem
        code, text, error = run("certify", path, *asked, "--eps", eps, "--out", out)
        assert (code, error) == (0, "")
        assert ("standard deviations" in text) == (path == before)
        assert "2 certified" in text
        assert run("check", out, "--posterior", path)[0] == 0
    (tmp_path / "r.csv").write_text("name,low,high\na,4.9,5.1\nb,-1.1,-0.9\nc,2990,3010\n")
    ask = ("--region", tmp_path / "r.csv", "--condition", "y0 >= -1e9", "--cells", 1)
    code, _, error = run("map", before, *ask, "--out", tmp_path / "map")
    assert code == 2
    assert "takes values that are standardised, and a region has measured ones" in error
    code, _, error = run("map", after, *ask, "--out", tmp_path / "map")
    assert (code, error) == (0, "")
