"""What tenants say of a job when it is submitted: how much one may ask for, and whether there may be one more.

The bounds of one job are part of its judgement. Whether there may be one more depends on all that wait and run, so it
is asked in the thread that writes submissions, where also counts what was accepted and has not been folded yet.
"""

from collections import Counter, deque
from typing import NamedTuple

from gpuyard.control.access.rights import Sight
from gpuyard.control.admission.wanted import Wanted
from gpuyard.control.refusals import Impossible, Unacceptable
from gpuyard.core import State
from gpuyard.core.explain.admission import gpus_text
from gpuyard.core.phrases import names_text
from gpuyard.core.quota.tenants import Tenants
from gpuyard.model import Ask, JobSpec
from gpuyard.model.units import MILLI
from gpuyard.quantities import memory_text, memory_words

_OPTIONS = {"gpus": "--gpus", "cpus": "--cpus", "memory": "--mem"}


def with_defaults(wanted: Wanted, tenant: str, state: State) -> Wanted:
    """The request with what its tenant, or the nearest one above it, gives to jobs that name none."""
    tenants = state.tenants
    if not tenants.per_job or wanted.exclusive:
        return wanted
    for number in tenants.chain[tenants.nearest(tenant)]:
        given = tenants.per_job.get(number, {})
        gpus, cpus, memory = [given[kind].default if kind in given else 0 for kind in _OPTIONS]
        if gpus and not (wanted.gpus or wanted.gpu_milli or wanted.mig or wanted.gpu_memory_mib):
            wanted = wanted.but(gpus=gpus // MILLI) if gpus % MILLI == 0 else wanted.but(gpu_milli=gpus)
        if cpus and wanted.cpu_milli is None:
            wanted = wanted.but(cpu_milli=cpus)
        if memory and not wanted.memory_mib:
            wanted = wanted.but(memory_mib=memory)
    return wanted


def out_of_bounds(ask: Ask, tenant: str, state: State) -> Unacceptable | None:
    """Why one job may not ask for this; None: it may. The most GPUs are a quota, which the core knows."""
    tenants = state.tenants
    if not tenants.per_job:
        return None
    shape = state.shape_of(ask)
    amounts = dict(zip(_OPTIONS, (shape.gpu_milli, *shape.measure), strict=True))
    for number in tenants.chain[tenants.nearest(tenant)]:
        for kind, bounds in tenants.per_job.get(number, {}).items():
            amount = amounts[kind]
            if amount < bounds.least:
                bound, said, ask_for = bounds.least, "has at least", "at least"
            elif bounds.most is not None and amount > bounds.most:
                bound, said, ask_for = bounds.most, "may have at most", "at most"
            else:
                continue
            return Unacceptable(
                f"asks for {_amount(kind, amount)}; a job of {tenants.path[number]} {said} {_amount(kind, bound)}",
                f"Ask for {ask_for} {_amount(kind, bound)} ({_OPTIONS[kind]} {_option(kind, bound)}); an administrator "
                f"sets `per_job.{kind}` of the tenant in yard.yaml.",
            )
    return None


def _amount(kind: str, amount: int) -> str:
    if kind == "memory":
        return f"{memory_words(amount)} of memory"
    noun = "GPU" if kind == "gpus" else "core"
    return f"{gpus_text(amount)} {noun}{'' if amount == MILLI else 's'}"


def _option(kind: str, amount: int) -> str:
    return memory_text(amount) if kind == "memory" else gpus_text(amount)


class Claim(NamedTuple):
    """What the jobs of one submission add to what their tenant asks for."""

    tenant: str
    user: str
    jobs: int
    milli: int
    """Of each job."""
    measure: tuple[int, int]
    models: tuple[int, ...]
    """The GPU models that it could run on, by number."""


def make_claim(spec: JobSpec, jobs: int, state: State) -> Claim | None:
    """What a submission adds; None: no tenant refuses jobs. Called with the replica locked."""
    if not state.tenants.refusing:
        return None
    shape = state.shape_of(spec.ask)
    return Claim(spec.tenant, spec.user, jobs, shape.gpu_milli, shape.measure, shape.models)


class TenantLimits:
    """Refuses jobs of tenants that say so, and remembers what this process has accepted for them."""

    def __init__(self) -> None:
        self._unread: deque[tuple[int, Claim]] = deque()
        """Submissions that the replica may not have read: the last id of each, and what it is."""

    def check(self, claim: Claim | None, last_id: int, sight: Sight, state: State) -> None:
        """Refuse a submission that is one too many for its tenant or one above it; else count it, if it has an id."""
        tenants = state.tenants
        if claim is None or not tenants.refusing:
            return
        chain = [n for n in tenants.chain[tenants.nearest(claim.tenant)] if n in tenants.refusing]
        while self._unread and self._unread[0][0] <= state.last_job_id:
            self._unread.popleft()
        for number in chain:
            _check(tenants, number, claim, self._live(tenants.path[number], state), sight, state.models)
        if chain and last_id:
            self._unread.append((last_id, claim))

    def _live(self, path: str, state: State) -> list[Claim]:
        """The jobs of a tenant that wait or run, and those that were accepted and are not folded yet."""

        def ours(tenant: str) -> bool:
            return tenant == path or tenant.startswith(f"{path}/")

        # In this order, and a copy: the replica may read on meanwhile, and a job is then missed for a moment.
        live = list(state.jobs.values())
        read_id = state.last_job_id
        found = [
            Claim(spec.tenant, spec.user, 1, shape.gpu_milli, shape.measure, shape.models)
            for record in live
            for spec, shape in [(record.job.spec, record.shape)]
            if ours(spec.tenant) and not spec.origin
        ]
        for last_id, claim in self._unread:
            left = min(claim.jobs, last_id - read_id)
            if left > 0 and ours(claim.tenant):
                found.append(claim._replace(jobs=left))
        return found


def _check(
    tenants: Tenants, number: int, claim: Claim, live: list[Claim], sight: Sight, models: dict[str, int]
) -> None:
    """Refuse what is over a limit of one tenant, beside all that waits or runs there."""
    rule, path = tenants.refusing[number], tenants.path[number]
    users: Counter[str] = Counter()
    for each in live:
        users[each.user or "nobody"] += (each.milli or 1) * each.jobs
    whom = ""
    if users and sight.sees(path):
        whom = f" ({names_text([name for name, _much in users.most_common()])})"
    there = sum([each.jobs for each in live])
    if rule.max_jobs is not None and there + claim.jobs > rule.max_jobs:
        raise Impossible(
            f"{there:,} jobs of {path} wait or run{whom}, and it may have {rule.max_jobs:,}",
            "Submit it when some of them have ended. An administrator sets `max_jobs` of the tenant in yard.yaml.",
        )
    if not rule.refuses:
        return
    cores, memory = tenants.most[number]
    rows = [
        ("gpus", "", sum([each.milli * each.jobs for each in live]), claim.milli, tenants.limit[number][0]),
        ("cpus", "", sum([each.measure[0] * each.jobs for each in live]), claim.measure[0], cores),
        ("memory", "", sum([each.measure[1] * each.jobs for each in live]), claim.measure[1], memory),
    ]
    if len(claim.models) == 1:
        # Only of a job that could run on one model alone it is known that it takes GPUs of that.
        (model,) = claim.models
        have = sum([each.milli * each.jobs for each in live if each.models == claim.models])
        name = next(name for name, known in models.items() if known == model)
        rows.append(("gpus", name, have, claim.milli, tenants.limit[number][1 + model]))
    for kind, name, have, own, most in rows:
        if own and have + own * claim.jobs > most:
            raise _over(path, kind, have, own * claim.jobs, most, name, whom)


def _over(path: str, kind: str, have: int, own: int, most: int, model: str, whom: str) -> Impossible:
    """A refusal that names the limit, what is taken of it and by whom."""

    def said(amount: int) -> str:
        return f"{gpus_text(amount)} {model}" if model else _amount(kind, amount)

    left = max(0, most - have)
    less = f"Ask for {said(left)} or less, or wait" if left else "Wait"
    return Impossible(
        f"asks for {said(own)}; {path} may have {said(most)}, and jobs that wait or run ask for {said(have)}{whom}",
        f"{less} until some of them have ended. The tenant says `on_limit: refuse`; with `wait` the job would wait.",
    )
