"""Changed certificates."""
