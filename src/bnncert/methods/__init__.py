"""Methods: how to bound the probability of safe weights; each is a frozen set of options with one call."""

from bnncert.empirical import Empirical
from bnncert.methods.concentration import Concentration
from bnncert.methods.enumeration import Enumeration
from bnncert.methods.gie import GIE
from bnncert.methods.outcome import Method, Outcome
from bnncert.methods.pie import PIE
from bnncert.methods.sampling import Sampling
from bnncert.posterior import Posterior

METHODS: dict[str, type[Concentration] | type[Enumeration] | type[Sampling] | type[PIE] | type[GIE]] = {
    method.name: method for method in (Concentration, Enumeration, Sampling, PIE, GIE)
}


def default_method(posterior: Posterior) -> Method:
    """Enumeration where there are finitely many networks, else concentration."""
    return Enumeration() if isinstance(posterior, Empirical) else Concentration()


__all__ = ["GIE", "METHODS", "PIE", "Concentration", "Enumeration", "Method", "Outcome", "Sampling", "default_method"]
