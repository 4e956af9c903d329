"""The nodes as columns, indexed by how much they have free.

A *kind* is a set of nodes that are alike (cluster, GPU model, GPUs, cores, memory). Each kind keeps one set of nodes
per number of wholly free GPUs, so that "a node with at least four free, as few more as possible" needs five look-ups.
A placement changes a few cells and is undone by changing them back.

Columns may be overdrawn on purpose: an earmark takes its GPUs at once, also those that a stopping attempt still holds,
and is ready when nothing that it took is below zero.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from gpuyard.core.fleet import mig_book
from gpuyard.core.fleet.bits import each, positions
from gpuyard.core.fleet.gpu_parts import PLAIN, GpuFree, Sharers, enter_share
from gpuyard.core.fleet.kinds import Kind
from gpuyard.core.fleet.marks import LiveMarks, Marks
from gpuyard.core.fleet.mig_geometry import Held
from gpuyard.core.fleet.shapes import Expected
from gpuyard.model import Capability, GpuReserve, Grant, Node
from gpuyard.model.mig import MIG_MODELS
from gpuyard.model.units import MILLI

NEVER_MS = 1 << 60
"""Later than any real time."""

TOUCHED_MAX = 200_000
"""Length at which a log of changes, and the caches that read it, start over."""


class Nodes:
    """All nodes. A node's number is its index here. Nothing outside of this class writes to its columns."""

    def __init__(self) -> None:
        self.node: list[Node] = []
        self.kind: list[int] = []
        self.kinds: list[Kind] = []
        self.by_pool: dict[str, int] = {}
        self.marks = Marks(self.node)
        self.free_mask: list[int] = []
        """The wholly free GPUs of each node."""
        self.partly_free: dict[int, list[int]] = {}
        """Nodes with a GPU that is neither wholly free nor wholly taken: milli free on each of their GPUs."""
        self.slices_used: mig_book.Cut = {}
        """GPUs that are cut into MIG slices."""
        self.slices_idle: mig_book.Cut = {}
        """Slices that are no longer in use and were not replaced: they may still exist."""
        self.sharers: Sharers = {}
        """How many shares each user has on each GPU, where that matters."""
        self.whole_reserve = 0
        """How many free GPUs must stay whole: they are not cut."""
        self.by_force: mig_book.ByForce | None = None
        """Set while victims are drafted away for slices."""
        self.foreign: dict[int, tuple[int, str]] = {}
        """GPUs used from outside the yard, by node: mask, and what uses them."""
        self.lacks: dict[str, frozenset[Capability]] = {}
        """What engines cannot do, by cluster; a cluster that is missing here can do everything."""
        self.pins: mig_book.Pins = {}
        """GPUs that keep a layout of slices until they are released."""
        self.cpu_free: list[int] = []
        self.memory_free: list[int] = []
        self.beside: dict[int, tuple[int, int]] = {}
        """Cores and memory left to jobs without GPUs, by node whose GPUs have a reserve."""
        self.beside_most: dict[int, tuple[int, int]] = {}
        """The same of an empty node."""
        self.down: list[str] = []
        """Why a node is down; empty: it is up."""
        self.cordoned: list[str] = []
        """Why a node takes no new jobs; empty: it does."""
        self.attempts_max = 0
        """How many attempts one node may have; 0: any number."""
        self.full: set[int] = set()
        """Nodes that have `attempts_max` attempts."""
        self.closed: list[bool] = []
        """Down, cordoned or full."""
        self.needs_full_check: set[int] = set()
        """Nodes that need the full check: closed, odd, or overdrawn in cores or memory."""
        self.kind_of: list[Kind] = []
        """The kind, by node."""
        self.gpu_free = GpuFree(self.partly_free, self.free_mask, self.kind_of)
        """Milli free on each GPU of each node; below zero where an earmark waits for a stop."""
        self.bit: list[int] = []
        """Each node as a set of one."""
        self.attempts_on: list[dict[int, tuple[int, Grant]]] = []
        """The attempts on each node: job id -> (expected end, grant)."""
        self.closed_count = 0
        self.room_generation = 0
        """Grows when room may have been gained, or is expected sooner. Until then, what did not fit still does not."""
        self.reserved_grants = 0
        """How many grants are taken without a running attempt: by earmarks, pins, or from outside the yard."""
        self.touched: list[int] = []
        """Numbers of changed nodes, for caches that keep a value per node."""
        self.epoch = 0
        """Grows when `touched` starts over: caches of an older epoch are void."""
        self.overlaid = 0
        """Nodes with columns that are changed for a moment, without an entry in `touched`."""
        self.demand: Expected | None = None
        """The asks to expect; None: unknown. Derived: never dumped."""
        self.up_milli: list[int] = []
        """Milli-GPU of nodes that are up, by GPU model number, without those of clusters that do not count."""
        self.observed: dict[str, bool] = {}
        """Clusters that schedule themselves: only their own jobs run there. The value: whether these count."""

    # -- the fleet ---------------------------------------------------------------------------------------------

    def add(self, node: Node, model: int) -> int:
        """Add a node to the fleet; returns its number."""
        number = len(self.node)
        index = self._join(number, node, model)
        kind = self.kinds[index]
        bit = 1 << number
        self.node.append(node)
        self.kind.append(index)
        self.free_mask.append((1 << node.gpus) - 1)
        self.cpu_free.append(node.cpu_milli)
        self.memory_free.append(node.memory_mib)
        self.down.append("")
        self.cordoned.append("")
        self.closed.append(False)
        self.kind_of.append(kind)
        self.bit.append(bit)
        self.attempts_on.append({})
        kind.buckets[node.gpus] |= bit
        kind.most = -1
        self._count_up(kind, 1)
        self._changed(number)
        self.room_generation += 1
        return number

    def _join(self, number: int, node: Node, model: int) -> int:
        """Add a node to its kind, switch and pool; returns the number of the kind."""
        index = next((i for i, k in enumerate(self.kinds) if k.same(node, model)), len(self.kinds))
        if index == len(self.kinds):
            self.kinds.append(Kind(node, model))
        kind, bit = self.kinds[index], 1 << number
        kind.join(node, bit)
        self.by_pool[node.pool] = self.by_pool.get(node.pool, 0) | bit
        self.marks.note(number, node)
        return index

    def change(self, number: int, node: Node, model: int) -> None:
        """Give different hardware to a node that is empty and has no claims on it (`drop_claims`)."""
        self._regroup(number, node, model, (1 << node.gpus) - 1)
        self.cpu_free[number], self.memory_free[number] = node.cpu_milli, node.memory_mib

    def may_rename(self, number: int, node: Node) -> bool:
        """Whether only the name of a node's GPUs, their wiring and its labels differ, and the node has no layout."""
        now = self.node[number]
        named = replace(now, gpu_model=node.gpu_model, nvlink_group_size=node.nvlink_group_size)
        same = replace(named, features=node.features, labels=node.labels, taints=node.taints) == node
        return same and not any([number in each for each in (self.slices_used, self.slices_idle, self.pins)])

    def rename(self, number: int, node: Node, model: int) -> None:
        """Give the GPUs of a node another name. The attempts there stay."""
        self._regroup(number, node, model, self.free_mask[number])

    def _regroup(self, number: int, node: Node, model: int, free_mask: int) -> None:
        """Move a node to another kind, with these GPUs wholly free."""
        self._leave(number)
        before, kind, bit = self.node[number], self.kind_of[number], 1 << number
        kind.leave(before, bit)
        self.by_pool[before.pool] &= ~bit
        up = not self.down[number]
        self._count_up(kind, -up)
        index = self._join(number, node, model)
        self.node[number], self.kind[number], self.kind_of[number] = node, index, self.kinds[index]
        self.free_mask[number] = free_mask
        self._count_up(self.kinds[index], up)
        self._enter(number)
        self._changed(number)
        self.room_generation += 1

    def _count_up(self, kind: Kind, nodes: int) -> None:
        """Count GPUs of so many nodes of a kind as up, or (less than 0) no longer."""
        while len(self.up_milli) <= kind.model:
            self.up_milli.append(0)
        if self.observed.get(kind.cluster, True):
            self.up_milli[kind.model] += kind.gpus * MILLI * nodes

    def observe(self, clusters: dict[str, bool]) -> None:
        """Leave clusters to themselves. What could be served where is to be compiled again."""
        if clusters != self.observed:
            self.observed = clusters
            self.up_milli = []
            for kind in self.kinds:
                up = [number for number in each(kind.members) if not self.down[number]]
                self._count_up(kind, len(up))

    def set_down(self, number: int, why: str) -> None:
        """Mark a node down (or up again with an empty `why`)."""
        was_down = bool(self.down[number])
        self._leave(number)
        self.down[number] = why
        self._close(number, bool(why or self.cordoned[number] or number in self.full))
        self._enter(number)
        self._count_up(self.kinds[self.kind[number]], was_down - bool(why))
        self._changed(number)
        self.room_generation += 1

    def set_cordoned(self, number: int, why: str) -> None:
        """Close a node to new jobs (or open it with an empty `why`)."""
        self._leave(number)
        self.cordoned[number] = why
        self._close(number, bool(why or self.down[number] or number in self.full))
        self._enter(number)
        self._changed(number)
        self.room_generation += 1

    def mark(self, number: int, live: LiveMarks) -> None:
        """Set labels and taints of a node live. What could be served where is to be compiled again."""
        self.marks.set_live(number, live)
        self._changed(number)
        self.room_generation += 1

    def set_lacks(self, cluster: str, lacks: frozenset[Capability]) -> None:
        """Note what the engine of a cluster cannot do. What could be served where is to be compiled again."""
        self.lacks.pop(cluster, None)
        if lacks:
            self.lacks[cluster] = lacks

    def shut(self, number: int) -> bool:
        """Whether a node is down or cordoned: closed even without attempts."""
        return bool(self.down[number] or self.cordoned[number])

    def allow(self, attempts_max: int) -> None:
        """Let each node have at most this many attempts; 0: any number."""
        self.attempts_max = attempts_max
        for number in range(len(self.node)):
            self.recount(number)

    def recount(self, number: int) -> None:
        """Close a node that has as many attempts as it may until one of them has ended."""
        full = 0 < self.attempts_max <= len(self.attempts_on[number])
        if full is (number in self.full):
            return
        self._leave(number)
        if full:
            self.full.add(number)
        else:
            self.full.remove(number)
        self._close(number, full or self.shut(number))
        self._enter(number)
        self._changed(number)

    def _close(self, number: int, closed: bool) -> None:
        self.closed_count += closed - self.closed[number]
        self.closed[number] = closed
        self._mark(number)

    def _mark(self, number: int) -> None:
        """Note whether a node needs the full check."""
        overdrawn = self.cpu_free[number] < 0 or self.memory_free[number] < 0
        if overdrawn or self.closed[number] or number in self.partly_free:
            self.needs_full_check.add(number)
        else:
            self.needs_full_check.discard(number)

    def _leave(self, number: int) -> None:
        if not self.closed[number]:
            kind = self.kinds[self.kind[number]]
            bit = 1 << number
            kind.buckets[self.free_mask[number].bit_count()] &= ~bit
            kind.most = -1
            kind.partial &= ~bit

    def _enter(self, number: int) -> None:
        if not self.closed[number]:
            kind = self.kinds[self.kind[number]]
            bit = 1 << number
            kind.buckets[self.free_mask[number].bit_count()] |= bit
            kind.most = -1
            if self._has_partial(number):
                kind.partial |= bit

    def _has_partial(self, number: int) -> bool:
        return any(0 < free < MILLI for free in self.gpu_free[number])

    def _changed(self, number: int) -> None:
        self.touched.append(number)

    def start_over(self) -> None:
        """Let a long log of changed nodes start over. Never called within a pass."""
        if len(self.touched) > TOUCHED_MAX:
            self.touched.clear()
            self.epoch += 1

    # -- what is to be kept in mind ----------------------------------------------------------------------------

    def gain_room(self) -> None:
        """There may be more room than before: what did not fit is tried again."""
        self.room_generation += 1

    def gain_nothing(self) -> None:
        """What was lifted last had been placed for a try: there is no more room than before that."""
        self.room_generation -= 1

    def keep_whole(self, gpus: int) -> None:
        """Leave this many free GPUs uncut."""
        self.whole_reserve = gpus

    def reserve(self, number: int, reserve: GpuReserve | None, held: Iterable[Grant]) -> None:
        """Reserve cores and memory for the GPUs of a node on which these grants are held; None: reserve nothing."""
        self.beside.pop(number, None)
        self.beside_most.pop(number, None)
        node = self.node[number]
        if reserve is not None and node.gpus:
            cores = max(0, node.cpu_milli - reserve.cpu_milli * node.gpus)
            memory = max(0, node.memory_mib - reserve.memory_mib * node.gpus)
            self.beside_most[number] = (cores, memory)
            alone = [grant for grant in held if is_without_gpus(grant)]
            cores -= sum([grant.cpu_milli for grant in alone])
            self.beside[number] = (cores, memory - sum([grant.memory_mib for grant in alone]))

    @contextmanager
    def none_kept_whole(self) -> Iterator[None]:
        """Inside, every free GPU may be cut: for a question."""
        kept, self.whole_reserve = self.whole_reserve, 0
        try:
            yield
        finally:
            self.whole_reserve = kept

    @contextmanager
    def drafting(self, by_force: mig_book.ByForce | None) -> Iterator[None]:
        """Inside, victims are drafted away for slices; None: for something else."""
        self.by_force = by_force
        try:
            yield
        finally:
            self.by_force = None

    def expect(self, demand: Expected | None) -> None:
        """Have placements expect these asks; None: unknown ones."""
        self.demand = demand

    # -- room --------------------------------------------------------------------------------------------------

    def fits(self, grants: Iterable[Grant]) -> bool:
        """Whether the room is there now. Decision and commit ask the same question."""
        for grant in grants:
            number, gpus, milli, cpu_milli, memory_mib, _tasks, slices, user = grant
            if self.closed[number]:
                return False
            if cpu_milli > self.cpu_free[number] or memory_mib > self.memory_free[number]:
                return False
            if self.beside and self._takes_reserved(grant, cpu_milli, memory_mib):
                return False
            if slices:
                if not self.cards(number).fits(grant):
                    return False
            elif milli == MILLI:
                if gpus & ~self.free_mask[number]:
                    return False
            else:
                free = self.gpu_free[number]
                if find_barred(self, number, user) & gpus or any(
                    free[gpu] < milli for gpu in positions[gpus]
                ):
                    return False
        return True

    def _takes_reserved(self, grant: Grant, cpu_milli: int, memory_mib: int) -> bool:
        """Whether a job without GPUs would take this much from what is reserved for the GPUs of a node."""
        if not is_without_gpus(grant) or grant.node not in self.beside:
            return False
        cores, memory = self.beside[grant.node]
        return cpu_milli > cores or memory_mib > memory

    def cards(self, number: int) -> mig_book.Cards:
        """The GPUs of a node that can be cut."""
        geometry = MIG_MODELS[self.node[number].gpu_model]
        return mig_book.Cards(
            geometry, self.slices_used.get(number, {}), self.pins.get(number, {}), self.gpu_free[number]
        )

    def overdrawn(self, grants: Iterable[Grant]) -> bool:
        """Whether an earmark still waits for something that it took to become free."""
        for grant in grants:
            number, gpus, slices, user = grant.node, grant.gpus, grant.slices, grant.user
            if self.cpu_free[number] < 0 or self.memory_free[number] < 0 or self.down[number]:
                return True
            if self.beside and self._takes_reserved(grant, 0, 0):
                return True
            if slices:
                # What a pinned GPU has free says nothing: the pin has taken all of it.
                if self.cards(number).clashes(grant):
                    return True
                continue
            free = self.gpu_free[number]
            if find_barred(self, number, user) & gpus or any(free[gpu] < 0 for gpu in positions[gpus]):
                return True
        return False

    def take(self, grants: tuple[Grant, ...]) -> None:
        """Take the room of grants that no attempt holds."""
        self._shift(grants, -1)
        self.reserved_grants += len(grants)
        self.touch(grants)

    def give(self, grants: tuple[Grant, ...]) -> None:
        """Give it back: the exact inverse of `take`."""
        self._shift(grants, 1)
        self.reserved_grants -= len(grants)
        self.touch(grants)

    def touch(self, grants: tuple[Grant, ...]) -> None:
        """Something about these nodes, or about what runs there, is otherwise than before."""
        touched = self.touched
        for grant in grants:
            touched.append(grant.node)

    def shift(self, grants: tuple[Grant, ...], sign: int) -> None:
        """Take room (-1) for a question on top of the state, and give it back (1).

        Nothing is logged. Caches that keep a value per node skip the nodes in `overlaid`.
        """
        self._shift(grants, sign)
        self.overlaid = 0
        if sign < 0:
            for grant in grants:
                self.overlaid |= 1 << grant.node

    def _shift(self, grants: tuple[Grant, ...], sign: int) -> None:
        for grant in grants:
            number, gpus, milli, cpu_milli, memory_mib, _tasks, slices, user = grant
            if slices:
                mig_book.shift(self.slices_used, number, slices, sign)
            elif user:
                enter_share(self.sharers, grant, sign)
            if cpu_milli or memory_mib:
                if number in self.beside and is_without_gpus(grant):
                    cores, memory = self.beside[number]
                    self.beside[number] = (cores + sign * cpu_milli, memory + sign * memory_mib)
                self.cpu_free[number] += sign * cpu_milli
                self.memory_free[number] += sign * memory_mib
                self._mark(number)
            if gpus:
                before = self.free_mask[number]
                if milli != MILLI or number in self.partly_free or (sign < 0 and gpus & ~before):
                    self._move_gpus(number, gpus, sign * milli)
                    continue
                # By far the most frequent case: whole GPUs that are, or become, wholly free.
                self.free_mask[number] = after = before ^ gpus
                if not self.closed[number]:
                    kind = self.kind_of[number]
                    kind.most = -1
                    buckets = kind.buckets
                    bit = 1 << number
                    buckets[before.bit_count()] ^= bit
                    buckets[after.bit_count()] ^= bit

    def _move_gpus(self, number: int, gpus: int, milli: int) -> None:
        free = list(self.gpu_free[number])
        mask = before = self.free_mask[number]
        partial = number in self.partly_free or milli % MILLI != 0
        for gpu in positions[gpus]:
            left = free[gpu] = free[gpu] + milli
            if left == MILLI:
                mask |= 1 << gpu
            else:
                mask &= ~(1 << gpu)
                partial = partial or left % MILLI != 0
        self.free_mask[number] = mask
        kind = self.kind_of[number]
        if mask != before and not self.closed[number]:
            kind.most = -1
            kind.buckets[before.bit_count()] ^= 1 << number
            kind.buckets[mask.bit_count()] ^= 1 << number
        if any(left not in PLAIN for left in free):
            self.partly_free[number] = free
        else:
            self.partly_free.pop(number, None)
        self._mark(number)
        if partial and not self.closed[number]:
            if self._has_partial(number):
                kind.partial |= 1 << number
            else:
                kind.partial &= ~(1 << number)

    # -- attempts ----------------------------------------------------------------------------------------------

    def place(self, grants: tuple[Grant, ...], end_ms: int, job_id: int) -> int:
        """Place an attempt: take its room, if it is there, and note its expected end. All or nothing.

        Returns the number of its kind of node; -1: the room is not there.
        """
        grant = grants[0]
        number, gpus, milli, cpu_milli, memory_mib, _tasks, slices, _user = grant
        before = self.free_mask[number]
        if (
            cpu_milli
            or memory_mib
            or milli != MILLI
            or slices
            or gpus & ~before
            or number in self.needs_full_check
            or len(grants) > 1
        ):
            if not self.fits(grants):
                return -1
            self._shift(grants, -1)
            for other in grants[1:]:
                self.attempts_on[other.node][job_id] = (end_ms, other)
                self.touched.append(other.node)
        else:
            # By far the most frequent case: whole GPUs of one node, checked and taken in one step.
            self.free_mask[number] = after = before ^ gpus
            kind = self.kind_of[number]
            kind.most = -1
            buckets, bit = kind.buckets, self.bit[number]
            buckets[before.bit_count()] ^= bit
            buckets[after.bit_count()] ^= bit
        self.attempts_on[number][job_id] = (end_ms, grant)
        self.touched.append(number)
        if self.attempts_max:
            for grant in grants:
                self.recount(grant.node)
        return self.kind[number]

    def lift(self, grants: tuple[Grant, ...], job_id: int) -> None:
        """An attempt has ended: the exact inverse of `place`, after which there may be more room."""
        for grant in grants:
            number, gpus, milli, cpu_milli, memory_mib, _tasks, slices, _user = grant
            del self.attempts_on[number][job_id]
            self.touched.append(number)
            if cpu_milli or memory_mib or milli != MILLI or slices or number in self.needs_full_check:
                self._shift((grant,), 1)
                continue
            before = self.free_mask[number]
            self.free_mask[number] = after = before ^ gpus
            kind = self.kind_of[number]
            kind.most = -1
            buckets, bit = kind.buckets, self.bit[number]
            buckets[before.bit_count()] ^= bit
            buckets[after.bit_count()] ^= bit
        if self.attempts_max:
            for grant in grants:
                self.recount(grant.node)
        self.room_generation += 1

    def place_again(self, grants: tuple[Grant, ...], end_ms: int, job_id: int) -> None:
        """Place an attempt of a dump without a look for room: its node may be down by now."""
        self._shift(grants, -1)
        self.touch(grants)
        for grant in grants:
            self.attempts_on[grant.node][job_id] = (end_ms, grant)
            self.recount(grant.node)

    def move_attempt(self, job_id: int, source: Grant, target: Grant) -> None:
        """An attempt that was on one grant is now on another; `take` and `give` have moved the room."""
        end_ms, _grant = self.attempts_on[source.node].pop(job_id)
        self.attempts_on[target.node][job_id] = (end_ms, target)
        self.recount(source.node)
        self.recount(target.node)

    def expect_end(self, grants: tuple[Grant, ...], job_id: int, end_ms: int) -> None:
        """The attempt on these nodes is now expected to end at another time."""
        for grant in grants:
            self.attempts_on[grant.node][job_id] = (end_ms, grant)
            self._changed(grant.node)
        self.room_generation += 1

    def ends(self, number: int) -> list[tuple[int, int, Grant]]:
        """The attempts on a node as (expected end, job id, grant), soonest first."""
        return sorted(
            [(end_ms, job_id, grant) for job_id, (end_ms, grant) in self.attempts_on[number].items()]
        )

    # -- slices and other claims -------------------------------------------------------------------------------

    def leave_slices(self, grants: tuple[Grant, ...]) -> None:
        """Slices are no longer in use. The engine leaves them where they are for a while."""
        mig_book.mark_idle(self.slices_idle, grants)

    def use_slices(self, grants: tuple[Grant, ...]) -> None:
        """An attempt starts: idle slices of its GPUs are used again, or removed if they are in its way."""
        mig_book.mark_used(self.slices_idle, self.node, grants)

    def find_slices(self, number: int, gpu: int, held: Held) -> None:
        """A dump says that these slices of a GPU are there and not in use."""
        self.slices_idle.setdefault(number, {})[gpu] = held

    def set_foreign(self, number: int, gpus: int, why: str) -> None:
        """Mark GPUs as used from outside the yard, even if an attempt holds them: then they are overdrawn."""
        before, _why = self.foreign.pop(number, (0, ""))
        if before:
            self.give((Grant(number, before, MILLI, 0, 0, 0),))
        if gpus:
            self.take((Grant(number, gpus, MILLI, 0, 0, 0),))
            self.foreign[number] = (gpus, why)
        self.gain_room()

    def pin(self, number: int, gpu: int, found: mig_book.Pin) -> None:
        """Pin a GPU to a layout."""
        self.unpin(number, gpu)
        if found.held:
            self.take((Grant(number, 1 << gpu, MILLI, 0, 0, 0),))
        self.pins.setdefault(number, {})[gpu] = found
        # A pin that keeps a GPU whole takes no room, and yet it changes what may be cut there.
        self._changed(number)
        self.gain_room()

    def unpin(self, number: int, gpu: int) -> None:
        """Let a GPU be cut on demand again; a GPU without a pin stays as it is."""
        row = self.pins.get(number, {})
        before = row.pop(gpu, None)
        if before is None:
            return
        if not row:
            del self.pins[number]
        if before.held:
            self.give((Grant(number, 1 << gpu, MILLI, 0, 0, 0),))
        self._changed(number)
        self.gain_room()

    def layout_made(self, number: int, gpu: int, why: str, took_ms: int) -> None:
        """The engine has made the layout of a pinned GPU, or says why not. A GPU without a pin is skipped."""
        row = self.pins.get(number, {})
        if gpu in row:
            row[gpu] = row[gpu]._replace(made=not why, why=why, took_ms=took_ms)

    def drop_claims(self, number: int) -> None:
        """A node has different GPUs: forget the claims on the old ones."""
        self.set_foreign(number, 0, "")
        self.slices_idle.pop(number, None)
        for gpu in list(self.pins.get(number, {})):
            self.unpin(number, gpu)


def is_without_gpus(grant: Grant) -> bool:
    """Whether a grant is of a job without GPUs. What is kept for a promise has no tasks, and is of none."""
    return not grant.gpus and not grant.slices and grant.tasks > 0


class DirtyNodes:
    """Which nodes have changed since the last call."""

    __slots__ = ("_epoch", "_late", "_read")

    def __init__(self) -> None:
        self._epoch = -1
        self._read = 0
        self._late: set[int] = set()
        """Nodes that changed while they were shifted, to be reported later."""

    def changed(self, nodes: Nodes) -> Collection[int]:
        """The numbers of changed nodes, without those that are shifted now."""
        touched, late = nodes.touched, self._late
        if self._epoch == nodes.epoch:
            if self._read == len(touched) and not late:
                return ()
            found = set(touched[self._read :])
            found |= late
        else:
            self._epoch = nodes.epoch
            found = set(range(len(nodes.node)))
        self._read = len(touched)
        self._late = set()
        if nodes.overlaid:
            self._late = {number for number in found if nodes.overlaid >> number & 1}
            found -= self._late
        return found


# -- shares ------------------------------------------------------------------------------------------------------------
# One MPS server serves one user at a time, so shares of two users would take turns instead of running side by side, and
# a fault of one may reach the other. A share with a user (`Milli.user`) only goes beside shares of the same user.


def find_barred(nodes: Nodes, number: int, user: str) -> int:
    """The GPUs of a node, as a mask, that take no share of this user, however much of them is free."""
    cut = nodes.slices_used.get(number)
    mask = strangers(nodes, number, user)
    return mask if cut is None else mask | cut_mask(nodes, number)


def cut_mask(nodes: Nodes, number: int) -> int:
    """The GPUs of a node that are cut into slices: they take no shares."""
    return sum([1 << gpu for gpu in nodes.slices_used.get(number, ())])


def strangers(nodes: Nodes, number: int, user: str) -> int:
    """The GPUs of a node, as a mask, on which other users have shares; none for a share without a user."""
    row = nodes.sharers.get(number)
    if not user or row is None:
        return 0
    return sum([1 << gpu for gpu, users in row.items() if users.keys() - {user}])
