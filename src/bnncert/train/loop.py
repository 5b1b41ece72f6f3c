"""The loop: epochs of gradient steps, each epoch followed by a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from bnncert.errors import InputError
from bnncert.model.network import Network
from bnncert.posteriors.independent import Normal
from bnncert.train.augmentation import augmented
from bnncert.train.checkpoint import identity, resume, save
from bnncert.train.examples import check_examples, check_network
from bnncert.train.recipe import BayesByBackprop, learning_rate
from bnncert.train.state import Epoch, Run, start
from bnncert.train.variational import posterior


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
    """The posterior fitted to inputs x [N, *input_shape] and class labels y [N].

    It is the same for the same seed and device. `on_epoch` is called after each pass through the
    data, for a progress display. Before that the state is written to `checkpoint`, from where the
    same call goes on, to the same bits, after an interruption; the file goes when training ends.
    """
    check_network(network, recipe)
    check_examples(network, x, y)
    x = x.to(device, torch.float32)
    y = y.to(device, torch.int64)
    run = start(network, recipe, device)
    own = {} if checkpoint is None else identity(network, x, y, recipe)
    if checkpoint is not None:
        resume(checkpoint, run, own)

    # Convolutions by algorithms that give the same bits again, in float32 rather than its
    # truncation TF32.
    cudnn = torch.backends.cudnn
    with cudnn.flags(cudnn.enabled, deterministic=True, allow_tf32=False):
        while len(run.history) < recipe.epochs:
            run.history.append(_epoch(run, x, y, recipe))
            if checkpoint is not None:
                save(checkpoint, run, own)
            if on_epoch is not None:
                on_epoch(run.history[-1])

    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    return Trained(posterior(run.q), tuple(run.history))


def _epoch(run: Run, x: Tensor, y: Tensor, recipe: BayesByBackprop) -> Epoch:
    """One step of the optimiser for each batch, the examples in a new order."""
    before = len(run.history)
    count = len(x)
    order = torch.randperm(count, generator=run.order).to(x.device)
    batches = torch.split(order, recipe.batch_size)

    # Kept on the device, which nothing waits for before the end of the epoch.
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


def _step(run: Run, x: Tensor, y: Tensor, recipe: BayesByBackprop, count: int) -> Tensor:
    """One step down the gradient of nll + kl_weight · kl / N + decay.

    Returns the nll, kl and accuracy it started from.
    """
    outputs = run.q.sample_outputs(x)
    nll = functional.cross_entropy(outputs, y)
    kl = run.q.kl_divergence(recipe.prior_std)
    decay = recipe.weight_decay / 2 * run.q.mean.masked_fill(run.q.random, 0).square().sum()

    run.optimiser.zero_grad()
    torch.autograd.backward(nll + recipe.kl_weight / count * kl + decay)
    run.optimiser.step()

    right = (outputs.argmax(-1) == y).double().mean()
    return torch.stack([nll.detach().double(), kl.detach().double(), right])
