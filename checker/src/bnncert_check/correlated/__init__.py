"""One hidden layer of tanh or sigmoid whose weights are correlated, at a point: docs/wide.md."""
