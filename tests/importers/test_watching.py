"""Forwards that do more than tracing sees, far from the inputs that are drawn for comparison."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from bnncert import InputError
from bnncert.importers import from_samples, from_torch
from bnncert.importers.watching import Watch

FAR = 1e9  # beyond all inputs that are drawn


class Own(nn.Module):
    """A forward of one's own on two layers, and tensors that it keeps."""

    def __init__(self, compute: Callable[[Any, Tensor], Any], **kept: Tensor) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)
        self.compute = compute
        for name, value in kept.items():
            self.register_buffer(name, value)

    def forward(self, x: Tensor) -> Any:
        return self.compute(self, x)


def clipped(x: Tensor) -> Tensor:
    return x.exp().clamp(max=FAR).log()


def bent(x: Tensor) -> Tensor:
    """x up to FAR and FAR beyond, of what layers are read as."""
    return x - torch.relu(x - FAR)


def layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def hooked(module: int | None, cut: Callable[[Tensor], Tensor], before: bool) -> nn.Module:
    whole = layers()
    part = whole if module is None else whole[module]
    if before:
        part.register_forward_pre_hook(lambda _, inputs: (cut(inputs[0]),))
    else:
        part.register_forward_hook(lambda _, __, output: cut(output))
    return whole


def replaced(module: int | None) -> nn.Module:
    whole = layers()
    part = whole if module is None else whole[module]
    forward = part.forward
    part.forward = lambda x: bent(forward(x))  # type: ignore[method-assign]
    return whole


class Called(nn.Sequential):
    def __call__(self, x: Tensor) -> Any:
        return bent(super().__call__(x))


def assigned(own: Any, x: Tensor) -> Tensor:
    h = own.a(x)
    torch.sub(h, torch.relu(h - FAR), out=h)
    found: Tensor = own.b(h)
    return found


def through(alias: Callable[[Tensor], Tensor]) -> Callable[[Any, Tensor], Tensor]:
    """A change in place of another name of the tensor."""

    def compute(own: Any, x: Tensor) -> Tensor:
        h = own.a(x)
        alias(h).clamp_(max=FAR)
        found: Tensor = own.b(h)
        return found

    return compute


def guarded(own: Any, x: Tensor) -> Tensor:
    h = own.a(x)
    try:
        far = bool((h > FAR).any())
    except InputError:
        far = False
    return -own.b(h) if far else own.b(h)


def sized(own: Any, x: Tensor) -> Tensor:
    h = own.a(x)
    if isinstance(h, Tensor) and len((h > FAR).nonzero()):
        h = -h
    return own.b(h)  # type: ignore[no-any-return]


def chosen(own: Any, x: Tensor) -> Tensor:
    h = own.a(x)
    if isinstance(h, Tensor) and h[h > FAR].numel():
        h = -h
    return own.b(h)  # type: ignore[no-any-return]


def cut_elsewhere(h: Tensor) -> None:
    h.clamp_(max=FAR)


fx.wrap("cut_elsewhere")


def unnoticed(own: Any, x: Tensor) -> Tensor:
    h = own.a(x)
    cut_elsewhere(h)
    return own.b(h)  # type: ignore[no-any-return]


def left(own: Any, x: Tensor) -> Tensor:
    """By way of numpy, which torch does not see."""
    h = own.b(own.a(x))
    return torch.from_numpy(h.numpy().copy()) if isinstance(h, Tensor) else h


HIDDEN: dict[str, Callable[[], nn.Module]] = {
    "hook of an activation": lambda: hooked(1, clipped, False),
    "hook of the whole": lambda: hooked(None, bent, False),
    "hook of an activation, of known functions": lambda: hooked(1, bent, False),
    "hook before an activation": lambda: hooked(1, bent, True),
    "hook before the whole": lambda: hooked(None, bent, True),
    "forward of an activation": lambda: replaced(1),
    "forward of the whole": lambda: replaced(None),
    "call": lambda: Called(*layers()),
    "isinstance": lambda: Own(lambda own, x: own.b(own.a(bent(x) if isinstance(x, Tensor) else x))),
    "type": lambda: Own(lambda own, x: own.b(own.a(bent(x) if type(x) is Tensor else x))),
    "out": lambda: Own(assigned),
    "alias": lambda: Own(through(lambda h: h.view_as(h))),
    "alias by type": lambda: Own(through(lambda h: h.type(h.dtype))),
    "alias by sign": lambda: Own(through(lambda h: +h)),
    "alias by stride": lambda: Own(through(lambda h: h.as_strided(h.shape, (4, 1)))),
    "alias of a dropout": lambda: Own(through(lambda h: functional.alpha_dropout(h, 0.3, False))),
    "guarded decision": lambda: Own(guarded),
    "decision by a size": lambda: Own(sized),
    "decision by a choice": lambda: Own(chosen),
    "function of another file": lambda: Own(unnoticed),
    "numpy": lambda: Own(left),
    "rounded": lambda: Own(
        lambda own, x: own.b(own.a(x.bfloat16().to(x.dtype) if isinstance(x, Tensor) else x))
    ),
}


@pytest.mark.parametrize("module", HIDDEN.values(), ids=list(HIDDEN))
@pytest.mark.filterwarnings("ignore:.*dropout.*:UserWarning")
def test_what_tracing_does_not_see_is_refused(module: Callable[[], nn.Module]) -> None:
    with pytest.raises(InputError, match=r"computes something else|decides by values"):
        from_torch(module(), std=0.01)


def test_hooks_of_all_modules_are_seen() -> None:
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, _, output: bent(output) if isinstance(module, nn.ReLU) else None
    )
    try:
        with pytest.raises(InputError, match="ReLU where tracing does not see it"):
            from_torch(layers(), std=0.01)
    finally:
        handle.remove()
    from_torch(layers(), std=0.01)


def test_the_operator_is_named() -> None:
    with pytest.raises(InputError, match="it runs clamp, exp, log where tracing"):
        from_torch(hooked(1, clipped, False), std=0.01)


def test_cuts_within_reach_are_found_by_their_values() -> None:
    """Where as many entries are bent as in the layers, at the other end."""

    def swapped(own: Any, x: Tensor) -> Any:
        h = own.a(x)
        low = torch.relu(h + 3e3) - 3e3
        high = 3e3 - torch.relu(3e3 - h)
        return own.b(high if isinstance(x, Tensor) else low)

    with pytest.raises(InputError, match=r"computes something else .*; write"):
        from_torch(Own(swapped), std=0.01)


def test_onlookers_are_allowed() -> None:
    seen = []
    module = layers()
    module[1].register_forward_hook(lambda _, __, output: seen.append(output.shape))
    module.register_forward_hook(lambda _, __, output: seen.append((output.exp() > 0).shape))
    from_torch(module, std=0.01)
    assert seen


def test_outputs_beside_the_one_that_is_read_may_be_anything() -> None:
    module = Own(
        lambda own, x: {
            "logits": own.b(own.a(x)),
            "best": own.b(own.a(x)).argmax(1),
            "odds": own.b(own.a(x)).exp(),
        }
    )
    network, posterior = from_torch(module, std=0.0, output="logits")
    x = torch.randn(5, 3, dtype=torch.float64)
    expected = module.double()(x)["logits"]
    torch.testing.assert_close(network.forward(posterior.mean, x), expected)


def test_a_draw_in_the_place_of_a_value_does_not_depend_on_it() -> None:
    """As the signs that Flipout draws."""
    x = torch.randn(4, 3)
    with Watch(x) as watch:
        y = x * x.clone().uniform_(-1, 1).sign()
    assert watch.seen(y).strange == []
    with Watch(x) as watch:
        y = x * x.clone().sign()
    assert watch.seen(y).strange == ["sign"]


def test_what_a_list_of_tensors_is_changed_to_is_seen() -> None:
    x = torch.randn(4, 3)
    with Watch(x) as watch:
        h = 2 * x
        torch._foreach_clamp_max_([h], 1.0)
    assert any("clamp" in name for name in watch.seen(h).strange)
    assert watch.seen(2 * torch.ones(3)).strange == ["what torch does not see"]


# ------------------------------------------------------------------------- what the module keeps


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_forward_that_changes_what_it_keeps_is_refused_and_undone(dtype: torch.dtype) -> None:
    module = Own(lambda own, x: own.b(own.a(x)) * own.c.mul_(2), c=torch.tensor([1.0, 2.0]))
    with pytest.raises(InputError, match="mul_ changes what the module keeps"):
        from_torch(module.to(dtype), std=0.01)
    assert module.c.tolist() == [1.0, 2.0]


def test_a_copy_may_be_changed() -> None:
    module = Own(
        lambda own, x: own.b(own.a(x)) * own.c.clone().clamp_(-1, 1) + own.c,
        c=torch.tensor([1.0, 2.0]),
    ).double()
    network, posterior = from_torch(module, std=0.0)
    assert module.c.tolist() == [1.0, 2.0]
    x = torch.randn(5, 3, dtype=torch.float64)
    torch.testing.assert_close(network.forward(posterior.mean, x), module(x))


def test_small_integers_are_multiplied_as_the_numbers_they_become() -> None:
    module = Own(
        lambda own, x: own.b(own.a(x)) * (own.c.float() * 2),
        c=torch.tensor([200, 3], dtype=torch.uint8),
    )
    network, posterior = from_torch(module, std=0.0)
    x = torch.randn(5, 3, dtype=torch.float64)
    torch.testing.assert_close(network.forward(posterior.mean, x), module.double()(x))


def test_weights_that_are_rounded_are_refused() -> None:
    rounded = Own(
        lambda own, x: own.b(
            functional.linear(x, own.a.weight.to(torch.bfloat16).to(x.dtype), own.a.bias)
        )
    )
    with pytest.raises(InputError, match=r"computes in torch\.bfloat16"):
        from_torch(rounded, std=0.01)


def test_autocast_is_refused() -> None:
    def mixed(own: Any, x: Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return own.b(own.a(x).relu())

    with pytest.raises(InputError, match="turns autocast on or off"):
        from_torch(Own(mixed), std=0.01)


def test_weights_made_of_parameters_that_were_not_traced_are_refused() -> None:
    """They would be certain, and nothing would say so."""
    module = Own(lambda own, x: own.b(functional.linear(x, next(own.a.parameters()).abs())))
    with pytest.raises(InputError, match="weight made of others"):
        from_torch(module, std=0.01)


# -------------------------------------------------------------------------------- random weights


@pytest.mark.filterwarnings("ignore:.*taken as certain:UserWarning")
def test_a_parameter_in_a_layer_and_in_a_sum_must_be_certain() -> None:
    module = Own(lambda own, x: own.b(own.a(x).relu()) + own.b.bias)
    with pytest.raises(InputError, match=r"uses 'b.bias' twice"):
        from_torch(module, std=0.01)
    samples = {"b.bias": torch.randn(3, 2).numpy()}
    with pytest.raises(InputError, match=r"'b.bias' is in a sum or product too"):
        from_samples(module, samples)
    network, posterior = from_torch(module, std={"a.weight": 0.1})
    x = torch.randn(5, 3, dtype=torch.float64)
    torch.testing.assert_close(network.forward(posterior.mean, x), module.double()(x))


@pytest.mark.parametrize("name", ["slope.weight", "flag"])
def test_states_whose_networks_differ_are_refused(name: str) -> None:
    """All would be taken for the last one's."""

    def compute(own: Any, x: Tensor) -> Any:
        h = own.slope(own.a(x))
        return own.b(h.tanh() if own.flag else h)

    module = Own(compute, flag=torch.tensor(False))
    module.slope = nn.PReLU()
    same = [module.state_dict(), module.state_dict()]
    assert from_samples(module, same)[1].samples.shape == (2, 26)
    other = {key: value.clone() for key, value in module.state_dict().items()}
    other[name] = torch.ones_like(other[name])
    with pytest.raises(InputError, match="states 0 and 1 make networks of different layers"):
        from_samples(module, [module.state_dict(), other])


def test_a_softmax_of_one_class_is_not_its_logit() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1), nn.Softmax(1))
    assert math.isclose(float(module(torch.zeros(1, 3)).detach()), 1.0)
    with pytest.raises(InputError, match="Softmax is not the last, over the classes"):
        from_torch(module, std=0.01)
