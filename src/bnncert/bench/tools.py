"""What the project itself enters: its methods at every effort, the published ones, and statistics,
which certify nothing and are here for comparison."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bnncert._certify import certify, decide
from bnncert.bench.recipes import SOFTMAX
from bnncert.bench.suite import Instance, read_instance
from bnncert.errors import InputError
from bnncert.estimate import estimate
from bnncert.evidence.certificate import Certificate
from bnncert.methods import GIE, PIE, Concentration, Enumeration, Method, Sampling
from bnncert.model.problem import Problem
from bnncert.posteriors.empirical import Empirical

SEED = 0
SHARE = 0.5  # of the seconds, that branch and bound may take
WIDTH = 5.0  # of sampled boxes in standard deviations: about the best for the paper's networks
DRAWS = 100  # networks of the statistics
PUBLISHED = "lbp-forward"  # the bound of the published code


@dataclass(frozen=True)
class Reply:
    """An interval, and the certificate of it, if there is one."""

    lower: float
    upper: float
    certificate: Certificate | None = None


@dataclass(frozen=True)
class Tool:
    """certified: whether its intervals are claims, or estimates with some confidence."""

    about: str
    answer: Callable[[Problem, Instance], Reply]
    certified: bool = True


def ready() -> None:
    """Nothing: where it can be called, everything is imported."""


def answer(name: str, path: Path, certificate: Path, device: str) -> tuple[float, float, bool]:
    """What a tool of ours says of an instance's file, and whether it wrote a certificate.

    An `InputError` where it does not take the instance.
    """
    instance = read_instance(path)
    found = TOOLS[name].answer(instance.problem().to(device), instance)
    if found.certificate is not None:
        certificate.parent.mkdir(parents=True, exist_ok=True)
        found.certificate.write(certificate)
    return found.lower, found.upper, found.certificate is not None


def _proved(problem: Problem, method: Method) -> Reply:
    (result,) = certify(problem, method, seed=SEED)
    return Reply(result.lower, result.upper, result.certificate)


def _averaged(problem: Problem, effort: int) -> Reply:
    (decision,) = decide(problem, effort=effort)
    return Reply(decision.lower, decision.upper, decision.certificate)


def _concentration(effort: int) -> Tool:
    def answer(problem: Problem, instance: Instance) -> Reply:
        if instance.quantity == SOFTMAX:
            return _averaged(problem, min(effort, 1))
        if effort < 2:
            return _proved(problem, Concentration(effort, upper=True))
        limit = SHARE * instance.timeout
        return _proved(problem, Concentration(effort, upper=True, time_limit=limit))

    return Tool(f"concentration at effort {effort}, with upper bounds", answer)


def _enumeration(problem: Problem, instance: Instance) -> Reply:
    if not isinstance(problem.posterior, Empirical):
        return _proved(problem, Enumeration())  # which says what it does not take
    if instance.quantity == SOFTMAX:
        return _averaged(problem, 0)
    return _proved(problem, Enumeration())


def _boxes(method: Method, about: str) -> Tool:
    def answer(problem: Problem, instance: Instance) -> Reply:
        if instance.quantity == SOFTMAX:
            raise InputError("boxes of weights bound no mean over all of them")
        return _proved(problem, method)

    return Tool(about, answer)


def _statistics(problem: Problem, instance: Instance) -> Reply:
    if instance.quantity == SOFTMAX:
        raise InputError("the statistics are of P_safe")
    (drawn,) = estimate(problem, DRAWS, SEED)
    return Reply(drawn.low, drawn.high)


TOOLS: dict[str, Tool] = {
    **{f"concentration-{effort}": _concentration(effort) for effort in (0, 1, 2, 3)},
    "enumeration": Tool("every network of an empirical posterior", _enumeration),
    "pie": _boxes(PIE(), "pure iterative expansion, our bound"),
    "gie": _boxes(GIE(), "gradient-guided expansion, our bound"),
    "sampling": _boxes(Sampling(step=WIDTH), "sampled boxes, our bound"),
    "interval": _boxes(PIE(bound="ibp"), "iterative expansion by interval arithmetic"),
    "pie-published": _boxes(PIE(bound=PUBLISHED), "pure iterative expansion, as published"),
    "gie-published": _boxes(GIE(bound=PUBLISHED), "gradient-guided expansion, as published"),
    "sampling-published": _boxes(
        Sampling(step=WIDTH, bound=PUBLISHED), "sampled boxes, as published"
    ),
    "statistics": Tool(
        f"{DRAWS} networks, attacked: Clopper and Pearson's 99 % interval, no certificate",
        _statistics,
        certified=False,
    ),
}
