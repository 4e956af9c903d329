"""The environment that goes along with a job. Apart from the option parser, for commands that start without it."""

import os
from collections.abc import Iterable

from gpuyard.errors import BadInput

_NOT_PASSED_ON = frozenset({"YARD_TOKEN", "YARD_SERVER", "YARD_DATA", "CUDA_VISIBLE_DEVICES"})


def environment(more: Iterable[str] = (), *, export: bool = True) -> dict[str, str]:
    """This shell's variables, unless they stay behind, and those given as NAME=VALUE."""
    env = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED_ON} if export else {}
    # A variable that is not text cannot go through JSON; it is of no use to most programs either.
    env = {name: value for name, value in env.items() if _is_text(name) and _is_text(value)}
    for each in more:
        name, sign, value = each.partition("=")
        if not sign or not name:
            raise BadInput(f"--env {each!r} is not NAME=VALUE")
        env[name] = value
    return env


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
