"""A judgement that is remembered is the one that would be made now; dry run, submission and log agree."""

import os
import random
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from gpuyard.control.access.people import Person
from gpuyard.control.access.rights import Right, Role
from gpuyard.control.admission.admit import Admitted, admit
from gpuyard.control.admission.dependencies import Dependency
from gpuyard.control.admission.judgement_cache import Remembered
from gpuyard.control.admission.wanted import Wanted, make_job
from gpuyard.control.refusals import Refusal
from gpuyard.control.replica.labels import Label
from gpuyard.core import InvalidEvent, State, apply
from gpuyard.core.explain.admission import impossible_reason
from gpuyard.engines.contract import Container
from gpuyard.model import (
    Ask,
    AttemptStarted,
    Budget,
    Capability,
    ConfigSet,
    EngineSeen,
    Event,
    Grant,
    Isolation,
    Job,
    JobClass,
    JobSpec,
    JobSubmitted,
    Level,
    Node,
    NodeAdded,
    NodeChanged,
    NodeCordoned,
    Quota,
    Settings,
    Tenant,
    Whole,
)
from gpuyard.model.placement import join_selections, parse_preferences, parse_taint, parse_tolerations
from gpuyard.model.settings import TOTAL, NamedBudget, Window
from gpuyard.model.units import DAY_MS, HOUR_MS
from gpuyard.model.walls import Askers, Wall
from gpuyard.policies.registry import PRESETS
from rigs.request_service import rig

PAIRS = 10_000 if os.environ.get("GPUYARD_SOAK") else 1_500
"""Of which each is judged three times, remembered and afresh."""

PEOPLE = [
    Person(0, 0, "root", True),
    Person(1001, 1001, "ana", False, groups=("red",)),
    Person(1002, 1002, "ben", False, places=("research",)),
    Person(1003, 1003, "cy", False, given=(Right(Role.USER, "research/vision"),)),
    Person(1004, 1004, "dee", False, given=(Right(Role.TENANT_ADMIN, "product"),), default_tenant="product/dee"),
    Person(1005, 1005, "eve", False, given=(Right(Role.VIEWER),)),
]  # fmt: skip

VALUES: dict[str, list[Any]] = {
    "name": ["", "train"],
    "tenant": ["", "research/vision", "research/ana", "product/dee", "p1", "nobody"],
    "klass": ["", "batch", "closed", "high", "nothing"],
    "labels": [(), (("project", "alpha"),), (("project", "beta"),)],
    "gpus": [0, 1, 2, 9],
    "gpu_milli": [0, 250],
    "mig": ["", "1g.10gb", "9g.1gb"],
    "gpu_memory_mib": [0, 9_000, 900_000],
    "isolation": [Isolation.ANY, Isolation.STRICT, Isolation.SHARED],
    "gpu_models": [(), ("A100",), ("h100",), ("T4",), ("Z9",)],
    "tasks": [1, 2, 40],
    "cpu_milli": [None, 1_000, 90_000],
    "memory_mib": [0, 1_000, 900_000],
    "limit_ms": [0, HOUR_MS, 30 * HOUR_MS],
    "begin_ms": [0, 5],
    "deadline_ms": [0, 7],
    "array": [None, (0, 1), (3,)],
    "image": ["", "a/x:1", "b/y:2"],
    "checkpoint_s": [0, 60],
    "retries": [0, 2],
    "requeue": [True, False],
    "hold": [False, True],
    "clusters": [(), ("a",), ("b",), ("a", "b"), ("c",)],
    "pools": [(), ("p",), ("q",), ("gpu",), ("none",)],
    "nodes_max": [0, 1, 2],
    "nodes_min": [0, 2],
    "level": [None, Level.SWITCH, Level.FABRIC],
    "level_required": [False, True],
    "level_ms": [0, 60_000],
    "one_domain": [False, True],
    "on_nodes": [(), ("n1",), ("b:m1",), ("n9",)],
    "not_nodes": [(), ("n1",)],
    "features": [(), (("fast",),), (("none",),), (("fast", "slow"),)],
    "selects": [
        (),
        join_selections(["zone=a"]),
        join_selections(["zone in (a, b), !fast | fast"]),
        join_selections(["nvidia.com/gpu.product=NVIDIA-A100-SXM4-80GB"]),
        join_selections(["nowhere"]),
    ],
    "prefers": [(), parse_preferences(["5: zone=b"])],
    "tolerates": [(), parse_tolerations(["closed"])],
    "exclusive": [False, True],
    "dependencies": [(), (Dependency("afterok", Label(1)),)],
    "dependencies_any": [False, True],
    "array_limit": [0, 1],
}

WALLS: list[dict[str, Wall]] = [
    {},
    {"a/q": Wall(allow=Askers(users=("ana", "ben")), time_limit_ms=HOUR_MS), "b/p": Wall(min_gpu_milli=2000)},
    {
        "a/q": Wall(deny=Askers(groups=("red",))),
        "b/p": Wall(allow=Askers(tenants=("product",)), max_nodes_per_job=1),
    },
]
"""The pool `p` of the first cluster stays open: jobs are put there whatever the judgement says."""
RARE = 0.12
"""How often a field has another value than its default: with more, everything would be refused for its first flaw."""


def settings(version: int) -> Settings:
    return Settings(
        tenants=(
            Tenant("research", quota=Quota(limit={TOTAL: 4_000 + 1_000 * (version % 3)})),
            Tenant("research/vision"),
            Tenant("product", budget=Budget((5 + version % 2) * HOUR_MS * 1000, DAY_MS)),
        ),
        classes=(JobClass("batch"), JobClass("closed", users=("ana",)), JobClass("short", limit_ms=HOUR_MS)),
        budgets=(
            NamedBudget("alpha", labels=(("project", "alpha"),), gpu_ms=HOUR_MS, window=Window.MONTH),
        ),
        partitions={"gpu": ("p", "q")},
        accounts={"p1": "research/vision"},
        qos={"high": "short"},
        walls=WALLS[version % len(WALLS)],
        policy=PRESETS["default"],
    )  # fmt: skip


def drawn(rng: random.Random) -> Wanted:
    return Wanted(**{name: rng.choice(values) for name, values in VALUES.items() if rng.random() < RARE})


def changes(rng: random.Random, state: State) -> Iterator[Event]:
    """Something that may make another answer of the next judgement."""
    now_ms = state.now_ms
    match rng.randrange(8):
        case 0:
            yield ConfigSet(now_ms, settings(rng.randrange(6)))
        case 1:
            yield EngineSeen(
                now_ms, "a", rng.choice([(), (Capability.IMAGES,), (Capability.GANG,), (Capability.SHARES,)])
            )
        case 2:
            number = rng.randrange(len(state.nodes.node))
            node = state.nodes.node[number]
            if not state.nodes.attempts_on[number]:
                model, gpus = rng.choice(["H100", "A100-80GB"]), rng.choice([2, 8])
                changed = replace(node, gpu_model=model, gpus=gpus, features=rng.choice([(), ("fast",)]))
                changed = replace(
                    changed,
                    labels=rng.choice([(), (("zone", "a"),), (("zone", "b"),)]),
                    taints=rng.choice([(), (), (parse_taint("closed:NoSchedule"),)]),
                )
                yield NodeChanged(now_ms, number, changed)
        case 3:
            yield NodeCordoned(now_ms, 0, "why", "root")
        case 4:
            spec = JobSpec(f"research/u{rng.randrange(5)}", Ask(Whole(1)), user="ana")
            job_id = state.last_job_id + 1
            yield JobSubmitted(now_ms, Job(job_id, spec, now_ms))
        case 5:
            for record in list(state.jobs.values()):
                if record.phase is None and not record.held:
                    yield AttemptStarted(now_ms, record.id, record.attempt + 1, (Grant(1, 1, 1000, 0, 0, 1),))
                    return
        case _:
            spec = JobSpec("research/vision", Ask(Whole(1)), user="ana")
            yield JobSubmitted(
                now_ms + DAY_MS * (rng.random() < 0.3), Job(state.last_job_id + 1, spec, now_ms)
            )


def words(found: Admitted | Refusal) -> Any:
    return (type(found), found.message, found.hint) if isinstance(found, Refusal) else found


def test_a_remembered_judgement_is_the_one_that_would_be_made_now() -> None:
    assert {each.name for each in fields(Wanted)} == set(VALUES), "every field is in play"
    rng = random.Random(20261119)
    state = State()
    apply(state, ConfigSet(DAY_MS, settings(0)))
    for name, cluster, pool in (("n1", "a", "p"), ("n2", "a", "q"), ("m1", "b", "p")):
        apply(state, NodeAdded(DAY_MS, Node(name, cluster, pool, "A100-40GB", 8, 16_000, 64_000)))
    remembered, judged, seen = Remembered(admit), [], set()
    for pair in range(PAIRS):
        if pair % 5 == 0:
            for event in changes(rng, state):
                with suppress(InvalidEvent):
                    apply(state, event)
        first, second = drawn(rng), drawn(rng)
        person = rng.choice(PEOPLE)
        for wanted, who in ((first, person), (second, person), (first, rng.choice(PEOPLE))):
            known = remembered.known(state, wanted, who)
            told = known.answer if known is not None else remembered.answer(state, wanted, who)
            fresh = admit(state, wanted, who)
            assert words(fresh) == words(told), (wanted, who)
            judged.append(known is not None)
            seen.add(words(fresh) if isinstance(fresh, Refusal) else "taken")
    assert sum(judged) > PAIRS, "a comparison of answers that were not remembered shows nothing"
    assert len(seen) > 50
    assert not all(judged)


def test_a_read_of_the_state_without_a_stamp_is_refused() -> None:
    remembered: Remembered[object] = Remembered(lambda state, _wanted: state.running)
    with pytest.raises(NotImplementedError, match="reads running of the state, which has no stamp"):
        remembered.answer(State(), Wanted())


def test_answers_are_forgotten_when_there_are_too_many() -> None:
    state, remembered = State(), Remembered(lambda _state, wanted: wanted.gpus, leaves_max=10)
    for gpus in range(25):
        assert gpus == remembered.answer(state, Wanted(gpus=gpus))
        assert remembered.leaves <= 10


def test_like_submissions_are_judged_once(tmp_path: Path) -> None:
    with rig(tmp_path) as service:
        remembered = service.requests.admission.remembered
        for number in range(200):
            service.submit(
                PEOPLE[0], name=f"train-{number}", labels=(("step", str(number)),), command=("true", str(number)),
                limit_ms=HOUR_MS,
            )  # fmt: skip
        assert (1, 199) == (remembered.leaves, remembered.hits)


@pytest.mark.parametrize("seed", range(3))
def test_dry_run_submission_and_log_agree(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    with rig(tmp_path, settings(0)) as service:
        service.add(
            NodeAdded(0, Node("m1", "b", "q", "A100-80GB", 8, 16_000, 64_000, features=("fast",))),
            EngineSeen(0, "c", (Capability.IMAGES,)),
        )
        taken = 0
        for _ in range(150):
            values = {name: rng.choice(each) for name, each in VALUES.items() if rng.random() < RARE / 2}
            values |= {"dependencies": (), "tenant": rng.choice(["research/vision", "product/dee"])}
            image = values.pop("image", "")
            new = make_job(command=("true",), containers=(Container(image),) if image else (), **values)
            with service.replica.lock:
                tried = answer(lambda new=new: service.requests.rehearse(PEOPLE[0], new))
            done = answer(lambda new=new: service.requests.submit(PEOPLE[0], new, Future()).result(120))
            if isinstance(tried, Refusal) or isinstance(done, Refusal):
                assert words(tried) == words(done)
                continue
            service.replica.catch_up()
            (expected, written) = (
                tried[0].job,
                service.replica.state.jobs[done.first_id + (new.wanted.array is not None)].job,
            )
            assert expected.spec == written.spec
            assert None is impossible_reason(service.replica.state, written.spec)
            taken += 1
        assert taken > 20


def answer(ask: Any) -> Any:
    try:
        return ask()
    except Refusal as refusal:
        return refusal
