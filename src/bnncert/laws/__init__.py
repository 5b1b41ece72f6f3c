"""Laws: the exact law of an output row, where one hidden layer of random neurons is before it."""
