"""A job is judged by all that it asks for, whatever was judged before it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.control.refusals import CouldNever, Refusal
from gpuyard.engines.contract import Container
from gpuyard.model import Capability, EngineSeen, Node, NodeAdded, Settings
from gpuyard.model.settings import NamedBudget
from gpuyard.model.units import HOUR_MS
from gpuyard.policies.registry import PRESETS
from rigs.request_service import ROOT, Rig, rig

IMAGE = (Container("docker.io/team/train:1"),)
OTHER_IMAGE = (Container("docker.io/team/eval:2"),)


@pytest.fixture
def imageless(tmp_path: Path) -> Iterator[Rig]:
    """A yard whose only cluster runs no images."""
    with rig(tmp_path) as found:
        found.add(EngineSeen(0, "c", (Capability.IMAGES,)))
        yield found


def test_a_plain_job_is_taken_after_a_like_one_in_an_image_was_refused(imageless: Rig) -> None:
    with pytest.raises(CouldNever, match="cluster c runs no images"):
        imageless.submit(gpus=2, containers=IMAGE)

    assert 1 == imageless.submit(gpus=2)


def test_a_job_in_an_image_is_refused_after_a_like_plain_one_was_taken(imageless: Rig) -> None:
    assert 1 == imageless.submit(gpus=2)

    with pytest.raises(CouldNever, match="cluster c runs no images"):
        imageless.submit(gpus=2, containers=OTHER_IMAGE)


def test_no_project_is_refused_by_the_budget_of_another(tmp_path: Path) -> None:
    budget = NamedBudget("alpha's", labels=(("project", "alpha"),), gpu_ms=HOUR_MS)
    with rig(tmp_path, Settings(budgets=(budget,), policy=PRESETS["default"])) as service:
        with pytest.raises(CouldNever, match="the budget alpha's is 1 GPU-hour"):
            service.submit(gpus=2, limit_ms=HOUR_MS, labels=(("project", "alpha"),))

        assert 1 == service.submit(gpus=2, limit_ms=HOUR_MS, labels=(("project", "beta"),))
        with pytest.raises(CouldNever, match="the budget alpha's"):
            service.submit(gpus=2, limit_ms=HOUR_MS, labels=(("project", "alpha"),))


def test_a_job_in_an_image_starts_where_images_run(imageless: Rig) -> None:
    imageless.add(NodeAdded(0, Node("m1", "d", "p", "H100", 8, 16_000, 64_000)))
    job_id = imageless.submit(containers=IMAGE)
    plain = imageless.submit()

    imageless.replica.catch_up()
    state = imageless.replica.state
    clusters = {
        each: sorted([state.nodes.kinds[way.kind].cluster for way in state.jobs[each].shape.ways])
        for each in (job_id, plain)
    }
    assert {job_id: ["d"], plain: ["c", "d"]} == clusters


def test_a_refusal_that_is_given_again_is_one_of_its_own(imageless: Rig) -> None:
    found: list[Refusal] = []
    for _again in range(2):
        with pytest.raises(Refusal) as caught:
            imageless.submit(ROOT, gpus=9)
        found.append(caught.value)

    assert found[0] is not found[1]
    assert (found[0].message, found[0].hint) == (found[1].message, found[1].hint)
