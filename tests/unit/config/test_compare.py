"""Two configurations held against each other: every difference is seen, and nothing but differences."""

from dataclasses import fields, replace
from typing import Any

import pytest

from gpuyard.config.compare import Change, compare
from gpuyard.config.reading import loads
from gpuyard.model import (
    Bounds,
    Budget,
    ClassLimit,
    ClusterPreference,
    Effect,
    GpuModel,
    GpuReserve,
    JobClass,
    NamedBudget,
    NodeMarks,
    Percentage,
    PolicySpec,
    Price,
    Quota,
    Retention,
    Settings,
    Taint,
    Tenant,
)
from gpuyard.model.units import HOUR_MS
from gpuyard.model.walls import Askers, Wall

FILE = """\
version: 1
clusters: {box: {gpus: 8 x A100-80GB, emulate: true}}
tenants:
  research: {weight: 3, guarantee: 4, limit: 6}
  ana: {parent: research}
classes:
  urgent: {priority: 9, preemptible: false, limit: 1h}
  batch: {limit: 1d}
prices: {A100-80GB: 2.5}
"""
LIVE = loads(FILE).settings


def edited(*pairs: tuple[str, str]) -> list[Change]:
    text = FILE
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return compare(LIVE, loads(text).settings)


def test_how_a_file_says_it_makes_no_difference() -> None:
    assert [] == edited(("version: 1", "# a comment\nversion: 1"), ("limit: 1d", "limit: 24h, grace: 30s"))


def test_a_changed_key_is_named_with_both_values() -> None:
    assert [
        Change("tenant", "research", "weight", "3", "1"),
        Change("tenant", "research", "limit", "6", "no limit"),
        Change("class", "urgent", "limit", "1h", "2h"),
        Change("class", "urgent", "tenants", "everybody", "research"),
        Change("price", "A100-80GB", "", "2.5 USD/h", "3 USD/h"),
    ] == edited(
        ("weight: 3, ", ""), (", limit: 6", ""), ("limit: 1h", "limit: 2h, tenants: research"), ("2.5", "3")
    )


def test_what_is_added_and_removed_is_told_whole() -> None:
    changes = edited(
        (
            "  ana: {parent: research}",
            "  eve: {parent: research, borrow: 1, budget: {gpu_hours: 10, window: 7d}}",
        ),
        ("  urgent: {priority: 9, preemptible: false, limit: 1h}\n", ""),
    )

    assert [
        ("removed", "tenant", "research/ana", "all defaults", ""),
        ("added", "tenant", "research/eve", "", "borrow 1, budget 10 GPU-hours in 7d"),
        ("removed", "class", "urgent", "priority 9, preemptible false, limit 1h, min_run 5m, grace 30s", ""),
    ] == [(each.what, each.kind, each.name, each.before, each.after) for each in changes]


def test_a_guarantee_by_model_is_told_by_model() -> None:
    one = Settings(tenants=(Tenant("a", quota=Quota(guarantee={"total": 4000, "H100": 4000})),))
    two = Settings(tenants=(Tenant("a", quota=Quota(guarantee={"total": 2500, "H100": 2500})),))

    assert [Change("tenant", "a", "guarantee H100", "4", "2.5")] == compare(one, two)
    assert [Change("tenant", "a", "guarantee H100", "4", "0")] == compare(
        one, Settings(tenants=(Tenant("a"),))
    )


def test_a_percentage_is_told_as_one() -> None:
    one = Quota(
        percentages={"guarantee": {"total": Percentage(40_000)}, "limit": {"H100": Percentage(12_500, "p")}}
    )
    two = Quota(guarantee={"total": 4000})

    def of(quota: Quota) -> Settings:
        return Settings(tenants=(Tenant("a", quota=quota),))

    assert [
        Change("tenant", "a", "guarantee", "40%", "4"),
        Change("tenant", "a", "limit H100", "12.5% of p", "no limit"),
    ] == compare(of(one), of(two))


QUOTAS: dict[str, Any] = {
    "guarantee": {"total": 1}, "limit": {"H100": 1}, "borrow": {"total": 1}, "lend": {"total": 1},
    "max_gpus_per_job": 1, "max_gpus_per_user": 1, "max_running_jobs": 1, "max_cpu_milli": 1000,
    "max_memory_mib": 1024, "max_jobs": 3, "refuses": True, "per_job": {"gpus": Bounds(1000)},
    "classes": {"batch": ClassLimit(1000)},
    "percentages": {"limit": {"total": Percentage(1000)}},
}  # fmt: skip
TENANTS: dict[str, Any] = {
    "path": "b",
    "weight": 2,
    "quota": Quota(limit={"total": 1}),
    "budget": Budget(1, 1),
}
CLASSES: dict[str, Any] = {
    "name": "other", "priority": 1, "preemptible": False, "limit_ms": HOUR_MS, "min_run_ms": 0, "grace_ms": 1000,
    "tenants": ("a",), "users": ("ana",),
}  # fmt: skip
POLICIES: dict[str, Any] = {
    "name": "mine", "order": ("sjf",), "placement": "fgd", "backfill": "none", "backfill_depth": 1,
    "depth_per_tenant": 1, "preemption": ("class",), "quotas": False, "clusters": (ClusterPreference("a", 1),),
    "turn_ms": 7,
}  # fmt: skip
SETTINGS: dict[str, Any] = {
    "tenants": (Tenant("a"),), "classes": (JobClass("batch", 1),), "default_class": "other",
    "gpu_models": (GpuModel("X1", 1, False, False, 1),), "share_weights": {"H100": 1}, "prices": {"H100": 1},
    "half_life_ms": HOUR_MS, "period_ms": HOUR_MS, "earmark_ms": HOUR_MS, "whole_gpus": 3, "mps_users": "many",
    "retention": Retention(logs_ms=0), "attempts_per_user": 2, "attempts_per_node": 3, "waiting_per_user": 4,
    "recipes_mib_per_user": 5,
    "policy": PolicySpec("mine"), "partitions": {"gpu": ("h100",)}, "accounts": {"p1": "a"}, "qos": {"high": "batch"},
    "observed": {"old": True}, "price_book": (Price(1, "H100"),), "budgets": (NamedBudget("b", 1),),
    "markets": {"a/b": "spot"}, "regions": {"a/b": "eu"}, "reserves": {"a/b": GpuReserve(1000)},
    "marks": (NodeMarks("a", "b", (), (("zone", "a"),), (Taint("old", Effect.NO_SCHEDULE),)),),
    "walls": {"a/b": Wall(time_limit_ms=HOUR_MS)},
}  # fmt: skip
WALLS: dict[str, Any] = {
    "allow": Askers(groups=("red",)), "deny": Askers(tenants=("a",)), "time_limit_ms": HOUR_MS,
    "default_time_ms": HOUR_MS, "max_nodes_per_job": 2, "min_gpu_milli": 1500, "priority": 1, "preemptible": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Quota, QUOTAS),
        (Tenant, TENANTS),
        (JobClass, CLASSES),
        (PolicySpec, POLICIES),
        (Wall, WALLS),
        (Settings, SETTINGS),
    ],
)
def test_no_field_is_forgotten(kind: type, values: dict[str, Any]) -> None:
    """A field that is added to the settings has to be told of, or a change of it would come unseen."""
    assert {field.name for field in fields(kind)} - {"version"} == set(values)
    base = Settings(tenants=(Tenant("a"),) if kind in (Quota, Tenant) else ())
    if kind is Wall:
        base = replace(base, walls={"a/b": Wall(allow=Askers(users=("ana",)))})
    for name, value in values.items():
        if kind is Settings:
            after = replace(Settings(), **{name: value})
        elif kind is Wall:
            after = replace(base, walls={"a/b": replace(base.walls["a/b"], **{name: value})})
        elif kind is PolicySpec:
            after = replace(base, policy=replace(base.policy, **{name: value}))
        elif kind is JobClass:
            after = replace(base, classes=(replace(base.classes[0], **{name: value}),))
        elif kind is Tenant:
            after = replace(base, tenants=(replace(Tenant("a"), **{name: value}),))
        else:
            after = replace(base, tenants=(Tenant("a", quota=Quota(**{name: value})),))
        assert [] != compare(base, after), name
        assert [] != compare(after, base), name
