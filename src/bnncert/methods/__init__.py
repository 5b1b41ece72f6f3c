"""Methods: how to bound the probability of safe weights; each is a frozen set of options with one call."""

from bnncert.methods.concentration import Concentration
from bnncert.methods.gie import GIE
from bnncert.methods.outcome import Method, Outcome
from bnncert.methods.pie import PIE
from bnncert.methods.sampling import Sampling

METHODS: dict[str, type[Concentration] | type[Sampling] | type[PIE] | type[GIE]] = {
    method.name: method for method in (Concentration, Sampling, PIE, GIE)
}

__all__ = ["GIE", "METHODS", "PIE", "Concentration", "Method", "Outcome", "Sampling"]
