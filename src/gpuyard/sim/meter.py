"""Measuring a simulation: per job as it ends, and the cluster at regular times."""

from array import array
from collections import Counter
from itertools import repeat
from operator import mul, sub
from struct import Struct

from gpuyard.core import State
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.quota.tenants import ROOT
from gpuyard.model import Ask
from gpuyard.model.units import HOUR_MS, MILLI
from gpuyard.sim.result import Result
from gpuyard.sim.trace import Trace

_SAMPLES_MAX = 300
"""When there are more, every second one is dropped and the interval doubled."""
_MIN_INTERVAL_MS = 1000
_ENDED_MAX = 4096
"""How many ended jobs are collected before they go into the columns."""
_TYPICAL_SHARE = 0.95
"""The most frequent asks count as typical until this share of the jobs is covered."""


class Meter:
    """Writes into a `Result` while the simulation runs."""

    def __init__(self, state: State, trace: Trace, result: Result) -> None:
        self._state = state
        self._result = result
        self._trace = trace
        span_ms = trace.submit_ms[-1] if len(trace) else 0
        self._interval_ms = max(_MIN_INTERVAL_MS, span_ms // (_SAMPLES_MAX // 2))
        self.next_sample_ms = 0
        self._teams: dict[int, int] = {}
        """Tenant number -> index in the result."""
        self._team_number: list[int] = []
        """Index in the result -> tenant number that has its weight."""
        self._alive_milli: list[int] = []
        """What each team's jobs that have arrived and not ended ask for, as of the last sample."""
        self._arrived = self._counted = 0
        """How many arrivals, and how many entries of `ended`, are counted in that."""
        self.spec_team: list[int | None] = [None] * len(trace.specs)
        """By spec: the team under which it is measured; -1: it is rejected; None: not seen yet."""
        self._spec_milli = [state.shape_of(spec.ask).gpu_milli for spec in trace.specs]
        """By spec: what it asks for."""
        self._price = {number: state.gpu_price(number, 0) for number in range(len(state.nodes.node))}
        self.one_price = len(set(self._price.values())) <= 1
        self._end_ms = array("q")
        """When each job of `Result.job_id` ended."""
        self.ended: list[tuple[int, int, int]] = []
        """Ended jobs that are not in the columns yet: id, wait, time of the end."""
        self._cost_milli = 0
        """Micro-dollars an hour x milli-GPU x ms, summed."""
        self._team_cost: dict[int, int] = {}
        """The same by team."""
        self._destroyed_milli_ms = 0
        self._unusable: list[list[int]] | None = None
        result.first_submit_ms = trace.submit_ms[0] if len(trace) else 0

    # -- jobs --------------------------------------------------------------------------------------------------

    def _team(self, leaf: int) -> int:
        """The result's tenant for a leaf: the nearest configured one, else the first below the root."""
        index = self._teams.get(leaf)
        if index is None:
            tenants = self._state.tenants
            configured = {t.path for t in self._state.settings.tenants}
            chain = [n for n in tenants.chain[leaf] if n != ROOT]
            number = next((n for n in chain if tenants.path[n] in configured), chain[-1] if chain else ROOT)
            path = tenants.path[number]
            if path in self._result.tenants:
                index = self._result.tenants.index(path)
            else:
                index = len(self._result.tenants)
                self._result.tenants.append(path)
                self._team_number.append(number)
                self._alive_milli.append(0)
                samples = self._result.samples
                empty = [0] * len(samples.at_ms)
                samples.tenant_used_milli.append(array("q", empty))
                samples.tenant_entitled_milli.append(array("q", empty))
            self._teams[leaf] = index
        return index

    def team(self, leaf: int) -> int:
        """The result's tenant of a leaf."""
        team = self._teams.get(leaf)
        return self._team(leaf) if team is None else team

    def charge(self, record: JobRecord, ran_ms: int) -> None:
        """An attempt gave its GPUs back. Only called where nodes have different prices."""
        cost = sum([grant.gpu_milli * ran_ms * self._price[grant.node] for grant in record.grants])
        self._cost_milli += cost
        team = self.team(record.leaf)
        self._team_cost[team] = self._team_cost.get(team, 0) + cost

    def destroyed(self, record: JobRecord, lost_ms: int) -> None:
        """Work of an attempt was lost."""
        self._destroyed_milli_ms += record.shape.gpu_milli * lost_ms

    def redone(self, record: JobRecord, lost_ms: int) -> None:
        """Work of an attempt was lost, and its job has to do it again."""
        self.destroyed(record, lost_ms)
        redone = self._result.redone_milli_ms
        redone[record.id] = redone.get(record.id, 0) + record.shape.gpu_milli * lost_ms

    def refuse(self, spec: int) -> None:
        """A job that arrived was refused for its time limit, though others of its spec may not be."""
        team = self.spec_team[spec]
        assert team is not None
        self._alive_milli[team] -= self._spec_milli[spec]

    def _take_ended(self) -> None:
        """Put the ended jobs into the columns, all at once: one by one is slower."""
        ended, self.ended, self._counted = self.ended, [], 0
        if ended:
            pack = Struct(f"{len(ended)}q").pack
            columns = (self._result.job_id, self._result.wait_ms, self._end_ms)
            for column, values in zip(columns, zip(*ended, strict=True), strict=True):
                column.frombytes(pack(*values))

    def finish(self, ran_ms: dict[int, int]) -> None:
        """Totals, and the columns that follow from the others; `ran_ms` is for jobs that have not ended."""
        result, trace = self._result, self._trace
        self._take_ended()
        rows = min(len(result.job_id), len(result.wait_ms), len(self._end_ms))
        del result.job_id[rows:], result.wait_ms[rows:], self._end_ms[rows:]
        tenants = self._state.tenants
        milli = self._spec_milli
        known = self._teams
        team = [known.get(tenants.leaf(spec.tenant), 0) for spec in trace.specs]
        index = list(map(sub, result.job_id, repeat(1)))
        spec = list(map(trace.spec.__getitem__, index))
        submitted_ms = map(trace.submit_ms.__getitem__, index)
        result.jct_ms = array("q", list(map(sub, self._end_ms, submitted_ms)))
        result.gpu_milli = array("q", list(map(milli.__getitem__, spec)))
        result.tenant = array("i", list(map(team.__getitem__, spec)))
        result.last_end_ms = self._end_ms[-1] if rows else 0
        used = sum(map(mul, result.gpu_milli, map(sub, result.jct_ms, result.wait_ms)))
        used += sum([milli[trace.spec[job_id - 1]] * ms for job_id, ms in ran_ms.items()])
        result.used_gpu_ms = used // MILLI
        result.destroyed_gpu_ms = self._destroyed_milli_ms // MILLI
        cost = used * next(iter(self._price.values()), 0) if self.one_price else self._cost_milli
        result.cost_micro_usd = cost // (MILLI * HOUR_MS)
        if self.one_price:
            result.price_micro_usd_h = next(iter(self._price.values()), 0)
        else:
            teams = range(len(result.tenants))
            result.tenant_cost_micro_usd = [
                self._team_cost.get(team, 0) // (MILLI * HOUR_MS) for team in teams
            ]

    # -- the cluster -------------------------------------------------------------------------------------------

    def sample(self, now_ms: int, arrived: int) -> None:
        """Note the cluster as it has been since the last event; `arrived` rows of the trace have arrived."""
        self._count(arrived)
        if len(self.ended) > _ENDED_MAX:
            self._take_ended()
        samples, state = self._result.samples, self._state
        at_ms = self.next_sample_ms
        last_submit = self._trace.submit_ms[-1] if len(self._trace) else 0
        if now_ms > (1 << 61):
            now_ms = max(state.now_ms, last_submit)
        entitled, used = self._entitled(), self._used()
        stranded = self._stranded()
        up = sum(state.nodes.up_milli)
        while at_ms <= now_ms:
            samples.at_ms.append(at_ms)
            samples.used_milli.append(state.tenants.used[ROOT][0])
            samples.up_milli.append(up)
            samples.waiting.append(state.queue.count)
            samples.stranded_milli.append(stranded)
            for team, milli in enumerate(used):
                samples.tenant_used_milli[team].append(milli)
                samples.tenant_entitled_milli[team].append(entitled[team])
            at_ms += self._interval_ms
            if len(samples.at_ms) >= _SAMPLES_MAX:
                self._thin()
                at_ms = samples.at_ms[-1] + self._interval_ms
        self.next_sample_ms = at_ms

    def _count(self, arrived: int) -> None:
        """Update what the live jobs ask for: it is only needed at samples."""
        alive, team_of, spec = self._alive_milli, self.spec_team, self._trace.spec
        milli, came = self._spec_milli, spec[self._arrived : arrived]
        gone = [spec[row[0] - 1] for row in self.ended[self._counted :]]
        self._arrived, self._counted = arrived, len(self.ended)
        if len(alive) == 1 and not self._result.rejected:
            # All jobs belong to one team.
            alive[0] += sum(map(milli.__getitem__, came)) - sum(map(milli.__getitem__, gone))
            return
        for at, count in Counter(came).items():
            team = team_of[at]
            if team is not None and team >= 0:
                alive[team] += milli[at] * count
        for at, count in Counter(gone).items():
            alive[team_of[at] or 0] -= milli[at] * count

    def _used(self) -> list[int]:
        """What each team's jobs hold."""
        tenants = self._state.tenants
        used = [0] * len(self._team_number)
        for number, team in self._teams.items():
            members = [tenants.used[child][0] for child in tenants.children[number]]
            used[team] += tenants.used[number][0] - sum(members)
        return used

    def _thin(self) -> None:
        samples = self._result.samples
        self._interval_ms *= 2
        for name in ("at_ms", "used_milli", "up_milli", "waiting", "stranded_milli"):
            setattr(samples, name, getattr(samples, name)[::2])
        samples.tenant_used_milli = [column[::2] for column in samples.tenant_used_milli]
        samples.tenant_entitled_milli = [column[::2] for column in samples.tenant_entitled_milli]

    def _entitled(self) -> list[int]:
        """Shares of what is up, by weight among tenants with work; what one tenant cannot use goes to the others."""
        tenants = self._state.tenants
        demand = self._alive_milli
        weight = [tenants.weight[n] for n in self._team_number]
        left = min(sum(self._state.nodes.up_milli), sum(demand))
        share = [0] * len(demand)
        for team, number in enumerate(self._team_number):
            share[team] = min(demand[team], tenants.guarantee[number][0])
        over = sum(share)
        if over > left:
            return [s * left // over for s in share]
        left -= over
        hungry = [t for t in range(len(demand)) if demand[t] > share[t]]
        while hungry and left > 0:
            total = sum(weight[t] for t in hungry)
            sated = [t for t in hungry if demand[t] - share[t] <= left * weight[t] // total]
            if not sated:
                for team in hungry:
                    share[team] += left * weight[team] // total
                break
            for team in sated:
                left -= demand[team] - share[team]
                share[team] = demand[team]
            hungry = [t for t in hungry if t not in sated]
        return share

    def _stranded(self) -> int:
        """Idle GPU that a typical ask could not use where it is: FGD's measure over this trace's own mix."""
        if self._unusable is None:
            self._unusable = self._unusable_by_kind()
        stranded = 0
        for kind, unusable in zip(self._state.nodes.kinds, self._unusable, strict=True):
            stranded += sum(map(mul, map(int.bit_count, kind.buckets), unusable))
        return stranded

    def _unusable_by_kind(self) -> list[list[int]]:
        """By kind of node and number of free GPUs: useless milli-GPU, averaged over typical asks."""
        typical = typical_asks(self._trace)
        total = sum(weight for _ask, weight in typical) or 1
        rows = []
        for index, kind in enumerate(self._state.nodes.kinds):
            weights = [0] * (kind.gpus + 1)
            for ask, weight in typical:
                shape = self._state.shape_of(ask)
                way = shape.way_on.get(index)
                need = kind.gpus + 1
                if way is not None and shape.gpus:
                    need = shape.gpus * way.tasks_per_node if shape.milli == MILLI else 1
                for free in range(min(need, kind.gpus + 1)):
                    weights[free] += weight
            rows.append([free * MILLI * weight // total for free, weight in enumerate(weights)])
        return rows


def typical_asks(trace: Trace) -> list[tuple[Ask, int]]:
    """The most frequent asks of a trace, with their counts, until 95 % of the jobs are covered."""
    per_spec = Counter(trace.spec)
    counts: dict[Ask, int] = {}
    for index, spec in enumerate(trace.specs):
        counts[spec.ask] = counts.get(spec.ask, 0) + per_spec[index]
    ranked = sorted(counts.items(), key=lambda row: (-row[1], repr(row[0])))
    wanted = _TYPICAL_SHARE * len(trace)
    typical: list[tuple[Ask, int]] = []
    for ask, count in ranked:
        if wanted <= 0:
            break
        typical.append((ask, count))
        wanted -= count
    return typical
