"""Results: rows, sequences of them, and the folders they are stored in."""
