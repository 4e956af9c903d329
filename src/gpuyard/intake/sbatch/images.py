"""Images as scripts of Slurm ask for them: `--container` of Slurm itself, and the options that pyxis adds."""

import posixpath
import re
from typing import Any

from gpuyard.errors import quote
from gpuyard.intake.sbatch.reading import Values
from gpuyard.intake.values import Caller
from gpuyard.wire.image_names import full_reference

_SCHEME = re.compile(r"(docker|oci)://")
_ABSOLUTE = re.compile(r"/[^:]*")


def image_fields(values: Values, caller: Caller) -> dict[str, Any]:
    """Fields of a job for its image; none where the script names no image."""
    if values.has("container") and values.has("container-image"):
        values.problem("container-image", "and --container name two images for one job")
    found: dict[str, Any] = {}
    if values.has("container"):
        bundle = posixpath.normpath(posixpath.join(caller.cwd, values.text("container")))
        found["image"] = bundle
        if not bundle.startswith("/"):
            values.problem("container", f"must be an absolute path here, not {quote(bundle)}")
    elif values.has("container-image"):
        found["image"] = values.get("container-image", _image, "")
    none: list[str] = []
    mounts = values.get("container-mounts", _mounts, none)
    home = caller.environment.get("HOME", "")
    if values.has("container-mount-home") and home:
        mounts.append(f"{home}:{home}")
    if mounts:
        found["volumes"] = mounts
    if values.has("container-workdir"):
        found["workdir"] = values.text("container-workdir")
    if found and "image" not in found:
        option = next(
            name
            for name in ("container-mounts", "container-mount-home", "container-workdir")
            if values.has(name)
        )
        values.problem(option, "is for jobs in an image: give --container-image")
    return found


def _image(text: str) -> str:
    """`nvcr.io#nvidia/pytorch:24.01-py3` as enroot writes it, or a reference as it is."""
    plain = _SCHEME.sub("", text, count=1)
    if plain.endswith((".sqsh", ".squashfs", ".sif")):
        raise ValueError(f"must be an image of a registry, not a file such as {quote(text)}")
    if "://" in plain:
        raise ValueError(f"must be an image of a registry, not {quote(text)}")
    return full_reference(plain)


def _mounts(text: str) -> list[str]:
    found = []
    for part in text.split(","):
        source, _, rest = part.partition(":")
        target, _, flags = rest.partition(":")
        target = target or source
        if not (_ABSOLUTE.fullmatch(source) and _ABSOLUTE.fullmatch(target)):
            raise ValueError(
                f"must be /folder or /folder:/inside[:ro], in a list with commas, not {quote(part)}"
            )
        found.append(f"{source}:{target}{':ro' if 'ro' in flags.split('+') else ''}")
    return found
