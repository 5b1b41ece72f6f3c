"""Options that commands share: each is declared once. No torch here."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Collection
from functools import wraps
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from bnncert.errors import InputError
from bnncert.question import Question

Posterior = Annotated[Path, typer.Argument(help="Posterior file: .safetensors (native) or .npz.")]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
Seed = Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Seed of everything random.")]

Names = Annotated[
    Path | None,
    typer.Option(
        help="TOML file with features = [...] and outputs = [...]: names for the report.",
        show_default="those of the data set, if it has some",
    ),
]

INPUTS = (
    "Data set (digits, advisory, diabetes, boston, mnist, fashion-mnist, cifar10), .npz file with "
    "x and, if known, y and eps, or .csv whose last column is y."
)
NO_CLIP = "Do not clip, also for images."
# By name: the type and the help of every option of some method; which has which is for the methods
# to say.
METHOD_OPTIONS: dict[str, tuple[Any, str]] = {
    "upper": (bool, "concentration: also certify an upper bound."),
    "effort": (
        int | None,
        "concentration: 0 plain slopes, 1 (default) optimised ones and, for one hidden layer, laws "
        "of rows, 2 and 3 branch and bound too.",
    ),
    "nodes": (
        int | None,
        "Effort 2, 3: most domains per input; 1,000 and 20,000 unless given.",
    ),
    "time_limit": (float | None, "Effort 2, 3: seconds of branch and bound per input."),
    "precision": (
        float | None,
        "Effort 2, 3: stop where so little can still be gained; 0.001 unless given.",
    ),
    "bound": (str | None, "Box methods: lbp (default), lbp-forward (as published) or ibp."),
    "samples": (int | None, "Box methods: centres, the posterior's own first; 50 unless given."),
    "step": (
        float | None,
        "Box methods: λ, width or growth in standard deviations; 0.5 unless given.",
    ),
    "rho": (float | None, "gie: extra growth in the direction of the gradient; 0.2 unless given."),
    "budget": (
        int | None,
        "Box methods: bound calls per input, failures included; 50 unless given.",
    ),
    "walk": (str | None, "pie, gie: linear (default, as published) or bisection."),
    "mean_first": (bool | None, "Box methods: start with the posterior's centre (default)."),
    "zero_gradient_only": (bool, "gie: the growth of the published code."),
}


def takes_question(
    *, leave_out: tuple[str, ...] = (), inputs: bool = True, **helps: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A command whose parameter `question` is made from the options of a question.

    leave_out: those it does not have. inputs: whether there must be any; if not, `question` may be
    None. helps: other words for some of them.
    """
    fields = [field for field in dataclasses.fields(Question) if field.name not in leave_out]

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        parameters = [_parameter(field, inputs, helps) for field in fields]
        if "clip" not in leave_out:
            flag = Annotated[bool, typer.Option("--no-clip", help=NO_CLIP)]
            parameters.append(_keyword("no_clip", flag, False))
        return _with(function, "question", parameters, lambda given: _question(given, inputs))

    return decorate


def takes(**groups: type[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A command whose parameters of these names are made from the options that dataclasses list,
    which come before its own."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        listed = {name: _listed(group) for name, group in groups.items()}

        @wraps(function)
        def command(**values: Any) -> Any:
            made = {
                name: group(**{each.name: values.pop(each.name) for each in listed[name]})
                for name, group in groups.items()
            }
            return function(**made, **values)

        return _signed(command, [*chain(*listed.values()), *_own(function, groups)])

    return decorate


def _listed(group: type[Any]) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    fields = dataclasses.fields(group)
    return [_keyword(field.name, hints[field.name], field.default) for field in fields]


def takes_method(function: Callable[..., Any]) -> Callable[..., Any]:
    """A command whose parameter `options` holds the options of methods that were given."""
    parameters = []
    for name, (kind, about) in METHOD_OPTIONS.items():
        # A flag has no opposite: --upper, but no --no-upper.
        names = (f"--{name.replace('_', '-')}",) if kind is bool else ()
        option = typer.Option(*names, help=about)
        parameters.append(_keyword(name, Annotated[kind, option], False if kind is bool else None))

    def given(values: dict[str, Any]) -> dict[str, Any]:
        # A flag that is not there says nothing.
        flags = {name for name, (kind, _) in METHOD_OPTIONS.items() if kind is bool}
        return {
            name: value
            for name, value in values.items()
            if value is not None and (value or name not in flags)
        }

    return _with(function, "options", parameters, given)


def _parameter(
    field: dataclasses.Field[Any], inputs: bool, helps: dict[str, str]
) -> inspect.Parameter:
    """A field of a question as an option of a command."""
    if field.name == "inputs":
        about = helps.get(field.name, INPUTS)
        kind: Any = str if inputs else str | None
        default = inspect.Parameter.empty if inputs else None
        return _keyword(field.name, Annotated[kind, typer.Option(help=about)], default)
    about = helps.get(field.name, field.metadata["help"])
    kinds = {
        "clip": tuple[float, float],
        "eps": str,
        "target": int,
        "tolerance": float,
        "output": int,
    }
    kind = kinds.get(field.name, str)
    return _keyword(field.name, Annotated[kind | None, typer.Option(help=about)], None)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, annotation=annotation, default=default)


def _question(values: dict[str, Any], inputs: bool) -> Question | None:
    given = {name: value for name, value in values.items() if value is not None}
    no_clip = given.pop("no_clip", False)
    if no_clip and "clip" in given:
        raise InputError("--clip and --no-clip contradict each other; give one of them")
    if no_clip:
        given["clip"] = False
    if not inputs and "inputs" not in given:
        if given:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise InputError(
                f"{names} goes with --inputs; "
                "with --vnnlib leave out --inputs, --eps and what belongs to them"
            )
        return None
    for field in dataclasses.fields(Question):
        read = field.metadata.get("from_text")
        if read is not None and field.name in given:
            given[field.name] = read(given[field.name])
    return Question(**given)


def _with(
    function: Callable[..., Any],
    name: str,
    added: list[inspect.Parameter],
    make: Callable[[dict[str, Any]], Any],
) -> Callable[..., Any]:
    """The function with the added parameters in the place of one, which is made from them."""
    names = {parameter.name for parameter in added}

    @wraps(function)
    def command(**values: Any) -> Any:
        made = make({key: value for key, value in values.items() if key in names})
        rest = {key: value for key, value in values.items() if key not in names}
        return function(**rest, **{name: made})

    return _signed(command, [*_own(function, (name,)), *added])


def _own(function: Callable[..., Any], others: Collection[str]) -> list[inspect.Parameter]:
    """The function's parameters but for the others, each as an option."""
    hints = inspect.get_annotations(function, eval_str=True)
    return [
        parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in others
    ]


def _signed(command: Callable[..., Any], parameters: list[inspect.Parameter]) -> Callable[..., Any]:
    """The wrapper with a signature of its own, which is what the command line is made from."""
    del command.__wrapped__  # type: ignore[attr-defined]  # or signatures would be read from there
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def device_named(name: str) -> str:
    """A device that is there."""
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("device 'cuda' is not available on this machine; use --device cpu")
    if name not in ("cpu", "cuda"):
        raise InputError(f"device {name!r} is not known; choose cpu or cuda")
    return name
