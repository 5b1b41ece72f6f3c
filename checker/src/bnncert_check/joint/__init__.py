"""Joint laws of one or two output rows at a point: P(all of them <= 0) for one random hidden layer,
by Fourier series."""
