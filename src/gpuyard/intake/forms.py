"""One way in for all forms: the form of a file is recognised from its text, unless the caller names it."""

import re

from gpuyard.errors import BadInput
from gpuyard.intake.documents import parse_each_document
from gpuyard.intake.kubernetes import read_kubernetes
from gpuyard.intake.native import read_native
from gpuyard.intake.native_fields import FIELDS
from gpuyard.intake.sbatch import read_sbatch
from gpuyard.intake.values import Caller, Form, Intake

_DIRECTIVE = re.compile(r"^#SBATCH\b", re.MULTILINE)


def form_of(text: str, file: str) -> Form:
    """The form of a file; `BadInput` if it is not clear."""
    plain = text.removeprefix("\ufeff")
    if plain.startswith("#!") or _DIRECTIVE.search(plain):
        return Form.SBATCH
    keys = next(parse_each_document(text, file)).root.entries.keys()
    if {"apiVersion", "kind"} <= keys:
        return Form.KUBERNETES
    if keys & FIELDS.keys():
        return Form.NATIVE
    raise BadInput(
        f"{file}: neither a batch script, nor a manifest of Kubernetes, nor a job in native YAML",
        "Say what it is with --from sbatch, kubernetes or native.",
    )


def read(text: str, file: str, caller: Caller, form: Form | None = None) -> list[Intake]:
    """Every job of a file, in native fields; `BadInput` with the places of what cannot be served."""
    match form or form_of(text, file):
        case Form.SBATCH:
            return [read_sbatch(text, file, caller)]
        case Form.KUBERNETES:
            return read_kubernetes(text, file, caller)
        case Form.NATIVE:
            return read_native(text, file)
