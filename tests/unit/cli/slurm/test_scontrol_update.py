"""`scontrol update`, key by key: what is asked of the yard, what is said, and what is refused before anything is."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from gpuyard.cli.slurm.commands import scontrol_update
from gpuyard.cli.slurm.face import run
from gpuyard.wire import endpoints
from gpuyard.wire.job_fields import CHANGEABLE

DONE = {"results": [{"label": "12", "status": 202, "jobs": 1, "verb": "update", "id": 12}]}


@pytest.fixture
def update(answering_yard: Any) -> Callable[..., list[dict[str, Any]]]:
    def ask(*words: str, code: int = 0, done: Any = DONE) -> list[dict[str, Any]]:
        nodes = {"nodes": [{"name": f"n{number}", "cluster": "c"} for number in (1, 2, 3)]}
        yard = answering_yard(
            {
                endpoints.UPDATE: done,
                endpoints.ASK_MANY: done,
                endpoints.NODES: nodes,
                endpoints.DRAIN: {"node": "n", "drained": True},
                endpoints.RESUME: {"node": "n", "drained": False},
            }
        )
        assert code == run(["scontrol", "update", *words])
        return [said for endpoint, said in yard.asked if endpoint is not endpoints.NODES]

    return ask


@pytest.mark.parametrize(
    ("word", "change"),
    [
        ("TimeLimit=01:30:00", {"time_limit_s": 5400}),
        ("TimeLimit=1-0", {"time_limit_s": 86_400}),
        ("QOS=urgent", {"class": "urgent"}),
        ("Name=eval", {"name": "eval"}),
        ("JobName=eval", {"name": "eval"}),
        ("Partition=a,b", {"pools": ["a", "b"]}),
        ("Account=red/ana", {"tenant": "red/ana"}),
        ("ReqNodeList=n[1-2]", {"on_nodes": ["n1", "n2"]}),
        ("NodeList=", {"on_nodes": []}),
        ("ExcNodeList=n3", {"not_nodes": ["n3"]}),
        ("Dependency=", {"dependencies": [], "dependencies_any": False}),
        (
            "Dependency=afterok:7",
            {"dependencies": [{"kind": "afterok", "job": "7"}], "dependencies_any": False},
        ),
        ("Features=nvme&ib", {"constraint": "nvme&ib"}),
        ("ArrayTaskThrottle=4", {"array_limit": 4}),
        ("WCKey=vision", {"project": "vision"}),
        ("Requeue=0", {"requeue": False}),
        ("Nice=100", {"nice_s": 100}),
        ("Comment=look here", {"labels": {"comment": "look here"}}),
    ],
)
def test_a_key_is_a_field_of_the_job(update: Any, word: str, change: dict[str, Any]) -> None:
    assert set(change) <= {*CHANGEABLE, "nice_s"}
    assert [{"ids": [12], "change": change}] == update("JobId=12", word)


def test_times_and_several_jobs(update: Any) -> None:
    start = datetime.now().astimezone() + timedelta(hours=2)
    (asked,) = update("jobid=12,13_[1-2]", f"StartTime={start:%Y-%m-%dT%H:%M:%S}", "Deadline=now+3days")
    assert [12, "13_1", "13_2"] == asked["ids"]
    assert int(start.timestamp()) * 1000 == asked["change"]["begin_ms"]
    assert asked["change"]["deadline_ms"] > asked["change"]["begin_ms"]


def test_what_is_otherwise_than_with_slurm_is_said(update: Any, capsys: pytest.CaptureFixture[str]) -> None:
    update("JobId=12", "Nice=-60", "Comment=x")
    said = capsys.readouterr().err
    assert "as if it had been submitted 60 s earlier" in said
    assert "the label `comment`" in said


def test_priority_zero_holds(update: Any) -> None:
    change, held = update("JobId=12", "Priority=0", "TimeLimit=5")
    assert ({"time_limit_s": 300}, "hold") == (change["change"], held["verb"])


@pytest.mark.parametrize("name", sorted(scontrol_update._REFUSED))
def test_what_is_not_served_says_what_to_do_and_nothing_changes(
    name: str, update: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [] == update("JobId=12", "TimeLimit=5", f"{name}=1", code=1)
    said = capsys.readouterr().err
    assert "nothing was changed" in said
    assert "{" not in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("TimeLimit=UNLIMITED",), "no job here runs longer than its class says"),
        (("TimeLimit=+10",), "is the whole limit here"),
        (("TimeLimit=1h",), "must be minutes"),
        (("Nonsense=1",), "Update of this parameter is not supported: nonsense=1"),
        (("Dependency=afterok:x",), "must name jobs by their number"),
        (("ArrayTaskThrottle=many",), "must be a number of tasks"),
        (("JobName=a", "Name=b"), "two of these keys set name"),
        (("QOS=a", "QOS=b"), "is given twice"),
        (("Priority=5",), "scontrol top 12"),
        ((), "No changes specified"),
    ],
)
def test_bad_input_is_one_sentence(
    words: tuple[str, ...], said: str, update: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [] == update("JobId=12", *words, code=1)
    assert said in capsys.readouterr().err


def test_a_refusal_of_the_yard_is_told_of_the_job(update: Any, capsys: pytest.CaptureFixture[str]) -> None:
    refused = {
        "results": [{"label": "12", "status": 409, "detail": "job 12 has ended as COMPLETED", "hint": ""}]
    }
    update("JobId=12", "QOS=x", code=1, done=refused)
    assert "Job/step already completing or completed for job 12\n" == capsys.readouterr().err


def test_nodes_are_drained_and_resumed_all_or_none(update: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert ["n1", "n2"] == [said["name"] for said in update("NodeName=n[1-2]", "State=DRAIN", "Reason=fan")]
    assert ["n3"] == [said["name"] for said in update("NodeName=n3", "State=RESUME")]
    capsys.readouterr()
    update("NodeName=n3", "State=DOWN", "Reason=fan")
    assert "what runs on n3 goes on" in capsys.readouterr().err
    assert [] == update("NodeName=n[1-4]", "State=RESUME", code=1)
    assert "there is no node n4" in capsys.readouterr().err
    assert [] == update("NodeName=n1", "State=DOWN", code=1)
    assert "You must specify a reason" in capsys.readouterr().err


def test_a_reservation_is_refused_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 != run(["scontrol", "create", "reservation", "StartTime=now", "Users=ana"])
    said = capsys.readouterr().err
    assert all([word in said for word in ("guarantee", "State=DRAIN", "scontrol top")])
    assert 0 != run(["scontrol", "delete", "partition=x"])
    assert "yard.yaml" in capsys.readouterr().err
