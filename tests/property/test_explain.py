"""`explain` is true of the state: driven through anything that can happen, and judged by other books.

1. A waiting job has no blocker if and only if the plan starts it. 2. A job that was looked at is told, among other
things, what the plan says of it. 3. The numbers in the sentences are those of books kept another way. 4. Nothing in
the state moves.
"""

import re
from dataclasses import replace

import pytest

from gpuyard.core import Explanation, decide, explain
from gpuyard.core.state.dump import canonical, derived
from gpuyard.model import Milli, Plan, ReasonCode
from gpuyard.model.settings import TOTAL
from gpuyard.policies import registry
from harness.machines import machine
from harness.reference.books import Books, Live, ask_milli, chain
from harness.reference.judge import Quotas, Room, holders, layouts, measure_of
from harness.yard import Yard

POLICIES = ("fifo", "strict-fifo", "conservative", "default", "fair", "sjf", "fgd")
NODE = re.compile(
    r"^(\d+) x (\S+?)(?:(?:,| and) .*)? on one node: "
    r"(?:(\d+) free on (\d+) nodes?(?:, but at most (\d+) on one node)?|none is free on (\d+) nodes?)$"
)
LIMIT = re.compile(
    r"^(\S+) would be (\S+) (\S+) over its limit of (\S+?)(?: \S+?)?(?:, which is .+)? "
    r"\(uses (\S+), asks for (\S+)\)$"
)
CORES = re.compile(
    r"^(\S+) would be (\S+) cores? over its limit of (\S+) cores? \(uses (\S+), asks for (\S+)\)$"
)
MEMORY = re.compile(
    r"^(\S+) would be (\S+ [GM]iB) of memory over its limit of (\S+ [GM]iB) "
    r"\(uses (\S+ [GM]iB), asks for (\S+ [GM]iB)\)$"
)
PER_USER = re.compile(
    r"^each user of (.+) may use (\S+) GPUs?, and (\S+) would use (\S+) \(uses (\S+), asks for (\S+)\)$"
)
USER_RUNS = re.compile(r"^(\S+) runs (\d+) jobs?, and one user may run (\d+) at a time$")
RUNS = re.compile(r"^(\S+) runs (\d+) jobs? and may run (\d+)$")


class ExplainedYard(Yard):
    """Explains every waiting job before and after each plan is carried out."""

    def step(self) -> Plan:
        """Decide, explain, commit, explain again."""
        wake_ms = self.state.wake_ms()
        if wake_ms is not None and wake_ms <= self.now_ms:
            self.tick()
        plan = self.decide()
        self._check(plan)
        self.commit(plan)
        self.plans.append(plan)
        again = self.decide()
        told = self._check(again)
        if not (again.starts or again.stops):
            for live, explanation in told:
                check_numbers(self, live, explanation)
        return plan

    def cut(self) -> None:
        """Whether explanations survive a restart is the same question as whether plans do."""

    def _check(self, plan: Plan) -> list[tuple[Live, Explanation]]:
        state = self.state
        before = canonical(state), derived(state)
        told = []
        for live in self.books.jobs.values():
            if live.attempt is None:
                explanation = explain(state, self.policy, live.job.id, self.now_ms)
                assert explanation is not None
                self._agrees(live, explanation, plan)
                told.append((live, explanation))
        assert before == (canonical(state), derived(state)), "explaining moved something"
        again = decide(state, self.policy, self.now_ms)
        assert plan == again, "after explaining, another plan is made"
        return told

    def _agrees(self, live: Live, explanation: Explanation, plan: Plan) -> None:
        job_id, codes = live.job.id, {reason.code for reason in explanation.reasons}
        starts = job_id in self.started(plan)
        assert starts == (not codes), f"job {job_id}: {explanation} against {plan}"
        if starts:
            assert explanation.start_ms == self.now_ms
            return
        said = self.code(plan, job_id)
        if said is not ReasonCode.NOT_EXAMINED:
            assert said in codes, f"job {job_id}: the plan says {said.name}, told was {explanation.reasons}"
        assert all(reason.text and reason.lifted_by and reason.by for reason in explanation.reasons)
        assert explanation.start_ms is None or explanation.start_ms >= self.now_ms
        assert live.eligible or codes & {ReasonCode.HELD, ReasonCode.BEGIN}
        if self.policy.spec.order == ("fifo",) and live.eligible:
            key = (-live.boost, live.line_ms, job_id)
            keys = [(-each.boost, each.line_ms, each.job.id) for each in self.books.waiting()]
            assert explanation.ahead == sum(other < key for other in keys)


def check_numbers(yard: Yard, live: Live, explanation: Explanation) -> None:
    """Every number that can be worked out from the log alone."""
    for reason in explanation.reasons:
        if found := NODE.match(reason.text):
            check_node(yard, live, found)
        elif found := CORES.match(reason.text):
            check_cores(yard, live, found)
        elif found := MEMORY.match(reason.text):
            check_memory(yard, live, found)
        elif found := LIMIT.match(reason.text):
            check_limit(yard, live, found)
        elif found := RUNS.match(reason.text):
            assert yard.books.run_by(found[1]) == int(found[2]) >= int(found[3])
        elif reason.code is ReasonCode.PER_USER:
            check_per_user(yard, live, reason.text)


def check_per_user(yard: Yard, live: Live, text: str) -> None:
    """What a person has, over all leaves that a rule is about, and what one may have."""
    settings, user = yard.books.settings, live.job.spec.user
    quotas = Quotas(yard.books, list(holders(yard.books).values()))
    if found := USER_RUNS.match(text):
        runs = len(quotas.of_person("", user, live.leaf))
        assert [user or live.leaf, runs, settings.attempts_per_user] == [
            found[1],
            int(found[2]),
            int(found[3]),
        ]
        assert runs >= settings.attempts_per_user > 0
        return
    found = PER_USER.match(text)
    assert found is not None, text
    assert (user or live.leaf) == found[3]
    uses = sum([holder.milli for holder in quotas.of_person(found[1], user, live.leaf)])
    most, after, said, asks = (round(float(found[i]) * 1000) for i in (2, 4, 5, 6))
    assert [uses, ask_milli(live.job.spec.ask), uses + asks] == [said, asks, after]
    assert [most] == [t.quota.max_gpus_per_user for t in settings.tenants if t.path == found[1]]
    assert after > most


def could_hold(books: Books, live: Live, model: str) -> list[int]:
    """The nodes of a GPU model each of which could hold all of a job, were it empty."""
    found = layouts(books, books.ask_of(live), walled=live)
    whole = [layout for layout in found if layout.model == model and (layout.full, layout.rest) == (1, 0)]
    return sorted({number for layout in whole for number in layout.numbers})


def check_node(yard: Yard, live: Live, found: re.Match[str]) -> None:
    """The best node, and all that is free, of the nodes that could hold the job."""
    books, ask = yard.books, live.job.spec.ask
    assert not isinstance(ask.gpus, Milli)
    room = Room(books, books.grants(earmarks=True))
    wanted = int(found[1])
    free = []
    for number in could_hold(books, live, found[2]):
        if room.takes_new(number):
            free.append(sum(room.is_whole(number, gpu) for gpu in range(books.nodes[number].gpus)))
    assert wanted == ask.gpus.count * ask.tasks
    if found[6] is not None:
        assert (0, int(found[6])) == (sum(free), len(free))
    else:
        assert (sum(free), sum(count > 0 for count in free)) == (int(found[3]), int(found[4]))
        # Said only where it is not all that is free.
        assert max(free) == int(found[5] or found[3])
        assert (found[5] is None) == (max(free) == sum(free))
        assert max(free) < wanted


def check_limit(yard: Yard, live: Live, found: re.Match[str]) -> None:
    """Over by so much, of a limit that is set, with so much in use."""
    books, path = yard.books, found[1]
    quotas = Quotas(books, list(holders(books).values()))
    model = None if found[3] in ("GPU", "GPUs") else found[3]
    used = books.used(path, model)
    over, limit, uses, asks = (round(float(found[i]) * 1000) for i in (2, 4, 5, 6))
    assert path in chain(live.leaf)
    assert (used, ask_milli(live.job.spec.ask)) == (uses, asks), f"{live.job} of {live.leaf}: {found[0]}"
    assert over == used + asks - limit > 0
    configured = [quotas.quota(path).limit.get(model or TOTAL)]
    per_user = [t.quota.max_gpus_per_user for t in books.settings.tenants if t.path in chain(path)[1:]]
    assert limit in [value for value in (*configured, *per_user) if value is not None]


def check_cores(yard: Yard, live: Live, found: re.Match[str]) -> None:
    """The same of cores."""
    quotas = Quotas(yard.books, list(holders(yard.books).values()))
    over, limit, uses, asks = (round(float(found[i]) * 1000) for i in (2, 3, 4, 5))
    assert found[1] in chain(live.leaf)
    assert (quotas.measured(found[1])[0], measure_of(live)[0]) == (uses, asks)
    assert quotas.quota(found[1]).max_cpu_milli == limit
    assert over == uses + asks - limit > 0


def check_memory(yard: Yard, live: Live, found: re.Match[str]) -> None:
    """The same of memory."""
    quotas = Quotas(yard.books, list(holders(yard.books).values()))
    over, limit, uses, asks = (memory_mib(found[i]) for i in (2, 3, 4, 5))
    assert found[1] in chain(live.leaf)
    assert (quotas.measured(found[1])[1], measure_of(live)[1]) == (uses, asks)
    assert quotas.quota(found[1]).max_memory_mib == limit
    assert over == uses + asks - limit > 0


def memory_mib(text: str) -> int:
    """`5 GiB` or `2048 MiB`."""
    amount, unit = text.split()
    return int(amount) * (1024 if unit == "GiB" else 1)


@pytest.mark.parametrize("name", POLICIES)
def test_explanations_are_true(name: str) -> None:
    spec = replace(registry.PRESETS[name], backfill_depth=1000, depth_per_tenant=1000)
    machine.run(spec, examples=5, steps=12, kind=ExplainedYard)


@pytest.mark.parametrize("name", ["fifo", "default", "conservative"])
def test_explanations_are_true_where_a_pass_looks_at_few(name: str) -> None:
    spec = replace(registry.PRESETS[name], backfill_depth=2, depth_per_tenant=2)
    machine.run(spec, examples=4, steps=12, kind=ExplainedYard)
