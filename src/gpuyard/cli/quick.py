"""The way round the option parser for the commands that are called most.

Typer and what it needs take longer to import than `yard queue` takes to ask the server and print ten thousand lines.
So its plain forms are read here; whatever is not plain (help, an unknown option, a wrong value) is left to Typer, which
knows how to say it. Slurm's commands read their own options, and all of `yard slurm` goes this way.
"""

from collections.abc import Sequence

_VALUES = {
    "-o": "output", "--output": "output", "--state": "state", "--tenant": "tenant",
    "-u": "user", "--user": "user", "--limit": "limit",
}  # fmt: skip
_OUTPUTS = ("table", "wide", "json", "yaml", "csv")


def options_of(words: Sequence[str]) -> dict[str, list[str]] | None:
    """Options of `yard queue` by name; None: not plain."""
    found: dict[str, list[str]] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        name, sign, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if name not in _VALUES or (not sign and not left):
            return None
        found.setdefault(_VALUES[name], []).append(value if sign else left.pop(0))
    limit = found.get("limit", ["1"])[-1]
    if not (limit.isascii() and limit.isdecimal() and int(limit) > 0):
        return None
    return found if found.get("output", ["table"])[-1] in _OUTPUTS else None


def run(words: Sequence[str]) -> int | None:
    """Run `yard queue` in plain words or `yard slurm`, if that is what was asked for; None: it was not."""
    if words[:1] == ["slurm"]:
        from gpuyard.cli.slurm.face import run as run_slurm

        return run_slurm(words[1:])
    options = options_of(words[1:]) if words[:1] == ["queue"] else None
    if options is None:
        return None
    import sys

    from gpuyard.errors import YardError

    try:
        from gpuyard.cli.queue_table import show_queue

        limit = options.get("limit")
        show_queue(
            options.get("state", []),
            options.get("tenant", [""])[-1],
            options.get("user", [""])[-1],
            int(limit[-1]) if limit else None,
            options.get("output", ["table"])[-1],
        )
        sys.stdout.flush()
    except YardError as error:
        from gpuyard.cli.complaints import complain

        return complain(error)
    except OSError:
        from gpuyard.cli.streams import give_up_output

        return give_up_output()
    return 0
