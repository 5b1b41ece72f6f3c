"""Laws of output rows: P(some row <= 0 somewhere on a box) for one random hidden layer.

    M = β + Σ_i v_i f(z_i + W_i·δ),   |δ_j| <= r_j

docs/wide.md states bound C, for ReLUs, and that by lines, for any f, and proves them; here they are
computed from what a certificate chose.
"""
