"""Numerics: what bounds compute with."""
