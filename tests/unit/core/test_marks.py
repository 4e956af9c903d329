"""Labels and taints of nodes: which hold, which nodes a job may have and which it has first."""

from dataclasses import replace

from gpuyard.core import explain_why
from gpuyard.core.explain.admission import impossible_reason
from gpuyard.core.fleet.ways import Shapes
from gpuyard.core.state.dump import dump, load
from gpuyard.model import (
    AskFor,
    AttemptState,
    JobSpec,
    JobState,
    Node,
    NodeMarked,
    NodeMarks,
    Outcome,
    Settings,
    StopCause,
    Taint,
)
from gpuyard.model.placement import join_selections, parse_preferences, parse_taint, parse_tolerations
from gpuyard.model.serialise import from_plain, to_plain
from gpuyard.testing import Yard
from gpuyard.testing.values import BATCH, URGENT, ask, node


def _taints(*texts: str) -> tuple[Taint, ...]:
    return tuple([parse_taint(text) for text in texts])


def _yard(*nodes: Node, **settings: object) -> Yard:
    return Yard("fifo", list(nodes), settings=Settings(**settings))  # type: ignore[arg-type]


def _nodes_of(yard: Yard, job_id: int) -> list[str]:
    return sorted([yard.state.nodes.node[grant.node].name for grant in yard.state.jobs[job_id].grants])


def test_labels_come_from_the_node_the_engine_the_configuration_in_this_order() -> None:
    yard = _yard(
        node("n0", labels=(("zone", "engine"), ("kubernetes.io/arch", "arm64")), features=("nvme",)),
        node("n1", 0),
        markets={"main/pool": "spot"},
        regions={"main/pool": "eu-west"},
        marks=(
            NodeMarks("main", "", ("n0",), (("disk", "own"),)),
            NodeMarks("main", "pool", (), (("disk", "pool"), ("zone", "pool"))),
            NodeMarks("main", "", (), (("disk", "cluster"), ("site", "north"))),
            NodeMarks("other", "", (), (("site", "south"),)),
        ),
    )
    labels = yard.state.nodes.marks.labels(0)
    assert ("own", "pool", "north", "", "arm64") == tuple(
        [labels[key] for key in ("disk", "zone", "site", "nvme", "kubernetes.io/arch")]
    )
    assert ("H100", "8", "81920") == tuple(
        [labels[f"nvidia.com/gpu.{key}"] for key in ("product", "count", "memory")]
    )
    assert ("n0", "eu-west") == (labels["kubernetes.io/hostname"], labels["topology.kubernetes.io/zone"])
    bare = yard.state.nodes.marks.labels(1)
    assert ("pool", "amd64") == (bare["disk"], bare["kubernetes.io/arch"])
    assert not [key for key in bare if key.startswith("nvidia.com/")]


def test_market_labels_select_by_the_market_of_the_pool() -> None:
    yard = _yard(
        node("s0", pool="cheap"),
        node("d0", pool="dear"),
        markets={"main/cheap": "spot", "main/dear": "on-demand"},
    )
    marks = yard.state.nodes.marks
    for text, numbers in (
        ("cloud.google.com/gke-spot=true", 0b01),
        ("eks.amazonaws.com/capacityType=SPOT", 0b01),
        ("eks.amazonaws.com/capacityType=ON_DEMAND", 0b10),
        ("karpenter.sh/capacity-type in (on-demand)", 0b10),
        ("karpenter.sh/capacity-type=spot", 0b01),
        ("kubernetes.azure.com/scalesetpriority=spot", 0b01),
    ):
        assert numbers == marks.selected((), join_selections([text])), text


def test_every_node_with_gpus_is_accelerated_until_people_say_which_are() -> None:
    yard = _yard(node("n0"), node("n1"), node("n2", 0))
    marks, accelerated = yard.state.nodes.marks, join_selections(["accelerator=nvidia"])
    assert 0b011 == marks.selected((), accelerated)
    yard.apply(NodeMarked(yard.now_ms, 0, unlabelled=("accelerator",)))
    assert 0b010 == marks.selected((), accelerated), "the others are as they were"
    yard.apply(NodeMarked(yard.now_ms, 0, labels=(("accelerator", "nvidia"),)))
    assert 0b001 == marks.selected((), accelerated)
    yard.apply(NodeMarked(yard.now_ms, 0, labels=(("accelerator", "other"),)))
    assert 0 == marks.selected((), accelerated)


def test_a_job_gets_nodes_that_it_selects_and_waits_where_they_are_taken() -> None:
    yard = _yard(*[node(f"n{number}", labels=(("zone", "ab"[number % 2]),)) for number in range(4)])
    wanted = ask(8, selects=join_selections(["zone=b"]))
    jobs = [yard.submit(wanted) for _ in range(3)]
    yard.step()
    assert [["n1"], ["n3"], []] == [_nodes_of(yard, job) for job in jobs]
    # A feature is a label with an empty value, and a label will do for a feature.
    other = yard.submit(ask(1, features=(("zone",),), selects=join_selections(["zone!=b"])))
    yard.step()
    assert ["n0"] == _nodes_of(yard, other)
    # A node without the label has another value than any.
    marks = yard.state.nodes.marks
    assert 0b1111 == marks.selected((), join_selections(["disk!=nvme"]))
    assert 0b1111 == marks.selected((), join_selections(["!disk"]))
    assert 0b0101 == marks.selected((("zone", "none"),), join_selections(["zone notin (b, c)"]))


def test_a_selector_that_no_node_meets_says_which_label_and_how_many_have_it() -> None:
    yard = _yard(*[node(f"n{number}", labels=(("zone", "ab"[number % 2]),)) for number in range(3)])

    def why(**fields: object) -> str:
        reason = impossible_reason(yard.state, JobSpec("t", ask(1, **fields)))
        assert reason is not None
        return reason.text

    assert "none of 3 nodes has the label zone=c; zone is a on 2, b on 1" in why(
        selects=join_selections(["zone=c"])
    )
    assert "none of 3 nodes has the label disk" in why(selects=join_selections(["disk"]))
    both = why(selects=join_selections(["zone=a, kubernetes.io/hostname=n1"]))
    assert "has all its labels together: 2 nodes have zone=a; 1 node has kubernetes.io/hostname=n1" in both
    assert "none of 3 nodes has the feature nvme" in why(features=(("nvme",),))


def test_taints_keep_jobs_away_that_do_not_tolerate_them() -> None:
    yard = _yard(
        node("n0", taints=_taints("owner=ana:NoSchedule")), node("n1", taints=_taints("gone:NoExecute"))
    )
    for texts, nodes in (
        ([], []),
        (["owner"], ["n0"]),
        (["owner=bob"], []),
        (["gone for 5m"], []),
        (["owner=ana:NoSchedule"], ["n0"]),
    ):
        job = yard.submit(ask(1, tolerates=parse_tolerations(texts)))
        yard.step()
        assert nodes == _nodes_of(yard, job), texts
    reason = impossible_reason(yard.state, JobSpec("t", ask(1)))
    assert reason is not None
    assert "2 nodes that could hold it have a taint that it does not tolerate" in reason.text
    assert "gone:NoExecute and owner=ana:NoSchedule" in reason.text


def test_preferred_nodes_come_first_whatever_the_model_costs() -> None:
    yard = _yard(
        node("cheap", model="L4"),
        node("dear", labels=(("zone", "a"),)),
        node("best", labels=(("zone", "a"), ("nvme", ""))),
    )
    wanted = ask(8, prefers=parse_preferences(["5: zone=a", "nvme"]))
    jobs = [yard.submit(wanted) for _ in range(3)]
    yard.step()
    assert [["best"], ["dear"], ["cheap"]] == [_nodes_of(yard, job) for job in jobs]


def test_a_gang_prefers_as_a_whole() -> None:
    zones = ("a", "b", "b", "a")
    yard = _yard(*[node(f"n{number}", labels=(("zone", zone),)) for number, zone in enumerate(zones)])
    blocker = yard.submit(ask(8, selects=join_selections(["kubernetes.io/hostname=n1"])))
    gang = yard.submit(ask(8, tasks=2, prefers=parse_preferences(["zone=b"])))
    other = yard.submit(ask(8, prefers=parse_preferences(["zone=b"])))
    yard.step()
    # One node of zone b is free, so that the gang has as many of them as there are only by chance.
    assert (["n1"], 2, 1) == (
        _nodes_of(yard, blocker),
        len(_nodes_of(yard, gang)),
        len(_nodes_of(yard, other)),
    )
    yard.end(blocker)
    yard.end(gang)
    yard.end(other)
    again = yard.submit(ask(8, tasks=2, prefers=parse_preferences(["zone=b"])))
    yard.step()
    assert ["n1", "n2"] == _nodes_of(yard, again)


def test_nodes_with_a_prefer_no_schedule_taint_come_last() -> None:
    yard = _yard(node("n0", taints=_taints("old:PreferNoSchedule")), node("n1"))
    plain, tolerant = ask(8), ask(8, tolerates=parse_tolerations(["old"]))
    first = yard.submit(plain)
    yard.step()
    assert ["n1"] == _nodes_of(yard, first)
    yard.end(first)
    second = yard.submit(tolerant)
    yard.step()
    assert ["n0"] == _nodes_of(yard, second)


def test_asks_and_settings_with_labels_survive_the_log() -> None:
    wanted = ask(
        2,
        selects=join_selections(["zone in (a, b) | !old"]),
        prefers=parse_preferences(["80: nvme"]),
        tolerates=parse_tolerations(["gone:NoExecute for 5m", "*"]),
    )
    assert wanted == from_plain(type(wanted), to_plain(wanted))
    settings = Settings(
        marks=(NodeMarks("main", "pool", ("n0",), (("zone", "a"),), _taints("x=y:NoExecute")),)
    )
    assert settings == from_plain(Settings, to_plain(settings))
    marked = node("n0", labels=(("zone", "a"),), taints=_taints("gone:NoSchedule"))
    assert marked == from_plain(Node, to_plain(marked))
    old = to_plain(replace(marked, labels=(), taints=()))
    del old["labels"], old["taints"]
    assert node("n0") == from_plain(Node, old)


# -- taints that stop attempts -----------------------------------------------------------------------------------------


def _marked(yard: Yard, number: int, *texts: str, gone: bool = False) -> None:
    taints = _taints(*texts)
    yard.apply(
        NodeMarked(yard.now_ms, number, taints=() if gone else taints, untainted=taints if gone else ())
    )
    yard.step()


def test_no_execute_stops_a_gang_as_a_whole_and_lets_it_wait_again() -> None:
    yard = _yard(*[node(f"n{number}") for number in range(3)])
    gang, tolerant = yard.submit(ask(8, tasks=2)), yard.submit(ask(8, tolerates=parse_tolerations(["gone"])))
    yard.step()
    assert ["n0", "n1"] == _nodes_of(yard, gang)
    _marked(yard, 1, "gone:NoExecute")
    _marked(yard, 2, "gone:NoExecute")
    record = yard.state.jobs[gang]
    assert (AttemptState.STOPPING, StopCause.TAINT) == (record.phase, record.cause)
    assert AttemptState.STOPPING is not yard.state.jobs[tolerant].phase
    yard.end(gang, Outcome.PREEMPTED)
    yard.step()
    # It waits for a second node, and was not preempted: no protection grows by it.
    assert (JobState.PENDING, 0, ()) == (record.state, record.preemptions, record.grants)
    _marked(yard, 1, "gone:NoExecute", gone=True)
    assert ["n0", "n1"] == _nodes_of(yard, gang)
    assert 2 == record.attempt


def test_a_toleration_with_a_time_lets_an_attempt_stay_for_so_long() -> None:
    yard = _yard(node("n0"), node("n1"))
    job = yard.submit(ask(8, tolerates=parse_tolerations(["gone for 5m"])))
    yard.step()
    yard.wait(60_000)
    _marked(yard, 0, "gone:NoExecute")
    set_ms = yard.now_ms
    assert set_ms + 300_000 == yard.state.wake_ms()
    # A restart counts from where it was.
    assert set_ms + 300_000 == load(dump(yard.state)).wake_ms()
    yard.wait(299_000)
    assert AttemptState.STOPPING is not yard.state.jobs[job].phase
    yard.wait(2_000)
    yard.step()
    assert StopCause.TAINT is yard.state.jobs[job].cause
    yard.end(job, Outcome.PREEMPTED)
    yard.step()
    # No attempt starts where it could not stay.
    assert ["n1"] == _nodes_of(yard, job)


def test_an_earmark_on_a_node_that_is_tainted_meanwhile_is_dropped() -> None:
    yard = Yard("class", [node("n0")], settings=Settings(classes=(BATCH, URGENT)))
    yard.submit(ask(8), klass="batch")
    yard.step()
    yard.wait(60_000)
    urgent = yard.submit(ask(8), klass="urgent")
    yard.step()
    assert yard.state.jobs[urgent].earmark is not None
    _marked(yard, 0, "closed:NoSchedule")
    assert yard.state.jobs[urgent].earmark is None
    reason = impossible_reason(yard.state, yard.state.jobs[urgent].job.spec)
    assert reason is not None
    assert "1 node that could hold it has a taint that it does not tolerate: closed:NoSchedule" in reason.text


def test_why_finds_what_lets_a_job_start_that_labels_or_taints_keep_out() -> None:
    yard = _yard(node("n0", labels=(("zone", "a"),)), node("n1", taints=_taints("closed:NoSchedule")))
    for wanted in (ask(8, selects=join_selections(["zone=b"])), ask(8, on_nodes=("n1",))):
        job = yard.submit(wanted)
        yard.step()
        found = explain_why(yard.state, yard.policy, job, yard.now_ms)
        assert found is not None
        lifts = [reason.lift for reason in found.reasons]
        assert [AskFor] == [type(lift) for lift in lifts]
        assert Shapes().of(lifts[0].ask, yard.state.nodes, yard.state.weights).ways  # type: ignore[union-attr]
