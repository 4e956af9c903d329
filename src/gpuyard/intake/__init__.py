"""Reads what users already have: batch scripts of Slurm, manifests of Kubernetes, native YAML.

Text in, a frozen value out. Nothing here reads a file, a clock or the environment: the caller passes these in. What is
understood but not served is named in a warning; what cannot be served is refused with its place and what to do. The
modules `forms`, `sbatch`, `kubernetes` and `native` are imported one by one: importing YAML takes a moment, and a batch
script does not need it.
"""

from gpuyard.intake.text import BYTES_MAX, decode
from gpuyard.intake.values import PROPOSED, Caller, Form, Intake, SubmitOptions, Warning

__all__ = [
    "BYTES_MAX",
    "PROPOSED",
    "Caller",
    "Form",
    "Intake",
    "SubmitOptions",
    "Warning",
    "decode",
]
