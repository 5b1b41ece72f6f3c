"""posteriors: states of its diagonal Gaussian methods.

A state's `params` are the means by the module's names; beside them stand

    vi.diag                log_sd_diag   std = exp(log_sd_diag)
    laplace.diag_*         prec_diag     std = prec_diag^(-1/2)
    ekf.diag_fisher        sd_diag       std = sd_diag

The states of its samplers hold one draw each: give the list of their `params` to `from_samples`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bnncert.errors import InputError
from bnncert.importers.named import announce_certain, named
from bnncert.importers.reading import Pick
from bnncert.model.network import Network
from bnncert.posteriors.independent import Normal

STDS: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "VIDiagState": ("log_sd_diag", torch.exp),
    "DiagLaplaceState": ("prec_diag", torch.rsqrt),
    "EKFDiagState": ("sd_diag", torch.clone),
}


def from_posteriors(
    state: Any,
    module: nn.Module,
    input_shape: Sequence[int] | None = None,
    output: Pick = None,
) -> tuple[Network, Normal]:
    """The network that the module computes, and independent Gaussian weights as the state has
    them.

    >>> import posteriors, torchopt
    >>> model = nn.Sequential(nn.Linear(2, 2))
    >>> weights = dict(model.named_parameters())
    >>> state = posteriors.vi.diag.init(weights, torchopt.adam(), init_log_sds=-3.0)
    >>> from_posteriors(state, model)[1].std[0].log()
    tensor(-3., dtype=torch.float64)
    """
    kind = type(state).__name__
    if kind not in STDS:
        raise InputError(f"{kind} is not a state that can be read; give one of {', '.join(STDS)}")
    if not isinstance(state.params, Mapping):
        raise InputError(
            "the state's params must be named as the module's; start from "
            "dict(module.named_parameters())"
        )
    field, transform = STDS[kind]
    model = named(module, input_shape, output)
    announce_certain(model, state.params)
    stds = {
        name: transform(value.detach().cpu().double())
        for name, value in getattr(state, field).items()
    }
    flat = [name for name, value in stds.items() if not bool(value.isfinite().all())]
    if flat:
        raise InputError(
            f"{field} of {flat[0]!r} leaves a weight without a finite spread; "
            "add the prior's precision"
        )
    return model.network, model.normal(dict(state.params), stds)
