"""What a torch module is made of, without running it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from bnncert.importers.conventions import convention_of


def own_parameters(module: nn.Module) -> dict[str, Tensor]:
    """The module's parameters, those of its submodules included, each under every name it has."""
    return dict(module.named_parameters(remove_duplicate=False))


def is_bayesian(module: nn.Module) -> bool:
    """Whether it names its weights as one of the libraries does."""
    return convention_of(own_parameters(module)) is not None


def is_standard(module: nn.Module, *kinds: type[nn.Module]) -> bool:
    """One of torch's own modules, or a subclass that computes the same."""
    return any(isinstance(module, kind) and type(module).forward is kind.forward for kind in kinds)


def is_torchs(kind: type[nn.Module]) -> bool:
    """Whether it computes what one of torch's layers does."""
    return str(kind.forward.__module__).startswith("torch.nn.modules.")


@contextmanager
def undisturbed(module: nn.Module) -> Iterator[None]:
    """In evaluation mode, and afterwards as before: a forward may leave marks on its modules."""
    before = [(each, dict(each.__dict__)) for each in module.modules()]
    try:
        module.eval()
        yield
    finally:
        for each, attributes in before:
            each.__dict__.clear()
            each.__dict__.update(attributes)
