"""Pyro: automatic guides over the weights of a network.

The sample sites are the network's parameters, named by their paths (`net.0.weight`). What is read
is what the guide draws with: `AutoNormal` keeps `locs` and `scales` by site, the others vectors
over all sites one after the other,

    AutoDiagonalNormal             N(loc, scale²)
    AutoLowRankMultivariateNormal  loc + scale∘(ξ + cov_factor η)
    AutoMultivariateNormal         loc + scale∘(scale_tril η)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import constraints

from bnncert.errors import InputError
from bnncert.importers.named import Named, announce_certain, check_factor, named, unpacked
from bnncert.importers.reading import Pick
from bnncert.model.network import Network
from bnncert.posteriors.gaussian import Gaussian


def from_pyro(
    guide: Any,
    net: nn.Module,
    input_shape: Sequence[int] | None = None,
    output: Pick = None,
) -> tuple[Network, Gaussian]:
    """The network that `net` computes, and the guide's distribution of its weights.

    `net` is the part of the model that maps inputs to outputs. Sites of the model that are not in
    it (a noise scale, say) are integrated out: its output does not depend on them.

    >>> from pyro.distributions import Normal
    >>> from pyro.infer.autoguide import AutoNormal
    >>> from pyro.nn import PyroModule, PyroSample
    >>> model = PyroModule[nn.Linear](2, 2, bias=False)
    >>> model.weight = PyroSample(Normal(torch.zeros(2, 2), 1.0).to_event(2))
    >>> guide = AutoNormal(model, init_scale=0.5)
    >>> _ = guide(torch.ones(1, 2))  # or steps of SVI, which meet the model too
    >>> from_pyro(guide, model)[1].std
    tensor([0.5000, 0.5000, 0.5000, 0.5000], dtype=torch.float64)
    """
    kind = type(guide).__name__
    if kind not in GUIDES or not type(guide).__module__.startswith("pyro."):
        raise InputError(f"{kind} is not a guide that can be read; use one of {', '.join(GUIDES)}")
    if guide.prototype_trace is None:
        raise InputError(f"the guide {kind} has not met its model yet; take a step of SVI first")
    sites = dict(guide.prototype_trace.iter_stochastic_nodes())
    paths = _paths(sites, _parameters(net))
    for site in paths:
        _check_real(site, sites[site]["fn"].support)
    model = named(
        _plain(net, {path: sites[site]["value"] for site, path in paths.items()}),
        input_shape,
        output,
    )
    announce_certain(model, paths.values())
    with torch.no_grad():
        return model.network, GUIDES[kind](guide, model, paths)


def _parameters(net: nn.Module) -> list[str]:
    """Paths of the parameters and of the attributes that a `PyroModule` draws."""
    parents = [(f"{path}." if path else "", module) for path, module in net.named_modules()]
    drawn = [
        path + name for path, module in parents for name in module.__dict__.get("_pyro_samples", ())
    ]
    return [*drawn, *dict(net.named_parameters())]


def _paths(sites: Collection[str], parameters: Collection[str]) -> dict[str, str]:
    """Which site is which parameter.

    `net` may be a part of the model, whose path then precedes the parameters'.
    """
    prefixes = {
        site.removesuffix(name)
        for site in sites
        for name in parameters
        if site == name or site.endswith(f".{name}")
    }
    if len(prefixes) != 1:
        raise InputError(
            f"sample sites {', '.join(sites)} do not match the parameters {', '.join(parameters)}; "
            "give the part of the model whose parameters are the sites"
        )
    prefix = prefixes.pop()
    return {prefix + name: name for name in parameters if prefix + name in sites}


def _check_real(site: str, support: Any) -> None:
    """A Gaussian guide of a constrained site is no Gaussian over its values."""
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    if support is not constraints.real:
        raise InputError(
            f"site {site!r} has support {support}; weights need a prior on all real numbers"
        )


def _plain(net: nn.Module, drawn: Mapping[str, Tensor]) -> nn.Module:
    """A copy of torch's modules: a `PyroModule[nn.Linear]` as nn.Linear, draws as parameters."""
    copy = deepcopy(net)
    for path, module in copy.named_modules():
        if "_pyro_samples" not in module.__dict__:
            continue
        if module.__dict__["_pyro_params"]:
            raise InputError(
                f"module {path!r} has a PyroParam; make it an nn.Parameter or a PyroSample"
            )
        names = list(module.__dict__["_pyro_samples"])
        module.__dict__["_pyro_samples"].clear()
        kind = type(module)
        # The mixin of a module and Pyro has no forward of its own; a class written by hand has, and
        # keeps it.
        if "forward" not in vars(kind) and "_pyro_get_fullname" not in dir(kind.__bases__[0]):
            module.__class__ = kind.__bases__[0]
        for name in names:
            value = drawn.get(f"{path}.{name}" if path else name)
            if value is None:
                raise InputError(
                    f"the guide has no site for {path}.{name}, which the network draws"
                )
            module.register_parameter(
                name, nn.Parameter(value.detach().clone(), requires_grad=False)
            )
    return copy


def _by_site(guide: Any, model: Named, paths: Mapping[str, str]) -> Gaussian:
    means, stds = (
        {path: attrgetter(site)(part) for site, path in paths.items()}
        for part in (guide.locs, guide.scales)
    )
    return model.normal(means, stds)


def _diagonal(guide: Any, model: Named, paths: Mapping[str, str]) -> Gaussian:
    return model.normal(_cut(guide, guide.loc, paths), _cut(guide, guide.scale, paths))


def _low_rank(guide: Any, model: Named, paths: Mapping[str, str]) -> Gaussian:
    factor = guide.cov_factor.double() * guide.scale.double().unsqueeze(-1)
    return _correlated(guide, model, paths, guide.scale, factor)


def _dense(guide: Any, model: Named, paths: Mapping[str, str]) -> Gaussian:
    check_factor(model.network.size, len(guide.loc), "use AutoLowRankMultivariateNormal")
    factor = guide.scale_tril.double() * guide.scale.double().unsqueeze(-1)
    return _correlated(guide, model, paths, torch.zeros_like(guide.scale), factor)


def _correlated(
    guide: Any, model: Named, paths: Mapping[str, str], std: Tensor, factor: Tensor
) -> Gaussian:
    return model.low_rank(
        _cut(guide, guide.loc, paths), _cut(guide, std, paths), _cut(guide, factor.mT, paths)
    )


def _cut(guide: Any, packed: Tensor, paths: Mapping[str, str]) -> dict[str, Tensor]:
    """A vector over all sites [..., n] as tensors by the parameters' paths."""
    shapes = {site: tuple(shape) for site, shape in guide._unconstrained_shapes.items()}
    return {paths[site]: value for site, value in unpacked(packed, shapes).items() if site in paths}


GUIDES: dict[str, Callable[[Any, Named, Mapping[str, str]], Gaussian]] = {
    "AutoNormal": _by_site,
    "AutoDiagonalNormal": _diagonal,
    "AutoLowRankMultivariateNormal": _low_rank,
    "AutoMultivariateNormal": _dense,
}
