"""Quantities and refusals as people read them."""

import pytest

from gpuyard.api.messages.node_bodies import DrainRequest
from gpuyard.api.messages.problems import Problem
from gpuyard.api.messages.schemas import check_value
from gpuyard.core.phrases import hours_counted
from gpuyard.model.units import HOUR_MS, MILLI
from gpuyard.reports.nodes import REPORT

NODE = dict.fromkeys(REPORT.fields({}), "") | {
    "name": "n1", "state": "UP", "gpus": 1, "gpus_free": 1, "gpus_pinned": 0, "cpus": 4, "cpus_free": 4, "jobs": [],
    "memory_mib": 24 * 1024, "memory_mib_free": 23 * 1024, "labels": {}, "taints": [],
}  # fmt: skip


def test_one_hour_of_a_gpu_is_one() -> None:
    assert ["1 GPU-hour", "0.5 GPU-hours", "12 GPU-hours"] == [
        hours_counted(MILLI * ms) for ms in (HOUR_MS, HOUR_MS // 2, 12 * HOUR_MS)
    ]


def test_a_reason_that_is_too_long_is_counted_in_characters() -> None:
    with pytest.raises(Problem) as caught:
        check_value(DrainRequest, {"why": "x" * 501})
    assert "why: it should have at most 500 characters and has 501" == caught.value.detail


def test_memory_of_nodes_has_its_unit() -> None:
    cells = {column.header: column.cell(NODE) for column in REPORT.columns({"nodes": [NODE]})}
    assert "23/24 GiB" == cells["MEMORY"]
