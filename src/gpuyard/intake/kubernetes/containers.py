"""A container as a process: its command, arguments, variables and folder.

`$(NAME)` in a command stands for a variable, as in the kubelet; `$$(NAME)` is the text itself; unknown names stay as
they are. The index of a task is known only once it starts, so a shell inserts it where the manifest wants it.
"""

import re
import shlex
from collections.abc import Mapping
from typing import Any

from gpuyard.errors import quoted
from gpuyard.intake.kubernetes.sources import INDEX, Sources
from gpuyard.intake.kubernetes.tree import Part

_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_TO_INDEX = f"$({INDEX})"
_THERE = ("/dev/shm", "/tmp", "/var/tmp")
"""Folders that every node has and that all users may write to."""
_LEFT_OUT = {
    "imagePullPolicy": "no image is pulled",
    "lifecycle": "there are no hooks; do it in the command",
    "livenessProbe": "a job is not probed; it ends when its command does",
    "ports": "the process opens its ports on the node itself",
    "readinessProbe": "a job is not probed",
    "securityContext": "the process runs as you, with your rights",
    "startupProbe": "a job is not probed",
    "stdin": "standard input is /dev/null",
    "terminationMessagePath": "what it says is in its log",
    "terminationMessagePolicy": "what it says is in its log",
    "tty": "there is no terminal",
}
_REFUSED = {
    "volumeDevices": "there are no block devices of volumes",
}


def expand(text: str, variables: Mapping[str, str]) -> str:
    """The text with its references replaced."""

    def fill(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return variables.get(match[1], match[0])

    return _REFERENCE.sub(fill, text)


def process(container: Part, sources: Sources, *, host_process: bool) -> dict[str, Any]:
    """Fields of a job for what the container runs."""
    env, indices = _environment(container, sources)
    command = [expand(word, env) for word in container.texts("command")]
    arguments = [expand(word, env) for word in container.texts("args")]
    image = container.text("image")
    if image and not host_process:
        container.warn(
            "image",
            f"{quoted(image)} is not used: the command runs on the node, with the node's own programs",
        )
    if not command:
        container.problem(
            "command",
            f"is missing, so it needs the entrypoint of its image {quoted(image)}, and a yard starts no images; "
            f"write the program as command{', before these args' if arguments else ''}",
        )
    elif not command[0]:
        container.problem("command", "must begin with a program")
    folder = container.text("workingDir")
    if folder and not folder.startswith("/"):
        container.problem("workingDir", f"must be an absolute path, not {quoted(folder)}")
    container.left_out(_LEFT_OUT)
    container.refused(_REFUSED)
    container.accept("name")
    words = command + arguments
    if indices or any([_TO_INDEX in word for word in words]):
        words = ["sh", "-c", _with_index(words, indices)]
    found: dict[str, Any] = {"command": words}
    return found | ({"cwd": folder} if folder else {}) | ({"env": env} if env else {})


def _with_index(words: list[str], indices: list[str]) -> str:
    """A line for a shell that inserts the index of the task where these words and variables want it."""
    index = f'"${INDEX}"'
    quoted_words = [
        index.join([shlex.quote(text) if text else "" for text in word.split(_TO_INDEX)]) for word in words
    ]
    variables = "".join([f"{name}={index} " for name in indices])
    return f"{variables}exec {' '.join([word or repr('') for word in quoted_words])}"


def _environment(container: Part, sources: Sources) -> tuple[dict[str, str], list[str]]:
    """Variables by name, and the names of those that are the index of the task."""
    found: dict[str, str] = {}
    indices: list[str] = []
    for part in container.parts("envFrom"):
        with part:
            found |= {name: value for name, value in sources.all_of(part).items() if _NAME.fullmatch(name)}
    for part in container.parts("env"):
        with part:
            name = part.text("name")
            if not _NAME.fullmatch(name):
                part.problem("name", f"cannot be a variable: {quoted(name)}")
            if part.has("valueFrom"):
                value, is_index = sources.value(part, name)
                if is_index:
                    indices.append(name)
                elif value is not None:
                    found[name] = value
                continue
            # A later variable may use the ones before it.
            found[name] = expand(part.text("value"), found)
    return found, indices


def mounts(container: Part, volumes: Mapping[str, Part]) -> None:
    """Refuse volumes that a process would miss; folders of the node that keep their path are there anyway."""
    for part in container.parts("volumeMounts"):
        with part:
            name, target = part.text("name"), part.text("mountPath")
            part.accept("readOnly", "mountPropagation", "recursiveReadOnly")
            part.refused(
                {"subPath": "a process sees whole folders", "subPathExpr": "a process sees whole folders"}
            )
            volume = volumes.get(name)
            if volume is None:
                part.problem("name", f"names no volume: {quoted(name)}")
            elif volume.has("emptyDir") and target.rstrip("/") in _THERE:
                part.warn(
                    "mountPath", f"is the node's own {target}, not an empty folder that goes with the job"
                )
            elif volume.has("emptyDir"):
                part.problem(
                    "mountPath",
                    f"cannot be served: an empty folder {target} would have to be made on the node for all to see; "
                    "use a folder below /tmp",
                )
            elif volume.has("hostPath"):
                path = volume.part("hostPath").text("path")
                if path.rstrip("/") != target.rstrip("/"):
                    part.problem(
                        "mountPath", f"must be {path} itself: a process sees the node's folders as they are"
                    )
            else:
                kind = next((key for key in volume.names() if key != "name"), "volume")
                part.problem(
                    "name",
                    f"{quoted(name)} ({kind}) is not there for a process: put its files under {target} on the node, "
                    "and take the volume out",
                )
