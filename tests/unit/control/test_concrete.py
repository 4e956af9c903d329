"""Asks by need: whole nodes, and the cheapest part of a GPU with so much memory."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuyard.control.refusals import Unacceptable
from gpuyard.model import Ask, Isolation, Mig, Milli, Node, NodeAdded, Whole
from rigs.request_service import Rig, rig


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path) as found:
        found.add(NodeAdded(found.now_ms(), Node("n2", "c", "p", "H200", 8, 16_000, 64_000)))
        found.add(NodeAdded(found.now_ms(), Node("n3", "c", "p", "T4", 4, 16_000, 64_000)))
        yield found


def ask(service: Rig, **fields: Any) -> Ask:
    job = service.submit(gpus=0, **fields)
    service.replica.catch_up()
    found = service.replica.state.jobs[job].job.spec.ask
    # Whose share it is depends on who runs these tests.
    return replace(found, gpus=replace(found.gpus, user="")) if isinstance(found.gpus, Milli) else found


@pytest.mark.parametrize(
    ("mib", "isolation", "request_", "model"),
    [
        # A T4 costs least, whatever part of it: 12 GiB of its 16.
        (12 * 1024, Isolation.ANY, Milli(1, 750), "T4"),
        (12 * 1024, Isolation.SHARED, Milli(1, 750), "T4"),
        # It has no MIG, so strict is all of it or a slice elsewhere; the slice costs more here than the whole T4.
        (12 * 1024, Isolation.STRICT, Whole(1), "T4"),
        (18 * 1024, Isolation.STRICT, Mig(1, "1g.20gb"), "H100"),
        (60 * 1024, Isolation.STRICT, Mig(1, "3g.71gb"), "H200"),
        (60 * 1024, Isolation.ANY, Milli(1, 430), "H200"),
        (100 * 1024, Isolation.STRICT, Whole(1), "H200"),
    ],
)
def test_the_cheapest_part_that_has_the_memory_is_taken(
    service: Rig, mib: int, isolation: Isolation, request_: object, model: str
) -> None:
    found = ask(service, gpu_memory_mib=mib, isolation=isolation)
    assert (request_, (model,)) == (found.gpus, found.models)


def test_no_part_is_smaller_than_what_was_asked_for(service: Rig) -> None:
    sizes = {"T4": 16_384, "H100": 81_920, "H200": 144_384}
    for mib in range(1, 144_384, 1777):
        found = ask(
            service, gpu_memory_mib=mib, isolation=Isolation.SHARED if mib < 140_000 else Isolation.ANY
        )
        if isinstance(found.gpus, Milli):
            assert sizes[found.models[0]] * found.gpus.milli // 1000 >= mib


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"gpu_memory_mib": 1 << 20}, "no GPU here has 1024 GiB"),
        ({"gpu_memory_mib": 1 << 20, "isolation": Isolation.STRICT}, "kept strictly apart"),
        ({"mig": "9g.999gb"}, "no GPU here can be cut to '9g.999gb': H100 has 1g.10gb.*T4 cannot be cut"),
        ({"mig": "1g.18gb", "gpu_models": ("T4",)}, "T4 cannot be cut"),
        ({"mig": "1g.18gb", "gpu_models": ("H100",)}, "H100 has 1g.10gb"),
    ],
)
def test_what_is_not_there_is_refused_with_what_there_is(
    service: Rig, fields: dict[str, Any], says: str
) -> None:
    with pytest.raises(Unacceptable, match=says):
        service.submit(**fields)


def test_slices_and_shares_go_into_the_log_as_they_were_asked_for(service: Rig) -> None:
    assert Mig(1, "1g.18gb") == ask(service, mig="1g.18gb").gpus
    assert Milli(1, 250) == ask(service, gpu_milli=250).gpus


@pytest.fixture
def both_sizes(service: Rig) -> Rig:
    for name, model in (("n4", "A100-40GB"), ("n5", "A100-80GB")):
        service.add(NodeAdded(service.now_ms(), Node(name, "c", "p", model, 8, 16_000, 64_000)))
    return service


def test_a_family_of_models_asks_for_any_of_its_sizes(both_sizes: Rig) -> None:
    assert ("A100-40GB", "A100-80GB") == ask(both_sizes, gpu_models=("A100",)).models
    assert ("A100-40GB", "A100-80GB", "T4") == ask(both_sizes, gpu_models=("a100", "T4")).models
    assert ("A100-80GB",) == ask(both_sizes, gpu_models=("A100-80GB",)).models


def test_of_a_family_the_cheapest_size_with_enough_memory_is_taken(both_sizes: Rig) -> None:
    found = [
        ask(both_sizes, gpu_models=("A100",), gpu_memory_mib=gib * 1024, isolation=Isolation.STRICT).models
        for gib in (4, 60)
    ]
    assert [("A100-40GB",), ("A100-80GB",)] == found


def test_a_name_that_is_no_model_is_still_refused(both_sizes: Rig) -> None:
    with pytest.raises(Unacceptable, match="unknown GPU model 'A999'; known GPU models here: H100"):
        both_sizes.submit(gpus=1, gpu_models=("A999",))
