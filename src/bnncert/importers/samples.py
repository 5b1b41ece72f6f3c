"""Weight samples: Markov chains, deep ensembles, and the Gaussian that SWAG fits to iterates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from bnncert.errors import InputError
from bnncert.importers.named import Target, announce_certain, check_names, named
from bnncert.importers.reading import Pick
from bnncert.model.network import Network
from bnncert.posteriors.empirical import Empirical
from bnncert.posteriors.gaussian import Gaussian

Samples: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Tensor]]
VARIANCE = 1e-30  # the least that SWAG's own sampling lets a variance be


def from_samples(
    target: Target,
    samples: Samples,
    names: Mapping[str, str] | None = None,
    input_shape: Sequence[int] | None = None,
    output: Pick = None,
) -> tuple[Network, Empirical]:
    """The network, and its weights drawn uniformly from the samples.

    samples: a list of state_dicts of the module (the members of an ensemble, say), or arrays [S,
    *shape] by name, as samplers return them, chains taken together. names: which parameter of the
    target an array is, where the sampler has other names; arrays without an entry are then left
    out. output: which of several outputs of the module is meant.

    >>> ensemble = [nn.Sequential(nn.Linear(2, 2)) for _ in range(3)]
    >>> states = [member.state_dict() for member in ensemble]
    >>> network, posterior = from_samples(ensemble[0], states)
    >>> posterior.samples.shape
    torch.Size([3, 6])
    """
    if not isinstance(samples, Mapping):
        return _from_states(target, samples, input_shape, output)
    model = named(target, input_shape, output)
    arrays = renamed(samples, names)
    announce_certain(model, arrays)
    return model.network, Empirical(model.samples(arrays))


def renamed(values: Mapping[str, Any], names: Mapping[str, str] | None) -> dict[str, Tensor]:
    """Arrays of any library by the target's names, as float64 tensors."""
    if names is not None:
        check_names(names)
        lacking = sorted(names.keys() - values.keys())
        if lacking:
            raise InputError(f"there is no {lacking[0]!r} among {', '.join(values)}")
        values = {name: values[own] for own, name in names.items()}
    return {name: _tensor(name, value) for name, value in values.items()}


def _tensor(name: str, value: Any) -> Tensor:
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
    if not np.issubdtype(array.dtype, np.floating):
        raise InputError(f"values for {name!r} are {array.dtype}; give floating-point numbers")
    return torch.from_numpy(array.astype(np.float64))


def _from_states(
    target: Target,
    states: Sequence[Mapping[str, Tensor]],
    input_shape: Sequence[int] | None,
    output: Pick,
) -> tuple[Network, Empirical]:
    """Each state is loaded into a copy of the module: running statistics may differ, too."""
    if not isinstance(target, nn.Module) or not states:
        raise InputError("a list of samples must be state_dicts, at least one, of a module")
    copy = deepcopy(target)
    rows = []
    networks = []
    for i, state in enumerate(states):
        try:
            copy.load_state_dict(state)
        except RuntimeError as error:
            raise InputError(
                f"a state_dict does not fit the module: {' '.join(str(error).split())}"
            ) from error
        model = named(copy, input_shape, output, compare=i == 0)
        rows.append(model.point)
        networks.append(model.network)
        if networks[i] != networks[0]:
            raise InputError(
                f"states 0 and {i} make networks of different layers (slopes of a PReLU, or a "
                "forward that decides by a buffer), and a posterior is over the weights of one"
            )
    return model.network, Empirical(torch.stack(rows))


def from_swag(
    module: nn.Module,
    mean: Mapping[str, Any],
    sq_mean: Mapping[str, Any],
    deviations: Mapping[str, Any] | None = None,
    input_shape: Sequence[int] | None = None,
    output: Pick = None,
) -> tuple[Network, Gaussian]:
    """SWAG: N(θ, (Σ + D Dᵀ / (K - 1)) / 2) with Σ = diag(sq_mean - mean²) and the K deviations as
    columns of D.

    mean and sq_mean: running means of the weights and of their squares; deviations: [K, *shape] for
    each parameter, the last iterates less the running mean. Without deviations the posterior is
    SWAG-Diagonal, N(θ, Σ).

    >>> model = nn.Sequential(nn.Linear(2, 2, bias=False))
    >>> iterates = torch.tensor([0.0, 2.0]).double().reshape(2, 1, 1).expand(2, 2, 2)
    >>> mean, squares = {"0.weight": iterates.mean(0)}, {"0.weight": (iterates**2).mean(0)}
    >>> network, posterior = from_swag(model, mean, squares)
    >>> posterior.std
    tensor([1., 1., 1., 1.], dtype=torch.float64)
    """
    model = named(module, input_shape, output)
    means, squares = renamed(mean, None), renamed(sq_mean, None)
    if means.keys() != squares.keys():
        raise InputError(
            f"mean has {', '.join(means)} and sq_mean {', '.join(squares)}; "
            "give both of every parameter"
        )
    announce_certain(model, means)
    # A variance found as a difference may come out below 0; SWAG's own sampling cuts it off too.
    stds = {name: (squares[name] - means[name] ** 2).clamp_min(VARIANCE).sqrt() for name in means}
    if deviations is None:
        return model.network, model.normal(means, stds)
    columns = renamed(deviations, None)
    rank = min((len(value) for value in columns.values()), default=0)
    if rank < 2:
        raise InputError(
            f"SWAG divides by the number of deviations less one; give at least 2, not {rank}"
        )
    factor = {name: value / (2 * (rank - 1)) ** 0.5 for name, value in columns.items()}
    return model.network, model.low_rank(
        means, {name: std / 2**0.5 for name, std in stds.items()}, factor
    )
