"""Two servers on one PostgreSQL store: one leads, the other takes over, and nothing runs twice."""

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import Box
from gpuyard.api.connecting.calling import Refused
from gpuyard.control.readiness import READY_S
from harness.patience import Patience, patient, until
from rigs.kills import Server

TAKEN_OVER_S = 5.0
FROZEN_S = 10.0


class Pair:
    """Two servers that share a store and a folder."""

    def __init__(self, data: Path, store: str) -> None:
        self.servers = [Server(data, store), Server(data, store)]
        self.runs = data / "runs"
        for server in self.servers:
            server.start()
        self.runs.touch()

    def leader(self) -> Server:
        """The one that says it leads."""
        (found,) = [s for s in self.servers if s.call("GET", "/readyz")[1]["role"] == "leader"]
        return found

    def other(self, server: Server) -> Server:
        """Its companion."""
        return self.servers[1 - self.servers.index(server)]

    def submit(self, server: Server, name: str, seconds: float = 0) -> int:
        """A job that writes down that it runs."""
        script = f"echo {name} >> {self.runs}; sleep {seconds}"
        body = {"command": ["/bin/sh", "-c", script], "name": name, "gpus": 1, "tenant": "t"}
        patience = Patience(3 * FROZEN_S)
        status, answer = server.call("POST", "/api/v1/jobs", body)
        while status == 503 and answer["type"].endswith("store-busy") and patience:
            # The other was frozen in the middle of a write. Refused is refused: nothing was taken, so it is sent again.
            time.sleep(0.2)
            status, answer = server.call("POST", "/api/v1/jobs", body)
        assert 201 == status, answer
        job_id: int = answer["id"]
        return job_id

    def ran(self) -> Counter[str]:
        """How often each job ran, by what it wrote itself."""
        return Counter(self.runs.read_text().split())


@pytest.fixture
def pair(tmp_path: Path, postgres_url: str) -> Iterator[Pair]:
    made = Pair(tmp_path / "yard", postgres_url)
    yield made
    for server in made.servers:
        if server.process is not None and server.process.poll() is None:
            server.kill(signal.SIGCONT)
            server.kill()


def wait_for(what: Callable[[], bool], seconds: float) -> float:
    """How long it took until something was so."""
    began = time.monotonic()
    until(what, seconds)
    return time.monotonic() - began


def test_a_server_that_does_not_lead_has_the_leaders_reasons(pair: Pair) -> None:
    other = pair.other(pair.leader())
    ids = []
    for gpus in (1, 8):
        body = {"command": ["sleep", "60"], "gpus": gpus, "tenant": "t"}
        status, answer = other.call("POST", "/api/v1/jobs", body)
        assert 201 == status, answer
        ids.append(answer["id"])

    def reasons() -> list[str]:
        return [row[-1] for row in other.call("GET", "/api/v1/queue")[1]["rows"]]

    wait_for(lambda: reasons() == ["", "no room"], 10)
    for job_id in reversed(ids):
        other.call("DELETE", f"/api/v1/jobs/{job_id}")
    wait_for(lambda: not reasons(), 10)


def test_the_other_one_schedules_soon_after_the_leader_is_killed(pair: Pair) -> None:
    leader = pair.leader()
    other = pair.other(leader)
    pair.submit(other, "before")
    wait_for(lambda: pair.ran()["before"] == 1, 10)
    leader.kill()
    pair.submit(other, "after")
    took_s = wait_for(lambda: pair.ran()["after"] == 1, 2 * TAKEN_OVER_S)
    print(f"the other one ran a job {took_s:.1f} s after the leader was killed")
    assert took_s < patient(TAKEN_OVER_S)


def test_a_server_that_may_not_lead_answers_and_leaves_it_to_others(
    tmp_path: Path, postgres_url: str
) -> None:
    leads, answers = [Server(tmp_path / "yard", postgres_url, words=words) for words in ((), ("--no-lead",))]
    try:
        leads.start()
        answers.start()
        body = {"command": ["/bin/sh", "-c", f"echo ran >>{tmp_path}/ran"], "gpus": 1, "tenant": "t"}
        assert 201 == answers.call("POST", "/api/v1/jobs", body)[0]
        wait_for((tmp_path / "ran").exists, 30)
        leads.kill()

        def told() -> str:
            status, said = answers.call("GET", "/readyz")
            return " ".join(said["notes"]) if status == 200 else ""

        # It does its work, to answer and to accept, and a load balancer leaves it in.
        wait_for(lambda: "no server leads" in told(), 30)
        assert "follower" == answers.call("GET", "/readyz")[1]["role"]
        # What comes meanwhile is accepted, and runs once there is a server that leads again.
        assert 201 == answers.call("POST", "/api/v1/jobs", body)[0]
        leads.start()
        wait_for(lambda: (tmp_path / "ran").read_text() == "ran\nran\n", 30)
    finally:
        for server in (leads, answers):
            if server.process is not None and server.process.poll() is None:
                server.kill()


def test_up_without_a_leader_comes_back_and_says_so(tmp_path: Path, postgres_url: str) -> None:
    """It waited a minute for one, and called that a failure."""
    box, leads = Box(tmp_path / "yard"), Server(tmp_path / "leads", postgres_url)
    began = time.monotonic()
    done = box("up", "-d", "--port", "0", "--store", postgres_url, "--no-lead")
    try:
        assert (0, True) == (done.code, done.out.startswith("the yard is up")), done.err
        assert "note: no server leads: nothing starts until one is started on the same store" in done.err
        assert time.monotonic() - began < patient(READY_S / 2)
        # Nobody knows of a node: that is no reason to refuse a job for good. One that is asked for again is taken.
        wanted: dict[str, Any] = {"command": ["true"], "gpus": 1, "tenant": "t"}
        with box.client() as client:
            with pytest.raises(Refused, match="knows of no node yet") as refused:
                client.submit(**wanted)
            assert 503 == refused.value.status
            leads.start()
            assert client.submit(**wanted)["id"] > 0
    finally:
        box("down")
        leads.end()


def test_a_leader_that_was_frozen_starts_nothing_twice_when_it_wakes(pair: Pair) -> None:
    leader = pair.leader()
    other = pair.other(leader)
    names = [f"j{n}" for n in range(40)]
    for name in names[:20]:
        pair.submit(other, name, 0.3)
    leader.kill(signal.SIGSTOP)
    frozen_s = time.monotonic()
    for name in names[20:]:
        pair.submit(other, name, 0.3)
    wait_for(lambda: other.call("GET", "/readyz")[1]["role"] == "leader", 3 * FROZEN_S)
    time.sleep(max(0.0, FROZEN_S - (time.monotonic() - frozen_s)))
    leader.kill(signal.SIGCONT)
    wait_for(lambda: len(pair.ran()) == len(names), 60)
    time.sleep(1.0)
    twice = {name: count for name, count in pair.ran().items() if count > 1}
    assert {} == twice
    # Both go on working together, whichever of them leads: what each believes of itself is not asked, only what runs.
    pair.submit(leader, "later")
    wait_for(lambda: pair.ran()["later"] == 1, 30)
    time.sleep(1.0)
    assert {} == {name: count for name, count in pair.ran().items() if count > 1}
