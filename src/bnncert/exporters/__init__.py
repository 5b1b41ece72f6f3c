"""Exporters: sampled networks and their questions, for verifiers of ordinary networks."""
