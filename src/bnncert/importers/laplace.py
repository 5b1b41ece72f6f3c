"""laplace-torch: Laplace approximations N(mean, P⁻¹) with the precision P of the library.

P is the curvature of the data, scaled, plus the prior's precision; it is taken from
`la.posterior_precision`, which is what `la.sample` draws with, and inverted in float64.

    diag      std = P^(-1/2)
    full      factor = Cholesky factor of P⁻¹
    lowrank   the same, of P = U diag(l) Uᵀ + prior
    kron      factor = Q Λ^(-1/2), one block per parameter,
              where P = Q Λ Qᵀ with Q = Q₁ ⊗ Q₂ and Λ = λ₁ ⊗ λ₂ + prior

Weights outside `subset_of_weights`, or frozen when the approximation was made, are certain. What is
certified are networks drawn from this posterior. A network is linear in its last layer's weights:
where those alone are random, the linearised network that laplace-torch predicts with is the same.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bnncert.errors import InputError
from bnncert.importers.named import Named, check_factor, named, unpacked
from bnncert.model.layers import LINEAR, Shape
from bnncert.model.network import Network
from bnncert.posteriors.gaussian import Gaussian, full_covariance

NOT_LINEARISED = (
    "certified are networks drawn from the posterior, as by pred_type='nn'; laplace-torch predicts "
    "with the linearised network by default, the same only where the last layer alone is random"
)
INSTEAD = "use hessian_structure='diag' or subset_of_weights='last_layer'"


def from_laplace(la: Any, input_shape: Sequence[int] | None = None) -> tuple[Network, Gaussian]:
    """The network of a fitted Laplace approximation, and its posterior over the weights.

    >>> from laplace import Laplace
    >>> model = nn.Sequential(nn.Linear(2, 2))
    >>> la = Laplace(model, "classification", "all", "diag", prior_precision=100.0)
    >>> data = torch.utils.data.TensorDataset(torch.ones(4, 2), torch.tensor([0, 1, 0, 1]))
    >>> la.fit(torch.utils.data.DataLoader(data))
    >>> from_laplace(la)[1].family
    'normal'
    """
    subset, structure = getattr(type(la), "_key", ("", ""))
    if structure not in STRUCTURES:
        raise InputError(
            f"{type(la).__name__} is not a Laplace approximation that can be read; "
            f"fit one with hessian_structure {', '.join(map(repr, STRUCTURES))}"
        )
    if not la.n_data:
        raise InputError(f"{type(la).__name__} is not fitted; call its fit with the training data")
    module, parameters = _approximated(la, subset)
    model = named(module, input_shape)
    shapes = _shapes(module, parameters)
    folded = [name for name in shapes if name not in model.shapes]
    if folded:
        raise InputError(
            f"{folded[0]!r} is random but not a weight of a layer; "
            "freeze it before the approximation"
        )
    with torch.no_grad():
        indices = (
            la.backend.subnetwork_indices if subset == "subnetwork" else torch.arange(len(la.mean))
        )
        posterior = STRUCTURES[structure](la, model, shapes, indices.cpu())
    if not _is_linear(model.network, posterior):
        warnings.warn(NOT_LINEARISED, stacklevel=2)
    return model.network, posterior


def _is_linear(network: Network, posterior: Gaussian) -> bool:
    """Whether outputs are linear in the random weights: those of a last layer."""
    *before, _ = network.split(posterior.marginal_std)
    certain = not any(bool(part.any()) for parts in before for part in parts)
    return certain and isinstance(network.layers[-1], LINEAR)


def _approximated(la: Any, subset: str) -> tuple[nn.Module, list[Tensor]]:
    """The network, and those of its parameters that `la.mean` is a vector of."""
    if subset == "last_layer":
        return la.model.model, list(la.model.last_layer.parameters())
    return la.model, list(la.params)


def _shapes(module: nn.Module, parameters: list[Tensor]) -> dict[str, Shape]:
    names = {id(value): name for name, value in module.named_parameters()}
    return {names[id(value)]: tuple(value.shape) for value in parameters}


def _mean(la: Any, shapes: dict[str, Shape]) -> dict[str, Tensor]:
    return unpacked(la.mean.cpu().double(), shapes)


def _spread(part: Tensor, shapes: dict[str, Shape], indices: Tensor) -> dict[str, Tensor]:
    """Values [..., m] of the random weights in la.mean, as tensors by name, 0 for the others."""
    size = sum(math.prod(shape) for shape in shapes.values())
    whole = torch.zeros(*part.shape[:-1], size, dtype=torch.float64)
    whole[..., indices] = part
    return unpacked(whole, shapes)


def _diagonal(la: Any, model: Named, shapes: dict[str, Shape], indices: Tensor) -> Gaussian:
    std = la.posterior_precision.cpu().double().rsqrt()
    return model.normal(_mean(la, shapes), _spread(std, shapes, indices))


def _full(la: Any, model: Named, shapes: dict[str, Shape], indices: Tensor) -> Gaussian:
    check_factor(model.rows(shapes), len(indices), INSTEAD)
    return _inverted(la, la.posterior_precision.cpu().double(), model, shapes, indices)


def _low_rank(la: Any, model: Named, shapes: dict[str, Shape], indices: Tensor) -> Gaussian:
    check_factor(model.rows(shapes), len(indices), INSTEAD)
    (vectors, values), prior = la.posterior_precision
    own = vectors.cpu().double()
    curvature = own * values.cpu().double() @ own.mT
    precision = curvature + torch.diag(prior.cpu().double())
    return _inverted(la, precision, model, shapes, indices)


def _inverted(
    la: Any, precision: Tensor, model: Named, shapes: dict[str, Shape], indices: Tensor
) -> Gaussian:
    root, failed = torch.linalg.cholesky_ex((precision + precision.mT) / 2)
    if bool(failed):
        raise InputError(
            "the posterior precision is not positive definite; give a larger prior_precision"
        )
    covariance = torch.cholesky_inverse(root)
    factor = full_covariance(root.new_zeros(len(root)), (covariance + covariance.mT) / 2).factor
    return model.low_rank(_mean(la, shapes), {}, _spread(factor.mT, shapes, indices))


def _kronecker(la: Any, model: Named, shapes: dict[str, Shape], indices: Tensor) -> Gaussian:
    check_factor(model.rows(shapes), len(indices), INSTEAD)
    precision = la.posterior_precision
    parts = zip(precision.eigenvectors, precision.eigenvalues, precision.deltas, strict=True)
    blocks = [
        _block(vectors, values, delta, bool(precision.damping)) for vectors, values, delta in parts
    ]
    return model.low_rank(
        _mean(la, shapes), {}, _spread(_diagonal_blocks(blocks).mT, shapes, indices)
    )


def _diagonal_blocks(blocks: Sequence[Tensor]) -> Tensor:
    found: Tensor = torch.block_diag(*blocks)  # type: ignore[no-untyped-call]
    return found


def _block(
    vectors: Sequence[Tensor], values: Sequence[Tensor], delta: Tensor, damping: bool
) -> Tensor:
    """Q Λ^(-1/2) of one parameter; a bias has one Kronecker factor, a matrix or a kernel two."""
    prior = delta.cpu().double()
    if damping and len(values) == 2:
        eigenvalues = _product([value.cpu().double() + prior.sqrt() for value in values])
    else:
        eigenvalues = _product([value.cpu().double() for value in values]) + prior
    return _product([part.cpu().double() for part in vectors]) * eigenvalues.rsqrt()


def _product(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.kron(parts[0].contiguous(), parts[1].contiguous())


STRUCTURES: dict[str, Callable[[Any, Named, dict[str, Shape], Tensor], Gaussian]] = {
    "diag": _diagonal,
    "kron": _kronecker,
    "full": _full,
    "lowrank": _low_rank,
}
