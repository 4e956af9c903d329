"""Jobs in images on this machine: what podman needs to know of an attempt, and whether it is there at all."""

import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from gpuyard.engines.contract import Launch
from gpuyard.engines.local.gpus.cdi import Devices
from gpuyard.engines.local.gpus.sharing import PreparedGpus
from gpuyard.engines.local.hosts import Host
from gpuyard.engines.local.translate import LocalContext
from gpuyard.engines.machine.files import IMAGE
from gpuyard.engines.machine.launches import UnixAccount, plain_containers
from gpuyard.engines.machine.leftovers import discard
from gpuyard.engines.node.containers import image, podman

STORES = "images"
"""In the engine's folder: a store of images for each user."""
PRUNE_S = 300.0
"""How long one user's store may take."""
_CLEAR_S_MAX = 10.0

_log = logging.getLogger(__name__)


class Images:
    """The images of one yard."""

    def __init__(self, root: str, *, emulated: bool) -> None:
        self._root = root
        self.missing = podman.find_missing(podman.hybrid())
        """Programs that are not installed, without which no image runs."""
        self._devices = Devices(root, emulated=emulated)

    def flaw(self) -> str:
        """Why a job with images cannot run here; empty: it can."""
        if not self.missing:
            return ""
        verb = "is" if len(self.missing) == 1 else "are"
        return f"runs in an image, and {' and '.join(self.missing)} {verb} not installed on this machine"

    def note(self) -> str:
        """What people should know where podman is there and cannot be used; empty: nothing."""
        if not self.missing or "podman" in self.missing:
            return ""
        return (
            f"jobs in images are refused: {self.missing[0]} is not installed, which starts containers for podman; "
            f"root installs it (apt-get install {self.missing[0]}), and the yard finds it when it starts"
        )

    def of(
        self,
        launch: Launch,
        account: UnixAccount,
        hosts: Mapping[str, Host],
        ready: Sequence[PreparedGpus],
        place: LocalContext,
    ) -> dict[str, Any]:
        """What the plan of an attempt says of images."""
        recipe = launch.recipe
        store = os.path.join(self._root, STORES, str(account.uid))
        self._make(store, account if place.drop else None)
        folder, job_folder = place.folder, place.job_folder
        volumes = [f"{job_folder}:{job_folder}"]
        wanted = [*volumes, *[each for one in recipe.containers for each in one.volumes]]
        sources = [each.partition(":")[0] for each in wanted]
        return {
            "folder": os.path.join(folder, IMAGE),
            "short": podman.short_folder(folder),
            "store": store,
            "containers": plain_containers(recipe),
            "volumes": volumes,
            # What has to be seen of the node, though a fence hides the rest.
            "bound": [account.home, store, *[path for path in sources if path.startswith("/")]],
            "cwd": recipe.cwd,
            "gpus": self._gpus(launch, hosts, ready),
            "home": account.home,
        }

    def prune(self, before_ms: int, *, dry_run: bool) -> dict[str, int]:
        """Remove images that no job has needed since then, each in its user's store; bytes by store and name."""
        found: dict[str, int] = {}
        above = os.path.join(self._root, STORES)
        names = sorted(os.listdir(above)) if os.path.isdir(above) and not self.missing else []
        for uid in [int(name) for name in names if name.isdecimal()]:
            if os.geteuid() not in (0, uid):
                continue
            told = _pruned(os.path.join(above, str(uid)), uid, before_ms, dry_run=dry_run)
            found |= {f"{uid}/{name}": size for name, size in told.items()}
        return found

    def _gpus(
        self, launch: Launch, hosts: Mapping[str, Host], ready: Sequence[PreparedGpus]
    ) -> dict[str, list[str]]:
        """Words for podman, by what an attempt calls its GPUs and slices."""
        if not any([part.gpus for part in launch.parts]):
            return {}
        found = self._devices.words([host.readings for host in hosts.values()])
        for part, each in zip(launch.parts, ready, strict=True):
            if "slices" in each.held:
                readings = hosts[part.node].readings
                found |= {
                    name: self._devices.of_slice(name, readings, part.gpus) for name in each.devices or ()
                }
        return found

    def _make(self, store: str, owner: UnixAccount | None) -> None:
        """Make the store of a user: nobody else may look into it, for images may be of a private registry."""
        if os.path.isdir(store):
            return
        above = os.path.dirname(store)
        os.makedirs(above, mode=0o711, exist_ok=True)
        # Whatever the umask is: users have to come through to their own.
        os.chmod(above, 0o711)
        with suppress(FileExistsError):
            os.mkdir(store, 0o700)
        if owner is not None:
            os.chown(store, owner.uid, owner.gid)


def _pruned(
    store: str, uid: int, before_ms: int, *, dry_run: bool, within_s: float = PRUNE_S
) -> dict[str, int]:
    """What went of one store: podman works in a process of the user's, as files there belong to ids of theirs."""
    folder = tempfile.mkdtemp(prefix="yard-prune-")
    try:
        os.chmod(folder, 0o711)
        own = os.path.join(folder, "own")
        os.mkdir(own, 0o700)
        gid = os.stat(store).st_gid
        if os.geteuid() == 0:
            os.chown(own, uid, gid)
        # The user may not be able to read the yard's own code, so it is loaded before the process becomes the user.
        asked = (uid, gid, store, own, before_ms, dry_run)
        code = f"import sys; sys.path[:] = {sys.path!r}; from {image.__name__} import prune_as; prune_as(*{asked!r})"
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", code],
            stdin=subprocess.DEVNULL, capture_output=True, check=False, cwd="/", timeout=within_s,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        _log.warning("%s could not be pruned in %.0f s", store, within_s)
        return {}
    finally:
        # The user's processes may still be at it: no link of theirs leads out of it.
        discard(folder, _CLEAR_S_MAX)
    if done.returncode:
        _log.warning("%s could not be pruned: %s", store, done.stderr.decode(errors="replace")[-300:])
        return {}
    told: dict[str, int] = json.loads(done.stdout)
    return told
