"""Mutants of the checker, and the suite that catches them."""
