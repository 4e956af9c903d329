"""The line as it is shown is the line as it is walked."""

from random import Random

import pytest

from gpuyard.core.jobs.queue import WaitQueue, count_ahead, list_ids_in_order, walk_in_order
from gpuyard.model.units import NO_LIMIT_MS
from gpuyard.testing import nodes
from harness.yard import Yard


def walked(queue: WaitQueue) -> list[int]:
    """The jobs that a pass meets if none of them can start."""
    walk, found = queue.walk(1 << 60), []
    while (record := walk.next()) is not None:
        found.append(record.id)
        walk.blocked(record, NO_LIMIT_MS)
    return found


@pytest.mark.parametrize("policy", ["default", "fifo", "fair", "class", "sjf"])
@pytest.mark.parametrize("seed", range(4))
def test_jobs_are_listed_in_the_order_in_which_a_pass_meets_them(policy: str, seed: int) -> None:
    random = Random(seed)
    here = Yard(policy, nodes(1))
    paths = ["a", "b/x", "b/y", "b", "c/z/w"]
    for _ in range(60):
        here.submit(random.choice([1, 2, 4, 8]), tenant=random.choice(paths))
        here.wait(random.randrange(3000))
        if random.random() < 0.3:
            here.step()
    listed = [record.id for record in walk_in_order(here.state.queue)]
    assert listed == list_ids_in_order(here.state.queue)
    assert listed == walked(here.state.queue)
    assert len(listed) == here.state.queue.count > 20
    jobs = here.state.jobs
    assert [count_ahead(here.state.queue, jobs[job_id]) for job_id in listed] == list(range(len(listed)))
