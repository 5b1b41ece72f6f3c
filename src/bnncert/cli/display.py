"""What a person sees in the terminal: the closing tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from bnncert.console import percent
from bnncert.estimate import Estimate
from bnncert.hints import hints
from bnncert.importers import Query
from bnncert.methods import Concentration, Method
from bnncert.model.problem import Problem
from bnncert.model.standardisation import Column
from bnncert.results.answers import answer
from bnncert.results.rows import Decision, Result

SHOWN = 25  # rows of the table; all of them are in results.jsonl


def show_results(
    results: Sequence[Result], title: str, radii: Sequence[float] = (), region: str = "input"
) -> None:
    """A row per result (the first few) and the summary, one for each of several radii.

    The method that chooses between bounds says which it took, the others how often they called one.
    """
    chosen = any(result.method == Concentration.name for result in results)
    estimated = any(result.estimate for result in results)
    sized = len({result.eps for result in results}) > 1
    table = Table(title=title, title_justify="left", box=SIMPLE, padding=(0, 1, 0, 0))
    regression = any(result.low is not None for result in results)
    names = [
        region,
        *["eps"] * sized,
        "target" if regression else "label",
        "predicted",
        "status",
        "at least",
        "at most",
        "by" if chosen else "calls",
    ]
    for name in names + ["estimate*"] * estimated:
        table.add_column(name, justify="left" if name == "status" else "right", no_wrap=True)
    for r in results[:SHOWN]:
        cells = [
            r.index,
            *(_regressed(r) if regression else (_dash(r.label), _dash(r.predicted))),
            r.status,
            percent(r.lower),
            percent(r.upper, up=True),
            _by(r) if chosen else r.bound_calls,
        ]
        cells[1:1] = [f"{r.eps:g}"] * sized
        table.add_row(*map(str, cells), *[_interval(r.estimate)] * estimated)
    console = Console()
    console.print(table)
    if len(results) > SHOWN:
        console.print(f"... and {len(results) - SHOWN} more")
    each = (
        {f"eps {eps!r}: ": [r for r in results if r.eps == eps] for eps in radii}
        if len(radii) > 1
        else {"": results}
    )
    for prefix, part in each.items():
        console.print(prefix + summary(part, region), highlight=False, soft_wrap=True)
    if results and results[0].estimate:
        drawn = results[0].estimate
        console.print(
            f"* not certified: {drawn.confidence:.0%} confidence, {drawn.samples} networks",
            highlight=False,
        )


def show_hints(problem: Problem, method: Method, results: Sequence[Result]) -> None:
    """A line for each."""
    for hint in hints(problem, method, results):
        print(f"hint: {hint}")


def show_decisions(decisions: Sequence[Decision], title: str, unit: Column | None = None) -> None:
    """A row per decision (the first few): bounds of the mean, and how many are decided.

    unit: what a mean was measured as.
    """
    unit = unit or Column("y")
    softmax = bool(decisions) and decisions[0].quantity == "softmax"
    regression = any(decision.low is not None for decision in decisions)
    table = Table(title=title, title_justify="left", box=SIMPLE, padding=(0, 1, 0, 0))
    sized = len({decision.eps for decision in decisions}) > 1
    names = [
        "input",
        *["eps"] * sized,
        *["label"] * softmax,
        *["target", "predicted"] * regression,
        "status",
        "at least",
        "at most",
        *["ahead by"] * softmax,
    ]
    for name in names:
        table.add_column(name, justify="left" if name == "status" else "right", no_wrap=True)
    for d in decisions[:SHOWN]:
        cells = [d.index, *[f"{d.eps:g}"] * sized, *[d.label] * softmax]
        cells += [*(_regressed(d) if regression else ()), d.status]
        ends = (
            [percent(d.lower), percent(d.upper, up=True)]
            if softmax
            else [_outward(unit.measured(d.lower)), _outward(unit.measured(d.upper), up=True)]
        )
        table.add_row(*map(str, cells), *ends, *([percent(d.gap)] if d.gap is not None else []))
    console = Console()
    console.print(table)
    if len(decisions) > SHOWN:
        console.print(f"... and {len(decisions) - SHOWN} more")
    counts = []
    for eps in dict.fromkeys(decision.eps for decision in decisions) if sized else [None]:
        part = [
            decision.status == "decided" for decision in decisions if eps in (None, decision.eps)
        ]
        counts.append(
            ("" if eps is None else f"eps {eps!r}: ")
            + f"{sum(part)} of {_count(len(part), 'input')} decided"
        )
    of = "probability of the label, E softmax," if softmax else "mean of the output"
    seconds = sum(decision.seconds for decision in decisions)
    console.print(
        f"bounds of the posterior-predictive {of} for every x of the region (not of P_safe); "
        f"{'; '.join(counts)}; {seconds:.1f} s",
        highlight=False,
        soft_wrap=True,
    )


def show_query(name: str, query: Query, bounds: tuple[float, float]) -> None:
    """What a file of counterexamples asked, and the bounds over all of its boxes together."""
    print(f"{name} states the counterexample: unsat says that there is none")
    for note in query.notes:
        print(f"note: {note}; the lower bound holds, an upper bound would not")
    interval = f"at least {percent(bounds[0])}, at most {percent(bounds[1], up=True)}"
    boxes = _count(len(query.specifications), "input box")
    print(f"P_safe = P(no counterexample) {interval} over {boxes} together")


def show_answers(bounds: dict[str, tuple[float, float]], at_least: Decimal) -> bool:
    """One word a query, P_safe >= at_least of the bounds by name; whether all of them hold."""
    print(
        f"P_safe >= {at_least}? unsat: it holds, no counterexample; sat: it does not; "
        "unknown: neither is certified"
    )
    answers = {name: answer(lower, upper, at_least) for name, (lower, upper) in bounds.items()}
    for name, word in answers.items():
        print(f"{name}: {word}")
    return set(answers.values()) <= {"unsat"}


def summary(results: Sequence[Result], region: str = "input") -> str:
    """Mean certified probability, what is not certified counting 0, and the statuses."""
    lower, upper = (
        sum(getattr(result, end) for result in results) / len(results) for end in ("lower", "upper")
    )
    counts = ", ".join(
        f"{count} {status}" for status, count in Counter(r.status for r in results).items()
    )
    seconds = sum(result.seconds for result in results)
    interval = f"at least {percent(lower)}, at most {percent(upper, up=True)}"
    return f"mean P_safe {interval} over {_count(len(results), region)} ({counts}); {seconds:.1f} s"


def _by(result: Result) -> str:
    """Which bounds gave the lower end and the upper one."""
    if result.lower_by == result.upper_by:
        return _dash(result.lower_by)
    return f"{_dash(result.lower_by)}/{_dash(result.upper_by)}"


def _interval(estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    return f"{100 * estimate.low:.1f}–{100 * estimate.high:.1f} %"


def _count(number: int, thing: str) -> str:
    return (
        f"{number} {thing}"
        if number == 1
        else f"{number} {thing}{'es' if thing.endswith('x') else 's'}"
    )


def _outward(value: float, up: bool = False) -> str:
    """Six digits, rounded away from what is between a lower and an upper end."""
    context = Context(prec=6, rounding=ROUND_CEILING if up else ROUND_FLOOR)
    return f"{float(context.create_decimal(value)):.6g}"


def _regressed(row: Result | Decision) -> tuple[str, str]:
    """The target, the middle of the interval asked about, and the output of the mean network."""
    if row.low is None or row.high is None or row.output is None:
        return "–", "–"
    return f"{(row.low + row.high) / 2:.5g}", f"{row.output:.5g}"


def _dash(value: int | str | None) -> str:
    return "–" if value is None else str(value)
