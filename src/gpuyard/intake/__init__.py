"""What people already have goes in: batch scripts of Slurm, manifests of Kubernetes, native YAML.

Text in, a frozen value out. Nothing here reads a file, a clock or the environment: the caller hands these in. What
is understood and not served is named in a warning; what cannot be served is refused with its place and what to do.
Each way in (`forms`, `sbatch`, `kubernetes`, `native`) is imported by itself: YAML takes a moment, and a batch script
does not need it.
"""

from gpuyard.intake.text import BYTES_MAX, decode
from gpuyard.intake.values import PROPOSED, Caller, Form, Handing, Intake, Warning

__all__ = [
    "BYTES_MAX",
    "PROPOSED",
    "Caller",
    "Form",
    "Handing",
    "Intake",
    "Warning",
    "decode",
]
