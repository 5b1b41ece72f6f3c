"""Laws of output rows: P(some row <= 0 somewhere on a box) for one random hidden layer of ReLUs.

    M = β + Σ_i v_i relu(z_i + W_i·δ),   |δ_j| <= r_j

docs/wide.md states bound C and proves it; here it is computed from what a certificate chose.
"""
