"""Methods: how to bound the probability of safe weights.

Each is a frozen set of options with one call.
"""

from bnncert.boxes.gie import GIE
from bnncert.boxes.pie import PIE
from bnncert.boxes.sampling import Sampling
from bnncert.concentration.method import Concentration
from bnncert.enumeration import Enumeration
from bnncert.outcome import Method, Outcome
from bnncert.posteriors.base import Posterior
from bnncert.posteriors.empirical import Empirical

METHODS: dict[
    str, type[Concentration] | type[Enumeration] | type[Sampling] | type[PIE] | type[GIE]
] = {method.name: method for method in (Concentration, Enumeration, Sampling, PIE, GIE)}


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
]
