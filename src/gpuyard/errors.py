"""Errors that a person can do something about.

Each carries what is wrong, where, and what to do; the command line prints it without a traceback and exits with
`exit_code`. Anything else that escapes is a defect of ours and shows its traceback.
"""


class YardError(Exception):
    """Something outside the program is not as it should be."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        """What to do about it, as a sentence."""


class BadInput(YardError):
    """A file, an option or a request that cannot be understood or served."""

    exit_code = 2
