"""Options of `train`, by what they are about. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer


@dataclass(frozen=True)
class Learned:
    """What is learned."""

    data: Annotated[
        str,
        typer.Option(
            help="Data set: digits, advisory, diabetes, boston, mnist, fashion-mnist, cifar10; or "
            "an .npz with x and y or a .csv, whose last tenth is kept out for the scores (shuffle "
            "a sorted one)."
        ),
    ] = "digits"
    task: Annotated[
        str | None,
        typer.Option(
            help="classification, or regression: columns are standardised, and the posterior keeps "
            "by what.",
            show_default="regression with --noise-std or --targets",
        ),
    ] = None
    targets: Annotated[
        str | None,
        typer.Option(
            help="Regression from a .csv: the columns to predict, as price or a,b.",
            show_default="the last",
        ),
    ] = None


@dataclass(frozen=True)
class Architecture:
    """The network, or a posterior that brings one."""

    network: Annotated[
        str | None,
        typer.Option(help="mlp; cnn or residual for images.", show_default="mlp"),
    ] = None
    hidden: Annotated[
        str | None,
        typer.Option(
            help="Widths of the hidden dense layers, as 128 or 50,50.",
            show_default="128; 64 after convolutions",
        ),
    ] = None
    convolutions: Annotated[
        str | None,
        typer.Option(
            help="Channels of the convolutions, /2 where one halves the image. residual: one block "
            "for each after the first.",
            show_default="cnn: 24/2,24,48/2,48,16/2; residual: 16/2,16,32/2",
        ),
    ] = None
    begin: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="A posterior to start from, of independent normal weights.",
            dir_okay=False,
        ),
    ] = None


@dataclass(frozen=True)
class Settings:
    """Of Bayes by Backprop, by the names that its recipe has for them."""

    bayesian: Annotated[
        str,
        typer.Option(help="Random weights: all, those of dense layers, of the last layer, none."),
    ] = "all"
    epochs: Annotated[int, typer.Option(help="Passes over the training set.")] = 30
    batch_size: Annotated[int, typer.Option(help="Examples a gradient step.")] = 128
    learning_rate: Annotated[float, typer.Option(help="Adam's.")] = 1e-3
    schedule: Annotated[
        str, typer.Option(help="Of the learning rate: constant, or cosine down to 0.")
    ] = "constant"
    kl_weight: Annotated[
        float, typer.Option(help="1 is the full evidence lower bound; less is narrower.")
    ] = 0.01
    prior: Annotated[
        str, typer.Option(help="fixed, or fan-in: narrower by the root of a weight's fan-in.")
    ] = "fixed"
    prior_std: Annotated[float, typer.Option(help="Standard deviation of the prior N(0, s²).")] = (
        1.0
    )
    initial_std: Annotated[
        float, typer.Option(help="Standard deviation every weight starts with.")
    ] = 0.05
    weight_decay: Annotated[float, typer.Option(help="Of the weights that are not random.")] = 1e-4
    augment: Annotated[bool, typer.Option("--augment", help="Mirror and move the images.")] = False
    normalise: Annotated[
        bool, typer.Option("--normalise", help="Batch normalisation, folded into the weights.")
    ] = False
    noise_std: Annotated[
        float | None,
        typer.Option(
            help="Regression: standard deviation of the targets' noise, in those of the targets.",
            show_default="what a straight line leaves",
        ),
    ] = None


@dataclass(frozen=True)
class Certifiable:
    """What makes the posterior certifiable: nothing without a radius."""

    robust: Annotated[
        float | None, typer.Option(help="Train for a certificate at this radius ε.")
    ] = None
    kappa: Annotated[
        float | None,
        typer.Option(
            help="--robust: weight of the certified part of the loss.", show_default="0.5"
        ),
    ] = None
    t: Annotated[
        float | None,
        typer.Option(
            help="--robust: threshold of the hidden intervals.",
            show_default="from the number of neurons",
        ),
    ] = None
    tau: Annotated[
        float | None,
        typer.Option(
            help="--robust: standard deviations that a margin is lowered by.", show_default="3.5"
        ),
    ] = None
    attack: Annotated[
        int | None,
        typer.Option(
            help="--robust: steps of the attack that drawn networks learn under.",
            show_default="none",
        ),
    ] = None
