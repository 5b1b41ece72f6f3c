"""certify and decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bnncert.cli.options import (
    Device,
    Names,
    Posterior,
    Seed,
    device_named,
    takes_method,
    takes_question,
)
from bnncert.errors import InputError
from bnncert.question import Question

if TYPE_CHECKING:
    from bnncert._certify import Progress
    from bnncert.data import Dataset
    from bnncert.model.network import Network
    from bnncert.model.standardisation import Column
    from bnncert.posteriors.base import Posterior as Weights
    from bnncert.results.manifest import Manifest
    from bnncert.results.rows import Result

INTERRUPTED = 130
Bounds = dict[str, tuple[float, float]]

Method = Annotated[
    str | None,
    typer.Option(
        help="concentration (default), sampling, pie, gie; enumeration for weight samples."
    ),
]
Property = Annotated[
    Path | None,
    typer.Option(help="Question from a VNN-LIB 1.0 file instead: it states the counterexample."),
]
Threshold = Annotated[
    str | None,
    typer.Option(
        help="Threshold for P_safe: exit code 1 unless every input is certified to reach it.",
        show_default="0.95 for statuses, and no such exit code",
    ),
]
Draws = Annotated[
    int,
    typer.Option(min=0, help="Networks to draw for an estimate beside the certified interval."),
]


def register(app: typer.Typer) -> None:
    app.command()(certify)
    app.command()(decide)


@takes_method
@takes_question(inputs=False)
def certify(
    posterior: Posterior,
    question: Question | None,
    options: dict[str, Any],
    method: Method = None,
    vnnlib: Property = None,
    at_least: Threshold = None,
    estimate: Draws = 0,
    names: Names = None,
    device: Device = "cpu",
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for results.jsonl and certificates.")
    ] = None,
) -> None:
    """Certify the probability of being robust around each input.

    P_safe, that a network drawn from POSTERIOR is, in a certified interval.

    Data sets: digits, advisory, diabetes, boston, mnist, fashion-mnist, cifar10 (test splits).
    """
    from bnncert.cli.display import show_answers
    from bnncert.importers import load_posterior
    from bnncert.methods import default_method
    from bnncert.results.answers import threshold

    asked = None if at_least is None else threshold(at_least)
    network, weights = load_posterior(posterior)
    run = _Run(
        posterior,
        network,
        weights.to(device_named(device)),
        method or default_method(weights).name,
        options,
        seed,
        estimate,
        asked,
        names,
        device_named(device),
        out,
    )

    if vnnlib is not None:
        if question is not None:
            raise InputError(
                "--vnnlib says what is asked: leave out --inputs, --eps and what belongs to them"
            )
        bounds, complete = run.property_file(vnnlib)
    elif question is None:
        raise InputError("nothing is asked; give --inputs and --eps, or --vnnlib")
    else:
        bounds, complete = run.data_set(question)

    if out:
        print(f"results and certificates are in {out}")
    if not complete:
        raise typer.Exit(INTERRUPTED)
    if asked is not None and not show_answers(bounds, asked):
        raise typer.Exit(1)


@takes_question(
    leave_out=("target",),
    tolerance="Regression: the mean output stays within this distance of y.",
)
def decide(
    posterior: Posterior,
    question: Question,
    effort: Annotated[int, typer.Option(help="0 plain slopes, 1 optimised ones.")] = 1,
    names: Names = None,
    device: Device = "cpu",
    out: Annotated[
        Path | None, typer.Option(help="Folder for decisions.jsonl and certificates.")
    ] = None,
) -> None:
    """Certify the decision of the averaged network.

    Bounds of its mean softmax, or mean output, around each input. This is another quantity
    than the P_safe of `certify`: not how many networks are robust, but whether their mean is.
    """
    from bnncert._certify import decide as decide_problem
    from bnncert.ask import ask
    from bnncert.cli.display import show_decisions
    from bnncert.concentration.predictive import quantity
    from bnncert.importers import load_posterior
    from bnncert.record import about_data, names_for
    from bnncert.results.folder import DECISIONS
    from bnncert.results.manifest import Chosen, subject, written_now

    network, weights = load_posterior(posterior)
    asked = ask(question, network, weights.to(device_named(device)))
    several = len(question.eps) > 1
    manifest = None
    if out:
        called = names_for(names, network, asked.data)
        manifest = written_now(
            about_data(
                asked.question,
                asked.data,
                asked.indices,
                [subject(network, weights, posterior)],
                quantity=quantity(asked.problem.specification),
            ),
            (Chosen("predictive", {"effort": effort}),),
            features=called.features,
            outputs=called.outputs,
            device=device_named(device),
        )
    with (
        _stored(out, several, DECISIONS, manifest) as store,
        _shown("deciding", len(asked.indices)) as show,
    ):
        decisions = decide_problem(
            asked.problem, effort=effort, indices=asked.indices, progress=_both(store, show)
        )
    title = f"{posterior.name}, {_asked(question, network)}, predictive {decisions[0].quantity}"
    show_decisions(decisions, title, _unit(question, network))
    if out:
        print(f"decisions and certificates are in {out}")
    if decisions.interrupted:
        raise typer.Exit(INTERRUPTED)


@dataclass(frozen=True, eq=False)
class _Run:
    """One run of `certify`: a posterior, a method by name with options, and where results go."""

    path: Path
    network: Network
    posterior: Weights
    method: str
    options: dict[str, Any]
    seed: int
    samples: int
    at_least: Decimal | None
    names: Path | None
    device: str
    out: Path | None

    def data_set(self, question: Question) -> tuple[Bounds, bool]:
        """The bounds of every input by name, and whether all inputs have some."""
        from bnncert.ask import ask, method_named
        from bnncert.cli.display import show_hints, show_results
        from bnncert.methods import Concentration
        from bnncert.record import about_data

        options = dict(self.options)
        if self.at_least is not None and self.method == Concentration.name:
            options |= {"at_least": float(self.at_least)}
        chosen = method_named(self.method, options)
        asked = ask(question, self.network, self.posterior)
        several = len(question.eps) > 1
        about = partial(about_data, asked.question, asked.data, asked.indices)
        manifest = self._manifest(about, chosen, asked.data)
        results, complete = self._certified(
            [asked.problem], chosen, asked.indices, manifest, several
        )
        title = f"{self.path.name}, {_asked(question, self.network)}, method {chosen.name}"
        show_results(results, title, question.eps)
        if complete:
            show_hints(asked.problem, chosen, results)
        return {_query_name(row, several): (row.lower, row.upper) for row in results}, complete

    def property_file(self, path: Path) -> tuple[Bounds, bool]:
        """The bounds over all boxes of a VNN-LIB file together; nothing is shown of a part."""
        from bnncert.ask import method_named
        from bnncert.cli.display import show_hints, show_query, show_results
        from bnncert.importers import load_vnnlib
        from bnncert.model.problem import Problem
        from bnncert.record import about_property
        from bnncert.results.answers import jointly

        query = load_vnnlib(path, self.network, self.posterior.center)
        options = dict(self.options)
        chosen = method_named(self.method, options)
        if not query.exact and "upper" in options:  # then no upper bound is one of the question
            del options["upper"]
            chosen = method_named(self.method, options)

        device = self.posterior.center.device
        problems = [
            Problem(self.network, self.posterior, part.to(device)) for part in query.specifications
        ]
        manifest = self._manifest(partial(about_property, path, query), chosen)
        results, complete = self._certified(problems, chosen, list(range(len(problems))), manifest)
        if not complete:
            return {}, False

        show_results(results, f"{self.path.name}, {path.name}, method {chosen.name}", region="box")
        show_hints(problems[0], chosen, results)
        lower, upper = jointly([(row.lower, row.upper) for row in results])
        bounds = {path.name: (lower, upper if query.exact else 1.0)}
        show_query(path.name, query, bounds[path.name])
        own = self.network.standardisation
        if own is not None and not own.is_identity:
            print("note: its X and Y are the network's own numbers, which are standardised")
        return bounds, True

    def _manifest(self, about: Any, method: Any, data: Dataset | None = None) -> Manifest | None:
        """What results folders say of this run; about: makes the question of posteriors."""
        from bnncert.record import methods_asked, names_for
        from bnncert.results.answers import AT_LEAST
        from bnncert.results.manifest import subject, written_now

        if self.out is None:
            return None
        at_least = AT_LEAST if self.at_least is None else self.at_least
        names = names_for(self.names, self.network, data)
        return written_now(
            about([subject(self.network, self.posterior, self.path)], at_least=at_least),
            methods_asked([method]),
            seed=self.seed,
            estimate=self.samples,
            features=names.features,
            outputs=names.outputs,
            device=self.device,
        )

    def _certified(
        self,
        problems: Sequence[Any],
        method: Any,
        indices: list[int],
        manifest: Manifest | None,
        several: bool = False,
    ) -> tuple[list[Result], bool]:
        """The results of problems, stored one after the other, and whether all are there."""
        from bnncert._certify import certify as certify_problem
        from bnncert.results.answers import AT_LEAST
        from bnncert.results.folder import RESULTS

        results: list[Result] = []
        with (
            _stored(self.out, several, RESULTS, manifest) as store,
            _shown("certifying", len(indices)) as show,
        ):
            for problem in problems:
                names = indices[len(results) : len(results) + len(problem)]
                found = certify_problem(
                    problem,
                    method,
                    seed=self.seed,
                    indices=names,
                    samples=self.samples,
                    at_least=AT_LEAST if self.at_least is None else self.at_least,
                    progress=_both(store, show),
                )
                results += found
                if found.interrupted:
                    return results, False
        return results, True


def _stored(
    out: Path | None, several: bool, name: str, manifest: Manifest | None
) -> AbstractContextManager[Callable[[Sequence[Any]], None]]:
    from bnncert.results.folder import result_folder

    return result_folder(out, several, name, manifest) if out else nullcontext(lambda _: None)


class _shown:  # noqa: N801 (used like a function)
    """A progress bar over so many inputs; gives what moves it on."""

    def __init__(self, label: str, total: int) -> None:
        from bnncert.console import progress

        self.bar = progress(label)
        self.label = label
        self.total = total

    def __enter__(self) -> Progress:
        bar = self.bar.__enter__()
        task = bar.add_task(self.label, total=self.total, note="")
        return lambda rows: bar.advance(task, len(rows))

    def __exit__(self, *reason: Any) -> None:
        self.bar.__exit__(*reason)


def _both(first: Progress, second: Progress) -> Progress:
    def both(rows: Sequence[Any]) -> None:
        first(rows)
        second(rows)

    return both


def _asked(question: Question, network: Network) -> str:
    """The radius, in standard deviations where inputs are standardised, and the tolerance."""
    if question.eps_file is not None:
        return f"a box with the radii of {Path(question.eps_file).name}"
    size = ", ".join(f"{radius:g}" for radius in question.eps) or "of each input"
    own = network.standardisation
    unit = " standard deviations" if own and own.inputs and not own.is_identity else ""
    radius = f"eps {size}{unit} ({question.norm})"
    if question.tolerance is None:
        return radius
    column = _unit(question, network)
    return f"{radius}, tolerance {question.tolerance:g}" + (f" of {column.name}" if column else "")


def _unit(question: Question, network: Network) -> Column | None:
    """What the output that is asked about was measured as, where that is known."""
    own = network.standardisation
    return own.outputs[question.output or 0] if own and own.outputs else None


def _query_name(result: Result, several_radii: bool) -> str:
    return f"input {result.index}" + (f", eps {result.eps!r}" if several_radii else "")
