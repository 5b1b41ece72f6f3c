"""bnncert_check: an independent checker of bnncert's certificates, in rigorous arithmetic.

It shares no code with bnncert and needs numpy and python-flint only.
"""

from bnncert_check.certificate import check_certificate
from bnncert_check.folder import check_results, read_results
from bnncert_check.model import read_model
from bnncert_check.verdict import ACCEPT, ERROR, REJECT, CannotCheck, Rejected, Verdict

__all__ = [
    "ACCEPT",
    "ERROR",
    "REJECT",
    "CannotCheck",
    "Rejected",
    "Verdict",
    "check_certificate",
    "check_results",
    "read_model",
    "read_results",
]
