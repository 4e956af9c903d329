"""The state of the yard: an indexed value that only `apply` changes.

Whatever goes beyond the log (free-count sets, sorted queues, cached answers) is derived from it: a state built event by
event and one rebuilt from its dump give the same plan.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import heappop, heappush

from gpuyard.core.caches import Caches
from gpuyard.core.fleet.nodes import Nodes
from gpuyard.core.fleet.shapes import Expected, Shape, Way, charge_milli, rate_on
from gpuyard.core.fleet.walls import Asker, Walls
from gpuyard.core.fleet.ways import Shapes
from gpuyard.core.jobs.order import Order
from gpuyard.core.jobs.queue import WaitQueue
from gpuyard.core.jobs.records import Count, Counts, JobRecord
from gpuyard.core.jobs.waiters import Namesakes, Tally
from gpuyard.core.quota.tenants import Tenants
from gpuyard.core.quota.usage import UsageDelta
from gpuyard.core.state.idle_plan import IdlePlan
from gpuyard.model import (
    CATALOGUE,
    After,
    Ask,
    AttemptState,
    Grant,
    JobClass,
    JobSpec,
    JobState,
    Market,
    Settings,
)
from gpuyard.model.jobs import FIRST_EXTERNAL_ID
from gpuyard.model.prices import BookPlace, PriceBook
from gpuyard.model.units import DAY_MS

_STOPPABLE = (AttemptState.STARTING, AttemptState.RUNNING, AttemptState.SUSPENDED)
_MICRO_PER_MILLI_USD = 1000
_DEFAULT_WEIGHT = 1000
"""Milli-dollars an hour for a GPU model without a price."""

_INTAKE_MAX = 10_000
"""How many specs are remembered: a trace has few and shares them, a live yard has a new one for every job."""

FIFO = Order((), False, ())

PRIORITY_TIER = 1 << 32
"""More than two classes can differ by: a higher tier goes first, whatever the classes."""


class InvalidEvent(Exception):
    """An event that cannot follow what the log says so far: a bug in the code that wrote it."""


Intake = tuple[JobSpec, Shape, JobClass, int, int, bool, Count]
"""What a spec means here: shape, class, tenant, party, whether it waits for other jobs, and where it is counted."""


class State:
    """Fleet, tenants and live jobs."""

    evicts = False
    """Whether a node has a taint that stops attempts. Derived: never dumped."""
    configured = 0
    """Grows whenever settings are put in force. Derived: never dumped."""
    walls: Walls | None = None
    """The walls of pools; None: no pool has any. Derived."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.classes: dict[str, JobClass] = {}
        self.lowest_preemptible: int | None = None
        """The lowest priority of a class that may be preempted."""
        self.models: dict[str, int] = {}
        """GPU model numbers, in order of appearance."""
        self.weights: list[int] = []
        """Share weight by model number."""
        self.nodes = Nodes()
        self.node_number: dict[tuple[str, str], int] = {}
        """A node is its cluster and its name: two clusters may each have a node `n1`."""
        self.shapes = Shapes()
        self.jobs: dict[int, JobRecord] = {}
        """Live jobs only."""
        self.running: dict[int, JobRecord] = {}
        """The jobs that hold GPUs."""
        self.leaving: dict[int, JobRecord] = {}
        """The running jobs that are being stopped."""
        self.deferred: dict[int, JobRecord] = {}
        """Pending jobs that are held, wait for other jobs, or are before their begin time."""
        self._begins: list[tuple[int, int]] = []
        """A heap of begin times and ids: every deferred job that only its begin time keeps from the queue is in it,
        among others that are removed when they come to the top. Derived."""
        self.earmarks: dict[int, JobRecord] = {}
        """Jobs that have an earmark."""
        self.ends: dict[int, JobState] = {}
        """How the last jobs ended, for jobs that depend on one of them."""
        self.ended_tasks: dict[int, str] = {}
        """The labels of ended jobs that were tasks of an array."""
        self.dependents: dict[int, dict[int, list[After]]] = {}
        """By the id of a job or array: the jobs that wait for it, and how; 0 stands for namesakes. Derived."""
        self.arrays: dict[int, Tally] = {}
        """What is left of the arrays that jobs wait for. Derived."""
        self.namesakes: dict[tuple[str, str], Namesakes] = {}
        """By user and name. Derived."""
        self.doomed: dict[int, JobRecord] = {}
        """Jobs that can never start, because of how another one ended. Derived."""
        self._demand: tuple[tuple[Ask, int], ...] = ()
        self.arrived: dict[Shape, int] = {}
        """Jobs since demand was last learned, by shape."""
        self.arrivals = 0
        """The sum of `arrived`."""
        self.last_job_id = self.demand_version = 0
        self.last_external_id = FIRST_EXTERNAL_ID - 1
        """The same for jobs that other schedulers have: their ids are a line of their own."""
        self.now_ms = 0
        """Time of the last event."""
        self.skipped_ms = 0
        """By how much the clock was set ahead, all together."""
        self.tenants = Tenants(self.settings, self.models, self.count_gpus())
        self.queue = WaitQueue(FIFO, self.tenants)
        self.counts = Counts()
        """How many jobs wait, by user and tenant, and how much is kept of users' live jobs. Derived."""
        self.intake: dict[int, Intake] = {}
        """Cache: what a spec means here, by `id()` of the spec (the value holds the spec, so its id stays unique)."""
        self.no_room: dict[int, int] = {}
        """Cache: way -> `nodes.room_generation` when the way was found to have no room."""
        self.change_seq = 0
        """Grows with every event that might change a decision."""
        self.idle_plan: IdlePlan | None = None
        """Cache: the last pass, if it decided nothing."""
        self.touched: set[int] | None = None
        """Jobs that events about others have changed, for readers of the state; None: there are none. Never dumped."""
        self.moved: list[int] | None = None
        """The jobs that started, ended or are expected to end at another time, one after the other, for caches that
        keep something about running jobs; None: there are none, or they start over. Derived: never dumped."""
        self.caches = Caches()
        """What policies remember between passes. Derived: never dumped, and no plan may depend on it."""
        self.configure(self.settings)

    # -- settings ----------------------------------------------------------------------------------------------

    def configure(self, settings: Settings) -> None:
        """Put settings in force: tenants are rebuilt and keep their usage."""
        old = self.tenants
        self.settings = settings
        self.configured += 1
        self._price_book = PriceBook.in_force(settings)
        self._prices_known: dict[tuple[str, int, int], int] = {}
        """Cache: what an hour of a GPU costs on a day, by node, and by way the dearest."""
        self.nodes.keep_whole(settings.whole_gpus)
        self.nodes.allow(settings.attempts_per_node)
        self.nodes.observe(settings.observed)
        for number in range(len(self.nodes.node)) if settings.reserves or self.nodes.beside else ():
            self.reserve_for_gpus(number)
        walled = bool(self.walls or settings.walls)
        self.walls = Walls(settings.walls) if settings.walls else None
        self.shapes.walls = settings.walls
        self.classes = {c.name: c for c in settings.classes}
        self.lowest_preemptible = min((c.priority for c in settings.classes if c.preemptible), default=None)
        self.weights = [self._weight(name) for name in self.models]
        self.tenants = Tenants(settings, self.models, self.count_gpus())
        self.tenants.take_over(old, self.now_ms)
        for record in self.jobs.values():
            record.leaf, record.party = self.place_of(record.job.spec)
            record.klass = self.klass_for(record.job.spec)
            if walled:
                record.shape = self.shape_for(record.job.spec, record.limit_ms)
        self.recount()
        for record in self.running.values():
            self._count_running(record)
        for number in range(len(self.tenants.path)):
            self.tenants.rekey(number)
        self.tenants.set_due()
        self.recompile()
        self.reindex(self.queue.order)
        self.relax_levels()
        self.nodes.gain_room()

    def count_gpus(self) -> dict[tuple[str, str], int]:
        """GPUs of nodes that exist, up or down, by pool and model, without those of clusters that do not count."""
        nodes, names = self.nodes, list(self.models)
        found: dict[tuple[str, str], int] = {}
        for kind in nodes.kinds:
            if kind.gpus and nodes.observed.get(kind.cluster, True):
                for pool, there in nodes.by_pool.items():
                    place = pool, names[kind.model]
                    found[place] = found.get(place, 0) + (kind.members & there).bit_count() * kind.gpus
        return found

    def refit_quotas(self) -> None:
        """Work out quotas in percent anew, after a change of the nodes that exist."""
        if self.tenants.in_percent:
            self.configured += 1
            if not self.tenants.refit(self.count_gpus()):
                self.configure(self.settings)

    def _count_running(self, record: JobRecord) -> None:
        # Its part of the current period is already in `accrued`: count it as if it had started with the period.
        tenants, milli = self.tenants, record.shape.gpu_milli
        record.usage = UsageDelta(record.party, record.model, milli, record.rate, record.shape.measure)
        since_ms, stranded = tenants.period_start_ms, self.stranded_milli(record)
        tenants.move(
            record.party, record.model, milli, record.rate, since_ms, 1, record.shape.measure, stranded
        )
        if tenants.budgeted:
            tenants.commit(record.party, milli, self.micro_of(record), record.limit_ms)

    def micro_of(self, record: JobRecord) -> int:
        """What an attempt costs, at the prices of its first day. 0 where no budget asks."""
        if not self.tenants.priced:
            return 0
        return self.cost_on(record.shape, record.grants, record.started_ms // DAY_MS)

    def micro_by(self, shape: Shape, way: Way, now_ms: int) -> int:
        """What a job would cost if it was served by a way. 0 where no budget asks."""
        return self.cost_by(shape, way, now_ms // DAY_MS) if self.tenants.priced else 0

    def cost_on(self, shape: Shape, grants: Sequence[Grant], day: int) -> int:
        """What a job costs in a millisecond on the nodes of its grants: micro-dollars / hour x milli-GPU."""
        kinds = self.nodes.kind_of
        return sum(
            [
                charge_milli(shape, kinds[grant.node]) * grant.tasks * self.gpu_price(grant.node, day)
                for grant in grants
            ]
        )

    def cost_by(self, shape: Shape, way: Way, day: int) -> int:
        """The same for a job that is served by a way, on the dearest of its nodes."""
        return charge_milli(shape, self.nodes.kinds[way.kind]) * shape.tasks * self.dearest(way, day)

    def dearest(self, way: Way, day: int) -> int:
        """What an hour of a GPU costs on the dearest node of a way."""
        key = ("dearest", way.index, day)
        known = self._prices_known.get(key)
        if known is None:
            members = self.nodes.kinds[way.kind].members & way.pools
            numbers = [n for n in range(len(self.nodes.node)) if members & (1 << n)]
            known = self._prices_known[key] = max([self.gpu_price(n, day) for n in numbers], default=0)
        return known

    def micro_least(self, shape: Shape, now_ms: int) -> int:
        """The same, served by the cheapest of its ways."""
        if not self.tenants.priced:
            return 0
        return min([self.micro_by(shape, way, now_ms) for way in shape.ways], default=0)

    def gpu_price(self, number: int, day: int) -> int:
        """What an hour of a GPU of a node costs on a day; nothing, if nobody gave a price."""
        key = ("node", number, day)
        known = self._prices_known.get(key)
        if known is None:
            node, settings = self.nodes.node[number], self.settings
            at = f"{node.cluster}/{node.pool}"
            market = settings.markets.get(at, Market.RESERVED.value)
            model = node.gpu_model if node.gpus else ""
            place = BookPlace(node.cluster, node.pool, model, market, settings.regions.get(at, ""))
            known = self._prices_known[key] = self._price_book.price(place, day) or 0
        return known

    def _weight(self, name: str) -> int:
        if name in self.settings.share_weights:
            return self.settings.share_weights[name]
        own = next((m for m in self.settings.gpu_models if m.name == name), None) or CATALOGUE.get(name)
        return max(1, own.list_price_micro_usd_h // _MICRO_PER_MILLI_USD) if own else _DEFAULT_WEIGHT

    def counts_for_tenant(self, spec: JobSpec) -> bool:
        """Whether a job counts against quotas: one of an observed cluster may not."""
        observed = self.settings.observed
        return not spec.origin or all([observed.get(name, True) for name in spec.ask.clusters])

    def place_of(self, spec: JobSpec) -> tuple[int, int]:
        """The rows where a job counts: its tenant's, and that for its quotas."""
        if not self.counts_for_tenant(spec):
            return (outside := self.tenants.outside()), outside
        leaf = self.tenants.leaf(spec.tenant)
        return leaf, self.party_of(leaf, spec)

    def party_of(self, leaf: int, spec: JobSpec) -> int:
        """The row for the quotas of a job that counts for a tenant."""
        return self.tenants.party(leaf, self.klass_of(spec.klass).name, spec.user, spec.labels)

    def klass_of(self, name: str) -> JobClass:
        """A class by name; an unknown or empty name means the default class."""
        return self.classes.get(name) or self.classes[self.settings.default_class]

    def klass_for(self, spec: JobSpec) -> JobClass:
        """The class of a job, with the priority that the pools have that it names: a tier before all classes."""
        klass, walls = self.klass_of(spec.klass), self.walls
        if walls is None or not walls.ranked or spec.origin or not (tier := walls.tier_of(spec.ask)):
            return klass
        return replace(klass, priority=klass.priority + tier * PRIORITY_TIER)

    def model_number(self, name: str) -> int:
        """A GPU model's number, assigned when the model is first seen."""
        number = self.models.get(name)
        if number is None:
            number = self.models[name] = len(self.models)
            self.weights.append(self._weight(name))
            # Quotas have a column per model. Models appear while the fleet is set up, before tenants count much.
            self.configure(self.settings)
        return number

    @property
    def today(self) -> int:
        """The day of the last event, in days since 1970."""
        return self.now_ms // DAY_MS

    # -- queue -------------------------------------------------------------------------------------------------

    def defer(self, record: JobRecord) -> None:
        """Keep a pending job out of the queue, until its begin time if it has one."""
        self.deferred[record.id] = record
        if record.begin_ms:
            heappush(self._begins, (record.begin_ms, record.id))

    def _next_begin(self) -> list[int]:
        """The earliest begin time that time alone will bring, if there is one."""
        # A look at every deferred job would take longer than the rest of a step where 100,000 are held.
        begins = self._begins
        while begins:
            begin_ms, job_id = begins[0]
            record = self.deferred.get(job_id)
            if record is not None and record.begin_ms == begin_ms and record.only_begins:
                return [begin_ms]
            heappop(begins)
        return []

    def reindex(self, order: Order) -> None:
        """Sort the waiting jobs in another order. The queue is an index: nothing that is dumped changes."""
        self.queue = WaitQueue(order, self.tenants)
        for job_id in sorted(self.jobs):
            record = self.jobs[job_id]
            if record.state is JobState.PENDING and job_id not in self.deferred:
                self.queue.add(record)

    def recount(self) -> None:
        """Count all jobs that wait: after a change of the tenants, or of the jobs other than by an event."""
        before, self.counts = self.counts, Counts(self.settings.recipes_mib_per_user << 20)
        self.counts.count_ended(before.all_ended(self.now_ms))
        self.intake.clear()
        for record in self.jobs.values():
            self.count(record)

    def count(self, record: JobRecord) -> None:
        """Count a job that no event brought: one that is counted again, or comes from a dump."""
        record.count = self.counts.find(record.leaf, record.job.spec.user, record.shape.gpu_milli)
        if record.phase is None:
            record.count.jobs += 1
            record.count.of_user.jobs += 1
        if record.job.spec.recipe_bytes:
            record.count.of_user.keep(record.job.spec, 1)

    def take_in(self, spec: JobSpec) -> Intake:
        """What a spec means under the settings in force: shape, class, tenant, and whether it has dependencies."""
        tenants = len(self.tenants.number)
        leaf, party = self.place_of(spec)
        if len(self.tenants.number) != tenants:
            # The tree has grown: a former leaf may have members now.
            self.intake.clear()
        if len(self.intake) >= _INTAKE_MAX:
            self.intake.clear()
        shape = self.shape_of(spec.ask)
        user, gpu_milli = spec.user, shape.gpu_milli
        count = self.counts.known.get((leaf, user, gpu_milli)) or self.counts.find(leaf, user, gpu_milli)
        known = (spec, shape, self.klass_for(spec), leaf, party, bool(spec.after), count)
        self.intake[id(spec)] = known
        return known

    def shape_of(self, ask: Ask) -> Shape:
        """An ask, compiled."""
        return self.shapes.of(ask, self.nodes, self.weights)

    def shape_for(self, spec: JobSpec, limit_ms: int) -> Shape:
        """The ask of a job with this time limit, compiled for the pools that are open to it."""
        walls = self.walls
        if walls is None or spec.origin:
            # A job of another scheduler is where that one put it.
            return self.shape_of(spec.ask)
        closed = walls.closed_to(self.asker_of(spec), limit_ms)
        return self.shapes.behind(spec.ask, closed, self.nodes, self.weights)

    def ways_without_walls(self, shape: Shape) -> list[Way]:
        """The ways that a job would have if no pool had a wall."""
        return self.shapes.list_without_walls(shape, self.nodes, self.weights)

    def open_pools(self, shape: Shape) -> tuple[str, ...]:
        """The pools, named by the job or not, that could hold it and take it."""
        anywhere = self.shapes.behind(replace(shape.ask, pools=()), shape.closed, self.nodes, self.weights)
        members = 0
        for way in anywhere.ways:
            members |= self.nodes.kinds[way.kind].members & way.pools
        return tuple([pool for pool, there in sorted(self.nodes.by_pool.items()) if there & members])

    def limit_for(self, spec: JobSpec, limit_ms: int) -> int:
        """The time limit of a job that asks for this one; 0: it names none."""
        most_ms = self.klass_of(spec.klass).limit_ms
        if limit_ms:
            return min(limit_ms, most_ms)
        walls = self.walls
        if walls is None or not walls.timed or spec.origin:
            return most_ms
        open_to = self.shapes.behind(
            spec.ask, walls.closed_to(self.asker_of(spec), 0), self.nodes, self.weights
        )
        return walls.default_ms(self.nodes, open_to, most_ms)

    def asker_of(self, spec: JobSpec) -> Asker:
        """Whose a job is, as walls see it."""
        return Asker(spec.tenant, spec.user, spec.groups, self.klass_of(spec.klass).name)

    def wall_in(self, record: JobRecord) -> None:
        """Give a new job the time limit that its pools give it, and the pools that are open to it."""
        spec = record.job.spec
        record.limit_ms = record.estimate_ms = self.limit_for(spec, record.job.limit_ms)
        record.shape = self.shape_for(spec, record.limit_ms)

    @property
    def demand(self) -> tuple[tuple[Ask, int], ...]:
        """The mix of asks to expect, each with its weight."""
        return self._demand

    @demand.setter
    def demand(self, asks: tuple[tuple[Ask, int], ...]) -> None:
        self._demand = asks
        mix = [(self.shape_of(ask), weight) for ask, weight in asks if weight > 0]
        self.nodes.expect(Expected(mix) if mix else None)

    def _requires_for_a_time(self) -> bool:
        """Whether any job waits for near nodes that will take others after a time."""
        return self.shapes.timed and any(
            [each.shape.ask.level_ms and each.state is JobState.PENDING for each in self.jobs.values()]
        )

    def relax_levels(self) -> None:
        """Let jobs take nodes further apart that have waited as long for near ones as they wanted to.

        As with turns, what counts is the time at which the current period began: until it ends nothing changes.
        """
        begun_ms, all_jobs = self.tenants.period_start_ms, self.jobs.values() if self.shapes.timed else ()
        for record in [each for each in all_jobs if each.has_waited_for_level(begun_ms)]:
            waits = self.queue.alone is record or record.entry != ()
            if waits:
                self.queue.remove(record)
            self.relax_level(record)
            if waits:
                self.queue.add(record)

    def relax_level(self, record: JobRecord) -> None:
        """Let one job take nodes further apart, if it is time; it is in no queue."""
        if record.has_waited_for_level(self.tenants.period_start_ms):
            ask = replace(record.shape.ask, level_required=False, level_ms=0)
            record.shape = self.shapes.behind(ask, record.shape.closed, self.nodes, self.weights)

    def recompile(self) -> None:
        """Recompute what depends on nodes, on the abilities of their engines or on weights, after a change of one."""
        self.nodes.marks.renew(self.settings, self.now_ms)
        self.evicts = bool(self.nodes.marks.since_ms)
        self.shapes.refresh(self.nodes, self.weights)
        self.demand = self._demand
        self.caches.clear()
        self._prices_known.clear()
        self._drop_lost_earmarks()

    def reserve_for_gpus(self, number: int) -> None:
        """Reserve cores and memory of a node for its GPUs, as the settings say of its pool."""
        node = self.nodes.node[number]
        reserve = self.settings.reserves.get(f"{node.cluster}/{node.pool}")
        held = [grant for _end_ms, grant in self.nodes.attempts_on[number].values()]
        kept = [record.earmark for record in self.earmarks.values() if record.earmark]
        held += [grant for earmark in kept for grant in earmark.grants if grant.node == number]
        self.nodes.reserve(number, reserve, held)

    def most_free(self) -> int:
        """The largest number of wholly free GPUs on one schedulable node."""
        most = 0
        for kind in self.nodes.kinds:
            free = kind.most if kind.most >= 0 else kind.most_free()
            if free > most:
                most = free
        return most

    def hopeless(self, shape: Shape) -> bool:
        """Whether a quick check shows that there is no room. False may still mean that there is none."""
        generation, no_room, kinds = self.nodes.room_generation, self.no_room, self.nodes.kinds
        for way in shape.ways:
            if no_room.get(way.index) == generation:
                continue
            kind = kinds[way.kind]
            if way.node_gpus <= (kind.most if kind.most >= 0 else kind.most_free()) and not (
                way.full_nodes > 1 and way.node_gpus and kind.too_few(way.node_gpus, way.full_nodes)
            ):
                return False
        return True

    # -- attempts ----------------------------------------------------------------------------------------------

    def hold(self, record: JobRecord, grants: tuple[Grant, ...], at_ms: int) -> bool:
        """Give an attempt its room and count it; False, and nothing changes, if the room is not there."""
        nodes, tenants, shape, party = self.nodes, self.tenants, record.shape, record.party
        end_ms = at_ms + record.estimate_ms
        kind = nodes.place(grants, end_ms, record.id)
        if kind < 0:
            return False
        usage = shape.usages[kind].get(party)
        if usage is None:
            # Not by a way: another scheduler starts its jobs where it likes.
            of_kind = nodes.kinds[kind]
            rate = rate_on(shape, of_kind, self.weights[of_kind.model])
            usage = shape.usages[kind][party] = UsageDelta(
                party, of_kind.model, shape.gpu_milli, rate, shape.measure
            )
        record.grants = grants
        record.started_ms = at_ms
        record.end_ms = end_ms
        record.usage = usage
        if tenants.at_once:
            tenants.move(party, usage.model, usage.milli, usage.rate, at_ms, 1, usage.measure)
            if tenants.budgeted:
                tenants.commit(party, usage.milli, self.micro_of(record), record.limit_ms)
            return True
        usage.jobs += 1
        usage.since_ms += at_ms
        if usage.settled:
            tenants.settle_later(usage)
        return True

    def unhold(self, record: JobRecord, at_ms: int) -> None:
        """The exact inverse of `hold` at the same time."""
        self.release(record, at_ms)
        self.nodes.gain_nothing()
        record.clear()

    def release(self, record: JobRecord, at_ms: int) -> None:
        """An attempt ended: free its room and count its use. The record still shows what it held."""
        tenants, usage = self.tenants, record.usage
        self.nodes.lift(record.grants, record.id)
        if tenants.at_once:
            stranded = self.stranded_milli(record) if tenants.holding else 0
            tenants.move(usage.leaf, usage.model, usage.milli, usage.rate, at_ms, -1, usage.measure, stranded)
            if tenants.budgeted:
                micro = self.micro_of(record)
                tenants.commit(usage.leaf, usage.milli, micro, -record.limit_ms)
                if at_ms != record.started_ms:
                    user = record.job.spec.user
                    tenants.spent(usage.leaf, usage.milli, micro, record.started_ms, at_ms, user)
            return
        usage.jobs -= 1
        usage.since_ms -= at_ms
        if usage.settled:
            tenants.settle_later(usage)

    def _drop_lost_earmarks(self) -> None:
        """Drop the earmarks on nodes where their jobs may no longer start: they would only keep GPUs idle."""
        for record in [self.earmarks[job_id] for job_id in sorted(self.earmarks)]:
            if record.earmark is None:
                continue
            numbers = [grant.node for grant in record.earmark.grants]
            ways = [way for way in record.shape.ways if way.kind == self.nodes.kind[numbers[0]]]
            if not any(
                len(numbers) <= way.nodes_max and all([way.pools >> number & 1 for number in numbers])
                for way in ways
            ):
                self.drop_earmark(record)

    def drop_earmark(self, record: JobRecord) -> None:
        """Drop the job's earmark, if it has one."""
        if record.earmark is not None:
            self.nodes.give(record.earmark.grants)
            self.nodes.gain_room()
            record.earmark = None
            del self.earmarks[record.id]
            self.touch(record)

    def touch(self, record: JobRecord) -> None:
        """Something about a job is otherwise than before."""
        if self.touched is not None:
            self.touched.add(record.id)

    def recharge(self, record: JobRecord, at_ms: int) -> None:
        """The GPUs of a running attempt have a new name: from now on it counts under that name, at its rate."""
        tenants, before, stranded = self.tenants, record.usage, self.stranded_milli(record)
        kind = self.nodes.kind_of[record.grants[0].node]
        rate = rate_on(record.shape, kind, self.weights[kind.model])
        tenants.move(
            before.leaf, before.model, before.milli, before.rate, at_ms, -1, before.measure, stranded
        )
        record.usage = UsageDelta(before.leaf, kind.model, before.milli, rate, before.measure)
        tenants.move(before.leaf, kind.model, before.milli, rate, at_ms, 1, before.measure, stranded)
        if tenants.priced:
            # Its node has another price by now: set aside anew what everything that runs may spend.
            tenants.uncommit()
            self._prices_known.clear()
            for other in self.running.values():
                tenants.commit(other.party, other.shape.gpu_milli, self.micro_of(other), other.limit_ms)

    def backdate(self, record: JobRecord, started_ms: int) -> None:
        """An attempt began earlier than it was told: it is charged from then on."""
        tenants, usage = self.tenants, record.usage
        tenants.move(usage.leaf, usage.model, usage.milli, usage.rate, record.started_ms, -1, usage.measure)
        tenants.move(usage.leaf, usage.model, usage.milli, usage.rate, started_ms, 1, usage.measure)
        if tenants.budgeted:
            tenants.commit(usage.leaf, usage.milli, self.micro_of(record), -record.limit_ms)
        record.started_ms = started_ms
        if tenants.budgeted:
            tenants.commit(usage.leaf, usage.milli, self.micro_of(record), record.limit_ms)
        self.expect_end(record, started_ms + record.estimate_ms)

    def _count(self, record: JobRecord, at_ms: int, sign: int) -> None:
        """Enter what it uses in the books of its tenants, or take it out, from a time on."""
        usage, stranded_milli = record.usage, self.stranded_milli(record)
        self.tenants.move(
            usage.leaf, usage.model, usage.milli, usage.rate, at_ms, sign, usage.measure, stranded_milli
        )

    def leave_off(self, record: JobRecord, at_ms: int) -> None:
        """Count a running attempt up to a time, and no further until `go_on`."""
        usage, tenants = record.usage, self.tenants
        self._count(record, at_ms, -1)
        if tenants.budgeted:
            tenants.commit(usage.leaf, usage.milli, self.micro_of(record), -record.limit_ms)

    def go_on(self, record: JobRecord, at_ms: int, later_ms: int) -> None:
        """Count it on from a time; everything about it happened that much later, by the clock in force now."""
        usage, tenants = record.usage, self.tenants
        record.delay(later_ms)
        self._count(record, at_ms, 1)
        if tenants.budgeted:
            tenants.commit(usage.leaf, usage.milli, self.micro_of(record), record.limit_ms)
        self.expect_end(record, record.end_ms + later_ms)
        # Stopping it costs less than it seemed: caches go by the nodes.
        self.nodes.touch(record.grants)
        self.touch(record)

    def stranded_milli(self, record: JobRecord) -> int:
        """What a running job has on nodes that are down, where that matters: while any tenant holds GPUs back."""
        nodes, shape = self.nodes, record.shape
        if not (self.tenants.holding and nodes.closed_count):
            return 0
        tasks = sum([grant.tasks for grant in record.grants if nodes.down[grant.node]])
        return shape.gpu_milli // shape.tasks * tasks

    def set_down(self, number: int, why: str) -> None:
        """Mark a node down (or up again with an empty `why`): what runs there is held against no node that is up."""
        there = [self.running[job_id] for job_id in sorted(self.nodes.attempts_on[number])]
        before = [self.stranded_milli(record) for record in there]
        self.nodes.set_down(number, why)
        if self.tenants.holding:
            for record, milli in zip(there, before, strict=True):
                usage = record.usage
                self.tenants.claim(usage.leaf, usage.model, milli - self.stranded_milli(record))
            if self.moved is not None:
                self.moved += [record.id for record in there]

    def expect_end(self, record: JobRecord, end_ms: int) -> None:
        """Note a new expected end of a running attempt."""
        self.nodes.expect_end(record.grants, record.id, end_ms)
        record.end_ms = end_ms
        if self.moved is not None:
            self.moved.append(record.id)

    # -- time --------------------------------------------------------------------------------------------------

    def find_leaving(self) -> Iterator[tuple[int, JobRecord]]:
        """The running attempts that a taint of one of their nodes stops, with the time: a gang goes as a whole."""
        marks = self.nodes.marks
        numbers = sorted({number for number, _key in marks.since_ms})
        for job_id in sorted({job_id for number in numbers for job_id in self.nodes.attempts_on[number]}):
            record = self.jobs[job_id]
            if record.phase not in _STOPPABLE or record.job.spec.elsewhere:
                continue
            tolerates = record.shape.ask.tolerates
            due = [marks.leaving_ms(grant.node, tolerates, record.started_ms) for grant in record.grants]
            if times := [each for each in due if each is not None]:
                yield min(times), record

    def wake_ms(self) -> int | None:
        """When time alone may change a decision: a begin time, an earmark's expiry, shares or budgets."""
        times = [r.earmark.expires_ms for r in self.earmarks.values() if r.earmark]
        times += self._next_begin()
        if self.evicts:
            times += [due_ms for due_ms, _record in self.find_leaving() if due_ms > self.now_ms]
        tenants, queue = self.tenants, self.queue
        fair = queue.order.fair and (self.running or tenants.usage[0])
        if queue.count and (tenants.budgeted or fair or self._requires_for_a_time()):
            times.append(tenants.due_ms)
        return min(times) if times else None
