"""import: posteriors trained elsewhere."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer

from bnncert.cli.train import posterior_path

Kind = Annotated[
    str,
    typer.Option(
        "--as",
        help=(
            "bayesian-torch, torchbnn, blitz, torch-uncertainty, torch (plain), "
            "npz, native or onnx."
        ),
    ),
]
Names = Annotated[
    str | None,
    typer.Option(
        help="Names of the layers, first to last, where the file does not tell: stem,head."
    ),
]


def register(app: typer.Typer) -> None:
    app.command("import")(import_command)


def import_command(
    file: Annotated[
        Path,
        typer.Argument(help="A state_dict (.pt, .pth, .safetensors), .npz, .onnx or native file."),
    ],
    kind: Kind,
    out: Annotated[Path, typer.Option(help="Where to write the posterior.")] = Path(
        "posterior.safetensors"
    ),
    activation: Annotated[
        str | None,
        typer.Option(
            help="Between the layers: relu (default), leaky_relu, relu6, hardtanh, tanh, sigmoid, "
            "gelu, gelu_tanh, silu, mish, softplus, elu, selu, hardswish or softsign."
        ),
    ] = None,
    input_shape: Annotated[
        str | None,
        typer.Option(help="Of one input, as 3,32,32; needed where a convolution comes first."),
    ] = None,
    layers: Names = None,
    std: Annotated[
        float | None,
        typer.Option(help="torch, onnx: standard deviation of the weights; 0 if not given."),
    ] = None,
    no_bias: Annotated[
        bool, typer.Option("--no-bias", help="blitz: the layers were made with bias=False.")
    ] = False,
    in_measured: Annotated[
        bool,
        typer.Option(
            "--measured",
            help="native: of a posterior that takes standardised values make one that takes "
            "measured ones.",
        ),
    ] = False,
) -> None:
    """Write a posterior trained elsewhere as a native file.

    A state_dict holds no architecture: the layers are taken in order with one activation between
    them. Networks with strides, padding, pools or normalisation are imported in Python, with
    bnncert.from_torch(module). An .npz, native or ONNX file holds its architecture.
    """
    from bnncert.importers import save_posterior
    from bnncert.importers.files import Assumptions, import_file
    from bnncert.importers.measuring import measured
    from bnncert.question import whole_numbers

    posterior_path(out)
    shape = whole_numbers(input_shape, "--input-shape") if input_shape else None
    names = layers.split(",") if layers else None
    assumed = Assumptions(activation, shape, std, names, not no_bias)
    with warnings.catch_warnings(record=True) as remarks:
        warnings.simplefilter("always")
        found = import_file(file, kind, assumed)

    network, weighing = found.network, found.posterior
    if in_measured:
        network, weighing = measured(network, weighing)
    for remark in remarks:
        print(f"bnncert: warning: {remark.message}", file=sys.stderr)
    save_posterior(out, network, weighing, found.notes)
    print(f"read as  {', '.join(str(layer) for layer in network.layers)}")
    weights = f"{network.size} weights, {weighing.family}"
    print(f"{out}: {weights}, from {found.notes['library']}")
