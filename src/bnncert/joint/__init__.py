"""Joint laws of output rows at a point, by Fourier series: how often each fails, and two together."""
