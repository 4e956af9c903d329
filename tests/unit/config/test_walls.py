"""The walls of pools in a file: their values, and the sentences that refuse what makes no sense."""

from collections.abc import Callable

import pytest

from gpuyard.config.compare import compare
from gpuyard.config.reading import loads
from gpuyard.config.slurm.exporting import Wishes, export
from gpuyard.engines.slurm.site.notes import Notes
from gpuyard.model import Settings
from gpuyard.model.units import HOUR_MS, MINUTE_MS
from gpuyard.model.walls import Askers, Wall

Refusals = Callable[[str], list[str]]

FILE = """\
version: 1
clusters:
  main:
    engine: local
    pools:
      big: {{nodes: 2, gpus: 8 x H100, cpus: 96, memory: 1T, emulate: true{}}}
      plain: {{nodes: 1, gpus: 8 x H100, cpus: 96, memory: 1T, emulate: true}}
tenants: {{lab: {{}}, vision: {{parent: lab}}}}
classes: {{batch: {{}}, urgent: {{}}}}
"""


def test_every_key_of_a_wall() -> None:
    keys = (
        ", allow: {tenants: [lab/vision, lab], users: ana, groups: [red], classes: urgent}, deny: {users: [bob]}, "
        "time_limit: 4h, default_time: 30m, max_nodes_per_job: 2, min_gpus_per_job: 0.5, "
        "priority: 3, preemptible: false"
    )
    wall = Wall(
        Askers(("lab/vision", "lab"), ("ana",), ("red",), ("urgent",)),
        Askers(users=("bob",)),
        4 * HOUR_MS,
        30 * MINUTE_MS,
        2,
        500,
        3,
        False,
    )
    settings = loads(FILE.format(keys)).settings
    assert {"main/big": wall} == settings.walls
    assert [("wall", "main/big", "added")] == [
        (each.kind, each.name, each.what) for each in compare(Settings(), settings) if each.kind == "wall"
    ]
    told = next(each for each in compare(settings, loads(FILE.format("")).settings) if each.kind == "wall")
    assert (
        "allow tenants lab/vision, lab, allow users ana, allow groups red, allow classes urgent, deny users bob, "
        "time_limit 4h, default_time 30m, max_nodes_per_job 2, min_gpus_per_job 0.5, priority 3, "
        "preemptible false" == told.before
    )
    assert {} == loads(FILE.format("")).settings.walls


def test_a_cluster_that_finds_its_pools_has_walls_by_name() -> None:
    text = "version: 1\nclusters:\n  site: {engine: slurm, slurm: {mode: observe}, walls: {debug: {time_limit: 30m}}}\n"
    assert {"site/debug": Wall(time_limit_ms=30 * MINUTE_MS)} == loads(text).settings.walls


def test_an_export_to_slurm_says_that_walls_are_left_out() -> None:
    notes = Notes()
    export(loads(FILE.format(", time_limit: 4h")), Wishes(), notes)
    said = [note for note in notes.unsaid if note.startswith("wall of pool")]
    assert ["wall of pool 'big'"] == [note.partition(":")[0] for note in said]


WRONG = [
    (
        ", allow: {tenants: [lab, labb]}",
        "6:99: unknown tenant 'labb' in 'allow' of pool 'big'; did you mean 'lab'?",
    ),
    (
        ", deny: {classes: bacth}",
        "6:92: unknown class 'bacth' in 'deny' of pool 'big'; did you mean 'batch'?",
    ),
    (
        ", allow: {}",
        "6:76: 'allow' of pool 'big' names nobody; name tenants, users, groups, classes, or remove the key",
    ),
    (
        ", time_limit: 1h, default_time: 2h",
        "6:106: 'default_time' of pool 'big' must not be longer than its 'time_limit' (1h)",
    ),
]


@pytest.mark.parametrize(("keys", "problem"), WRONG)
def test_a_wall_that_makes_no_sense(keys: str, problem: str, refusals: Refusals) -> None:
    assert [f"yard.yaml:{problem}"] == refusals(FILE.format(keys))


def test_walls_of_a_cluster_are_for_pools_that_it_finds(refusals: Refusals) -> None:
    both = FILE.format("").replace("engine: local\n", "engine: local\n    walls: {big: {time_limit: 1h}}\n")
    assert [
        "yard.yaml:5:5: 'walls' of cluster 'main' is for a cluster without pools; write its keys into the pools"
    ] == refusals(both)
    machine = "version: 1\nclusters: {box: {engine: local, walls: {lokal: {time_limit: 1h}}}}\n"
    assert ["yard.yaml:2:41: 'walls' names an unknown pool 'lokal'; did you mean 'local'?"] == refusals(
        machine
    )
