"""Concentration: functionals of Gaussian weights."""
