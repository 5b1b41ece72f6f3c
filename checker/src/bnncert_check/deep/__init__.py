"""Two hidden layers at a point: exponential moments of output rows."""
