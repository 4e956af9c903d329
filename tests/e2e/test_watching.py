"""What a program that watches a yard gets: the log as it is written, the whole state, checkpoints told by jobs."""

import json
import sys
import threading
from pathlib import Path
from typing import Any

from gpuyard.core.state.dump import dump, load
from gpuyard.store import CODEC
from gpuyard.wire import endpoints
from harness.patience import until

from .conftest import Box


def test_the_log_is_watched_as_it_is_written(box: Box) -> None:
    seen: list[dict[str, Any]] = []
    watching, over = threading.Event(), threading.Event()

    def watch() -> None:
        with box.client() as client:
            head = client.ready()[1]["events"]
            watching.set()
            for data in client.events(after=head):
                seen.append(data)
                if data["kind"] == "AttemptEnded":
                    over.set()
                    return

    threading.Thread(target=watch, daemon=True).start()
    assert watching.wait(120)
    job = box.submit("--", "true")
    assert over.wait(120)

    about = [each["kind"] for each in seen if job in (each["event"].get("job_id"), _submitted(each))]
    assert ["JobSubmitted", "AttemptStarted"] == about[:2]
    assert "AttemptEnded" == about[-1]
    # Numbers have no gaps, and what is sent is what a reader of the log would decode.
    numbers = [each["seq"] for each in seen]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    for each in seen:
        assert each["kind"] == type(CODEC.decode(1, each["kind"], 1, json.dumps(each["event"]))).__name__


def _submitted(line: dict[str, Any]) -> int | None:
    job: dict[str, Any] = line["event"].get("job", {})
    return job.get("id")


def _snapshot(box: Box) -> dict[str, Any]:
    with box.client() as client:
        found: dict[str, Any] = client.ask_for(endpoints.SNAPSHOT)
    return found


def test_the_whole_state_can_be_taken_elsewhere(box: Box) -> None:
    job = box.submit("--hold", "--", "true")
    found = _snapshot(box)

    state = load(found["state"])
    assert state.jobs[job].held
    assert found["state"] == json.loads(json.dumps(dump(state)))


def test_a_job_tells_that_it_saved_its_work(box: Box, tmp_path: Path) -> None:
    done = tmp_path / "done"
    program = f"{sys.executable} -m gpuyard.cli checkpoint && touch {done}; sleep 30"
    job = box.submit("--", "sh", "-c", program)
    until(done.exists)

    record = load(_snapshot(box)["state"]).jobs[job]
    assert record.checkpoint_ms >= record.started_ms > 0
    assert 0 == box("cancel", job).code
    assert 2 == box("checkpoint").code
    box.wait(job, "CANCELLED")
    late = box("checkpoint", job)
    assert "has ended already" in late.err
    assert late.code not in (0, 1)
