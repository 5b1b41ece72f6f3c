"""The loop: epochs of gradient steps, each epoch followed by a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from bnncert.errors import InputError
from bnncert.model.network import Network
from bnncert.posteriors.independent import Normal
from bnncert.train.augmentation import augmented
from bnncert.train.checkpoint import identity, resume, save
from bnncert.train.examples import check_examples, check_network
from bnncert.train.likelihood import Likelihood, likelihood
from bnncert.train.objective import attacked, ball, certified_share, worst_nll
from bnncert.train.recipe import BayesByBackprop, Robust, learning_rate, risen
from bnncert.train.replay import Step, replayed
from bnncert.train.state import Epoch, Run, set_rate, start
from bnncert.train.variational import Weighing, posterior

GRADIENT = 10.0  # norm that a robust step's gradient is clipped to: bounds of deep networks vary
STATISTICS = 2000  # examples that batch normalisation is folded for
VALIDATION = 500  # examples that a robust training keeps out


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
    begin: Normal | None = None,
) -> Trained:
    """The posterior fitted to inputs x [N, *input_shape] and targets y [N]: class labels, or
    numbers for a regression.

    It is the same for the same seed and device. `on_epoch` is called after each pass through the
    data, for a progress display. Before that the state is written to `checkpoint`, from where the
    same call goes on, to the same bits, after an interruption; the file goes when training ends.
    `begin` is a posterior to start from.

    A robust recipe keeps the last examples, at most VALIDATION, out of the training: they say how
    much is certified as it goes.
    """
    own = likelihood(network, recipe.noise_std)
    check_network(network, recipe)
    check_examples(network, x, y, own)
    if begin is not None and begin.mean.shape != (network.size,):
        raise InputError(
            f"the posterior to start from has {begin.mean.numel()} weights, "
            f"the network {network.size}; give one of the same architecture"
        )
    x = x.to(device, torch.float32)
    y = y.to(device, torch.int64 if recipe.noise_std is None else torch.float32)
    kept = 0 if recipe.robust is None else min(VALIDATION, len(x) // 10)
    seen = x[: len(x) - kept], y[: len(y) - kept]
    validation = x[len(x) - kept :], y[len(y) - kept :]
    if recipe.normalise and len(seen[0]) < 2:
        raise InputError("normalise compares examples, and there is one; give more")
    run = start(network, recipe, seen[0][:STATISTICS], begin)
    same = {} if checkpoint is None else identity(network, x, y, recipe, begin)
    if checkpoint is not None:
        resume(checkpoint, run, same)

    with arithmetic(fast=recipe.robust is not None):
        steps = _steps(run, recipe, len(seen[0]), x.device)
        while len(run.history) < recipe.epochs:
            epoch = _epoch(run, *seen, recipe, steps)
            run.history.append(_judged(epoch, run, seen[0], validation, recipe))
            if checkpoint is not None:
                save(checkpoint, run, same)
            if on_epoch is not None:
                on_epoch(run.history[-1])

    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    return Trained(posterior(run.q, seen[0][:STATISTICS]), tuple(run.history))


@contextmanager
def arithmetic(fast: bool) -> Iterator[None]:
    """By algorithms that give the same bits again, in float32 rather than its truncation TF32
    unless the training is to be fast: bounds take several passes."""
    cudnn = torch.backends.cudnn
    products = torch.backends.cuda.matmul
    before = products.allow_tf32
    products.allow_tf32 = fast
    try:
        with cudnn.flags(cudnn.enabled, deterministic=True, allow_tf32=fast):
            yield
    finally:
        products.allow_tf32 = before


def _judged(
    epoch: Epoch,
    run: Run,
    x: Tensor,
    validation: tuple[Tensor, Tensor],
    recipe: BayesByBackprop,
) -> Epoch:
    """The epoch with what its weights certify of the validation batch."""
    if recipe.robust is None or len(validation[0]) == 0:
        return epoch
    with torch.no_grad():
        weighing = run.q.weighing(x[:STATISTICS])
        network = weighing.network
        share = certified_share(
            network,
            weighing.layers(),
            *validation,
            likelihood(network, recipe.noise_std),
            recipe.robust,
        )
    return replace(epoch, certified=float(share))


def _steps(run: Run, recipe: BayesByBackprop, count: int, device: torch.device) -> dict[bool, Step]:
    """The step without the bound, while ε and κ are still 0, and with it."""
    steps: dict[bool, Step] = {
        bounded: partial(_step, run, recipe, count, bounded)
        for bounded in ((False,) if recipe.robust is None else (False, True))
    }
    if recipe.robust is None or device.type != "cuda":
        return steps
    return {bounded: replayed(step, run.q.noise, device) for bounded, step in steps.items()}


def _epoch(
    run: Run, x: Tensor, y: Tensor, recipe: BayesByBackprop, steps: dict[bool, Step]
) -> Epoch:
    """One step of the optimiser for each batch, the examples in a new order."""
    before = len(run.history)
    count = len(x)
    order = torch.randperm(count, generator=run.order).to(x.device)
    batches = _batches(order, recipe)

    # Kept on the device, which nothing waits for before the end of the epoch.
    totals = torch.zeros(4, dtype=torch.float64, device=x.device)
    for i, batch in enumerate(batches):
        done = (before + i / len(batches)) / recipe.epochs
        set_rate(run.optimiser, learning_rate(recipe, done))
        images = augmented(x[batch], run.q.noise) if recipe.augment else x[batch]
        share = 0.0 if recipe.robust is None else risen(done)
        step = steps[share > 0]
        totals += step(images, y[batch], torch.full_like(totals[0], share)) * len(batch)

    fit, nll, kl, right = (totals / count).tolist()
    loss = fit + recipe.kl_weight * kl / count
    if not math.isfinite(loss):
        raise InputError(
            f"training diverged in epoch {before + 1} (loss {loss}); "
            f"lower the learning rate (now {recipe.learning_rate:g}) or scale the inputs to about 1"
        )
    return Epoch(before + 1, loss, nll, kl, right, -(nll * count + kl))


def _batches(order: Tensor, recipe: BayesByBackprop) -> list[Tensor]:
    """The examples in batches. Under normalisation a last one of a single example joins the one
    before: a channel has no spread there, and its scale would say nothing."""
    batches = list(torch.split(order, recipe.batch_size))
    if recipe.normalise and len(batches) > 1 and len(batches[-1]) == 1:
        batches[-2:] = [torch.cat(batches[-2:])]
    return batches


def _step(
    run: Run,
    recipe: BayesByBackprop,
    count: int,
    bounded: bool,
    x: Tensor,
    y: Tensor,
    share: Tensor,
) -> Tensor:
    """One step down the gradient of fit + kl_weight · kl / N + decay, where the fit is the nll, or
    its mix with what is certified of it at a share of ε, κ and the KL weight.

    Returns the fit, nll, kl and accuracy it started from.
    """
    weighing = run.q.weighing(x)
    own = likelihood(weighing.network, recipe.noise_std)
    if recipe.robust is None or not bounded:
        outputs = weighing.sample_outputs(x, run.q.noise, kernels=recipe.robust is not None)
        fit = nll = own.nll(outputs, y)
    else:
        outputs, nll, fit = _robust_fit(run, weighing, x, y, own, recipe.robust, share.to(x))
    kl = weighing.kl_divergence(run.prior)
    weight = recipe.kl_weight / count if recipe.robust is None else recipe.kl_weight / count * share
    decay = recipe.weight_decay / 2 * run.q.mean.masked_fill(weighing.random, 0).square().sum()

    run.optimiser.zero_grad()
    torch.autograd.backward(fit + weight * kl + decay)
    if recipe.robust is not None:
        torch.nn.utils.clip_grad_norm_(run.q.parameters.values(), GRADIENT)
    run.optimiser.step()

    right = own.right(outputs, y).double().mean()
    return torch.stack([part.detach().double() for part in (fit, nll, kl, right)])


def _robust_fit(
    run: Run,
    weighing: Weighing,
    x: Tensor,
    y: Tensor,
    own: Likelihood,
    robust: Robust,
    share: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs of drawn networks, their nll, and (1 - κ) · nll + κ · worst nll at a share of ε and
    κ."""
    box = ball(x, share * robust.eps, robust.clip)
    points = x
    if robust.attack:
        points = attacked(weighing, box, y, own, robust.attack, run.q.noise)
    outputs = weighing.sample_outputs(points, run.q.noise, kernels=True)
    nll = own.nll(outputs, y)
    bounded = worst_nll(weighing.network, weighing.layers(), box, y, own, robust.t, robust.tau)
    kappa = share * robust.kappa
    return outputs, nll, (1 - kappa) * nll + kappa * bounded
