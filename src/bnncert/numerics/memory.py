"""Memory: what was freed is kept for what is allocated next.

Bounds allocate and free working tensors of some tens of MB, thousands of times. The C library
(glibc) gives blocks of that size back to the system each time, and taking them again, page by page,
was half of the processor time of a run.
"""

from __future__ import annotations

import ctypes
import sys

# What mallopt calls: a block of its own from here on, give back from here on.
MMAP_THRESHOLD = -3
TRIM_THRESHOLD = -1
# Bytes.
LARGEST_KEPT = 2**30
MOST_KEPT = 2**31 - 1


def keep_freed_memory() -> bool:
    """Tell the allocator, if there is such a one, and return whether there is.

    This is for our own programs: it holds for the whole process.
    """
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library
        return False
    return bool(mallopt(MMAP_THRESHOLD, LARGEST_KEPT)) and bool(mallopt(TRIM_THRESHOLD, MOST_KEPT))
