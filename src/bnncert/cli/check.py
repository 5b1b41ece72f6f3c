"""check and report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bnncert.cli.options import Names
from bnncert.errors import InputError


def register(app: typer.Typer) -> None:
    app.command()(check)
    app.command()(report)


def check(
    target: Annotated[
        Path, typer.Argument(help="A certificate, also BUNDLE.zip/NAME, or a folder of results.")
    ],
    posterior: Annotated[
        Path, typer.Option(help="The posterior it speaks of: .safetensors or .npz.")
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object with every verdict.")
    ] = False,
) -> None:
    """Check certificates independently, in rigorous arithmetic. Exit code 0 accepted, 1 rejected, 2
    not checkable."""
    try:
        from bnncert_check.__main__ import run
    except ModuleNotFoundError as error:
        own = (error.name or "").split(".")[0] == "bnncert_check"
        lacking = "is a program of its own" if own else "needs python-flint"
        raise InputError(
            f"the checker {lacking}; install it with: pip install bnncert-check "
            "(in a checkout: pip install ./checker)"
        ) from error
    raise typer.Exit(run(target, posterior, as_json))


def report(
    folder: Annotated[
        Path,
        typer.Argument(
            help="What `certify --out`, `map` or `run` wrote: results and certificates."
        ),
    ],
    posterior: Annotated[
        Path | None,
        typer.Option(
            help="The posterior that was certified: cross-sections, outputs at counterexamples."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Where to write the page; report.html in the folder by default."),
    ] = None,
    eps: Annotated[float | None, typer.Option(help="Only the results of this radius.")] = None,
    names: Names = None,
) -> None:
    """Write one HTML page about a folder of results.

    With the checker's verdicts, if the folder holds check.json.
    """
    from bnncert.map.folder import MAP
    from bnncert.map.page import write_page
    from bnncert.report import write_report

    if (folder / MAP).is_file():
        if eps is not None or names is not None:
            raise InputError("the page of a map takes neither --eps nor --names; leave them out")
        path = write_page(folder, out, posterior)
    else:
        path = write_report(folder, posterior, out, eps, names)
    print(f"{path} ({path.stat().st_size / 1e6:.2f} MB)")
