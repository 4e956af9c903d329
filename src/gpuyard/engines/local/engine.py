"""The local engine: the contract of engines on one machine, which is one node or pretends to be several."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from gpuyard.engines.contract import (
    Answer,
    AttemptReport,
    EngineError,
    ForeignProcess,
    GpuPlace,
    GpuSignals,
    Launch,
    Leftover,
    LogPiece,
    NewLimit,
    NodeReport,
    Permanent,
    Phase,
    Protection,
    Reply,
    StopRequest,
    Transient,
    Usage,
    Whereabouts,
    offset_of,
)
from gpuyard.engines.local import cores, outputs, topology, translate
from gpuyard.engines.local.attempt import cgroups, v1
from gpuyard.engines.local.client import Data, Spawner, is_accepted
from gpuyard.engines.local.fencing import MEANS, Fencing, Groups, needed_by_all
from gpuyard.engines.local.gpus import persistence, signals, stand_in
from gpuyard.engines.local.gpus.mig import Cutter
from gpuyard.engines.local.gpus.mig_emulated import EmulatedCutter
from gpuyard.engines.local.gpus.mig_nvml import NvmlCutter
from gpuyard.engines.local.gpus.mps import Mps, NoMps
from gpuyard.engines.local.gpus.mps_faults import Faults, find_attempt
from gpuyard.engines.local.gpus.outsiders import Outsiders
from gpuyard.engines.local.gpus.sharing import PreparedGpus, Sharing, list_held
from gpuyard.engines.local.hosts import THIS_MACHINE, Host, PretendedNodes, ThisMachine, free_port, hostname
from gpuyard.engines.local.images import Images
from gpuyard.engines.local.outputs import Trimmer
from gpuyard.engines.local.own_code import OwnCode, own_code
from gpuyard.engines.local.watching import AttemptMonitor, Tracker
from gpuyard.engines.machine import files, processes
from gpuyard.engines.machine.backoff import NodeBackoff
from gpuyard.engines.machine.keeper_link import KeeperLink
from gpuyard.engines.machine.launches import UnixAccount, find_account, find_key_flaw
from gpuyard.engines.machine.leftovers import Leftovers
from gpuyard.engines.machine.nvml import GpuReading
from gpuyard.engines.machine.readers import Readers
from gpuyard.engines.node import files as node_files
from gpuyard.engines.node.containers import image
from gpuyard.engines.node.visits import frames
from gpuyard.errors import error_text
from gpuyard.model import Capability, Outcome
from gpuyard.model.mig import MigGeometry, Slice

_log = logging.getLogger(__name__)
_DONE = Reply(Answer.DONE)
_FELL = "a file in the engine's folder `down` has its name"
_SYNCS_AT_ONCE = 8
"""Files that are made durable at the same time."""
_FRESH_S = 15.0
"""How long nodes are taken to be as they were found: a little longer than the pause between two looks of the loop."""
_FALSE_STARTS_FREE = 2
_FIRST_ASIDE_S, _ASIDE_S_MAX = 5.0, 60.0
"""A node that could not run so many attempts in a row, and then one more, is left out for a while. The loop looks at
nodes every ten seconds, so that a pause may be longer than it says.
"""
_CLIENTS_S = 0.1
"""How often MPS daemons are asked for new clients: a short-lived process must not come and go unseen."""


class GpuTools(NamedTuple):
    """What GPUs that are there are cut and shared with."""

    cutter: Callable[[MigGeometry], Cutter] = NvmlCutter
    mps: Callable[[str], Mps] = Mps


GPU_TOOLS = GpuTools()


class LocalEngine:
    """Runs attempts as processes of this machine. Any number of objects may share one folder of data."""

    name = "local"

    def __init__(
        self,
        data: Path,
        *,
        nodes: ThisMachine | PretendedNodes = THIS_MACHINE,
        yard: Path | None = None,
        use_cgroups: bool = True,
        fence_by: Sequence[str] = MEANS,
        strict: bool = False,
        log_limit_mib: int = 0,
        hands_off: bool = False,
        code: OwnCode | None = None,
        gpu_tools: GpuTools = GPU_TOOLS,
        boot_id: Callable[[], str] = processes.boot_id,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._source, self._gpu_tools = nodes, gpu_tools
        self._emulated = nodes.emulated
        self._hands_off = hands_off and not nodes.emulated
        """Whether the settings of GPUs stay as they are; emulated GPUs have none."""
        self._yard = str(yard or "")
        self._boot = boot_id()
        self._hostname = hostname()
        self._now_ms = now_ms
        self._data = Data(data)
        if isinstance(nodes, PretendedNodes):
            os.makedirs(os.path.join(self._data.root, files.DOWN), exist_ok=True)
        slurm = yard is not None
        self._commands, self._smi = stand_in.put_programs(self._data.root, slurm=slurm, gpus=self._emulated)
        self._mutex = threading.Lock()
        self._groups = Groups(self._data.root, wanted=use_cgroups)
        self._notes = tuple(filter(None, [self._groups.note]))
        code, log = code or own_code(), os.path.join(self._data.root, "spawner.log")
        self._spawner = Spawner(log, self._groups.supervisors, code.above)
        self._fencing = Fencing(
            self._data.root, self._yard, self._groups, fence_by, emulated=self._emulated, code=code.hidden()
        )
        self._strict = strict
        if strict and (lacking := [each for each in self._fencing.protections() if needed_by_all(each)]):
            self._groups.let_go()
            told = "; ".join([f"{each.kind}: {each.by}" for each in lacking])
            raise Permanent(f"yard.yaml says `fence: strict`, and this machine cannot enforce it ({told})")
        self._found: dict[str, Host] | None = None
        self._fresh_s = 0.0
        """Until when what was found need not be looked at again."""
        self._sharing = self._share()
        self._faults = Faults(self._data, self._sharing.daemons, self._sharing.daemon, now_ms)
        self._aside = NodeBackoff(_FIRST_ASIDE_S, _ASIDE_S_MAX, now_ms, free=_FALSE_STARTS_FREE)
        self._monitor = AttemptMonitor(
            self._data, self._boot, self._groups.base, now_ms, self._faults.judged, self._aside
        )
        self._images = Images(self._data.root, emulated=self._emulated)
        self._outsiders = Outsiders()
        self._tracker = Tracker(self._data)
        self._readers = Readers()
        self._syncers = ThreadPoolExecutor(_SYNCS_AT_ONCE, thread_name_prefix="yard-sync")
        self._leftovers = Leftovers(self._data.root)
        self._trimmer = Trimmer(log_limit_mib << 20)
        if not self._emulated and not hands_off:
            self._notes += persistence.switch_on(str(self._data.root))
        self._adopted: tuple[str, ...] = ()
        self._claimed: set[str] = set()
        """Keys claimed by a supervisor that answered."""
        limits = {Capability.LIMITS} if self._groups.limits else set()
        limits |= set() if self._images.missing else {Capability.IMAGES}
        able = {Capability.GANG, Capability.SUSPEND, Capability.SLICES, Capability.INDICES}
        able.add(Capability.NEW_LIMITS)
        if not strict:
            able.add(Capability.SHARES)
        self.capabilities = frozenset(able | limits)

    @property
    def notes(self) -> tuple[str, ...]:
        """What people should know about this engine on this machine, in sentences."""
        try:
            hosts = self._hosts().values()
            real = [gpu for host in hosts for gpu in host.readings if not self._emulated]
            told = (*self._source.notes(hosts), *self._sharing.notes(real))
        except Transient as error:
            # A GPU that cannot be asked is unknown, not absent.
            told = (str(error),)
        return tuple([note for note in (*self._notes, *told, self._images.note()) if note])

    def protections(self) -> tuple[Protection, ...]:
        """What is enforced here, kind by kind."""
        return self._fencing.protections()

    # ---- the nodes

    def nodes(self) -> tuple[NodeReport, ...]:
        """The nodes, their GPUs, and other processes on them."""
        found = self._read()
        for trouble in self._sharing.tidy(Host.geometries(found.values())):
            _log.warning("%s", trouble)
        for key in self._data.attempts():
            self._trimmer.trim(self._data.attempt(key))
        self._groups.tidy(self._data.lives)
        down = self._fallen() & found.keys()
        return tuple(
            [
                NodeReport(
                    node=host.node,
                    up=not (why := _FELL if name in down else self._aside.why(name)),
                    why=why,
                    busy=self._busy(host),
                    layouts=self._left_alone(host),
                )
                for name, host in found.items()
            ]
        )

    def _fallen(self) -> set[str]:
        """Emulated nodes that are to be down; what runs there is ended as if its node had failed."""
        if not isinstance(self._source, PretendedNodes):
            return set()
        down = set(os.listdir(os.path.join(self._data.root, files.DOWN)))
        for key in self._data.attempts() if down else ():
            nodes = (files.read(os.path.join(self._data.attempt(key), files.LAUNCH)) or {}).get("nodes", ())
            if hit := sorted(down & set(nodes)):
                self._stop(StopRequest(key, Outcome.NODE_FAIL, 0), f"node {hit[0]} went down")
        return down

    def _busy(self, host: Host) -> tuple[ForeignProcess, ...]:
        """The GPUs of a node that other processes use, and those of attempts that the log does not know."""
        adopted = self._adopted_on(host)
        if self._emulated:
            return adopted
        ours = set()
        if any([reading.pids for reading in host.readings]):
            ours = self._monitor.supervisors() | self._sharing.daemon_pids()
        busy = self._outsiders.among(host.readings, ours)
        if (geometry := host.geometry) is not None:
            cut = [
                gpu
                for gpu, reading in enumerate(host.readings)
                if self._sharing.foreign(geometry, reading.uuid)
            ]
            busy += tuple(ForeignProcess(gpu, 0, "someone who cut it with MIG") for gpu in cut)
        known = {each.gpu for each in busy}
        return busy + tuple([each for each in adopted if each.gpu not in known])

    def adopt(self, keys: Sequence[str]) -> None:
        """Attempts that no log knows any more: their GPUs are not free until they have ended."""
        self._adopted = tuple(keys)

    def _adopted_on(self, host: Host) -> tuple[ForeignProcess, ...]:
        if not self._adopted:
            return ()
        with self._mutex:
            reports = [self._monitor.look(key) for key in self._adopted]
        live = [report.key for report in reports if report.phase not in (Phase.ENDED, Phase.UNKNOWN)]
        self._adopted = tuple(live)
        found: dict[int, ForeignProcess] = {}
        for key in live:
            plan = files.read(os.path.join(self._data.attempt(key), files.LAUNCH)) or {}
            held = plan.get("held", {})
            uuids = {
                *held.get("gpus", ()),
                *[each[0] for how in ("slices", "mps") for each in held.get(how, ())],
            }
            for gpu, reading in enumerate(host.readings):
                if reading.uuid in uuids:
                    found[gpu] = ForeignProcess(gpu, 0, f"job {plan.get('job_id')} of an earlier log")
        return tuple([found[gpu] for gpu in sorted(found)])

    def _left_alone(self, host: Host) -> dict[int, tuple[Slice, ...]] | None:
        """How the GPUs of a node are cut, where the yard does not cut them."""
        if not self._hands_off:
            return None
        there = self._sharing.there(host.readings)
        return {
            gpu: tuple([piece for piece in there if piece.gpu == gpu])
            for gpu in range(len(host.readings) if host.geometry is not None else 0)
        }

    def signals(self) -> tuple[GpuSignals, ...]:
        """What the GPUs do now."""
        told: list[GpuSignals] = []
        for name, host in self._hosts().items():
            if self._emulated:
                told += signals.pretend_signals(name, host.readings)
            else:
                told += signals.read(name, host.readings, find_attempt)
        return tuple(told)

    def topology(self) -> tuple[GpuPlace, ...]:
        """How the GPUs are linked."""
        told: list[GpuPlace] = []
        for name, host in self._hosts().items():
            emulated = self._emulated
            told += (
                topology.pretend_places(host.node, host.readings)
                if emulated
                else topology.read(name, host.readings)
            )
        return tuple(told)

    @property
    def pretends(self) -> tuple[bool, bool]:
        """Whether its GPUs are emulated, and whether its nodes are: then this machine's figures are not theirs."""
        return self._emulated, isinstance(self._source, PretendedNodes)

    def gpus(self) -> dict[str, list[GpuReading]]:
        """The GPUs of each node, in the order of their places."""
        return {name: host.readings for name, host in self._hosts().items()}

    def whereabouts(self) -> list[Whereabouts]:
        """Where attempts that run are on this machine."""
        return self._tracker.look()

    def _hosts(self) -> dict[str, Host]:
        """The nodes as they were a moment ago: another engine over the same data may be the one that looks at them."""
        found = self._found
        return found if found is not None and time.monotonic() < self._fresh_s else self._read()

    def _read(self) -> dict[str, Host]:
        found = {host.node.name: host for host in self._source.read()}
        with self._mutex:
            self._found, self._fresh_s = found, time.monotonic() + _FRESH_S
        return found

    def _share(self) -> Sharing:
        root = str(self._data.root)
        if self._emulated:
            return Sharing(
                root, lambda geometry: EmulatedCutter(root, geometry), NoMps(root), self._live_plans
            )
        tools = self._gpu_tools
        return Sharing(root, tools.cutter, tools.mps(root), self._live_plans, hands_off=self._hands_off)

    def pin(self, epoch: int, node: str, layouts: Mapping[int, tuple[Slice, ...]]) -> dict[int, Reply]:
        """Keep these layouts on a node, and no others."""
        hosts = self._hosts()
        if node not in hosts:
            return dict.fromkeys(layouts, Reply(Answer.REFUSED, f"there is no node {node} here"))
        readings = hosts[node].readings
        wanted = {gpu: each for gpu, each in layouts.items() if gpu < len(readings)}
        elsewhere = {gpu.uuid for name, host in hosts.items() if name != node for gpu in host.readings}
        with self._data.acting(epoch):
            return self._sharing.pin(readings, wanted, elsewhere)

    def cuts(self) -> dict[str, tuple[Slice, ...]]:
        """The yard's own slices by node, in use or not."""
        return {name: self._sharing.there(host.readings) for name, host in self._hosts().items()}

    def _live_plans(self) -> Iterator[dict[str, Any]]:
        """The plans of attempts that have not ended."""
        for key in self._data.attempts():
            if self._data.lives(key):
                yield files.read(os.path.join(self._data.attempt(key), files.LAUNCH)) or {}

    # ---- acting

    def start(self, epoch: int, launches: Sequence[Launch]) -> list[Reply]:
        """Start attempts. DONE: a supervisor has claimed the key."""
        with self._data.acting(epoch):
            replies = [self._write(launch) for launch in launches]
            folders = [
                self._data.attempt(launch.key)
                for launch, reply in zip(launches, replies, strict=True)
                if reply is None
            ]
            if folders:
                self._groups.hold()
                self._make_durable(folders)
            answers = self._spawner.spawn(list(dict.fromkeys(folders)))
        self._claimed.update([key for key, word in answers.items() if is_accepted(word)])
        return [
            reply if reply is not None else self._reply(answers.get(launch.key))
            for launch, reply in zip(launches, replies, strict=True)
        ]

    def _make_durable(self, folders: list[str]) -> None:
        """Make launches durable, all at the same time, for one alone would take as long."""
        paths = [os.path.join(self._data.root, files.ATTEMPTS), *folders]
        paths += [os.path.join(folder, files.LAUNCH) for folder in folders]
        # A few for each thread, including this one: a handover costs as much as a sync on a quick disk.
        own, *others = [paths[at::_SYNCS_AT_ONCE] for at in range(min(_SYNCS_AT_ONCE, len(paths)))]
        syncs = [self._syncers.submit(_sync, share) for share in others]
        try:
            _sync(own)
        finally:
            wait(syncs)
        for sync in syncs:
            sync.result()

    @staticmethod
    def _reply(word: str | None) -> Reply:
        return _DONE if is_accepted(word) else Reply(Answer.UNSURE, word or "its supervisor did not answer")

    def _write(self, launch: Launch) -> Reply | None:
        """Put the launch on disk; None: it is there and waits for a supervisor."""
        hosts = self._hosts()
        if flaw := translate.find_flaw(launch, {name: len(host.readings) for name, host in hosts.items()}):
            return Reply(Answer.REFUSED, flaw)
        if launch.recipe.containers and (flaw := self._images.flaw()):
            return Reply(Answer.REFUSED, flaw, image.NOT_RUN)
        recipe = launch.recipe
        account = find_account(recipe.uid, recipe.gid, recipe.user)
        if os.geteuid() not in (0, account.uid):
            return Reply(Answer.REFUSED, f"only a server of root can run jobs as {account.user}")
        if self._strict and account.uid == 0:
            return Reply(
                Answer.REFUSED, "yard.yaml says `fence: strict`, and a job of root can undo its fence"
            )
        folder = self._data.attempt(launch.key)
        if os.path.exists(self._data.kept(launch.key)):
            return Reply(Answer.REFUSED, "this attempt was ended before")
        if launch.key in self._claimed and not os.path.isdir(folder):
            # A job may remove its own folder where it runs as the server's user. It has run, and must not run again.
            self._monitor.clear(launch.key)
            self._bar(launch.key)
            return Reply(Answer.REFUSED, "its folder was removed while it ran")
        with self._mutex:
            # Before a restart of the machine it was not run; what it came to is known, though it may not be on disk.
            over = self._monitor.look(launch.key).phase is Phase.ENDED
        if over or os.path.exists(os.path.join(folder, files.CLAIM)):
            return _DONE
        try:
            ready = [self._sharing.prepare(part, hosts[part.node].readings, account) for part in launch.parts]
        except Permanent as error:
            return Reply(Answer.REFUSED, str(error))
        except Transient as error:
            return Reply(Answer.UNSURE, str(error))
        held = list_held(ready)
        with self._mutex:
            for gpu, uid in held.get("mps", ()):
                if why := self._faults.held_back(launch.key, gpu, uid):
                    return Reply(Answer.LATER, why)
        if self._data.inside.leads_outside(self._data.job(launch.job_id)):
            return Reply(Answer.REFUSED, "something else was put in the place of its folder")
        try:
            plan = self._plan(launch, account, hosts, ready)
            self._data.make_folders(launch.job_id, launch.key, account if plan["drop"] else None)
            _put(folder, plan)
        except Transient as error:
            return Reply(Answer.UNSURE, str(error))
        except OSError as error:
            return Reply(Answer.UNSURE, f"the launch cannot be written: {error_text(error)}")
        return None

    def _plan(
        self,
        launch: Launch,
        account: UnixAccount,
        hosts: Mapping[str, Host],
        ready: Sequence[PreparedGpus],
    ) -> dict[str, Any]:
        """What its supervisor will follow."""
        folder = self._data.attempt(launch.key)
        place = translate.LocalContext(
            seats=tuple(
                [
                    translate.Seat(
                        part.node,
                        tuple([reading.uuid for reading in hosts[part.node].readings]),
                        each.devices,
                        each.environment,
                        hosts[part.node].node.gpu_model,
                        hosts[part.node].emulated_mib if self._smi else None,
                    )
                    for part, each in zip(launch.parts, ready, strict=True)
                ]
            ),
            boot=self._boot,
            folder=folder,
            job_folder=self._data.job(launch.job_id),
            cgroup=self._groups.of(launch.key),
            limits=self._groups.limits,
            drop=os.geteuid() == 0 and account.uid != 0,
            port=free_port() if sum([part.tasks for part in launch.parts]) > 1 else 0,
            lang=os.environ.get("LANG") or "C.UTF-8",
            held=list_held(ready),
            commands=self._commands,
            emulated=self._smi,
            host=self._hostname,
            yard=self._yard,
        )
        plan = translate.plan_of(launch, account, place)
        if launch.recipe.containers:
            plan["image"] = self._images.of(launch, account, hosts, ready, place)
        plan["fence"] = self._fencing.of(plan, launch, hosts, ready, folder)
        apart = any([hosts[part.node].node.numa_domains > 1 for part in launch.parts])
        plan["cpus"] = cores.choose_cores(launch.parts, hosts, emulated=self._emulated) if apart else ""
        self._groups.add_to(plan)
        return plan

    def stop(self, epoch: int, halts: Sequence[StopRequest]) -> list[Reply]:
        """Stop attempts; an attempt that no supervisor has claimed will then never run."""
        with self._data.acting(epoch):
            return [self._stop(halt) for halt in halts]

    def _stop(self, halt: StopRequest, why: str = "") -> Reply:
        folder = self._data.attempt(halt.key)
        if find_key_flaw(halt.key) or os.path.exists(os.path.join(folder, files.END)):
            return _DONE
        if not os.path.exists(os.path.join(folder, files.LAUNCH)):
            return self._bar(halt.key)
        wish: dict[str, Any] = {"outcome": halt.outcome.value, "grace_ms": max(0, halt.grace_ms)}
        if why:
            wish["why"] = why
        path = os.path.join(folder, files.HALT)
        try:
            if earlier := files.read_small(path):
                # The first wish names the end; a later one can only be more urgent.
                wish = earlier | {"grace_ms": min(earlier["grace_ms"], wish["grace_ms"])}
            files.put_halt(folder, wish)
            claim = os.path.join(folder, files.CLAIM)
            claimed = {"pid": 0, "ticks": 0, "boot": self._boot, "claimed_ms": self._now_ms()}
            if not os.path.exists(claim) and files.create(claim, claimed, durable=True):
                end = translate.make_unborn_end(halt.outcome.value, self._now_ms())
                files.create(os.path.join(folder, files.END), end, durable=True)
                return _DONE
        except OSError as error:
            return Reply(Answer.UNSURE, f"the stop cannot be written: {error_text(error)}")
        self._monitor.tell(halt.key)
        return _DONE

    def _bar(self, key: str) -> Reply:
        """Bar a key that was never started, so that it never is."""
        try:
            os.makedirs(self._data.kept(key), mode=0o711, exist_ok=True)
            files.sync(os.path.join(self._data.root, files.KEPT))
        except OSError as error:
            return Reply(Answer.UNSURE, f"the stop cannot be written: {error_text(error)}")
        return Reply(Answer.BARRED)

    def suspend(self, epoch: int, keys: Sequence[str]) -> list[Reply]:
        """Freeze attempts. The time limit waits with them."""
        return self._wish(epoch, keys, frozen=True)

    def resume(self, epoch: int, keys: Sequence[str]) -> list[Reply]:
        """Let frozen attempts go on."""
        return self._wish(epoch, keys, frozen=False)

    def limit(self, epoch: int, limits: Sequence[NewLimit]) -> list[Reply]:
        """Give running attempts other time limits: their supervisors read them, and tell so."""
        with self._data.acting(epoch), self._mutex:
            return [self._monitor.set_limit(wish) for wish in limits]

    def _wish(self, epoch: int, keys: Sequence[str], *, frozen: bool) -> list[Reply]:
        replies = []
        with self._data.acting(epoch):
            for key in keys:
                path = os.path.join(self._data.attempt(key), files.FREEZE)
                if self.status([key])[0].phase in (Phase.UNKNOWN, Phase.ENDED, Phase.STOPPING):
                    replies.append(Reply(Answer.REFUSED, "it does not run"))
                    continue
                if frozen:
                    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
                else:
                    with suppress(FileNotFoundError):
                        os.unlink(path)
                self._monitor.tell(key)
                replies.append(_DONE)
        return replies

    # ---- looking

    def status(self, keys: Sequence[str]) -> list[AttemptReport]:
        """What is known of these attempts. One without its supervisor is cleared away, and only then ended."""
        with self._mutex:
            if self._sharing.through_daemons(self._faults.look):
                self._faults.end_unaware(self._monitor.tell)
            return [self._monitor.look(key) for key in keys]

    def listing(self) -> list[AttemptReport]:
        """Every attempt that has not been forgotten."""
        return [report for report in self.status(self._data.attempts()) if report.phase is not Phase.UNKNOWN]

    def wait(self, timeout_s: float) -> bool:
        """Wait until some attempt has ended; whether one has. One waiter for a folder of data."""
        until_s = time.monotonic() + timeout_s
        while (rest_s := until_s - time.monotonic()) > _CLIENTS_S:
            with self._mutex:
                shared = self._sharing.through_daemons(self._faults.look)
            if self._data.wait(_CLIENTS_S if shared else rest_s):
                return True
        return self._data.wait(max(0.0, rest_s))

    def fileno(self) -> int:
        """Readable when `wait` would not wait."""
        return self._data.wake_fd

    def forget(self, epoch: int, keys: Sequence[str]) -> None:
        """Keep only the output of ended attempts, and a trace that they existed."""
        self._claimed.difference_update(keys)
        with self._data.acting(epoch):
            for key in keys:
                if find_key_flaw(key) or self.status([key])[0].phase is not Phase.ENDED:
                    continue
                folder = self._data.attempt(key)
                try:
                    outputs.keep_output(folder, self._leftovers.out)
                    self._trimmer.trim(folder)
                    # In one step: at any time the key is in one of the two places and so cannot start again.
                    os.rename(folder, self._data.kept(key))
                except OSError as error:
                    # Its end is known, and others go on; the next recount finds it again.
                    _log.warning("attempt %s cannot be forgotten: %s", key, error_text(error))
                    continue
                with self._mutex:
                    self._monitor.drop(key)

    def usage(self, key: str) -> Usage:
        """What the supervisor wrote at the end; before that, what the attempt's group has counted."""
        if find_key_flaw(key):
            return Usage()
        for folder in (self._data.attempt(key), self._data.kept(key)):
            end = files.read(os.path.join(folder, files.END))
            if end is not None:
                return translate.read_usage(end.get("usage"), end.get("image"), end["started_ms"])
        folder = self._data.attempt(key)
        plan = files.read(os.path.join(folder, files.LAUNCH)) or {}
        news = files.read(os.path.join(folder, files.RUNNING)) or {}
        counted = cgroups.Cgroup(plan["cgroup"]).usage() if plan.get("cgroup") else {}
        facts = image.read_facts(os.path.join(folder, files.IMAGE), (news.get("pids") or [0])[0])
        return translate.read_usage(
            counted | v1.read_usage(plan.get("v1") or {}), facts, news.get("started_ms", 0)
        )

    def log(self, key: str, stream: str, cursor: str, limit: int) -> LogPiece:
        """Part of an attempt's output; empty at the end, and for an unknown attempt."""
        return outputs.read(self._data, self._readers, key, stream, offset_of(cursor), limit)

    def terminal(self, key: str, *, own: bool) -> KeeperLink | None:
        """A link to the keeper of an attempt's terminals; an attempt without one gets one now."""
        folder = self._data.attempt(key)
        plan = None if find_key_flaw(key) else files.read(os.path.join(folder, files.LAUNCH))
        if plan is None or self.status([key])[0].phase not in (
            Phase.RUNNING,
            Phase.SUSPENDED,
            Phase.STOPPING,
        ):
            return None
        if own and not plan.get("terminal"):
            raise Permanent("it was started without a terminal")
        found = frames.reach_keeper(folder)
        if found is None and not own:
            if why := node_files.find_trouble(folder):
                raise Permanent(f"nobody can be let in: {why}")
            if not node_files.touch(os.path.join(folder, node_files.WISH)):
                raise Permanent(f"nobody can be let in: {folder} cannot be written to; is its disk full?")
            self._monitor.tell(key)
        return KeeperLink(found) if found is not None else None

    def leftovers(self, what: Leftover, names: Sequence[str]) -> dict[str, int]:
        """What ended jobs have left, in bytes on disk."""
        return self._leftovers.sizes(what, names)

    def remove(self, what: Leftover, names: Sequence[str]) -> None:
        """Remove it."""
        self._leftovers.remove(what, names)

    def prune_images(self, before_ms: int, *, dry_run: bool) -> dict[str, int]:
        """Remove images that no job has needed since then."""
        return self._images.prune(before_ms, dry_run=dry_run)

    def close(self) -> None:
        """Let go. Attempts go on under their supervisors; idle GPUs are left whole."""
        if self._found:
            with suppress(EngineError):
                self._sharing.tidy(Host.geometries(self._found.values()), now=True)
        if not self._emulated and not self._hands_off:
            with suppress(OSError):
                persistence.put_back(str(self._data.root), self._sharing.pinned())
        self._spawner.close()
        self._readers.close()
        self._syncers.shutdown()
        self._leftovers.close()
        self._data.close()
        # The lock keeps a group from being taken away under an attempt that another engine is just starting.
        with suppress(OSError, Transient), self._data.locked():
            self._groups.let_go()


def _sync(paths: list[str]) -> None:
    for path in paths:
        files.sync(path)


def _put(folder: str, plan: dict[str, Any]) -> None:
    """Write a plan, unless it is there."""
    work = {name: plan.pop(name) for name in translate.WORK if name in plan}
    if os.path.exists(os.path.join(folder, files.LAUNCH)):
        _keep(os.path.join(folder, files.WORK), work)
    else:
        # No supervisor looks before there is a launch, so the folder need not appear in one step.
        files.write(os.path.join(folder, files.WORK), work)
    _keep(os.path.join(folder, files.LAUNCH), plan)


def _keep(path: str, value: dict[str, Any]) -> None:
    """Write a file, unless it is there and whole: a crash of the machine may have left a broken one."""
    if not files.create(path, value, durable=False) and files.read(path) is None:
        files.replace(path, value)
