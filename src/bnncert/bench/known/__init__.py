"""The truth set: small instances whose P_safe is known to many digits, each made so that a known
mistake gives a wrong answer to it. Each module holds those about one kind of mistake.

What is known is in `truths.json`: an interval from closed forms and rigorous quadrature, which the
tests compute again in ball arithmetic. The next line under each question is its truth, Φ and Q the
distribution function and the tail of a standard normal, φ its density.
"""

from bnncert.bench.known.boxes import BOXES
from bnncert.bench.known.instance import TRACK
from bnncert.bench.known.laws import LAWS
from bnncert.bench.known.networks import NETWORKS, PLANTED
from bnncert.bench.known.roundings import ROUNDINGS

KNOWN = (*LAWS, *NETWORKS, *BOXES, *ROUNDINGS)

__all__ = ["KNOWN", "PLANTED", "TRACK"]
