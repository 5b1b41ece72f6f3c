"""Joint laws of rows at a point, by Fourier series: how often one fails, and two together."""
