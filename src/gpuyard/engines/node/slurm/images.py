"""Images of a job on a node of Slurm: where its user's podman keeps them there, and the GPUs that Slurm gave.

Everything lies on the node's own disk, in a folder of the user's: a shared file system can hold no image. The runner of
attempts stays outside: what runs the containers, podman or Slurm's own support of them, is asked by the task.

Runs on the nodes as the job's user: only the standard library, nothing newer than Python 3.6.
"""

import os
import stat
import subprocess
import tempfile
from typing import Any, Callable, Dict, List

from ..containers import devices as gpus
from ..containers import podman, runtimes

FOLDER = "/var/tmp/gpuyard-{}"
"""A user's folder on a node; where another user has made it first, one whose name goes on with a dash."""
_STORE = "images"


def plan_images(plan: Dict[str, Any], node: str, pattern: str = FOLDER) -> Dict[str, Any]:
    """What a plan says of images, with what this node adds to it. `pattern`: what the user's folder is called."""
    found = dict(plan["image"])
    above = own_folder(pattern)
    # Several nodes of a cluster may share one disk.
    folder = "{}/{}.{}".format(above, plan["key"], node)
    names = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    found.update(
        key=plan["key"],
        folder=folder,
        short=podman.short_folder(folder),
        store="{}/{}".format(above, _STORE),
        gpus={name: gpus.gpu_words(name) for name in names if name},
    )
    return found


def own_folder(pattern: str = FOLDER) -> str:
    """The user's folder on this node, made if there is none yet; `runtimes.Failed` says why it cannot be had.

    All users may write beside it, and so could have made something of its name first: that is left alone, links among
    it, and the folder is looked for under names that go on.
    """
    first = pattern.format(os.getuid())
    try:
        os.mkdir(first, 0o700)
        return first
    except FileExistsError:
        pass
    above, name = os.path.split(first)
    for path in [first] + [
        "{}/{}".format(above, each) for each in sorted(os.listdir(above)) if each.startswith(name + "-")
    ]:
        try:
            seen = os.lstat(path)
        except FileNotFoundError:
            continue
        if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid():
            continue
        if seen.st_mode & 0o077:
            raise runtimes.Failed(
                "{} is open to other users; close it (chmod 700), or remove it".format(path)
            )
        return path
    return tempfile.mkdtemp(prefix=name + "-", dir=above)


def make(
    found: Dict[str, Any], missing: Callable[[Dict[str, Any]], List[str]] = runtimes.find_missing
) -> None:
    """Make the folders on this node, for this user alone; `runtimes.Failed` says why they cannot be had."""
    lacking = missing(found)
    if lacking:
        raise runtimes.Failed(
            "it runs in an image, and {} is not installed on node {}".format(
                " and ".join(lacking), os.uname().nodename
            )
        )
    for path in (found["store"], found["folder"]):
        os.makedirs(path, mode=0o700, exist_ok=True)


def clear(found: Dict[str, Any]) -> None:
    """End and remove what the attempt has on this node; images stay."""
    runtimes.end_all(found, found["key"])
    for path in (found["folder"], found["short"]):
        runtimes.remove(path)
        if os.path.isdir(path) and os.getuid():
            # Files that a container's other users have left belong to further ids of this user.
            words = ["podman", "unshare", "rm", "-rf", path]
            env = {"PATH": podman.PATH, "HOME": os.path.dirname(found["store"])}
            subprocess.call(
                words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
