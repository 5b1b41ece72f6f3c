"""The checker against exact arithmetic and brute force."""
