"""Slurm's commands, run one at a time and never through a shell: words in, printed text out.

Slurm says what went wrong in English on standard error. What matters is whether asking again may help: a controller
or a database that does not answer may come back, and anything else will be refused again.
"""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from gpuyard.engines.contract import Permanent, Transient

TIMEOUT_S = 60.0
_OUT_OF_REACH = (
    "unable to contact slurm controller",
    "socket timed out",
    "connection refused",
    "connection timed out",
    "transport endpoint",
    "zero bytes were transmitted",
    "problem talking to the database",
    "unable to connect to database",
    "sending persistinit msg",
    "controller not responding",
    "slurm backup controller in standby",
    "resource temporarily unavailable",
    "munge daemon",
)


class OutOfReach(Transient):
    """Slurm did not answer. A call that changes something may have happened."""


class Refusal(Permanent):
    """Slurm answered, and said no."""


@dataclass(frozen=True)
class Commands:
    """How this site's commands are run."""

    conf: str = ""
    """Its slurm.conf; empty: where Slurm looks by itself."""
    folder: str = ""
    """Where its programs are; empty: on the PATH."""
    timeout_s: float = TIMEOUT_S
    variables: Mapping[str, str] = field(default_factory=dict)
    """More environment for every command."""

    def run(
        self,
        name: str,
        *words: str,
        text: str = "",
        timeout_s: float = 0.0,
        environment: Mapping[str, str] | None = None,
    ) -> str:
        """The command's output. Raises `OutOfReach`, `Refusal`, or `Permanent` where there is no such program.

        `environment`: the whole of it, for commands that hand it on to a job.
        """
        program = os.path.join(self.folder, name) if self.folder else name
        if any("\0" in word for word in words):
            raise Refusal(f"{name}: a word with a NUL byte cannot be passed on")
        try:
            done = subprocess.run(
                [program, *words],
                input=text,
                env=self.environment if environment is None else dict(environment),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_s or self.timeout_s,
                check=False,
                cwd="/",
            )
        except subprocess.TimeoutExpired:
            raise OutOfReach(f"{name} did not answer within {timeout_s or self.timeout_s:g} s") from None
        except FileNotFoundError:
            where = f"in {self.folder}" if self.folder else "on the PATH"
            raise Permanent(
                f"there is no program {name} {where}; install Slurm's client commands, or say where they are"
            ) from None
        except OSError as error:
            raise Permanent(f"{program} cannot be run: {error.strerror}") from None
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}")[-2000:]
            kind = OutOfReach if is_out_of_reach(said) else Refusal
            raise kind(f"{name}: {said}")
        return done.stdout

    @cached_property
    def environment(self) -> dict[str, str]:
        """The server's environment without what a surrounding job or a token would change about every command."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(
                ("SLURM_", "SBATCH_", "SQUEUE_", "SINFO_", "SACCT_", "SCANCEL_", "SALLOC_")
            )
        }
        conf = self.conf or os.environ.get("SLURM_CONF", "")
        return {
            **kept,
            **({"SLURM_CONF": conf} if conf else {}),
            "SLURM_TIME_FORMAT": "%s",
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            **self.variables,
        }

    @cached_property
    def version(self) -> tuple[int, int]:
        """Year and month of the release, as `sinfo --version` says: (22, 5). (0, 0): it does not say."""
        said = self.run("sinfo", "--version").split()
        parts = said[-1].split(".") if said else []
        numbers = [part for part in parts[:2] if part.isdecimal()]
        return (int(numbers[0]), int(numbers[1])) if len(numbers) == 2 else (0, 0)


def is_out_of_reach(said: str) -> bool:
    """Whether a complaint means that Slurm did not answer, rather than that it said no."""
    lower = said.lower()
    return any(sign in lower for sign in _OUT_OF_REACH)
