"""What people already have goes in: batch scripts of Slurm, manifests of Kubernetes, native YAML.

Text in, a frozen value out. Nothing here reads a file, a clock or the environment: the caller hands these in. What
is understood and not served is named in a warning; what cannot be served is refused with its place and what to do.
YAML takes a moment to import and a batch script does not need it, so the ways in are imported when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpuyard.intake.text import BYTES_MAX, decode
from gpuyard.intake.values import PROPOSED, Caller, Form, Handing, Intake, Warning

if TYPE_CHECKING:
    from gpuyard.intake.forms import form_of, read
    from gpuyard.intake.kubernetes import read_kubernetes
    from gpuyard.intake.native import read_native, write_native
    from gpuyard.intake.sbatch import expand_pattern, read_sbatch, split_command

__all__ = [
    "BYTES_MAX",
    "PROPOSED",
    "Caller",
    "Form",
    "Handing",
    "Intake",
    "Warning",
    "decode",
    "expand_pattern",
    "form_of",
    "read",
    "read_kubernetes",
    "read_native",
    "read_sbatch",
    "split_command",
    "write_native",
]

_LATE = {
    "expand_pattern": "gpuyard.intake.sbatch",
    "form_of": "gpuyard.intake.forms",
    "read": "gpuyard.intake.forms",
    "read_kubernetes": "gpuyard.intake.kubernetes",
    "read_native": "gpuyard.intake.native",
    "read_sbatch": "gpuyard.intake.sbatch",
    "split_command": "gpuyard.intake.sbatch",
    "write_native": "gpuyard.intake.native",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATE[name]), name)
