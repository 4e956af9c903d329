"""The way out of a command that cannot go on: Slurm's words on standard error, Slurm's exit code."""


class Stop(Exception):
    """Ends the command. Lines are printed as they are."""

    def __init__(self, *lines: str, code: int = 1) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines
        self.code = code


def make_stop(program: str, text: str, code: int = 1) -> Stop:
    """`squeue: error: text`."""
    return Stop(*[f"{program}: error: {line}" for line in text.splitlines() or [""]], code=code)
