"""The norms of input balls."""

NORMS = ("linf", "l2", "l1")
