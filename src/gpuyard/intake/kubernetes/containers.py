"""A container as a process, or as one of a job in images: its command, arguments, variables, folders.

`$(NAME)` in a command stands for a variable, as in the kubelet; `$$(NAME)` is the text itself; unknown names stay as
they are. The index of a task is known only once it starts. So a shell inserts it for a process where the manifest wants
it, and the engine for a container, whose image may have no shell.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gpuyard.errors import quote
from gpuyard.intake.kubernetes.sources import INDEX, Sources
from gpuyard.intake.kubernetes.tree import Part, parse_boolean

_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_TO_INDEX = f"$({INDEX})"
_THERE = ("/dev/shm", "/tmp", "/var/tmp")
"""Folders that every node has and that all users may write to."""
_LEFT_OUT = {
    "lifecycle": "there are no hooks; do it in the command",
    "livenessProbe": "a job is not probed; it ends when its command does",
    "ports": "it opens its ports on the node itself",
    "readinessProbe": "a job is not probed",
    "securityContext": "it runs as you, with your rights",
    "startupProbe": "a job is not probed",
    "stdin": "standard input is /dev/null",
    "terminationMessagePath": "what it says is in its log",
    "terminationMessagePolicy": "what it says is in its log",
    "tty": "there is no terminal",
}
_PULLED = {"Always": "always", "IfNotPresent": "missing", "Never": "never"}
_REFUSED = {
    "volumeDevices": "there are no block devices of volumes",
}


def expand(text: str, variables: Mapping[str, str], taken: Callable[[str], str]) -> str:
    """The text with its references replaced; `taken` counts what they stand for, before it is put together."""

    def fill(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return taken(variables[match[1]]) if match[1] in variables else match[0]

    return _REFERENCE.sub(fill, text)


def process_fields(container: Part, sources: Sources) -> dict[str, Any]:
    """Fields of a job that runs on the node itself what the container would run."""
    env, indices, command, arguments, folder = _read(container, sources)
    if not command:
        image = container.text("image")
        container.problem(
            "command",
            f"is missing, so it needs the entrypoint of its image {quote(image)}; leave out --host-process, or "
            f"write the program as command{', before these args' if arguments else ''}",
        )
    container.accept("image", "imagePullPolicy")
    words = command + arguments
    if indices or any([_TO_INDEX in word for word in words]):
        words = ["sh", "-c", _with_index(words, indices)]
    found: dict[str, Any] = {"command": words}
    return found | ({"cwd": folder} if folder else {}) | ({"env": env} if env else {})


def container_fields(container: Part, sources: Sources) -> dict[str, Any]:
    """What a container is in a job in images; `env` of a job's own container is that of the job."""
    env, indices, command, arguments, folder = _read(container, sources)
    image, policy = container.text("image"), container.text("imagePullPolicy")
    if not image:
        container.problem("image", "is missing")
    if policy and policy not in _PULLED:
        container.problem("imagePullPolicy", f"must be Always, IfNotPresent or Never, not {quote(policy)}")
    env |= dict.fromkeys(indices, _TO_INDEX)
    found: dict[str, Any] = {
        "image": image,
        "entrypoint": command,
        "command": arguments,
        "workdir": folder,
        "env": env,
    }
    found["pull"] = _PULLED.get(policy, "")
    return {name: value for name, value in found.items() if value}


def _read(container: Part, sources: Sources) -> tuple[dict[str, str], list[str], list[str], list[str], str]:
    """Variables, those that are the index of the task, command, arguments and folder."""
    env, indices = _environment(container, sources)
    command, arguments = [
        [expand(word, env, partial(sources.take, container, key)) for word in container.texts(key)]
        for key in ("command", "args")
    ]
    if command and not command[0]:
        container.problem("command", "must begin with a program")
    folder = container.text("workingDir")
    if folder and not folder.startswith("/"):
        container.problem("workingDir", f"must be an absolute path, not {quote(folder)}")
    container.left_out(_LEFT_OUT)
    container.refused(_REFUSED)
    container.accept("name")
    return env, indices, command, arguments, folder


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
                part.problem("name", f"cannot be a variable: {quote(name)}")
            if part.has("valueFrom"):
                value, is_index = sources.value(part, name)
                if is_index:
                    indices.append(name)
                elif value is not None:
                    found[name] = value
                continue
            # A later variable may use the ones before it.
            found[name] = expand(part.text("value"), found, partial(sources.take, part, "value"))
    return found, indices


def check_mounts(container: Part, volumes: Mapping[str, Part]) -> None:
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
                part.problem("name", f"names no volume: {quote(name)}")
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
                    f"{quote(name)} ({kind}) is not there for a process: put its files under {target} on the node, "
                    "and take the volume out",
                )


def volumes_of(container: Part, volumes: Mapping[str, Part]) -> list[str]:
    """What a container sees of the node and of the other containers, as `volumes` of a job."""
    found = []
    for part in container.parts("volumeMounts"):
        with part:
            name, target, below = part.text("name"), part.text("mountPath").rstrip("/"), part.text("subPath")
            part.accept("mountPropagation", "recursiveReadOnly")
            part.refused({"subPathExpr": "write it out as subPath"})
            only_read = part.get("readOnly", parse_boolean, False)
            volume = volumes.get(name)
            source = ""
            if volume is None:
                part.problem("name", f"names no volume: {quote(name)}")
            elif volume.has("emptyDir"):
                source = name
                if below:
                    part.problem("subPath", "of an emptyDir cannot be served: mount the whole folder")
            elif volume.has("hostPath"):
                source = volume.part("hostPath").text("path").rstrip("/") or "/"
                source += f"/{below}" if below else ""
            else:
                kind = next((key for key in volume.names() if key != "name"), "volume")
                part.problem(
                    "name",
                    f"{quote(name)} ({kind}) is not there for a job: put its files on the node, and mount them as a "
                    "hostPath",
                )
            if not target.startswith("/"):
                part.problem("mountPath", f"must be an absolute path, not {quote(target)}")
            # Every container has the node's shared memory, or the job's own.
            elif source and not (target == "/dev/shm" and not source.startswith("/")):
                found.append(f"{source}:{target}{':ro' if only_read else ''}")
    return found
