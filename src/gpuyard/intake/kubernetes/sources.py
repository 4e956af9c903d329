"""Where a container's variables come from besides its own text: ConfigMaps and Secrets of the same file, and the pod.

Values in the file are used; values that only a cluster knows are refused, with the variable that has them in a yard.
"""

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass, field

from gpuyard.config.document import BYTES_MAX
from gpuyard.errors import quote
from gpuyard.intake.documents import Document
from gpuyard.intake.kubernetes.tree import Findings, Part, parse_boolean
from gpuyard.keys.problems import ConfigError, Problem

CONFIG_MAP, SECRET = "ConfigMap", "Secret"
INDEX = "JOB_COMPLETION_INDEX"
"""The variable in which every task of an array finds its index."""
_INDEX_PATHS = (
    "metadata.annotations['batch.kubernetes.io/job-completion-index']",
    "metadata.labels['batch.kubernetes.io/job-completion-index']",
)
_INSTEAD = {
    "metadata.name": "read YARD_JOB_ID, which every job has",
    "metadata.uid": "read YARD_JOB_ID, which every job has",
    "spec.nodeName": "read YARD_NODE, which every job has",
    "status.hostIP": "the process is on the node itself",
    "status.podIP": "the process is on the node itself",
}


@dataclass
class Sources:
    """The ConfigMaps and Secrets of a file, and what is known of the job that reads them."""

    data: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    """Keys and values, by kind and name."""
    namespace: str = ""
    left: int = BYTES_MAX
    """Characters that references of the file may still stand for, all together as many as the largest file has: three
    lines of `$(A)$(A)` are eight times the first one, and forty are more than any machine holds."""

    @classmethod
    def of(cls, documents: Iterable[Document], findings: Findings) -> "Sources":
        """All ConfigMaps and Secrets of a file."""
        found = cls()
        for document in documents:
            root = Part(document.root, "", findings)
            kind = root.text("kind")
            if kind in (CONFIG_MAP, SECRET):
                with root.part("metadata") as metadata:
                    name = metadata.text("name")
                    metadata.accept(*metadata.names())
                found.data[kind, name] = _values(root, secret=kind == SECRET)
        return found

    def take(self, part: Part, key: str, text: str) -> str:
        """The text that a reference in this key stands for; `ConfigError` once it is too much in all."""
        self.left -= len(text)
        if self.left < 0:
            problem = Problem(
                part.place(key),
                f"{part.named(key)} expands too far: the references in this file stand for more than "
                f"{BYTES_MAX // 1024**2} MiB; write shorter values, or read them from a file in the job",
            )
            raise ConfigError(part.findings.file, [problem])
        return text

    def value(self, part: Part, name: str) -> tuple[str | None, bool]:
        """What `valueFrom` of a variable stands for (None: it is left out), and whether it is the task's index."""
        with part.part("valueFrom") as source:
            for key, kind in (("configMapKeyRef", CONFIG_MAP), ("secretKeyRef", SECRET)):
                if source.has(key):
                    with source.part(key) as reference:
                        return self._of_key(part, reference, kind, name), False
            with source.part("fieldRef") as reference:
                path = reference.text("fieldPath")
                reference.accept("apiVersion")
            if path in _INDEX_PATHS:
                return "", True
            if path == "metadata.namespace":
                return self.namespace or "default", False
            what = f"the pod's {path}" if path else next(iter(source.names()), "nothing")
            source.accept(*source.names())
            instead = _INSTEAD.get(path, "write a value")
            part.problem("valueFrom", f"of {name} cannot be served: a yard does not know {what}; {instead}")
            return "", False

    def _of_key(self, part: Part, reference: Part, kind: str, variable: str) -> str | None:
        name, key = reference.text("name"), reference.text("key")
        optional = reference.get("optional", parse_boolean, False)
        values = self.data.get((kind, name))
        if values is not None and key in values:
            return self.take(part, "valueFrom", values[key])
        if optional:
            return None
        if values is None:
            part.problem(
                "valueFrom",
                f"of {variable} cannot be served: {kind} {quote(name)} is not in this file; "
                "put it there, or write a value",
            )
        else:
            part.problem("valueFrom", f"of {variable}: {kind} {quote(name)} has no key {quote(key)}")
        return ""

    def all_of(self, part: Part) -> dict[str, str]:
        """The variables of one entry of `envFrom`."""
        prefix = part.text("prefix")
        for ref, kind in (("configMapRef", CONFIG_MAP), ("secretRef", SECRET)):
            if not part.has(ref):
                continue
            with part.part(ref) as reference:
                name = reference.text("name")
                optional = reference.get("optional", parse_boolean, False)
            values = self.data.get((kind, name))
            if values is None and not optional:
                part.problem(
                    ref,
                    f"cannot be served: {kind} {quote(name)} is not in this file; put it there, "
                    "or write its variables as env",
                )
            return {prefix + key: self.take(part, ref, value) for key, value in (values or {}).items()}
        return {}


def _values(root: Part, *, secret: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    with root.part("data") as data:
        for key in data.names():
            text = data.text(key)
            if secret:
                try:
                    text = base64.b64decode(text, validate=True).decode()
                except (binascii.Error, UnicodeDecodeError):
                    data.problem(key, "must be base64 of a text")
                    continue
            found[key] = text
    if secret:
        with root.part("stringData") as plain:
            found |= {key: plain.text(key) for key in plain.names()}
    return found
