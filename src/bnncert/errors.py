"""The one error a user can cause."""


class InputError(ValueError):
    """Something the caller gave is wrong; the message is one line that names it and the fix."""
