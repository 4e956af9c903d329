"""Programs that stand in for others in the PATH of jobs: Slurm's commands, and the `nvidia-smi` of emulated GPUs.

They lie in folders of the engine's, for all users. Containers have the second where the driver's own would be.
"""

import errno
import os
from contextlib import suppress
from pathlib import Path

from gpuyard.engines.machine import job_commands

COMMANDS, FOLDER, PROGRAM = "slurm", "emulated", "nvidia-smi"
INSIDE = f"/usr/bin/{PROGRAM}"
"""Where the driver's own is, and where a container finds it."""
_SOURCE = Path(__file__).parents[2] / "machine" / "emulated_smi.sh"


def put_programs(root: str, *, slurm: bool, gpus: bool) -> tuple[str, str]:
    """Have what is wanted; the folders, each empty where it is not."""
    commands = os.path.join(root, COMMANDS) if slurm else ""
    if commands:
        job_commands.write(Path(commands))
    return commands, install(root) if gpus else ""


def install(root: str) -> str:
    """Write `nvidia-smi` into its folder; the folder."""
    folder = os.path.join(root, FOLDER)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    os.chmod(folder, 0o755)
    path, draft = os.path.join(folder, PROGRAM), os.path.join(folder, f".{PROGRAM}.{os.getpid()}")
    content = _SOURCE.read_text(encoding="utf-8")
    with suppress(FileNotFoundError):
        if Path(path).read_text(encoding="utf-8") == content:
            return folder
    try:
        with open(draft, "w", encoding="utf-8") as file:
            file.write(content)
        os.chmod(draft, 0o755)
        os.rename(draft, path)
    except OSError as error:
        # A yard on a full disk starts all the same: what fills it is to be cancelled.
        if error.errno != errno.ENOSPC:
            raise
        os.unlink(draft)
    return folder
