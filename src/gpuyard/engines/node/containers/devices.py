"""What a container gets along with a GPU: the driver's devices and libraries, in words for podman.

Where NVIDIA's toolkit has written a specification of the Container Device Interface, that one counts.

Runs on the nodes as the job's user: only the standard library, nothing newer than Python 3.6.
"""

import glob
import os
import re
import subprocess
from typing import Any, Dict, List, Optional, Sequence

FOLDERS = ("/etc/cdi", "/var/run/cdi")
"""Where podman looks for specifications."""
TOOLKIT = "nvidia.com/gpu"
_COMMON = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
_LIBRARIES = re.compile(
    r"^\s*(lib(?:cuda|cudadebugger|nvidia-ml|nvidia-ptxjitcompiler|nvidia-nvvm|nvidia-opencl|nvidia-allocator"
    r"|nvidia-cfg|nvidia-gpucomp)\.so\.[0-9]+)\s.*=> (/\S+)$",
    re.MULTILINE,
)
_LDCONFIG, _PATH = ["ldconfig", "-p"], "/usr/sbin:/usr/bin:/sbin:/bin"
_PROGRAMS = ("nvidia-smi", "nvidia-debugdump", "nvidia-cuda-mps-control")
_FOLDERS_INSIDE = ("/usr/lib64", "/usr/lib/{}-linux-gnu".format(os.uname().machine))
"""Where the programs of an image look for libraries, whatever system it is made of."""
_READ_ONLY = ["ro", "nosuid", "nodev", "bind"]

Edits = Dict[str, Any]
"""`containerEdits` of a specification."""


def gpu_words(
    index: str, folders: Sequence[str] = FOLDERS, libraries: Optional[Dict[str, str]] = None
) -> List[str]:
    """Words for podman for a GPU as Slurm numbers it. `libraries`: the driver's; left out, those that are found."""
    if read_toolkit(folders):
        return ["--device", "{}={}".format(TOOLKIT, index)]
    return words_of(edits_of_gpu(index)) + words_of(common_edits(libraries))


def edits_of_gpu(index: str) -> Edits:
    """The device of a GPU as Slurm numbers it."""
    own = "/dev/nvidia{}".format(index)
    return {"deviceNodes": [{"path": own}] if os.path.exists(own) else []}


def read_toolkit(folders: Sequence[str] = FOLDERS) -> str:
    """The text of a specification that NVIDIA's toolkit has written; empty: there is none."""
    for folder in folders:
        for path in sorted(glob.glob(folder + "/*.yaml") + glob.glob(folder + "/*.json")):
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    text = file.read()
            except OSError:
                continue
            if TOOLKIT in text:
                return text
    return ""


def common_edits(libraries: Optional[Dict[str, str]] = None) -> Edits:
    """The driver's own devices and libraries, which every GPU needs."""
    mounts = [
        {
            "hostPath": os.path.realpath(path),
            "containerPath": "{}/{}".format(folder, name),
            "options": _READ_ONLY,
        }
        for name, path in (_libraries() if libraries is None else libraries).items()
        for folder in _FOLDERS_INSIDE
    ]
    mounts += [
        {"hostPath": "/usr/bin/" + name, "containerPath": "/usr/bin/" + name, "options": _READ_ONLY}
        for name in _PROGRAMS
        if os.access("/usr/bin/" + name, os.X_OK)
    ]
    return {"deviceNodes": [{"path": path} for path in _COMMON if os.path.exists(path)], "mounts": mounts}


def _libraries() -> Dict[str, str]:
    """The driver's libraries that programs link against, by their names."""
    try:
        said = subprocess.check_output(_LDCONFIG, stderr=subprocess.DEVNULL, timeout=10, env={"PATH": _PATH})
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(_LIBRARIES.findall(said.decode(errors="replace")))


def words_of(edits: Edits) -> List[str]:
    """The same for podman, word by word."""
    words: List[str] = []
    for node in edits.get("deviceNodes", ()):
        words += ["--device", "{}:{}".format(node.get("hostPath", node["path"]), node["path"])]
    for mount in edits.get("mounts", ()):
        words += ["--volume", "{}:{}:ro".format(mount["hostPath"], mount["containerPath"])]
    return words
