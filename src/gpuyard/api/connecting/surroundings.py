"""Where a job is submitted from: the folder and the environment that go with it, for commands and programs alike.

Light, because every command that submits imports it.
"""

import os
from collections.abc import Iterable

from gpuyard.errors import BadInput

_NOT_PASSED_ON = frozenset(
    {"YARD_TOKEN", "YARD_SERVER", "YARD_URL", "YARD_CA", "YARD_DATA", "CUDA_VISIBLE_DEVICES"}
)
_OF_A_JOB = ("SLURM_", "SLURMD_", "YARD_")
_OF_A_GANG = frozenset({"RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})


def current_folder() -> str:
    """The current folder."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise BadInput(
            "the current folder no longer exists, and a job starts in the folder that it is submitted from",
            "Change to an existing folder: cd ~",
        ) from None


def read_umask() -> int:
    """The caller's umask."""
    found = os.umask(0o077)
    os.umask(found)
    return found


def collect_environment(more: Iterable[str] = (), *, export: bool = True) -> dict[str, str]:
    """This shell's variables (unless `export` is off), where the job comes from, and those given as NAME=VALUE."""
    env = {name: value for name, value in os.environ.items() if _goes_along(name)} if export else {}
    env |= {"SLURM_SUBMIT_DIR": current_folder(), "SLURM_SUBMIT_HOST": os.uname().nodename.partition(".")[0]}
    # A variable that is not text cannot go through JSON; it is of no use to most programs either.
    env = {name: value for name, value in env.items() if _is_text(name) and _is_text(value)}
    for each in more:
        name, sign, value = each.partition("=")
        if not sign or not name:
            raise BadInput(f"--env {each!r} is not NAME=VALUE", "For example: --env SEED=7")
        env[name] = value
    return env


def _goes_along(name: str) -> bool:
    """Whether a variable goes along: variables that the yard set for a job do not go to jobs that it submits."""
    told = name.startswith(_OF_A_JOB) or name in _OF_A_GANG
    return name not in _NOT_PASSED_ON and not (told and "YARD_JOB_ID" in os.environ)


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
