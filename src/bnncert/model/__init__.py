"""Model: what is certified, and the question."""
