"""Laws: the exact law of an output row, where a hidden layer of random neurons is the last but one."""
