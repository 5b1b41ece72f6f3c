"""Methods: how to cover the safe weights, one file each; each is a frozen set of options with one call."""

from bnncert.methods.gie import GIE
from bnncert.methods.outcome import Method, Outcome
from bnncert.methods.pie import PIE
from bnncert.methods.sampling import Sampling

METHODS: dict[str, type[Sampling] | type[PIE] | type[GIE]] = {m.name: m for m in (Sampling, PIE, GIE)}

__all__ = ["GIE", "METHODS", "PIE", "Method", "Outcome", "Sampling"]
