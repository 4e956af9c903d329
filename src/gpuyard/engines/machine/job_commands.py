"""Slurm's commands as jobs and people find them over a yard: their names, and the small programs for a PATH.

An engine whose jobs know no Slurm puts them on the PATH of a job; `yard slurm --install-links` puts them on a person's.
"""

import os
import shlex
import sys
from pathlib import Path

VERSION = "slurm-wlm 22.05.8"
"""The Slurm that these commands are like. Scripts look at the number; the words after it name gpuyard."""
PROGRAMS = (
    "sbatch", "squeue", "scancel", "sinfo", "sacct", "srun", "scontrol", "sshare", "sreport", "salloc", "sbcast",
    "sstat", "seff", "sattach",
)  # fmt: skip
INSTEAD = {
    "sprio": "`yard why JOB` says why a job waits, and `yard share --explain` whose turn it is",
    "sacctmgr": "tenants, classes and limits are in yard.yaml: `yard tenants` shows them, `yard apply` changes them",
    "sdiag": "`yard queue` shows the jobs that wait, and `yard top` the whole yard",
    "scrontab": "let cron run sbatch",
    "strigger": "let a job wait for another: sbatch --dependency",
}
"""Commands of Slurm's that a yard does not have, and what to use."""
MARK = "# made by `yard slurm --install-links`"
_SHEBANG_MAX = 120
"""Longer first lines are cut by older kernels."""
_PYTHON = """\
#!{python}
{mark}
import sys

from gpuyard.cli import main

sys.argv[:1] = ["yard", "slurm", "{name}"]
main()
"""
_SHELL = """\
#!/bin/sh
{mark}
exec {python} -P -m gpuyard.cli slurm {name} "$@"
"""


def text_of(name: str, python: str) -> str:
    """The program: for this Python, in a form that its path allows."""
    plain = len(python) < _SHEBANG_MAX and not any(char.isspace() for char in python)
    form = _PYTHON if plain else _SHELL
    return form.format(python=python if plain else shlex.quote(python), mark=MARK, name=name)


def write(folder: Path) -> None:
    """Put the commands into a folder, for all users; a file that is as it should be is left alone."""
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    folder.chmod(0o755)
    for name in (*PROGRAMS, *INSTEAD):
        text, path = text_of(name, sys.executable), folder / name
        if (
            path.is_file()
            and not path.is_symlink()
            and path.read_text(encoding="utf-8", errors="replace") == text
        ):
            continue
        draft = folder / f".{name}.{os.getpid()}"
        draft.write_text(text, encoding="utf-8")
        draft.chmod(0o755)
        draft.replace(path)
