"""The configuration in force, its versions, and the two ways in: the file of a start, and an apply while it runs.

Every configuration that is put in force becomes a version: its text, author, time and kind, in the transaction of its
`ConfigSet`. An administrator names the version that they looked at; if another has come meanwhile, nothing changes.
"""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from gpuyard.config.compare import Change, compare, compare_people
from gpuyard.config.reading import loads
from gpuyard.config.values import Access
from gpuyard.control.access.people import Person
from gpuyard.control.access.rights import ALL, Sight, is_theirs, list_kept_classes
from gpuyard.control.access.tokens import revoke_all
from gpuyard.control.fleet import Fleet, LiveCluster, choose_fleet
from gpuyard.control.parsing import Parse, run_here
from gpuyard.control.projections.ledger import closed_day
from gpuyard.control.reading.plain_views import caps_view
from gpuyard.control.refusals import Forbidden, Impossible, NotFound
from gpuyard.control.replica.committer import Committer
from gpuyard.control.replica.replica import Draft, Replica
from gpuyard.core import State
from gpuyard.core.explain.admission import amount_counted, amount_text, gpus_text
from gpuyard.core.explain.budget_use import NamedUse, list_named_uses, list_own_uses
from gpuyard.core.explain.caps import find_caps
from gpuyard.core.quota.budgets import make_spend
from gpuyard.core.quota.percentages import Gpus, amount_of, percentage_text, percentage_words, resolve
from gpuyard.errors import names_text
from gpuyard.ledger.units import day_text
from gpuyard.model import BudgetAction, ConfigSet, Quota, Settings, Tenant
from gpuyard.model.settings import TOTAL
from gpuyard.store import CONFIG_ROWS, ConfigVersion, Store, VersionCause, hash_text
from gpuyard.wire.endpoints import Action
from gpuyard.wire.replies.tenants import (
    AppliedReply,
    ChangeReply,
    ConfigReply,
    ConfigVersionReply,
    DifferenceReply,
    TenantReply,
)

JOBS_NAMED_MAX = 10

NO_FILE = """\
# No file was given: one tenant for each user, no quotas.
version: 1
clusters:
  local: {engine: local}
"""
"""What stands for the configuration of a yard that was started without a file."""


@dataclass(frozen=True, slots=True)
class StartFile:
    """What a server was started with."""

    settings: Settings
    text: str = NO_FILE
    name: str = ""
    """The file's path; empty: none was given."""
    remembered: bool = False
    """Whether it was not given this time: it is that of the last start with one."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A configuration that could be put in force, read and checked."""

    text: str
    settings: Settings
    access: Access | None = None
    """The people that it names; None: it says nothing of `auth`."""
    fleet: tuple[str, ...] = ()
    """What it says about the fleet that is not so here, in sentences: that takes a restart."""
    restores: int = 0
    """The version that it is; 0: a new one."""
    seen: int = 0
    """The version in force when it was read."""
    people: Access = field(default_factory=Access)
    """Those of that version."""


# -- a start ---------------------------------------------------------------------------------------------------------


def put_start(draft: Draft, store: Store, start: StartFile, by: str, now_ms: int) -> str:
    """Consider the file of a start, once for each process; gives what people should know, or nothing.

    A restart never undoes what someone applied: from then on the store's version counts and a file that differs is only
    told of. As long as nobody has applied anything, a file that was edited is in force after a restart.
    """
    live = _last(draft, store)
    known = live is not None and hash_text(start.text) == live.hash and start.settings == draft.state.settings
    if known:
        return ""
    if live is None or (start.name and not start.remembered and live.how is VersionCause.START):
        version = 1 if live is None else live.version + 1
        _put(
            draft,
            ConfigVersion(version, now_ms, by, VersionCause.START, hash_text(start.text)),
            start.text,
            start.settings,
        )
        return ""
    if not start.name or start.remembered:
        same = start.settings == draft.state.settings
        return (
            "" if same else f"no yard.yaml was given: version {live.version} of the configuration is in force"
        )
    if start.settings == draft.state.settings:
        return ""
    return (
        f"{start.name} is not in force: version {live.version} of the configuration stays "
        f"({live.how.value} by {live.by}). Compare with `yard diff -f {start.name}`, "
        f"put it in force with `yard apply -f {start.name}`"
    )


def _last(draft: Draft, store: Store) -> ConfigVersion | None:
    """The version in force when this is written: several may be written at once, and the last of them counts."""
    kept = draft.rows.get(CONFIG_ROWS)
    return kept[-1][0] if kept else store.configs.version()


def _put(draft: Draft, version: ConfigVersion, text: str, settings: Settings, signed: str = "") -> None:
    at_ms = max(version.at_ms, draft.state.now_ms)
    draft.add(ConfigSet(at_ms, settings, signed or version.by, version.version, version.hash))
    draft.keep(CONFIG_ROWS, (version, text))


# -- a running yard --------------------------------------------------------------------------------------------------


class Configurations:
    """What administrators may see and change while the yard runs."""

    def __init__(
        self,
        replica: Replica,
        committer: Committer,
        fleet: Fleet,
        emulate: str,
        now_ms: Callable[[], int],
        people: Callable[[], tuple[int, Access]],
        parse: Parse = run_here,
    ) -> None:
        """`people` returns the version in force, and its people and their rights; `parse` reads a text."""
        self._people = people
        self._replica = replica
        self._committer = committer
        self._fleet = fleet
        self._emulate = emulate
        self._now_ms = now_ms
        self._parse = parse

    def versions(self, limit: int) -> list[ConfigVersionReply]:
        """The last versions, newest first."""
        return [version_view(version) for version in self._replica.store.configs.versions(limit)]

    def shown(self, version: int | None = None) -> ConfigReply:
        """A version with its text; the one in force if none is named."""
        found, text = self._text(version)
        return {**version_view(found), "yaml": text}

    def _text(self, version: int | None) -> tuple[ConfigVersion, str]:
        store = self._replica.store
        found = store.configs.version(version)
        if found is None and version is None:
            raise Impossible("the yard has no configuration yet: it is starting", "Try again in a moment.")
        if found is None:
            raise NotFound(f"there is no version {version}", "`yard config --list` lists those that exist.")
        body = store.blob(found.hash)
        if body is None:
            raise Impossible(f"the text of version {found.version} was deleted")
        return found, body.decode()

    def proposal(self, text: str, name: str) -> Proposal:
        """A file as it could be put in force; raises `ConfigError` or `BadInput` with what is wrong with it."""
        config = self._parse(loads, text, name)
        seen, people = self._people()
        notes = [] if text == NO_FILE else fleet_differences(self._fleet, choose_fleet(config, self._emulate))
        if text != NO_FILE and config.access is None and people != Access():
            notes.append("the file says nothing of `auth`: people stay as they are")
        return Proposal(text, config.settings, config.access, tuple(notes), seen=seen, people=people)

    def earlier(self, version: int | None) -> Proposal:
        """An earlier version as it could be put in force again; none named: the one before the present one."""
        live, _text = self._text(None)
        number = live.version - 1 if version is None else version
        if number < 1:
            raise Impossible(
                "there is no version before the first", "`yard config --list` lists those that exist."
            )
        _found, text = self._text(number)
        return replace(self.proposal(text, f"version {number}"), restores=number)

    def difference(self, proposal: Proposal) -> DifferenceReply:
        """What would change, and what stands against it or should be known."""
        replica = self._replica
        with replica.lock:
            replica.catch_up()
            live = replica.store.configs.version()
            state, settings = replica.state, replica.state.settings
            obstacles = _obstacles(state, proposal.settings)
            notes = [*proposal.fleet, *_notes(state, proposal.settings)]
            notes += _late_prices(settings, proposal.settings, closed_day(replica.store))
            notes += _counted_before(settings, proposal.settings)
        changes = _changes(settings, proposal)
        return {
            "version": live.version if live is not None else 0,
            "restores": proposal.restores or None,
            "same": _is_same(live, proposal, changes),
            "changes": [change_view(change) for change in changes],
            "obstacles": obstacles,
            "notes": notes,
        }

    def check_against(self, against: int | None) -> None:
        """Refuse early what is against a version that is not in force any more; `apply` looks again."""
        _check_against(self._replica.store.configs.version(), against)

    def apply(self, person: Person, proposal: Proposal, against: int | None) -> "Future[AppliedReply]":
        """Put a proposal in force: all of it or nothing, against the version that was looked at."""
        if not person.may(Action.MANAGE_CONFIG, ""):
            raise Forbidden(
                f"{person.name} may not change the configuration", "Ask the owner of the yard, or root."
            )
        store = self._replica.store
        hash_ = hash_text(proposal.text)

        def make(draft: Draft) -> AppliedReply:
            # The log is locked: no other version can come into force between this look and the write.
            live = _last(draft, store)
            _check_against(live, against)
            obstacles = _obstacles(draft.state, proposal.settings)
            if obstacles:
                raise Impossible(
                    "; ".join(obstacles), "Wait for these jobs, or cancel them; nothing was changed."
                )
            changes = _changes(draft.state.settings, proposal)
            if (
                live is not None
                and _is_same(live, proposal, changes)
                and (live.hash == hash_ or not proposal.fleet)
            ):
                # Nothing differs but words that mean the same, or comments: that is no version of its own.
                return {**version_view(live), "changed": 0}
            how = VersionCause.ROLLBACK if proposal.restores else VersionCause.APPLY
            now_ms = max(self._now_ms(), draft.state.now_ms)
            number = 1 if live is None else live.version + 1
            version = ConfigVersion(number, now_ms, person.name, how, hash_, proposal.restores)
            _put(draft, version, proposal.text, proposal.settings, person.signature)
            if proposal.access is not None:
                gone = proposal.people.users.keys() - proposal.access.users.keys()
                revoke_all(store, gone, person, now_ms, draft)
            return {**version_view(version), "changed": len(changes)}

        return self._committer.write(make)

    def tenants(self, sight: Sight = ALL) -> list[TenantReply]:
        """The tree of tenants with what each may use and uses, parents before children; of it, what is in sight."""
        replica = self._replica
        with replica.lock:
            replica.catch_up()
            now_ms = max(self._now_ms(), replica.state.now_ms)
            return [row for row in _tree(replica.state, now_ms) if sight.knows(row["tenant"])]

    def budgets(self) -> list[tuple[NamedUse, int]]:
        """Every budget with its use, and the highest threshold that was told: the named ones, then tenants' own."""
        replica = self._replica
        with replica.lock:
            replica.catch_up()
            state = replica.state
            now_ms = max(self._now_ms(), state.now_ms)
            found = list_named_uses(state, now_ms)
            spends = [state.tenants.spend[state.tenants.budget_row[use.rule.name]] for use in found]
            told = [(use, spend.told if spend else 0) for use, spend in zip(found, spends, strict=True)]
            return [*told, *[(use, 0) for use in list_own_uses(state, now_ms)]]


def _changes(live: Settings, proposal: Proposal) -> list[Change]:
    """What a proposal changes of the settings in force, and of the people that were when it was read."""
    people = compare_people(proposal.people, proposal.access) if proposal.access is not None else []
    return [*compare(live, proposal.settings), *people]


def _is_same(live: ConfigVersion | None, proposal: Proposal, changes: list[Change]) -> bool:
    """Whether a proposal says what is in force: one that was read before that came may differ in people."""
    return (
        live is not None
        and not changes
        and (proposal.seen == live.version or hash_text(proposal.text) == live.hash)
    )


def _check_against(live: ConfigVersion | None, against: int | None) -> None:
    number = live.version if live is not None else 0
    if against is not None and against != number:
        by = f", by {live.by}" if live is not None else ""
        raise Impossible(
            f"version {number} is in force{by}, not {against}: it changed since you looked",
            "Look at the difference again, then apply again.",
        )


def version_view(version: ConfigVersion) -> ConfigVersionReply:
    """A version as it is shown."""
    return {
        "version": version.version,
        "at_ms": version.at_ms,
        "by": version.by,
        "how": version.how.value,
        "hash": version.hash,
        "restores": version.restores or None,
    }


def change_view(change: Change) -> ChangeReply:
    """A change as it is shown."""
    return {
        "what": change.what,
        "kind": change.kind,
        "name": change.name,
        "key": change.key,
        "before": change.before,
        "after": change.after,
    }


def fleet_differences(here: Fleet, there: Fleet) -> list[str]:
    """What a file says about clusters that a running server cannot take up."""
    found = []
    ours, theirs = [[each.name for each in fleet.clusters] for fleet in (here, there)]
    if len(ours) == len(theirs) == 1:
        found += _cluster_differences(here.clusters[0], there.clusters[0])
    elif ours != theirs:
        found.append(f"the clusters are {', '.join(ours)} here and {', '.join(theirs)} in the file")
    else:
        for one, other in zip(here.clusters, there.clusters, strict=True):
            found += [f"cluster {one.name}: {text}" for text in _cluster_differences(one, other)]
    if here.sinks != there.sinks:
        found.append("the receivers of logs are others in the file")
    if here.prometheus != there.prometheus:
        found.append("the Prometheus to be read is another in the file")
    return [f"{text}: that takes a restart, `yard up --config FILE`" for text in found]


def _cluster_differences(here: LiveCluster, there: LiveCluster) -> list[str]:
    found = []
    if here.name != there.name:
        found.append(f"the cluster is called {here.name} here and {there.name} in the file")
    if here.kind is not there.kind:
        found.append(f"its engine is {here.kind.name} here and {there.kind.name} in the file")
    else:
        found += here.kind.differ(here.keys, there.keys)
    if here.described != there.described:
        found.append("its nodes are others in the file")
    if here.allow_root != there.allow_root:
        found.append(f"allow_root is {str(here.allow_root).lower()} here")
    return found


def _obstacles(state: State, settings: Settings) -> list[str]:
    """Live jobs whose tenant or class would be gone, in sentences. Anything else is left to run as it is."""
    kept = {tenant.path for tenant in settings.tenants}
    gone = [tenant.path for tenant in state.settings.tenants if tenant.path not in kept]
    classes = {klass.name for klass in settings.classes}
    found: dict[str, list[str]] = {}
    for job_id in sorted(state.jobs):
        record = state.jobs[job_id]
        spec = record.job.spec
        for path in gone:
            if spec.tenant == path or spec.tenant.startswith(f"{path}/"):
                found.setdefault(f"tenant {path}", []).append(record.job.label)
        if spec.klass and spec.klass in state.classes and spec.klass not in classes:
            found.setdefault(f"class {spec.klass}", []).append(record.job.label)
    return [f"{what} cannot be removed: {_named(labels)}" for what, labels in found.items()]


def _named(labels: list[str]) -> str:
    jobs = "job" if len(labels) == 1 else "jobs"
    lives = "is its own and live" if len(labels) == 1 else "are its own and live"
    return f"{jobs} {names_text(labels, JOBS_NAMED_MAX)} {lives}"


def _notes(state: State, settings: Settings) -> list[str]:
    """What holds although it may not look so: jobs above a limit or of a class that is no longer theirs, guarantees
    beyond the fleet."""
    found = []
    tenants, gpus = state.tenants, state.count_gpus()
    quotas = {tenant.path: resolve(tenant.quota, gpus) for tenant in settings.tenants}
    for tenant in settings.tenants:
        number = tenants.number.get(tenant.path)
        limit = quotas[tenant.path].limit.get(TOTAL)
        found += _of_nothing(tenant, gpus)
        if number is not None and limit is not None and tenants.used[number][0] > limit:
            found.append(
                f"{tenant.path} uses {gpus_text(tenants.used[number][0])} GPUs, more than its new limit of "
                f"{gpus_text(limit)}: what runs goes on, nothing new starts until it is below"
            )
    promised = sum(quota.guarantee.get(TOTAL, 0) for path, quota in quotas.items() if "/" not in path)
    there = sum(node.gpus for node in state.nodes.node) * 1000
    if promised > there:
        found.append(
            f"guarantees come to {gpus_text(promised)} GPUs and the fleet has {gpus_text(there)}: not all can be kept"
        )
    return [*found, *_overspent(state, settings), *list_kept_classes(state, settings)]


def _of_nothing(tenant: Tenant, gpus: Gpus) -> list[str]:
    """Percentages of nodes that are not there, or that round down to no GPU."""
    return [
        f"{kind} of {tenant.path}: {percentage_words(part, key, gpus)} is no whole GPU"
        for kind, parts in tenant.quota.percentages.items()
        for key, part in parts.items()
        if part.percent_milli and not amount_of(part, key, gpus)
    ]


def _overspent(state: State, settings: Settings) -> list[str]:
    """Budgets that are below what is spent and set aside already."""
    uses, found = {use.rule.name: use for use in list_named_uses(state, state.now_ms)}, []
    for rule in settings.budgets:
        use = uses.get(rule.name)
        if use is None or (rule.micro_usd > 0) != (use.rule.micro_usd > 0):
            continue
        fresh = make_spend(rule)
        if use.spent + use.aside <= fresh.amount:
            continue
        told = (fresh.amount, use.spent, use.aside)
        has, spent, aside = [amount_text(fresh, each, told) for each in told]
        what = f"{spent} spent and {aside} set aside for what runs"
        then = {
            BudgetAction.HARD: "what runs goes on, no job that it counts starts until it renews",
            BudgetAction.SOFT: "jobs that it counts go behind all others until it renews",
        }.get(rule.action, "it only warns")
        found.append(
            f"budget {rule.name} is {has if fresh.of_money else amount_counted(fresh, fresh.amount)}, below what this "
            f"window has: {what}; {then}"
        )
    return found


def _late_prices(live: Settings, wanted: Settings, closed: int) -> list[str]:
    """That prices of days whose books are closed stay as they are; `closed` is the first day that is open."""

    def about_closed(settings: Settings) -> object:
        book = {
            replace(price, until_day=min(price.until_day or closed, closed))
            for price in settings.price_book
            if price.from_day < closed
        }
        return book, settings.prices

    if not closed or about_closed(live) == about_closed(wanted):
        return []
    return [
        f"the books are closed up to {day_text(closed - 1)}: the prices of these days stay as they are, and what is "
        "new counts from the next day on"
    ]


def _counted_before(live: Settings, wanted: Settings) -> list[str]:
    """That budgets of money keep what they have counted where prices change."""
    kept = {rule.name for rule in live.budgets if rule.micro_usd}
    names = sorted([rule.name for rule in wanted.budgets if rule.micro_usd and rule.name in kept])
    if not names or (live.price_book, live.prices) == (wanted.price_book, wanted.prices):
        return []
    return [
        f"prices change: what is spent of {'budget' if len(names) == 1 else 'the budgets'} {', '.join(names)} stays "
        "counted at the earlier prices, and `yard cost` and statements take the new ones for all days of open months"
    ]


def _tree(state: State, now_ms: int) -> list[TenantReply]:
    tenants = state.tenants
    waiting, _milli = state.counts.by_tenant(tenants.chain)
    rows: list[TenantReply] = []
    configured = {tenant.path: tenant for tenant in state.settings.tenants}
    gpus = state.count_gpus()
    numbers = [number for number, path in tenants.places() if path and not path.endswith("/-")]
    for number in sorted(numbers, key=lambda number: tenants.path[number].split("/")):
        path = tenants.path[number]
        tenant = configured.get(path)
        given = tenant.quota if tenant is not None else Quota()
        quota = resolve(given, gpus)
        rows.append(
            {
                "tenant": path,
                "configured": tenant is not None,
                "weight": tenants.weight[number],
                "guarantee": _gpus(quota.guarantee),
                "limit": _gpus(quota.limit),
                "borrow": _gpus(quota.borrow),
                "lend": _gpus(quota.lend),
                "percentages": {
                    kind: {key: percentage_text(part) for key, part in sorted(parts.items())}
                    for kind, parts in given.percentages.items()
                },
                "gpus_used": tenants.used[number][0] / 1000,
                "running": tenants.running[number],
                "waiting": waiting[number],
                "classes": [klass.name for klass in state.settings.classes if is_theirs(klass, path, "")],
                **caps_view(find_caps(state, number, now_ms)),
            }
        )
    return rows


def _gpus(amounts: dict[str, int]) -> dict[str, float]:
    return {model: milli / 1000 for model, milli in sorted(amounts.items())}
