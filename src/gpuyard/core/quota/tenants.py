"""The tenant tree as columns: what is used, what was used (`usage`), and what may be used."""

from collections.abc import Iterator

from gpuyard.core.quota.budgets import Labels, Spend, is_about, make_spend
from gpuyard.core.quota.percentages import Gpus, resolve
from gpuyard.core.quota.usage import DecayedUsage, UsageDelta
from gpuyard.model import Bounds, ClassLimit, Quota, ReasonCode, Settings, Tenant
from gpuyard.model.settings import TOTAL
from gpuyard.model.units import MILLI

ROOT = 0
UNLIMITED = 1 << 62
_PER_USER = ReasonCode.PER_USER
Measure = tuple[int, int]
"""Cores (milli) and memory (MiB) of all tasks of a job."""
UNMEASURED: Measure = (UNLIMITED, UNLIMITED)
_SCALE = 16
"""Bits by which usage is shifted before it is divided by a weight."""


class Tenants:
    """All tenants by number; 0 is the root. Column 0 of a quota is the total, column 1 + m is GPU model m.

    Nothing outside of this class writes to its columns.
    """

    def __init__(self, settings: Settings, models: dict[str, int], gpus: Gpus) -> None:
        """`gpus`: those of nodes that exist, of which percentages are a part."""
        self.settings = settings
        self._gpus = gpus
        self.measured = any(
            [
                each.quota.max_cpu_milli is not None or each.quota.max_memory_mib is not None
                for each in settings.tenants
            ]
        )
        """Whether any tenant has a limit on cores or memory: nobody counts them otherwise."""
        self.in_percent: list[Tenant] = [each for each in settings.tenants if each.quota.percentages]
        """The tenants with a quota in percent."""
        self.models = models
        self.number: dict[str, int] = {"": ROOT}
        self.path: list[str] = []
        self.parent: list[int] = []
        self.chain: list[tuple[int, ...]] = []
        """Each tenant's path to the root: itself first, the root last."""
        self.children: list[list[int]] = []
        self.weight: list[int] = []
        self.guarantee: list[list[int]] = []
        self.limit: list[list[int]] = []
        self.ceiling: list[list[int]] = []
        """Guarantee plus what may be borrowed."""
        self.held_back: list[list[int]] = []
        """Guarantee that is not lent: other tenants may not use it even while it is idle."""
        self.max_job: list[int] = []
        self.max_running: list[int] = []
        self.most: list[Measure] = []
        """The most cores and memory of what runs."""
        self.measure: list[list[int]] = []
        """Cores (milli) and memory (MiB) of what runs, where they are measured."""
        self.spend: list[Spend | None] = []
        self._spending: list[tuple[Spend, ...]] = []  # the budgets on each row's path to the root
        self._counting: list[tuple[int, ...]] = []  # the path without named budgets, which count no GPUs
        self._used: list[list[int]] = []
        self.claimed: list[list[int]] = []
        """On nodes that are up: the sum over children (a leaf: its use) of the larger of claim and held back."""
        self._idle_claims: list[list[int]] = []
        """The same with nothing in use."""
        self._running: list[int] = []
        self._decayed = DecayedUsage(settings, self.chain)
        self.unsettled: list[UsageDelta] = []
        """Bills with changes that are not in these columns yet."""
        self.fair_key: list[int] = []
        """Usage, the current period included, divided by weight: the smallest goes first."""
        self._no_rules()
        self._no_people(settings)
        self._add("", ROOT, Tenant(""))
        self._set_up(settings)

    def _no_rules(self) -> None:
        """Begin without rules and budgets."""
        self._has_rule: list[bool] = []
        self._ruling: list[tuple[int, ...]] = []
        """The tenants and seats with a rule of their own, on each tenant's path to the root."""
        self._stopping: list[tuple[tuple[int, Spend], ...]] = []  # the named budgets that may refuse its jobs
        self.guarded: list[bool] = []
        """Whether a rule applies to a tenant or above it."""
        self.ruled = False
        """Whether any tenant has a rule."""
        self.holding = False
        """Whether any tenant holds GPUs back."""
        self.guaranteed: list[bool] = []
        """Whether a tenant or one above it has a guarantee."""
        self.budgeted = False
        """Whether there is any budget."""
        self.priced = False
        """Whether any budget is of money."""
        self.softened: list[Spend] = []
        """The budgets whose jobs go behind all others once they are spent."""
        self.budget_row: dict[str, int] = {}
        """The row of each named budget: a row like those of tenants, but of no tenant."""
        self._keyed = False
        self.at_once = False
        """Whether changes enter the columns at once, because every decision reads them."""
        self.period_start_ms = 0
        self.due_ms = 0
        """When a period or a budget's window next ends. An event at or after that time closes it first."""

    def _no_people(self, settings: Settings) -> None:
        """Begin without seats and parties."""
        self._by_path = {tenant.path: tenant for tenant in settings.tenants}
        self.per_user: dict[int, Quota] = {}
        """By tenant: what each user may have of everything below it."""
        self.seats: dict[tuple[int, str, str], int] = {}
        """The row of one user's use under one rule, by the tenant that has the rule, the user, or the leaf of jobs
        without a user. A row like those of tenants, but of no tenant."""
        self.rule_of: dict[int, int] = {}
        """By seat: the tenant that has the rule."""
        self.per_job: dict[int, dict[str, Bounds]] = {}
        """By tenant: what one job may ask for. Admission alone looks at it."""
        self.refusing: dict[int, Quota] = {}
        """By tenant: quotas by which jobs are refused when they are submitted."""
        self.per_class: dict[int, dict[str, ClassLimit]] = {}
        """By tenant: what jobs of a class may have, at or below it."""
        self.class_of: dict[int, tuple[int, str]] = {}
        """By seat of a class: the tenant that has the rule, and the class."""
        self._class_seats: dict[tuple[int, str], int] = {}
        self._parties: dict[tuple[int, str, str, tuple[int, ...]], int] = {}
        self._outside = -1

    def _set_up(self, settings: Settings) -> None:
        """Enter the tenants, rules about users and budgets of settings."""
        for tenant in sorted(settings.tenants, key=lambda t: t.path):
            number = self.find(tenant.path)
            if tenant.quota.classes:
                self.per_class[number] = tenant.quota.classes
            if tenant.quota.per_job:
                self.per_job[number] = tenant.quota.per_job
            if tenant.quota.refuses or tenant.quota.max_jobs is not None:
                self.refusing[number] = tenant.quota
            if tenant.quota.max_gpus_per_user is not None:
                self.per_user[number] = Quota(limit={TOTAL: tenant.quota.max_gpus_per_user})
        if settings.attempts_per_user:
            self.per_user[ROOT] = Quota(max_running_jobs=settings.attempts_per_user)
        if self.per_user or self.per_class:
            self.ruled = self.at_once = True
        for rule in sorted(settings.budgets, key=lambda each: each.name):
            self.budget_row[rule.name] = self._append(rule.name, ROOT, (), Tenant(""), make_spend(rule))
        self._refresh_held_back()

    def take_over(self, old: "Tenants", now_ms: int) -> None:
        """Go on with what was used and spent under earlier settings."""
        period_ms = self.settings.period_ms
        same = old.settings.period_ms == period_ms
        self.begin_period(old.period_start_ms if same else now_ms // period_ms * period_ms)
        for number, path in old.places():
            fresh = self.find(path)
            # Running jobs count from the start of a period; if it moves later, add what they used before it.
            before_ms = self.period_start_ms - old.period_start_ms
            self.resume(fresh, old.usage[number], old.accrued[number] + old.rate[number] * before_ms)
            before, after = old.spend[number], self.spend[fresh]
            if before is not None and after is not None:
                after.keep(before)
        for name, number in self.budget_row.items():
            row, after = old.budget_row.get(name), self.spend[number]
            before = None if row is None else old.spend[row]
            if after is not None:
                after.open(now_ms)
                if before is not None:
                    after.keep(before)

    def begin_period(self, at_ms: int) -> None:
        """The current period began then."""
        self.period_start_ms = at_ms

    def resume(self, number: int, usage: int, accrued: int) -> None:
        """Go on with what a tenant has used, before any attempt counts."""
        self.usage[number], self.accrued[number] = usage, accrued

    # -- the tree ----------------------------------------------------------------------------------------------

    def find(self, path: str) -> int:
        """A tenant's number; a tenant without configuration joins the tree below its parent with weight 1."""
        number = self.number.get(path)
        if number is None:
            parent = self.find(path.rpartition("/")[0])
            number = self._add(path, parent, self._by_path.get(path) or Tenant(path))
        return number

    def leaf(self, path: str) -> int:
        """The tenant under which jobs of this path are counted: jobs live on leaves.

        A team that has members gets a member `-` for the jobs submitted as the team itself, so that they compete
        with the members' jobs instead of going before them.
        """
        number = self.find(path)
        return self.find(f"{path}/-") if self.children[number] and path else number

    def party(self, leaf: int, klass: str, user: str, labels: Labels = ()) -> int:
        """The row for a job's quotas: its tenant's and, where a rule limits each user, its user's too.

        Its chain holds the named budgets that count it, the seats of its user and its class and then the tenants;
        without any of them it is the tenant itself. A job without a user, as in a trace, counts for its leaf, under the
        rules of the tenants above that.
        """
        budgets: tuple[int, ...] = ()
        if self.budget_row:
            path, rules = self.path[leaf], self.settings.budgets
            budgets = tuple(
                [self.budget_row[r.name] for r in rules if is_about(r, path, klass, user, labels)]
            )
        if not self.per_user and not self.per_class and not budgets:
            return leaf
        user, klass = user if self.per_user else "", klass if self.per_class else ""
        known = self._parties.get((leaf, user, klass, budgets))
        if known is not None:
            return known
        chain = self.chain[leaf]
        having = [number for number in (chain if user else chain[1:]) if number in self.per_user]
        found = leaf
        classes = [number for number in chain if klass in self.per_class.get(number, {})]
        if having or classes or budgets:
            seats = [self._seat(rule, user, "" if user else self.path[leaf]) for rule in having]
            seats += [self._class_seat(rule, klass) for rule in classes]
            found = self._append(user or self.path[leaf], leaf, (*budgets, *seats, *chain), Tenant(""))
            # The row itself has no quota and no use: it only leads to the others.
            self.chain[found] = (*budgets, *seats, *chain)
            self._counting[found] = (*seats, *chain)
            self.guarded[found] = True
        self._parties[leaf, user, klass, budgets] = found
        return found

    def outside(self) -> int:
        """The row for jobs that count for no tenant: those of observed clusters. No rule applies to it."""
        if self._outside < 0:
            self._outside = self._append("", ROOT, (), Tenant(""))
            self.guarded[self._outside] = self.guaranteed[self._outside] = False
        return self._outside

    def _seat(self, rule: int, user: str, leaf: str) -> int:
        key = (rule, user, leaf)
        seat = self.seats.get(key)
        if seat is None:
            seat = self.seats[key] = self._append(
                user or leaf, ROOT, (), Tenant("", quota=self.per_user[rule])
            )
            self.rule_of[seat] = rule
        return seat

    def _class_seat(self, rule: int, klass: str) -> int:
        seat = self._class_seats.get((rule, klass))
        if seat is None:
            given = self.per_class[rule][klass]
            quota = Quota(
                {}, {} if given.milli is None else {TOTAL: given.milli}, max_running_jobs=given.running
            )
            name = f"{self.path[rule]} ({klass})"
            seat = self._class_seats[rule, klass] = self._append(name, ROOT, (), Tenant("", quota=quota))
            self.class_of[seat] = rule, klass
        return seat

    def places(self) -> Iterator[tuple[int, str]]:
        """Every tenant's number and path, without the rows of seats and parties."""
        for path, number in self.number.items():
            yield number, path

    def count_below(self, number: int) -> int:
        """How many tenants there are below one."""
        found = list(self.children[number])
        for each in found:
            found += self.children[each]
        return len(found)

    def _add(self, path: str, parent: int, tenant: Tenant) -> int:
        number = self.number[path] = len(self.path)
        self._append(path, parent, () if number == ROOT else self.chain[parent], tenant)
        if number != ROOT:
            self.children[parent].append(number)
        return number

    def _append(
        self, path: str, parent: int, above: tuple[int, ...], tenant: Tenant, spend: Spend | None = None
    ) -> int:
        """Add a row to every column, with its path to the root."""
        number = len(self.path)
        columns = 1 + len(self.models)
        quota = tenant.quota
        guarantee, limit, ceiling, held_back = self._amounts(quota)
        self.path.append(path)
        self.parent.append(parent)
        self.chain.append((number, *above))
        self.children.append([])
        self.weight.append(tenant.weight)
        self.guarantee.append(guarantee)
        self.limit.append(limit)
        self.ceiling.append(ceiling)
        self.held_back.append(held_back)
        self.max_job.append(UNLIMITED if quota.max_gpus_per_job is None else quota.max_gpus_per_job)
        self.max_running.append(UNLIMITED if quota.max_running_jobs is None else quota.max_running_jobs)
        cpu_milli, memory_mib = quota.max_cpu_milli, quota.max_memory_mib
        self.most.append(
            (
                UNLIMITED if cpu_milli is None else cpu_milli,
                UNLIMITED if memory_mib is None else memory_mib,
            )
        )
        self.measure.append([0, 0])
        if tenant.budget is not None:
            spend = Spend(tenant.budget.gpu_ms * MILLI, tenant.budget.window_ms)
        self.spend.append(spend)
        above_all = [self.spend[each] for each in self.chain[number]]
        self._spending.append(tuple([each for each in above_all if each is not None]))
        named = set(self.budget_row.values())
        stopping = [(each, self.spend[each]) for each in self.chain[number] if each in named]
        self._stopping.append(
            tuple([(each, found) for each, found in stopping if found is not None and not found.soft])
        )
        self._counting.append(tuple([each for each in self.chain[number] if each not in named]))
        if spend is not None:
            self.budgeted = True
            self.priced = self.priced or spend.of_money
            self.softened += [spend] if spend.softens else []
        promised = any(guarantee) or "guarantee" in quota.percentages
        self.guaranteed.append(promised or (number != ROOT and self.guaranteed[parent]))
        self._used.append([0] * columns)
        self.claimed.append([0] * columns)
        self._idle_claims.append([0] * columns)
        self._decayed.add()
        for column in (self._running, self.fair_key):
            column.append(0)
        own = (
            any(v != UNLIMITED for v in (*limit, *ceiling))
            or self.max_job[number] != UNLIMITED
            or self.max_running[number] != UNLIMITED
            or self.most[number] != UNMEASURED
            or spend is not None
        )
        self.guarded.append(own or (number != ROOT and self.guarded[parent]))
        self._has_rule.append(own)
        self._ruling.append(tuple([each for each in self._counting[number] if self._has_rule[each]]))
        self.ruled = self.ruled or own
        if not self.at_once and (own or self.guaranteed[number]):
            self._catch_up()
            self.at_once = True
        return number

    def _amounts(self, quota: Quota) -> tuple[list[int], list[int], list[int], list[int]]:
        """A quota in columns: guarantee, limit, ceiling, and what is held back."""
        quota = resolve(quota, self._gpus)
        guarantee, limit = self._columns(quota.guarantee, 0), self._columns(quota.limit, UNLIMITED)
        borrow, lend = self._columns(quota.borrow, UNLIMITED), self._columns(quota.lend, UNLIMITED)
        ceiling = [min(UNLIMITED, g + b) for g, b in zip(guarantee, borrow, strict=True)]
        return guarantee, limit, ceiling, [max(0, g - give) for g, give in zip(guarantee, lend, strict=True)]

    def refit(self, gpus: Gpus) -> bool:
        """Work out percentages anew, of these GPUs. False: what is held back changes, so all is to be built anew."""
        self._gpus = gpus
        for tenant in self.in_percent:
            number = self.number[tenant.path]
            guarantee, limit, ceiling, held_back = self._amounts(tenant.quota)
            if held_back != self.held_back[number]:
                return False
            self.guarantee[number], self.limit[number], self.ceiling[number] = guarantee, limit, ceiling
        return True

    def _columns(self, amounts: dict[str, int], default: int) -> list[int]:
        row = [default] * (1 + len(self.models))
        for name, amount in amounts.items():
            if name == TOTAL:
                row[0] = amount
            elif name in self.models:
                row[1 + self.models[name]] = amount
        return row

    def nearest(self, path: str) -> int:
        """A tenant, or the lowest tenant above it that is in the tree; adds no tenant."""
        while path not in self.number:
            path = path.rpartition("/")[0]
        return self.number[path]

    def user_limit(self, chain: tuple[int, ...]) -> int:
        """The tightest `max_gpus_per_user` of these tenants."""
        rules = [self.per_user[number] for number in chain if number in self.per_user]
        return min([rule.limit.get(TOTAL, UNLIMITED) for rule in rules], default=UNLIMITED)

    def _refresh_held_back(self) -> None:
        self.holding = any(any(row) for row in self.held_back)
        if self.holding:
            # Children have higher numbers than their parents, so one pass from the back sums up the tree.
            for number in range(len(self.path) - 1, ROOT, -1):
                for column, held in enumerate(self.held_back[number]):
                    self.claimed[self.parent[number]][column] += max(self.claimed[number][column], held)
            self._idle_claims = [list(row) for row in self.claimed]

    # -- what starts and ends ----------------------------------------------------------------------------------

    def move(
        self,
        leaf: int,
        model: int,
        milli: int,
        rate: int,
        at_ms: int,
        sign: int,
        measure: Measure,
        stranded: int = 0,
    ) -> None:
        """An attempt takes GPUs, cores and memory (`sign` 1) or gives them back (-1). At the same time, the two cancel
        out.

        `stranded` of the milli-GPU are on nodes that are down.
        """
        if self.measured:
            cpu_milli, memory_mib = measure
            for number in self._counting[leaf]:
                row = self.measure[number]
                row[0] += sign * cpu_milli
                row[1] += sign * memory_mib
        if sign < 0:
            milli, rate, stranded = -milli, -rate, -stranded
        offset = rate * (at_ms - self.period_start_ms)
        if not self.at_once:
            self._enter(leaf, model, milli, sign, rate, -offset)
            return
        # Nothing is waiting to be entered: write to the columns directly.
        decayed, column, chain = self._decayed, 1 + model, self._counting[leaf]
        used_of, running, rates, accrued = self._used, self._running, decayed.rate, decayed.accrued
        keyed, usage, weight, keys = self._keyed, decayed.usage, self.weight, self.fair_key
        period_ms = self.settings.period_ms
        for number in chain:
            used = used_of[number]
            used[0] += milli
            used[column] += milli
            running[number] += sign
            rates[number] = total = rates[number] + rate
            accrued[number] -= offset
            if keyed:
                keys[number] = (usage[number] + total * period_ms << _SCALE) // weight[number]
        if self.holding:
            self.claim(leaf, model, milli - stranded)

    def _enter(self, leaf: int, model: int, milli: int, jobs: int, rate: int, accrued: int) -> None:
        """Count a change for a tenant and for all tenants above it."""
        column = 1 + model
        used_of, running = self._used, self._running
        for number in self.chain[leaf]:
            used = used_of[number]
            used[0] += milli
            used[column] += milli
            running[number] += jobs
        self._decayed.enter(leaf, rate, accrued)

    def settle_later(self, usage: UsageDelta) -> None:
        """A charge has changes that are not in these columns yet."""
        usage.settled = False
        self.unsettled.append(usage)

    def _settle(self) -> None:
        """Enter the usage deltas, before the columns are read."""
        start_ms = self.period_start_ms
        sums: dict[tuple[int, int], list[int]] = {}
        for usage in self.unsettled:
            jobs, rate = usage.jobs, usage.rate
            accrued = rate * (jobs * start_ms - usage.since_ms)
            row = sums.get(usage.key)
            if row is None:
                sums[usage.key] = [usage.milli * jobs, jobs, rate * jobs, accrued]
            else:
                row[0] += usage.milli * jobs
                row[1] += jobs
                row[2] += rate * jobs
                row[3] += accrued
            usage.jobs = usage.since_ms = 0
            usage.settled = True
        self.unsettled.clear()
        for (leaf, model), row in sums.items():
            self._enter(leaf, model, *row)

    def _catch_up(self) -> None:
        """Enter all noted changes and close the periods that no read has closed so far."""
        if self.unsettled:
            self._settle()
        self._decayed.catch_up()

    @property
    def used(self) -> list[list[int]]:
        """Milli-GPU held, in total and by model."""
        if self.unsettled:
            self._settle()
        return self._used

    @property
    def running(self) -> list[int]:
        """Jobs that hold GPUs."""
        if self.unsettled:
            self._settle()
        return self._running

    @property
    def rate(self) -> list[int]:
        """Charge per millisecond of the attempts that run now."""
        if self.unsettled or self._decayed.log:
            self._catch_up()
        return self._decayed.rate

    @property
    def accrued(self) -> list[int]:
        """Correction for attempts that started or ended inside the current period."""
        if self.unsettled or self._decayed.log:
            self._catch_up()
        return self._decayed.accrued

    @property
    def usage(self) -> list[int]:
        """Decayed charge of closed periods."""
        if self._decayed.log:
            self._catch_up()
        return self._decayed.usage

    def commit(self, leaf: int, milli: int, micro: int, ms: int) -> None:
        """An attempt of these rates may spend that long of every budget that counts it; below 0: no longer."""
        for spend in self._spending[leaf]:
            spend.committed += (micro if spend.of_money else milli) * ms

    def uncommit(self) -> None:
        """Running attempts may spend nothing, until each is committed anew."""
        for spend in self.spend:
            if spend is not None:
                spend.committed = 0

    def spent(self, leaf: int, milli: int, micro: int, started_ms: int, at_ms: int, user: str) -> None:
        """An attempt of a user has ended: add what it spent in the open windows."""
        for spend in self._spending[leaf]:
            spend.pay(spend.rate(milli, micro), started_ms, at_ms, user)

    def overspent(self, party: int) -> bool:
        """Whether a job's turn comes after all jobs within their budgets: a soft one is spent or set aside."""
        return any([spend.softens and spend.left <= 0 for spend in self._spending[party]])

    def claim(self, leaf: int, model: int, milli: int) -> None:
        """A tenant uses more (or less) on nodes that are up.

        Claims are held against the GPUs of those nodes. A node that comes back brings at least as many GPUs as its
        attempts then claim, and an attempt that is lost on a node that is down changes no claim.
        """
        for which in (0, 1 + model):
            change = milli
            for number in self.chain[leaf]:
                row, held = self.claimed[number], self.held_back[number][which]
                before = row[which]
                row[which] = after = before + change
                # What a tenant holds back is claimed, used or not.
                change = (after if after > held else held) - (before if before > held else held)

    def keep_fair_keys(self, keyed: bool) -> None:
        """Whether an order needs fair keys; if none does, they are not maintained."""
        self._catch_up()
        self.at_once = keyed or self.ruled or any(self.guaranteed)
        if keyed and not self._keyed:
            for number in range(len(self.path)):
                self.rekey(number)
        self._keyed = keyed

    def rekey(self, number: int) -> None:
        """Update the fair key from usage and rate."""
        total = self.usage[number] + self.rate[number] * self.settings.period_ms
        self.fair_key[number] = (total << _SCALE) // self.weight[number]

    def pass_time(self, at_ms: int) -> None:
        """Close the periods and budget windows that have ended."""
        self._close_periods(at_ms)
        for spend in self.spend if self.budgeted else ():
            if spend is not None and at_ms >= spend.window_end_ms:
                spend.open(at_ms)
        self.set_due()

    def set_due(self) -> None:
        """Work out when the next period or window ends."""
        self.due_ms = self.period_start_ms + self.settings.period_ms
        if self.budgeted:
            windows = [spend.window_end_ms for spend in self.spend if spend is not None]
            self.due_ms = min([self.due_ms, *windows])

    def _close_periods(self, at_ms: int) -> None:
        period = self.settings.period_ms
        closed = (at_ms - self.period_start_ms) // period
        if closed <= 0:
            return
        if self.unsettled:
            self._settle()
        self._decayed.close(closed, self.at_once)
        if self._keyed:
            for number in range(len(self.path)):
                self.rekey(number)
        self.period_start_ms += closed * period

    # -- what may start ----------------------------------------------------------------------------------------

    def refusal(
        self, leaf: int, model: int, milli: int, limit_ms: int, measure: Measure, micro: int = 0
    ) -> tuple[ReasonCode, int] | None:
        """The first rule that forbids a start, and the number of the tenant, seat or budget that has it.

        `micro` is what the job would cost in a millisecond, where a budget is of money.
        """
        if not self.guarded[leaf]:
            return None
        for number, spend in self._stopping[leaf]:
            # As `_over_budget`; asked for every job at every decision.
            asked = (micro if spend.of_money else milli) * limit_ms
            if asked > spend.amount - spend.spent - spend.committed and asked > 0:
                return ReasonCode.BUDGET, number
        column, used_of, running = 1 + model, self.used, self._running
        for number in self._ruling[leaf]:
            used, limit, ceiling = used_of[number], self.limit[number], self.ceiling[number]
            if milli > self.max_job[number]:
                return ReasonCode.JOB_TOO_LARGE, number
            total, alike = used[0] + milli, used[column] + milli
            if total > limit[0] or total > ceiling[0] or alike > limit[column] or alike > ceiling[column]:
                for which in (0, column):
                    if used[which] + milli > limit[which]:
                        return _PER_USER if number in self.rule_of else ReasonCode.LIMIT, number
                    if used[which] + milli > ceiling[which]:
                        return ReasonCode.BORROW, number
            if self.measured and self.lacks(number, measure):
                return ReasonCode.LIMIT, number
            if running[number] >= self.max_running[number]:
                return _PER_USER if number in self.rule_of else ReasonCode.RUNNING_JOBS, number
            own = self.spend[number]
            if own is not None and self._over_budget(own, milli, micro, limit_ms):
                return ReasonCode.BUDGET, number
        return None

    def lacks(self, number: int, measure: Measure) -> bool:
        """Whether a tenant has too few cores or too little memory left."""
        used, most = self.measure[number], self.most[number]
        return used[0] + measure[0] > most[0] or used[1] + measure[1] > most[1]

    def lasting_refusal(
        self, leaf: int, milli: int, limit_ms: int, micro: int = 0
    ) -> tuple[ReasonCode, int] | None:
        """The first rule that forbids a start even when all running jobs have ended, and the number that has it."""
        if not self.guarded[leaf]:
            return None
        for number, spend in self._stopping[leaf]:
            if self._over_budget(spend, milli, micro, limit_ms):
                return ReasonCode.BUDGET, number
        for number in self._ruling[leaf]:
            if milli > self.max_job[number]:
                return ReasonCode.JOB_TOO_LARGE, number
            own = self.spend[number]
            if own is not None and self._over_budget(own, milli, micro, limit_ms):
                return ReasonCode.BUDGET, number
        return None

    @staticmethod
    def _over_budget(spend: Spend, milli: int, micro: int, limit_ms: int) -> bool:
        """Whether a job could overspend a budget, if running jobs spend all that they may."""
        if spend.soft:
            return False
        asked = (micro if spend.of_money else milli) * limit_ms
        # A job that spends nothing of it has nothing to do with it, however far it is overspent.
        return asked > spend.amount - spend.spent - spend.committed and (asked > 0 or spend.rule is None)

    def held_back_refusal(self, leaf: int, model: int, milli: int, up_milli: list[int]) -> bool:
        """Whether the start would eat into what other tenants hold back."""
        if not self.holding:
            return False
        return self.eats_held_back(leaf, 0, milli, sum(up_milli)) or self.eats_held_back(
            leaf, 1 + model, milli, up_milli[model]
        )

    def held_back_for_good(self, leaf: int, model: int, milli: int, up_milli: list[int]) -> bool:
        """The same with nothing in use: no end of a job would change it."""
        idle = self._idle_claims
        return self.holding and (
            self.eats_held_back(leaf, 0, milli, sum(up_milli), idle)
            or self.eats_held_back(leaf, 1 + model, milli, up_milli[model], idle)
        )

    def eats_held_back(
        self, leaf: int, which: int, milli: int, capacity: int, claims: list[list[int]] | None = None
    ) -> bool:
        """The same for one column, of which `capacity` is up."""
        claimed, change = claims or self.claimed, milli
        for number in self.chain[leaf]:
            before, held = claimed[number][which], self.held_back[number][which]
            after = before + change
            change = (after if after > held else held) - (before if before > held else held)
            if change == 0:
                return False
        return change > 0 and claimed[ROOT][which] + change > capacity
