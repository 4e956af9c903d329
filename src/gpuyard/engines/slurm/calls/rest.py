"""Slurm through slurmrestd. The version of its interface, and what that can do, is asked and not assumed.

The interface of Slurm 22.05 (v0.0.38) cannot name the nodes of a job, and no release can suspend one: for these the
commands are used; without commands an error says what is missing.
"""

import json
import re
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, TypeVar

from gpuyard.engines.contract import Permanent, Transient
from gpuyard.engines.machine.launches import user_name
from gpuyard.engines.slurm.calls import rest_rows, submission
from gpuyard.engines.slurm.calls.client import CommandClient, Queue, Reach
from gpuyard.engines.slurm.calls.commands import OutOfReach, Refusal, is_out_of_reach
from gpuyard.engines.slurm.calls.submission import Submission
from gpuyard.engines.slurm.words.forms import Unreadable
from gpuyard.engines.slurm.words.queue import SlurmJob
from gpuyard.engines.slurm.words.rows import Partition, Reservation, SlurmNode
from gpuyard.errors import error_text

TIMEOUT_S = 20.0
_Row = TypeVar("_Row")
_VERSION = re.compile(r"/slurm/(v(\d+)\.(\d+)\.(\d+))/jobs/?")
_OLDEST_TO_PROBE, _NEWEST_TO_PROBE = 36, 46
_NO_SUCH_JOB = (2017, 2021)
"""Invalid job id; already done."""


class RestClient:
    """Slurm through slurmrestd, with the commands for what it cannot do."""

    def __init__(self, url: str, token_file: str, user: str, commands: CommandClient) -> None:
        parts = urllib.parse.urlsplit(url)
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname or "localhost", parts.port
        self._prefix = parts.path.rstrip("/")
        self._token_file, self._user = token_file, user
        self._commands = commands
        self.reach = Reach()
        self._lock = threading.Lock()
        self._version = ""
        self._names_nodes = False

    # ---- talking

    def _token(self) -> str:
        """Read each time: a renewed token is a new file in its place."""
        try:
            with open(self._token_file, encoding="utf-8") as file:
                text = file.read().strip()
        except OSError as error:
            raise OutOfReach(f"the token of slurmrestd cannot be read: {error_text(error)}") from None
        # As `scontrol token` prints it, or the token alone.
        return text.removeprefix("SLURM_JWT=")

    def _send(self, method: str, path: str, body: Any, user: str) -> tuple[int, Any]:
        kind = HTTPSConnection if self._secure else HTTPConnection
        headers = {
            "X-SLURM-USER-NAME": user,
            "X-SLURM-USER-TOKEN": self._token(),
            "Content-Type": "application/json",
            "Accept": "application/json",
        }
        link = kind(self._host, self._port, timeout=TIMEOUT_S)
        try:
            link.request(method, self._prefix + path, json.dumps(body) if body is not None else None, headers)
            reply: HTTPResponse = link.getresponse()
            text = reply.read()
        except (TimeoutError, OSError, HTTPException) as error:
            raise OutOfReach(
                f"slurmrestd at {self._host}:{self._port} does not answer: {error_text(error)}"
            ) from None
        finally:
            link.close()
        try:
            return reply.status, json.loads(text) if text else {}
        except ValueError:
            return reply.status, {"errors": [{"error": text.decode(errors="replace")[:200]}]}

    def _call(self, method: str, path: str, body: Any = None, user: str = "") -> dict[str, Any]:
        """One call; raises what went wrong in words."""
        self.reach.check()
        try:
            status, said = self._send(method, f"/slurm/{self.version()}{path}", body, user or self._user)
            found = _complaints(said)
            if status in (401, 403) or (status == 500 and found in ("", "Unspecified error")):
                # 22.05 says no more than this of a token it does not like.
                why = f"slurmrestd refuses the token of {self._token_file} ({status} {found})".replace(
                    " )", ")"
                )
                raise OutOfReach(f"{why}; make a new one with `scontrol token username={self._user}`")
            if status >= 500 and (is_out_of_reach(found) or not _numbers(said)):
                raise OutOfReach(f"slurmrestd: {status} {found}")
            if status >= 400 or found:
                raise RestRefusal(f"slurmrestd: {found or status}", _numbers(said))
        except OutOfReach as error:
            self.reach.lost(error)
            raise
        self.reach.found()
        return dict(said) if isinstance(said, dict) else {}

    def version(self) -> str:
        """The newest version of its interface, such as v0.0.38."""
        with self._lock:
            if self._version:
                return self._version
            status, described = self._send("GET", "/openapi/v3", None, self._user)
            paths = described.get("paths", {}) if status == 200 and isinstance(described, dict) else {}
            found = [match for match in map(_VERSION.fullmatch, paths) if match]
            if found:
                newest = max(found, key=lambda match: tuple(map(int, match.groups()[1:])))[1]
                self._names_nodes = _can_name_nodes(described, newest)
            else:
                newest = self._probe()
            self._version = newest
            return newest

    def _probe(self) -> str:
        """The newest version that answers at all, where the description is not served."""
        for number in range(_NEWEST_TO_PROBE, _OLDEST_TO_PROBE - 1, -1):
            status, _said = self._send("GET", f"/slurm/v0.0.{number}/ping", None, self._user)
            if status != 404:
                self._names_nodes = number >= 40
                return f"v0.0.{number}"
        raise Permanent(f"{self._host}:{self._port} answers, but not as slurmrestd does; is the url right?")

    # ---- asking

    def queue(self) -> Queue:
        """Every job."""
        asked_ms, began_s = time.time_ns() // 1_000_000, time.monotonic()
        jobs: list[SlurmJob] = [
            rest_rows.read_job(each) for each in self._call("GET", "/jobs").get("jobs", [])
        ]
        return Queue(tuple(jobs), asked_ms, time.monotonic() - began_s)

    def nodes(self) -> list[SlurmNode]:
        """Every node."""
        return self._rows("nodes", rest_rows.read_node)

    def partitions(self) -> list[Partition]:
        """Every partition."""
        return self._rows("partitions", rest_rows.read_partition)

    def reservations(self) -> list[Reservation]:
        """Every reservation."""
        return self._rows("reservations", rest_rows.read_reservation)

    def _rows(self, what: str, row: Callable[[Mapping[str, Any]], _Row]) -> list[_Row]:
        try:
            return [row(each) for each in self._call("GET", f"/{what}").get(what, [])]
        except Unreadable as wrong:
            raise Transient(f"slurmrestd's {what}: {wrong}") from None

    def past(self, job_id: int) -> list[SlurmJob]:
        """By the commands."""
        return self._commands.past(job_id)

    def holds_limits(self) -> bool:
        """By the commands; without them it is unknown, and so not promised."""
        try:
            return self._commands.holds_limits()
        except Permanent:
            return False

    def settings(self) -> dict[str, str]:
        """By the commands: the interface does not tell."""
        return self._commands.settings()

    # ---- acting

    def submit(self, job: Submission) -> int:
        """Hand in a job as its user; by `sbatch` where the interface cannot name nodes."""
        self.reach.check()
        self.version()
        if not self._names_nodes:
            return self._commands.submit(job)
        body = submission.make_body(job, self._commands.bare_environment())
        said = self._call("POST", "/job/submit", body, user=user_name(job.uid))
        number = rest_rows.read_number(said.get("job_id"))
        if not number:
            raise OutOfReach("slurmrestd answered without a job's number")
        return number

    def cancel(self, ids: Sequence[int]) -> None:
        """End jobs, one call each."""
        for each in ids:
            try:
                self._call("DELETE", f"/job/{each}")
            except RestRefusal as error:
                if not set(_NO_SUCH_JOB) & error.numbers:
                    raise

    def poke(self, ids: Sequence[int]) -> None:
        """By the commands. Without them, wrappers look for a stop by themselves, once a second."""
        self._by_command("scancel", lambda: self._commands.poke(ids))

    def suspend(self, job_id: int) -> None:
        """By the commands."""
        self._commands.suspend(job_id)

    def resume(self, job_id: int) -> None:
        """By the commands."""
        self._commands.resume(job_id)

    def set_limit(self, job_id: int, minutes: int) -> None:
        """By the commands."""
        self._commands.set_limit(job_id, minutes)

    def _by_command(self, name: str, call: Any) -> None:
        try:
            call()
        except Permanent as error:
            if isinstance(error, Refusal):
                raise
            raise OutOfReach(f"{name}: {error}") from None

    def close(self) -> None:
        """Nothing is held."""


class RestRefusal(Refusal):
    """slurmrestd answered, and said no."""

    def __init__(self, why: str, numbers: set[int]) -> None:
        super().__init__(why)
        self.numbers = numbers


def _complaints(said: Any) -> str:
    errors = said.get("errors") if isinstance(said, dict) else None
    words = [
        str(each.get("description") or each.get("error") or "")
        for each in errors or ()
        if isinstance(each, dict)
    ]
    return "; ".join([word for word in words if word])[:500]


def _numbers(said: Any) -> set[int]:
    errors = said.get("errors") if isinstance(said, dict) else None
    return {each["error_number"] for each in errors or () if isinstance(each.get("error_number"), int)}


def _can_name_nodes(described: dict[str, Any], version: str) -> bool:
    """Whether the description of a job has a place for its nodes."""
    schemas = described.get("components", {}).get("schemas", {})
    names = (f"{version}_job_properties", f"{version}_job_desc_msg")
    return any(["required_nodes" in schemas.get(name, {}).get("properties", {}) for name in names])
