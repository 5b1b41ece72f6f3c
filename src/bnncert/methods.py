"""Methods: how to bound the probability of safe weights.

Each is a frozen set of options with one call.
"""

from bnncert.boxes.gie import GIE
from bnncert.boxes.pie import PIE
from bnncert.boxes.sampling import Sampling
from bnncert.concentration.method import Concentration
from bnncert.enumeration import Enumeration
from bnncert.errors import InputError
from bnncert.outcome import Method, Outcome
from bnncert.posteriors.base import Posterior
from bnncert.posteriors.empirical import Empirical

METHODS: dict[
    str, type[Concentration] | type[Enumeration] | type[Sampling] | type[PIE] | type[GIE]
] = {method.name: method for method in (Concentration, Enumeration, Sampling, PIE, GIE)}


def method_of(chosen: Method | str) -> Method:
    """A method, or by its name the one with default options.

    >>> method_of("pie")
    PIE(samples=50, step=0.5, bound='lbp', budget=50, walk='linear', mean_first=True)
    """
    if not isinstance(chosen, str):
        return chosen
    if chosen not in METHODS:
        objects = ", ".join(f"{method.__name__}()" for method in METHODS.values())
        raise InputError(
            f"method {chosen!r} is not known; choose {', '.join(METHODS)}, "
            f"or for options an object: {objects}"
        )
    return METHODS[chosen]()


def default_method(posterior: Posterior) -> Method:
    """Enumeration where there are finitely many networks, else concentration."""
    return Enumeration() if isinstance(posterior, Empirical) else Concentration()


__all__ = [
    "GIE",
    "METHODS",
    "PIE",
    "Concentration",
    "Enumeration",
    "Method",
    "Outcome",
    "Sampling",
    "default_method",
    "method_of",
]
