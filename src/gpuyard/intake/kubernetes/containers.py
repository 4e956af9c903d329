"""A container as a process: its command, arguments, variables and folder.

`$(NAME)` in a command stands for a variable, as the kubelet has it; `$$(NAME)` is the text itself; what is not known
stays.
"""

import re
from collections.abc import Mapping
from typing import Any

from gpuyard.config.problems import quoted
from gpuyard.intake.kubernetes.tree import Part

_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_LEFT_OUT = {
    "imagePullPolicy": "no image is pulled",
    "lifecycle": "there are no hooks; do it in the command",
    "livenessProbe": "a job is not probed; it ends when its command does",
    "ports": "the process opens its ports on the node itself",
    "readinessProbe": "a job is not probed",
    "securityContext": "the process runs as whoever submits it",
    "startupProbe": "a job is not probed",
    "stdin": "standard input is /dev/null",
    "terminationMessagePath": "what it says is in its log",
    "terminationMessagePolicy": "what it says is in its log",
    "tty": "there is no terminal",
}
_REFUSED = {
    "envFrom": "variables of ConfigMaps and Secrets are not there; write them as env",
    "volumeDevices": "there are no block devices of volumes",
}


def expand(text: str, variables: Mapping[str, str]) -> str:
    """The text with its references replaced."""

    def fill(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return variables.get(match[1], match[0])

    return _REFERENCE.sub(fill, text)


def process(container: Part, host_process: bool) -> dict[str, Any]:
    """Fields of a job for what the container runs."""
    env = _environment(container)
    command = [expand(word, env) for word in container.texts("command")]
    arguments = [expand(word, env) for word in container.texts("args")]
    image = container.text("image")
    if not host_process:
        container.problem(
            "image",
            f"{quoted(image)} cannot be run: a yard starts processes; with --host-process the command runs as one, "
            "with the node's own programs in place of the image's",
        )
    elif image:
        container.warn("image", f"{quoted(image)} is not used: the command runs with the node's own programs")
    if not command:
        what = "arguments without one" if arguments else "none"
        container.problem(
            "command", f"must be given ({what} is here): the image's own entry point is not known"
        )
    elif not command[0]:
        container.problem("command", "must begin with a program")
    folder = container.text("workingDir")
    if folder and not folder.startswith("/"):
        container.problem("workingDir", f"must be an absolute path, not {quoted(folder)}")
    container.left_out(_LEFT_OUT)
    container.refused(_REFUSED)
    container.accept("name")
    found: dict[str, Any] = {"command": command + arguments}
    return found | ({"cwd": folder} if folder else {}) | ({"env": env} if env else {})


def _environment(container: Part) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in container.parts("env"):
        with part:
            name = part.text("name")
            if not _NAME.fullmatch(name):
                part.problem("name", f"cannot be a variable: {quoted(name)}")
            if part.has("valueFrom"):
                part.problem(
                    "valueFrom",
                    f"of {name} cannot be served: a yard has no ConfigMaps and Secrets; write a value",
                )
            # A later variable may use those before it.
            found[name] = expand(part.text("value"), found)
    return found


def mounts(container: Part, volumes: Mapping[str, Part]) -> None:
    """Volumes that a process would miss are refused; folders of the node that keep their name are there anyway."""
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
            elif volume.has("emptyDir"):
                part.warn(
                    "mountPath", f"is the node's own {target}, not an empty folder that goes with the job"
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
                    f"{quoted(name)} ({kind}) is not there for a process; put its files under {target}",
                )
