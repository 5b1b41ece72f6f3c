"""Boxes: weights in orthotopes that are proved safe."""
