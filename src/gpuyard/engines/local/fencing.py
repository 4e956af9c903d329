"""Which fence an attempt gets on this machine, and what keeps a job to what it was given, kind by kind.

A fence is as good as the rights of the yard. A yard of root gives a job of an ordinary user all of it. A job of root is
kept from other GPUs by mistake only, since root may undo it. A yard of an ordinary user runs that user's jobs alone and
hides GPUs by a user namespace, where the kernel lets it.

Limits are set in cgroups: the kernel has each controller in v2 or in v1.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from gpuyard.engines.contract import Launch, Permanent, Protection
from gpuyard.engines.local.attempt import cgroups, devices, v1
from gpuyard.engines.local.attempt.room import PRIVATE
from gpuyard.engines.local.gpus.cdi import DEVICES
from gpuyard.engines.local.gpus.sharing import PreparedGpus
from gpuyard.engines.local.hosts import Host
from gpuyard.engines.machine import nvml
from gpuyard.engines.machine.installation import place
from gpuyard.engines.node.attempt import fence


class Groups:
    """The cgroups of one yard: one of v2 that holds its attempts together, and those of v1 that v2 does not replace."""

    def __init__(self, root: str, *, wanted: bool) -> None:
        self._name = f"gpuyard-{hashlib.sha256(root.encode()).hexdigest()[:12]}"
        self.base, self.v2, why = cgroups.find_group(self._name, wanted=wanted)
        """The group of v2 (empty: none), and the controllers in it."""
        self._held = -1
        if self.base:
            self._held = cgroups.take(self.base)
            cgroups.sweep(self.base)
        self.v1: dict[str, str] = {}
        """The groups of v1, by controller."""
        if wanted:
            lacking = [name for name in v1.CONTROLLERS if name not in self.v2]
            self.v1 = v1.find_bases(self._name, lacking=lacking, root=os.geteuid() == 0)
        lack = " and ".join(sorted(cgroups.CONTROLLERS - self.controllers))
        self.limits = not lack
        """Whether limits on memory and cores can be set."""
        self.note = f"jobs may use more memory and CPU than they ask for: {why}" if lack else ""
        """What people should know about limits; empty: nothing."""

    @property
    def controllers(self) -> frozenset[str]:
        """What can be limited."""
        return self.v2 | frozenset(self.v1)

    @property
    def supervisors(self) -> str:
        """The group of the supervisors; empty: none."""
        return os.path.join(self.base, cgroups.SUPERVISORS) if self.base else ""

    def of(self, key: str) -> str:
        """The group of v2 of an attempt; empty: none."""
        return cgroups.make_unused(os.path.join(self.base, key)) if self.base else ""

    def add_to(self, plan: dict[str, Any]) -> None:
        """Name the groups of v1 that a plan makes use of."""
        wanted = {"memory": True, "cpu": plan["cpu_milli"] > 0, "cpuset": bool(plan.get("cpus"))}
        wanted["devices"] = (plan.get("fence") or {}).get("devices") == "v1"
        plan["bound"] = bool(plan.get("cpus")) and "cpuset" in self.v2
        bases = {name: base for name, base in self.v1.items() if wanted[name]}
        plan["v1"] = {
            name: cgroups.make_unused(os.path.join(base, plan["key"])) for name, base in bases.items()
        }

    def tidy(self, lives: Callable[[str], bool]) -> None:
        """Remove what attempts have left that do not live any more."""
        for base in filter(None, [self.base, *self.v1.values()]):
            cgroups.tidy(base, lives)

    def hold(self) -> None:
        """Make the yard's group again if another engine over the same data has closed and removed it."""
        if self.base and not os.path.isdir(self.base):
            os.close(self._held)
            self._held = cgroups.take(self.base)

    def let_go(self) -> None:
        """Only an empty group can be removed, so one with jobs in it stays."""
        v1.give_up_groups(self.v1)
        if self.base:
            with suppress(OSError):
                cgroups.give_up_group(self.base, self._held)


MASK = "masked"
"""In the engine's folder: a file that nobody may open, to lie over the devices of other jobs."""
MAJOR_GPU, MAJOR_SLICE = 4000, 4001
"""Numbers that no driver can have. To open such a device fails, and how it fails says whether a fence was there."""
_MINOR_BITS = 20


VIEW, V2, V1 = "view", devices.V2, devices.V1
MEANS = (VIEW, V2, V1)
"""What keeps a job from devices of others: a view of the file system without them; the kernel, which refuses them."""


YES, PARTLY, NO = "yes", "partly", "no"
WHOLE, SLICE, SHARE, MEMORY, CORES = "whole GPU", "slice", "share", "memory", "cores"
_BY_V1 = "the kernel refuses other devices (cgroup v1)"


def needed_by_all(each: Protection) -> bool:
    """Whether this is missing for every job, so that a strict yard cannot run any."""
    return each.kind in (WHOLE, SLICE, MEMORY, CORES) and each.enforced != YES


class Fencing:
    """The fences of one yard."""

    def __init__(
        self,
        root: str,
        yard: str,
        groups: Groups,
        means: Sequence[str],
        *,
        emulated: bool,
        code: Sequence[str] = (),
    ) -> None:
        """`code`: folders of the yard's code in whose place a job has files of its own.

        Raises Permanent if these cannot be shown inside.
        """
        self._root = root
        self._groups = groups
        self._yard = yard or root
        self._emulated = emulated
        self._privileged = os.geteuid() == 0
        self.flaw = fence.find_flaw(not self._privileged) if VIEW in means else "fences are switched off"
        """Why no view of the file system can be made for a job; empty: it can."""
        self.blind = self.flaw or fence.hides_processes()
        """Why processes of others cannot be hidden; empty: they can."""
        self._code = code if self._privileged and not self.flaw else ()
        if self._code and (why := fence.find_view_flaw(self._code)):
            raise Permanent(
                f"the yard's code lies in {self._code[0]}, where every job has files of its own,"
                f" and cannot be shown there ({why}); install it elsewhere: {place()}"
            )
        self.refuses = self._refuses(groups, means)
        """By which cgroups devices could be refused; empty: by none."""
        if self.any:
            self._prepare()

    @property
    def any(self) -> bool:
        """Whether there is any fence here."""
        return bool(self.refuses or not self.flaw)

    @property
    def _by_kernel(self) -> str:
        """By which cgroups attempts are refused devices of others; empty: by none.

        No driver is behind an emulated device: to have the kernel refuse one that is out of view is a millisecond for
        nothing.
        """
        return self.refuses if self.flaw or not self._emulated else ""

    @staticmethod
    def _refuses(groups: Groups, means: Sequence[str]) -> str:
        if V2 in means and groups.base and os.geteuid() == 0:
            tried = os.path.join(groups.base, "yard.tried")
            with suppress(OSError):
                os.makedirs(tried, exist_ok=True)
                try:
                    devices.refuse_v2(tried, {MAJOR_GPU: ()})
                    return V2
                finally:
                    os.rmdir(tried)
        return V1 if V1 in means and "devices" in groups.v1 else ""

    def _prepare(self) -> None:
        with suppress(FileExistsError):
            os.close(os.open(self._mask, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0))
        if self._emulated:
            os.makedirs(self._devices, mode=0o755, exist_ok=True)

    @property
    def _mask(self) -> str:
        return os.path.join(self._root, MASK)

    @property
    def _devices(self) -> str:
        return os.path.join(self._root, DEVICES)

    def of(
        self,
        plan: Mapping[str, Any],
        launch: Launch,
        hosts: Mapping[str, Host],
        ready: Sequence[PreparedGpus],
        folder: str,
    ) -> dict[str, Any]:
        """The fence of an attempt; empty: none. `folder` is the attempt's own."""
        if not self.any:
            return {}
        readings = [hosts[part.node].readings[gpu] for part in launch.parts for gpu in part.gpus]
        slices = [device for each in ready if "slices" in each.held for device in each.devices]
        found: dict[str, Any] = {} if self._privileged else {"user": True}
        if self._by_kernel:
            found["devices"] = self._by_kernel
        if self.flaw or (plan.get("image") and not self._privileged):
            # Podman makes a user namespace itself, with more ids than one within another could have.
            found["view"] = False
        if self._emulated:
            uuids = [each.uuid for each in readings]
            self._make_devices(uuids, MAJOR_GPU)
            self._make_devices(slices, MAJOR_SLICE)
            found["only"] = {self._devices: sorted({*uuids, *slices})}
        elif all([each.minor >= 0 for each in readings]):
            caps = nvml.find_capabilities(slices) if slices else ()
            found |= {"gpus": sorted({f"nvidia{each.minor}" for each in readings}), "mask": self._mask}
            found["only"] = {fence.CAPS: [f"nvidia-cap{minor}" for minor in caps]}
        if plan["drop"] and not self.flaw:
            found |= self._apart(plan, ready, folder)
        return found

    def _apart(self, plan: Mapping[str, Any], ready: Sequence[PreparedGpus], folder: str) -> dict[str, Any]:
        """What keeps users apart, beyond GPUs."""
        outputs = [path for path in (plan["stdout"], plan["stderr"]) if path]
        daemons = [each.environment["CUDA_MPS_PIPE_DIRECTORY"] for each in ready if "mps" in each.held]
        above = [os.path.dirname(path) for path in (*outputs, *daemons, plan["checkpoint"])]
        programs = [path for path in plan["argv"][:1] if path.startswith("/")]
        needed = [self._yard, folder, plan["cwd"], plan["envs"][0]["HOME"], *above, *outputs, *programs]
        needed += (plan.get("image") or {}).get("bound", ())
        # Programs that share a GPU through MPS speak to its server through files there.
        # A yard's own folder there would be out of sight.
        shm = not daemons and not fence.is_shared(folder)
        return {
            "tmp": os.path.join(folder, PRIVATE),
            # Only what the job names itself: it has to be there, and its output must not go when the job ends.
            "keep": sorted({path for path in needed if fence.is_temporary(path)}),
            "touch": sorted({path for path in outputs if fence.is_temporary(path)}),
            # What the yard runs inside the job is the yard's, whatever the job has put in its place.
            "code": [path for path in self._code if shm or not fence.is_shared(path)],
            "shm": shm,
            "proc": not self.blind,
        }

    def protections(self) -> tuple[Protection, ...]:
        """What is enforced here, kind by kind."""
        return tuple([Protection(kind, *told) for kind, told in self._told().items()])

    def _told(self) -> dict[str, tuple[str, str]]:
        view = "" if self.flaw else "other GPUs are not in the job's view of the file system"
        kernel = {V2: "the kernel refuses other devices (a program on cgroup v2)", V1: _BY_V1}.get(
            self._by_kernel, ""
        )
        means = "; ".join(filter(None, [view, kernel])) or self.flaw
        gpus = (YES if self.any else NO, f"{means}{self._but(root=True)}")
        where = {
            name: "cgroup v2" if name in self._groups.v2 else "cgroup v1" for name in self._groups.controllers
        }
        alone = "jobs of this yard are all its owner's"
        private = self._privileged and not self.flaw
        return {
            WHOLE: gpus,
            SLICE: gpus,
            SHARE: (
                NO,
                "memory and compute are capped by MPS only for jobs that do not undo it: ask for a slice",
            ),
            MEMORY: (YES, where["memory"]) if "memory" in where else (NO, self._groups.note),
            CORES: (YES, where["cpu"]) if "cpu" in where else (NO, self._groups.note),
            "cores near the GPUs": (YES, where["cpuset"])
            if "cpuset" in where
            else (PARTLY, "jobs may leave them"),
            "/tmp and /dev/shm": (
                (
                    PARTLY,
                    f"folders of the job's own{self._but(root=True)}; the /dev/shm of a share is the machine's",
                )
                if private
                else (NO, self.flaw or alone)
            ),
            "processes": (
                (
                    YES,
                    f"/proc shows those of the job's user; two jobs of one user see each other{self._but(root=True)}",
                )
                if private and not self.blind
                else (PARTLY, f"another user's environment and memory are closed; {self.blind or alone}")
            ),
        }

    def _but(self, *, root: bool) -> str:
        return "; a job of root can undo it" if root and self._privileged and self.any else ""

    def _make_devices(self, uuids: Sequence[str], major: int) -> None:
        """Devices of emulated GPUs or slices; files where only root could make devices."""
        for uuid in uuids:
            path = os.path.join(self._devices, uuid)
            if os.path.lexists(path):
                continue
            with suppress(FileExistsError):
                if self._privileged:
                    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(major, minor_of(uuid)))
                else:
                    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
                os.chmod(path, 0o666)


def minor_of(uuid: str) -> int:
    """The number of an emulated device."""
    return int(hashlib.sha256(uuid.encode()).hexdigest()[:5], 16) & ((1 << _MINOR_BITS) - 1)
