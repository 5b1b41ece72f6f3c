"""Variational inference: Bayes by Backprop with the local reparameterisation trick.

Fits q(w) = N(mean, std²), independent over weights, std = softplus(rho), by stochastic gradients of

    loss = E_q[-log p(y | x, w)]  +  kl_weight · KL(q || N(0, prior_std²)) / N        (per example, in nats).

With kl_weight = 1 this is the negative evidence lower bound (ELBO), and q approximates the Bayesian
posterior; a smaller weight gives a "cold" posterior, narrower and usually more accurate. Nothing
here is certified: training runs in float32, and what it returns is an ordinary posterior to
certify.

A training can be taken up again after its last whole epoch: a checkpoint holds all that the next
epoch depends on.

References: Blundell et al., Weight Uncertainty in Neural Networks (ICML 2015); Kingma, Salimans,
Welling, Variational Dropout and the Local Reparameterization Trick (NeurIPS 2015).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bnncert.errors import InputError
from bnncert.files.digest import digest
from bnncert.files.tensors import read_tensors, write_tensors
from bnncert.model.layers import Conv2d, Dense, Layer
from bnncert.model.maps import apply
from bnncert.model.network import Network
from bnncert.posteriors.independent import Normal

SCHEMA = "bnncert-training/1"
BAYESIAN = ("all", "dense")
SCHEDULES = ("constant", "cosine")
SHIFT = 4  # pixels an image is moved by at most, each way
AT_ONCE = 1000  # inputs evaluated together: the activations of convolutions are large
ADAM = ("step", "exp_avg", "exp_avg_sq")  # what Adam keeps for a parameter
# Of a pre-activation: sqrt has no gradient at 0, which an all-zero input without a bias reaches.
SMALLEST_VARIANCE = 1e-20


@dataclass(frozen=True)
class BayesByBackprop:
    """How to train; `seed` fixes the initial weights, the order of the examples, the noise and the
    augmentation.

    `bayesian` says which weights are random: all, or those of Dense layers alone. Then kernels and
    biases of convolutions are ordinary parameters: their std is 0, they have no KL, and the loss
    takes weight_decay/2 · Σ mean² over them instead, the penalty of a prior N(0, 1 / (weight_decay
    · N)). Epochs report the loss without it.

    `schedule` constant keeps the learning rate; cosine takes it to 0 over the whole training,
    learning_rate · (1 + cos(π t)) / 2 after a share t of the steps. `augment` is for images: see
    `augmented`.

    The defaults of kl_weight and initial_std were chosen on the digits (64-32-10, 60 epochs, five
    seeds, the last 300 training examples held out). Accuracy at the mean hardly depends on them,
    within 0.01 for weights 0.003 to 0.03 and stds 0.02 to 0.1, so they aim at moderate noise: a
    median std of 0.05 on digits and on MNIST. With kl_weight 1, the ELBO itself, a weight that the
    data say nothing about is as wide as the prior.

    Small data sets make few steps an epoch: on digits a learning rate of 1e-2 reaches in 60 epochs
    (held out 0.96) what 1e-3 takes about 200 for, at a median std of 0.14.
    """

    epochs: int
    batch_size: int = 128
    learning_rate: float = 1e-3
    prior_std: float = 1.0
    kl_weight: float = 0.01
    initial_std: float = 0.05
    seed: int = 0
    bayesian: str = "all"
    schedule: str = "constant"
    augment: bool = False
    weight_decay: float = 1e-4

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if not getattr(self, name) >= 1:
                raise InputError(
                    f"{name} is {getattr(self, name)}; give a whole number of at least 1"
                )
        for name in ("learning_rate", "prior_std", "initial_std"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{name} is {getattr(self, name)}; give a positive number")
        for name, choices in (
            ("bayesian", BAYESIAN),
            ("schedule", SCHEDULES),
            ("augment", (False, True)),
        ):
            if getattr(self, name) not in choices:
                raise InputError(
                    f"{name} is {getattr(self, name)!r}; give {' or '.join(map(str, choices))}"
                )
        if not 0 <= self.weight_decay < math.inf:
            raise InputError(f"weight_decay is {self.weight_decay}; give a number of at least 0")
        if not 0 <= self.kl_weight < math.inf:
            raise InputError(
                f"kl_weight is {self.kl_weight}; give a number of at least 0 (1 is the ELBO)"
            )
        if (
            not 0 <= self.seed < 2**32
        ):  # the generator drops higher bits, so that two seeds would be one
            raise InputError(f"seed is {self.seed}; give a whole number from 0 to 2³² - 1")


@dataclass(frozen=True)
class Epoch:
    """Averages over one pass through the data: loss = nll + kl_weight · kl / N and elbo = -(nll · N
    + kl), in nats.

    `nll` and `accuracy` are those of sampled networks on the training examples, augmented when the
    recipe says so; `kl` is the whole divergence.
    """

    number: int
    loss: float
    nll: float
    kl: float
    accuracy: float
    elbo: float


@dataclass(frozen=True, eq=False)
class Trained:
    """The posterior (float64, on the CPU) and one `Epoch` for each pass through the data."""

    posterior: Normal
    history: tuple[Epoch, ...]


def train(
    network: Network,
    x: Tensor,
    y: Tensor,
    recipe: BayesByBackprop,
    device: str = "cpu",
    on_epoch: Callable[[Epoch], None] | None = None,
    checkpoint: Path | None = None,
) -> Trained:
    """The posterior fitted to inputs x [N, *input_shape] and class labels y [N]; the same for the
    same seed and device.

    `on_epoch` is called after each pass through the data, for a progress display. Before that the
    state is written to `checkpoint`, from where the same call goes on, to the same bits, after an
    interruption; the file goes when training ends.
    """
    _check_network(network, recipe)
    _check_examples(network, x, y)
    x, y = x.to(device, torch.float32), y.to(device, torch.int64)
    run = _start(network, recipe, device)
    identity = {} if checkpoint is None else _identity(network, x, y, recipe)
    if checkpoint is not None:
        _resume(checkpoint, run, identity)
    # Convolutions by algorithms that give the same bits again, in float32 rather than its
    # truncation TF32.
    cudnn = torch.backends.cudnn
    with cudnn.flags(cudnn.enabled, deterministic=True, allow_tf32=False):
        while len(run.history) < recipe.epochs:
            run.history.append(_epoch(run, x, y, recipe))
            if checkpoint is not None:
                _save(checkpoint, run, identity)
            if on_epoch is not None:
                on_epoch(run.history[-1])
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    return Trained(_posterior(run.q), tuple(run.history))


def accuracy(network: Network, weights: Tensor, x: Tensor, y: Tensor) -> float:
    """The share of inputs x [N, *input_shape] that the network `weights` [size] assigns to their
    class y [N].

    For several networks, weights [..., size], the average of their shares.
    """
    _check_examples(network, x, y)
    if weights.shape[-1:] != (network.size,):
        raise InputError(
            f"weights have shape {tuple(weights.shape)}, the network takes [..., "
            f"{network.size}]; fix "
            "them"
        )
    with torch.no_grad():
        parts = torch.split(x.to(weights), AT_ONCE)
        predicted = torch.cat([network.forward(weights, part).argmax(-1) for part in parts], -1)
    return float((predicted == y.to(weights.device)).double().mean())


def kl_divergence(mean: Tensor, std: Tensor, prior_std: float) -> Tensor:
    """KL(N(mean, std²) || N(0, s²)) = Σ log(s / std) + (std² + mean²) / (2 s²) - 1/2, with s =
    prior_std."""
    return _divergences(mean, std, prior_std).sum()


def _divergences(mean: Tensor, std: Tensor, prior_std: float) -> Tensor:
    return (std.square() + mean.square()) / (2 * prior_std**2) - (std / prior_std).log() - 0.5


def learning_rate(recipe: BayesByBackprop, done: float) -> float:
    """The rate after a share `done` of all steps."""
    if recipe.schedule == "constant":
        return recipe.learning_rate
    return recipe.learning_rate * (1 + math.cos(math.pi * done)) / 2


def augmented(x: Tensor, generator: torch.Generator) -> Tensor:
    """Images x [batch, ..., height, width], each mirrored left to right with probability 1/2, then
    moved by up to SHIFT pixels up or down and left or right, zeros coming in at the edges.
    """
    (height, width), count, device = x.shape[-2:], len(x), x.device
    mirror = torch.randint(2, (count, 1), generator=generator, device=device, dtype=torch.bool)
    down, right = torch.randint(2 * SHIFT + 1, (2, count, 1), generator=generator, device=device)
    rows, columns = torch.arange(height, device=device), torch.arange(width, device=device)
    rows, columns = down + rows, right + torch.where(mirror, width - 1 - columns, columns)
    places = rows.unsqueeze(-1) * (width + 2 * SHIFT) + columns.unsqueeze(
        -2
    )  # [batch, height, width] when padded
    pixels = functional.pad(x, (SHIFT,) * 4).reshape(
        count, -1, (height + 2 * SHIFT) * (width + 2 * SHIFT)
    )
    return pixels.gather(2, places.flatten(1).unsqueeze(1).expand(-1, pixels.shape[1], -1)).reshape(
        x.shape
    )


@dataclass(frozen=True, eq=False)
class _Variational:
    """The distribution being trained, flat in the order of `Network.parameters`, and the source of
    its noise.

    Weights that are not `random` are their mean; their rho has no meaning.
    """

    network: Network
    bayesian: str
    random: Tensor
    mean: Tensor
    rho: Tensor
    noise: torch.Generator

    @property
    def std(self) -> Tensor:
        return functional.softplus(self.rho)

    def sample_outputs(self, x: Tensor) -> Tensor:
        """Outputs at x [batch, *input_shape], each example under its own draw of the weights.

        Local reparameterisation: for one example x W + b is Gaussian with mean x M + m and variance
        x² S² + s². Drawing that instead of the weights is the same law at a gradient of less
        variance.

        A convolution is such a sum at every place, and is drawn so too. The places of one image
        share the kernel, so there only each place's law is the same: noise that is independent from
        place to place stands for noise that is not, as is usual. With random kernels nll and elbo
        are estimates in that sense.
        """
        network = self.network
        means = network.split(self.mean)
        variances = network.split(self.std.square())
        held = {0: x}
        for k, layer in enumerate(network.layers):
            inputs = [held[node] for node in network.reads[k]]
            shape = network.shape_before(k)
            center = apply(layer, means[k], inputs, shape)
            if _is_random(layer, self.bayesian):
                variance = apply(layer, variances[k], [inputs[0].square()], shape)
                spread = variance.clamp_min(SMALLEST_VARIANCE).sqrt()
                center = center + spread * torch.empty_like(center).normal_(generator=self.noise)
            held[k + 1] = center
        return held[len(network.layers)]

    def kl_divergence(self, prior_std: float) -> Tensor:
        return _divergences(self.mean, self.std, prior_std).masked_fill(~self.random, 0).sum()


def _is_random(layer: Layer, bayesian: str) -> bool:
    return isinstance(layer, Dense) or (bayesian == "all" and isinstance(layer, Conv2d))


@dataclass(frozen=True, eq=False)
class _Run:
    """A training under way: with the data and the recipe, all that its next epoch depends on."""

    q: _Variational
    optimiser: torch.optim.Optimizer
    order: torch.Generator
    history: list[Epoch]


def _start(network: Network, recipe: BayesByBackprop, device: str) -> _Run:
    order = torch.Generator().manual_seed(recipe.seed)
    q = _initial(network, recipe, order, device)
    return _Run(q, torch.optim.Adam([q.mean, q.rho], lr=recipe.learning_rate), order, [])


def _initial(
    network: Network, recipe: BayesByBackprop, generator: torch.Generator, device: str
) -> _Variational:
    """Means N(0, 2 / terms of a sum) (He et al. 2015) for weights and 0 for biases; softplus(rho) =
    std everywhere."""
    mean, random = (
        torch.zeros(network.size, dtype=torch.float32),
        torch.zeros(network.size, dtype=torch.bool),
    )
    for layer, means, flags in zip(
        network.layers, network.split(mean), network.split(random), strict=True
    ):
        if isinstance(layer, Dense | Conv2d):
            terms = (
                layer.inputs
                if isinstance(layer, Dense)
                else layer.in_channels * math.prod(layer.kernel)
            )
            means[0].normal_(0, math.sqrt(2 / terms), generator=generator)
        for flag in flags:
            flag.fill_(_is_random(layer, recipe.bayesian))
    std = recipe.initial_std
    rho = torch.full_like(
        mean, std + math.log(-math.expm1(-std))
    )  # log(exp(std) - 1) without overflow
    seed = int(torch.randint(2**32, (), generator=generator))
    noise = torch.Generator(device).manual_seed(seed)
    mean, rho = mean.to(device).requires_grad_(), rho.to(device).requires_grad_()
    return _Variational(network, recipe.bayesian, random.to(device), mean, rho, noise)


def _epoch(run: _Run, x: Tensor, y: Tensor, recipe: BayesByBackprop) -> Epoch:
    """One step of the optimiser for each batch, the examples in a new order; only the end waits for
    the device."""
    before, count = len(run.history), len(x)
    batches = torch.split(
        torch.randperm(count, generator=run.order).to(x.device), recipe.batch_size
    )
    totals = torch.zeros(3, dtype=torch.float64, device=x.device)
    for i, batch in enumerate(batches):
        done = (before + i / len(batches)) / recipe.epochs
        run.optimiser.param_groups[0]["lr"] = learning_rate(recipe, done)
        images = augmented(x[batch], run.q.noise) if recipe.augment else x[batch]
        totals += _step(run, images, y[batch], recipe, count) * len(batch)
    nll, kl, right = (totals / count).tolist()
    loss = nll + recipe.kl_weight * kl / count
    if not math.isfinite(loss):
        raise InputError(
            f"training diverged in epoch {before + 1} (loss {loss}); "
            f"lower the learning rate (now {recipe.learning_rate:g}) or scale the inputs to about 1"
        )
    return Epoch(before + 1, loss, nll, kl, right, -(nll * count + kl))


def _step(run: _Run, x: Tensor, y: Tensor, recipe: BayesByBackprop, count: int) -> Tensor:
    """One step down the gradient of nll + kl_weight · kl / N and the decay; the (nll, kl, accuracy)
    it started from."""
    outputs = run.q.sample_outputs(x)
    nll, kl = functional.cross_entropy(outputs, y), run.q.kl_divergence(recipe.prior_std)
    decay = recipe.weight_decay / 2 * run.q.mean.masked_fill(run.q.random, 0).square().sum()
    run.optimiser.zero_grad()
    torch.autograd.backward(nll + recipe.kl_weight / count * kl + decay)
    run.optimiser.step()
    right = (outputs.argmax(-1) == y).double().mean()
    return torch.stack([nll.detach().double(), kl.detach().double(), right])


def _posterior(q: _Variational) -> Normal:
    """In float64; the std, like the mean, is a float32 number, so that files of it need no more."""
    mean, rho = q.mean.detach().cpu().double(), q.rho.detach().cpu().double()
    return Normal(mean, functional.softplus(rho).float().double().masked_fill(~q.random.cpu(), 0))


def _identity(network: Network, x: Tensor, y: Tensor, recipe: BayesByBackprop) -> dict[str, Any]:
    """What a training must share with a checkpoint to go on from there."""
    return {
        "recipe": asdict(recipe),
        "network": network.digest,
        "data": digest({}, (x, y)),
        "device": x.device.type,  # the noise of another kind would not be the same
    }


def _save(path: Path, run: _Run, identity: dict[str, Any]) -> None:
    tensors = {
        "mean": run.q.mean,
        "rho": run.q.rho,
        "order": run.order.get_state(),
        "noise": run.q.noise.get_state(),
    }
    for i, state in run.optimiser.state_dict()["state"].items():
        tensors |= {f"{name}_{i}": state[name] for name in ADAM}
    write_tensors(
        path,
        {"schema": SCHEMA, **identity, "history": [asdict(epoch) for epoch in run.history]},
        tensors,
    )


def _resume(path: Path, run: _Run, identity: dict[str, Any]) -> None:
    """The fresh run put where the checkpoint was written, if there is one."""
    if not path.parent.is_dir():
        raise InputError(
            f"checkpoint {str(path)!r} would be in a folder that does not exist; make it first"
        )
    if not path.exists():
        return
    header, tensors = read_tensors(path, SCHEMA)
    other = [name for name, value in identity.items() if header.get(name) != value]
    if other:
        raise InputError(
            f"checkpoint {str(path)!r} is of another {' and '.join(other)}; remove it to start anew"
        )
    with torch.no_grad():
        run.q.mean.copy_(tensors["mean"])
        run.q.rho.copy_(tensors["rho"])
    run.order.set_state(tensors["order"])
    run.q.noise.set_state(tensors["noise"])
    state = {i: {name: tensors[f"{name}_{i}"] for name in ADAM} for i in range(2)}
    run.optimiser.load_state_dict(run.optimiser.state_dict() | {"state": state})
    run.history.extend(Epoch(**epoch) for epoch in header["history"])


def _check_network(network: Network, recipe: BayesByBackprop) -> None:
    """Layers of the kind that the recipe asks for, and inputs that it can augment."""
    if not any(_is_random(layer, recipe.bayesian) for layer in network.layers):
        raise InputError(
            f"bayesian is {recipe.bayesian!r}, but the network has no Dense layer; give all"
        )
    if recipe.augment and len(network.input_shape) not in (2, 3):
        raise InputError(
            f"augment is for images, [height, width] or [channels, height, width]; "
            f"the network takes {network.input_shape}"
        )


def _check_examples(network: Network, x: Tensor, y: Tensor) -> None:
    """Inputs that fit the network, and for each one class label of its outputs."""
    shape = tuple(x.shape[1:])
    if shape != network.input_shape:
        raise InputError(
            f"inputs have shape {shape}, the network takes {network.input_shape}; reshape them"
        )
    if not bool(x.isfinite().all()):
        raise InputError("inputs hold NaN or infinity; every entry must be finite")
    if y.dim() != 1 or len(y) != len(x) or len(y) == 0:
        raise InputError(
            f"labels have shape {tuple(y.shape)} for {len(x)} inputs; give one label for each input"
        )
    if y.is_floating_point() or not 0 <= int(y.min()) <= int(y.max()) < network.outputs:
        raise InputError(
            f"labels must be integers from 0 to {network.outputs - 1}, one class for each output"
        )
