"""Cores next to GPUs."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from gpuyard.core.fleet.bits import choose_in_domains, tasks_in_domains
from gpuyard.core.fleet.bits import each as each_bit
from gpuyard.engines.contract import Part
from gpuyard.engines.local import cores
from gpuyard.engines.local.hosts import PretendedNodes
from gpuyard.engines.machine import processes
from gpuyard.model import Node


def node(gpus: int = 8, domains: int = 2) -> Node:
    return Node("n", "c", "p", "H100", gpus, 32_000, 256_000, gpus, domains)


def near(
    monkeypatch: pytest.MonkeyPatch, gpus: tuple[int, ...], cpu_milli: int = 1000, *, of: Node | None = None
) -> str:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)))
    (host,) = PretendedNodes((of or node(),)).read()
    return cores.choose_cores([Part("n", gpus, 1000, cpu_milli, 64, 1)], {"n": host}, emulated=True)


def test_a_job_runs_next_to_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ["0-3", "4-7", ""] == [near(monkeypatch, gpus) for gpus in ((0, 3), (4,), (0, 4))]


def test_a_job_that_asks_for_more_cores_than_are_there_has_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert ["0-3", ""] == [near(monkeypatch, (0,), milli) for milli in (16_000, 17_000)]


def test_where_it_makes_no_difference_a_job_runs_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "" == near(monkeypatch, ())
    assert "" == near(monkeypatch, (0,), of=node(domains=1))
    assert "" == near(monkeypatch, (0,), of=node(gpus=16, domains=16)), "some domains have no core"


@pytest.mark.parametrize("link", [0, 2, 4, 8])
def test_the_domains_of_the_engine_are_those_of_the_decision(
    monkeypatch: pytest.MonkeyPatch, link: int
) -> None:
    """Where the decision has kept a job to one domain, its cores are those of that domain."""
    here = replace(node(), nvlink_group_size=link)
    (host,) = PretendedNodes((here,)).read()
    assert [gpu // here.domain_gpus for gpu in range(here.gpus)] == [each.numa for each in host.readings]
    for free in range(1 << here.gpus):
        for count in range(1, 5):
            if tasks_in_domains(free, count, here.domain_gpus):
                chosen = choose_in_domains(free, 1, count, here.domain_gpus, here.close_gpus, here.gpus)
                assert 1 == len({host.readings[gpu].numa for gpu in each_bit(chosen)})
    chosen = choose_in_domains(0b1111_0111, 1, 4, here.domain_gpus, here.close_gpus, here.gpus)
    assert "4-7" == near(monkeypatch, tuple(each_bit(chosen)), of=here)


def test_domains_of_a_machine_are_the_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(6)))
    for number, text in ((0, "0-1,4\n"), (1, "2-3,5-7\n"), (2, "\n")):
        (tmp_path / f"node{number}").mkdir()
        (tmp_path / f"node{number}" / "cpulist").write_text(text)
    (tmp_path / "online").write_text("0-2")
    cores.read_domains.cache_clear()

    assert {0: {0, 1, 4}, 1: {2, 3, 5}, 2: set()} == cores.read_domains(str(tmp_path))
    cores.read_domains.cache_clear()


def test_lists_of_cores_are_read_and_written_alike() -> None:
    for text in ("0", "0-3", "0-1,4,6-7"):
        assert text == cores.cores_text(processes.parse_cores(text))


@pytest.mark.parametrize(
    ("linked", "domains", "close"),
    [(0, 1, 0), (8, 1, 8), (8, 2, 4), (0, 2, 4), (2, 2, 2), (4, 2, 4), (8, 8, 8)],
)
def test_gpus_of_one_nvlink_group_or_else_of_one_domain_are_close(
    linked: int, domains: int, close: int
) -> None:
    assert close == Node("n", "c", "p", "H100", 8, 1000, 1000, linked, domains).close_gpus
