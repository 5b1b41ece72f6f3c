"""The one error a user can cause."""


class InputError(ValueError):
    """Something the caller gave is wrong; the message is one line that names it and the fix.

    >>> from bnncert import mlp
    >>> mlp(3)
    Traceback (most recent call last):
    bnncert.errors.InputError: mlp(3,) has no layer; give the input width and at least one more
    """
