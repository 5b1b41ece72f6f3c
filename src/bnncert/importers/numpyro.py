"""NumPyro: automatic guides over the weights of a network.

NumPyro's models are functions, so the user says which site is which parameter. What is read are the
parameters that SVI returns; `AutoNormal` has them by site, the others as vectors over all sites one
after the other:

    AutoNormal                     N(site_auto_loc, site_auto_scale²)
    AutoDiagonalNormal             N(auto_loc, auto_scale²)
    AutoLowRankMultivariateNormal  auto_loc + auto_scale∘(ξ + auto_cov_factor η)
    AutoMultivariateNormal         auto_loc + auto_scale_tril η

What `MCMC.get_samples()` returns goes to `from_samples`, with the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bnncert.errors import InputError
from bnncert.importers.named import (
    Named,
    Target,
    announce_certain,
    check_factor,
    check_names,
    named,
    unpacked,
)
from bnncert.importers.reading import Pick
from bnncert.model.network import Network
from bnncert.posteriors.gaussian import Gaussian


def from_numpyro(
    guide: Any,
    params: Mapping[str, Any],
    target: Target,
    names: Mapping[str, str] | None = None,
    input_shape: Sequence[int] | None = None,
    output: Pick = None,
) -> tuple[Network, Gaussian]:
    """The network, and the guide's distribution of its weights.

    target: a `Network`, whose matrices are [in, out] as in x @ w, or a module of torch, whose are
    [out, in]. names: the parameter of the target that a site is, by site, where the two are called
    differently. Other sites are integrated out: the network does not depend on them.

    >>> import numpyro
    >>> from bnncert.layers import Dense
    >>> def model():
    ...     weights = numpyro.distributions.Normal(np.zeros((2, 1)), 1.0).to_event(2)
    ...     return numpyro.sample("w", weights)
    >>> guide = numpyro.infer.autoguide.AutoNormal(model)
    >>> _ = numpyro.handlers.seed(guide, rng_seed=0)()  # as SVI does
    >>> params = {"w_auto_loc": np.ones((2, 1)), "w_auto_scale": np.full((2, 1), 0.5)}
    >>> network = Network((2,), (Dense(2, 1, bias=False),))
    >>> from_numpyro(guide, params, network, names={"w": "W0"})[1].std
    tensor([0.5000, 0.5000], dtype=torch.float64)
    """
    kind = type(guide).__name__
    if kind not in GUIDES or not type(guide).__module__.startswith("numpyro."):
        raise InputError(f"{kind} is not a guide that can be read; use one of {', '.join(GUIDES)}")
    if guide.prototype_trace is None:
        raise InputError(f"the guide {kind} has not met its model yet; run SVI first")
    model = named(target, input_shape, output)
    names = (
        {name: name for name in model.shapes if name in guide._init_locs}
        if names is None
        else names
    )
    check_names(names)
    for site in names:
        _check_real(site, guide.prototype_trace)
    announce_certain(model, names.values())
    return model.network, GUIDES[kind](guide, params, model, names)


def _check_real(site: str, trace: Mapping[str, Any]) -> None:
    """A Gaussian guide of a constrained site is no Gaussian over its values."""
    if site not in trace:
        raise InputError(f"the model has no site {site!r}; it has {', '.join(trace)}")
    support = trace[site]["fn"].support
    while hasattr(support, "base_constraint"):
        support = support.base_constraint
    if type(support).__name__ != "_Real":
        raise InputError(
            f"site {site!r} has support {support}; weights need a prior on all real numbers"
        )


def _by_site(
    guide: Any, params: Mapping[str, Any], model: Named, names: Mapping[str, str]
) -> Gaussian:
    means, stds = (
        {name: _array(params, f"{site}_{guide.prefix}_{part}") for site, name in names.items()}
        for part in ("loc", "scale")
    )
    return model.normal(means, stds)


def _diagonal(
    guide: Any, params: Mapping[str, Any], model: Named, names: Mapping[str, str]
) -> Gaussian:
    loc, scale = (_array(params, f"{guide.prefix}_{part}") for part in ("loc", "scale"))
    return model.normal(_cut(guide, loc, names), _cut(guide, scale, names))


def _low_rank(
    guide: Any, params: Mapping[str, Any], model: Named, names: Mapping[str, str]
) -> Gaussian:
    loc, scale, factor = (
        _array(params, f"{guide.prefix}_{part}") for part in ("loc", "scale", "cov_factor")
    )
    columns = (factor * scale.unsqueeze(-1)).mT
    return model.low_rank(
        _cut(guide, loc, names), _cut(guide, scale, names), _cut(guide, columns, names)
    )


def _dense(
    guide: Any, params: Mapping[str, Any], model: Named, names: Mapping[str, str]
) -> Gaussian:
    loc = _array(params, f"{guide.prefix}_loc")
    check_factor(model.network.size, len(loc), "use AutoLowRankMultivariateNormal")
    factor = _array(params, f"{guide.prefix}_scale_tril")
    return model.low_rank(_cut(guide, loc, names), {}, _cut(guide, factor.mT, names))


def _array(params: Mapping[str, Any], name: str) -> Tensor:
    if name not in params:
        raise InputError(f"the parameters lack {name!r}; give what svi.run(...) returns as params")
    return torch.from_numpy(np.asarray(params[name]).astype(np.float64))


def _cut(guide: Any, packed: Tensor, names: Mapping[str, str]) -> dict[str, Tensor]:
    """A vector over all sites [..., n] as tensors by the target's names."""
    shapes = {site: tuple(value.shape) for site, value in guide._init_locs.items()}
    return {names[site]: value for site, value in unpacked(packed, shapes).items() if site in names}


GUIDES: dict[str, Callable[[Any, Mapping[str, Any], Named, Mapping[str, str]], Gaussian]] = {
    "AutoNormal": _by_site,
    "AutoDiagonalNormal": _diagonal,
    "AutoLowRankMultivariateNormal": _low_rank,
    "AutoMultivariateNormal": _dense,
}
