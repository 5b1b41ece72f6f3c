"""The command line. torch is imported inside the commands, so that --help is instant."""

from __future__ import annotations

import sys
from typing import Annotated, NoReturn

import typer

from bnncert.cli import (
    attack,
    bench,
    campaign,
    certify,
    check,
    importing,
    mapping,
    radius,
    reproduce,
    score,
    train,
    zoo,
)
from bnncert.errors import InputError
from bnncert.numerics.memory import keep_freed_memory
from bnncert.numerics.threads import wait_asleep
from bnncert.version import __version__

INTERRUPTED = 130  # what the option parser makes of Ctrl-C, where it does not raise Abort

RESUMED = (
    "run",
    "map",
    "train",
    "zoo",
    "reproduce",
    "bench",
)  # commands that keep what they have done

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Certified probabilistic robustness of Bayesian neural networks.",
)


def main() -> None:
    """Run the program: exit code 2 and one line on standard error for anything the user can put
    right."""
    keep_freed_memory()
    wait_asleep()
    try:
        code = app(standalone_mode=False) or 0
    except InputError as error:
        _fail(str(error))
    except Exception as error:
        # The option parser's own errors, whichever package they come from.
        if hasattr(error, "format_message"):
            _fail(error.format_message() + " (see --help)")
        if type(error).__name__ != "Abort":
            raise
        code = INTERRUPTED
    if code == INTERRUPTED:
        _fail(f"interrupted; {_then(sys.argv[1:2])}", code)
    sys.exit(code)


def _then(command: list[str]) -> str:
    """What becomes of a command that was ended early, by its name."""
    if command and command[0] in RESUMED:
        return "the same command goes on where this one stopped"
    return "nothing unfinished was written; for work that can be resumed, see bnncert run --help"


def _fail(message: str, code: int = 2) -> NoReturn:
    print(f"bnncert: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)


@app.callback(invoke_without_command=True)
def _program(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"bnncert {__version__}")
        raise typer.Exit


for group in (
    certify,
    radius,
    mapping,
    check,
    campaign,
    train,
    score,
    attack,
    importing,
    zoo,
    reproduce,
    bench,
):
    group.register(app)
