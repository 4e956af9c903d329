"""Jobs in images on this machine: what podman needs to know of an attempt, and whether it is there at all."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from gpuyard.engines.contract import Launch
from gpuyard.engines.local.gpus.cdi import Devices
from gpuyard.engines.local.gpus.sharing import PreparedGpus
from gpuyard.engines.local.hosts import Host
from gpuyard.engines.local.translate import LocalContext
from gpuyard.engines.machine.files import IMAGE
from gpuyard.engines.machine.launches import UnixAccount, containers_of
from gpuyard.engines.node import podman

STORES = "images"
"""In the engine's folder: a store of images for each user."""
_USERS_OWN = ".local/share/containers/storage"
"""Where podman keeps the images that a user has built or pulled without the yard."""


class Images:
    """The images of one yard."""

    def __init__(self, root: str, *, emulated: bool) -> None:
        self._root = root
        self.missing = podman.missing()
        """Programs that are not installed, without which no image runs."""
        self._devices = Devices(root, emulated=emulated)

    def flaw(self, launch: Launch) -> str:
        """Why a job with images cannot run here; empty: it can."""
        if not self.missing:
            return ""
        return f"runs in an image, and {' and '.join(self.missing)} is not installed on this machine"

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
        own = os.path.join(account.home, _USERS_OWN)
        volumes = [f"{job_folder}:{job_folder}"]
        wanted = [*volumes, *[each for one in recipe.containers for each in one.volumes]]
        sources = [each.partition(":")[0] for each in wanted]
        return {
            "folder": os.path.join(folder, IMAGE),
            "short": podman.short_folder(folder),
            "store": store,
            "others": [own] if os.path.isdir(os.path.join(own, "overlay-images")) else [],
            "containers": containers_of(recipe),
            "volumes": volumes,
            # What has to be seen of the node, though a fence hides the rest.
            "bound": [account.home, store, *[path for path in sources if path.startswith("/")]],
            "cwd": recipe.cwd,
            "gpus": self._gpus(launch, hosts, ready),
            "home": account.home,
        }

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
