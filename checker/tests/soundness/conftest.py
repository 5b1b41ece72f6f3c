"""Every test here computes as the checker runs."""

from __future__ import annotations

from collections.abc import Iterator

import mpmath
import numpy as np
import pytest
from flint import ctx

from bnncert_check import arithmetic as ar


@pytest.fixture(autouse=True)
def _as_the_checker_runs() -> Iterator[None]:
    """Arb at the checker's precision, numpy as quiet as it keeps it, 60 digits for the truth."""
    with ctx.workprec(ar.BITS), np.errstate(all="ignore"), mpmath.workdps(60):
        yield
