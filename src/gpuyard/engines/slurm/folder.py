"""The yard's folder on a file system that the nodes share: one folder per attempt, and which of its files to trust.

    attempts/KEY/        the engine's: launch.json, submit.json, halt.json, end.json
    attempts/KEY/run/    the job's user's: plan, claim, news, sign of life, end, what it printed
    jobs/ID/             the job's user's, for all attempts of a job: its checkpoint
    logs/KEY/            what is kept of an attempt that is forgotten
    news/                an empty file for each attempt that has ended
    program-…/node/      the code that runs on the nodes

A file in a user's folder may be a lie, a link or a pipe: it is read only if it is a plain file of that user, and only
values of the right kind are taken.
"""

import hashlib
import json
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpuyard.engines.contract import Permanent
from gpuyard.engines.machine import files as whole
from gpuyard.engines.machine.epochs import OneLeader
from gpuyard.engines.machine.launches import find_key_flaw
from gpuyard.engines.node import files
from gpuyard.engines.node.kernel.processes import cut_short
from gpuyard.engines.node.visits import frames
from gpuyard.errors import error_text
from gpuyard.model import Outcome

ATTEMPTS, JOBS, KEPT, NEWS = files.ATTEMPTS, "jobs", "logs", "news"
SUBMIT = "submit.json"
_END_BYTES_MAX = 65_536
_OUTCOMES = frozenset({*[outcome.value for outcome in Outcome], files.TOLD})


class Folder(OneLeader):
    """Where the engine and the nodes meet."""

    def __init__(self, root: Path) -> None:
        super().__init__(os.path.realpath(root))
        self.tag = hashlib.sha256(self.root.encode()).hexdigest()[:8]
        try:
            for part in ("", ATTEMPTS, JOBS, KEPT):
                # Jobs of any user pass through to their own folder, but cannot list it.
                os.makedirs(os.path.join(self.root, part), exist_ok=True)
                os.chmod(os.path.join(self.root, part), 0o711)
            os.makedirs(self.news, exist_ok=True)
            # Any user may leave a name there, which means no more than: look.
            os.chmod(self.news, 0o1733)
            self.program = self._program()
        except OSError as error:
            raise Permanent(
                f"{self.root} cannot hold the attempts of a Slurm cluster: {error_text(error)}"
            ) from error

    def _program(self) -> str:
        """Put the code for the nodes in place, under a name that changes with it; gives the folder it lies in."""
        source = Path(files.__file__).parent
        paths = sorted([path.relative_to(source).as_posix() for path in source.rglob("*.py")])
        texts = {name: (source / name).read_bytes() for name in paths}
        digest = hashlib.sha256(
            b"\0".join([name.encode() + text for name, text in texts.items()])
        ).hexdigest()
        place = os.path.join(self.root, f"program-{digest[:12]}")
        if not os.path.isdir(place):
            draft = f"{place}.{os.getpid()}"
            for folder in sorted({"", *[os.path.dirname(name) for name in texts]}):
                os.makedirs(os.path.join(draft, "node", folder))
                os.chmod(os.path.join(draft, "node", folder), 0o755)
            for name, text in texts.items():
                path = os.path.join(draft, "node", name)
                with open(path, "wb") as file:
                    file.write(text)
                os.chmod(path, 0o644)
            os.chmod(draft, 0o755)
            try:
                os.rename(draft, place)
            except OSError:
                # Another server was quicker.
                shutil.rmtree(draft, ignore_errors=True)
        return place

    def mark(self, key: str) -> str:
        """The mark of a job in Slurm: the key, and the folder it belongs to, as two yards may share a name."""
        return f"{key}@{self.tag}"

    def key_of(self, mark: str) -> str:
        """The key of a mark of this folder; empty: it is another yard's."""
        key, _, tag = mark.rpartition("@")
        return key if tag == self.tag and not find_key_flaw(key) else ""

    @property
    def news(self) -> str:
        """The folder in which ended attempts leave a file."""
        return os.path.join(self.root, NEWS)

    def attempt(self, key: str) -> str:
        """The folder of an attempt."""
        return os.path.join(self.root, ATTEMPTS, key)

    def run(self, key: str) -> str:
        """The part of it that the job's user owns."""
        return os.path.join(self.root, ATTEMPTS, key, files.RUN)

    def kept(self, key: str) -> str:
        """The folder of an attempt that is forgotten."""
        return os.path.join(self.root, KEPT, key)

    def job(self, job_id: int) -> str:
        """The folder that all attempts of a job share."""
        return os.path.join(self.root, JOBS, str(job_id))

    def keys(self) -> list[str]:
        """Every attempt that is not forgotten."""
        return sorted(os.listdir(os.path.join(self.root, ATTEMPTS)))

    def listen(self) -> bool:
        """Whether some attempt has knocked since the last call."""
        heard = False
        for name in os.listdir(self.news):
            # Any user may put something there. What is not a file does not count.
            with suppress(OSError):
                os.unlink(os.path.join(self.news, name))
                heard = True
        return heard

    # ---- the engine's own files

    def make(self, key: str, plan: dict[str, Any], job_id: int) -> None:
        """Put an attempt on disk, durably, before anything is handed to Slurm."""
        folder, run, job = self.attempt(key), self.run(key), self.job(job_id)
        uid, gid = plan["uid"], plan["gid"]
        for path, mode in ((job, 0o700), (folder, 0o755), (run, 0o700)):
            os.makedirs(path, exist_ok=True)
            os.chmod(path, mode)
        if os.geteuid() == 0:
            os.chown(job, uid, gid)
            os.chown(run, uid, gid)
        path = os.path.join(folder, files.LAUNCH)
        if os.path.exists(path):
            return
        draft = whole.write_draft(os.path.join(folder, files.PLAN), json.dumps(plan).encode(), durable=True)
        if os.geteuid() == 0:
            # The environment is the user's own, and the nodes read it as this user.
            os.chown(draft, uid, gid)
        os.rename(draft, os.path.join(run, files.PLAN))
        whole.sync(run)
        names = ("uid", "gid", "cwd", "stdout", "stderr", "checkpoint", "limit_ms", "grace_ms")
        kept = {name: plan[name] for name in names}
        gpus = {node: part["gpus"] for node, part in plan["parts"].items()}
        spread = len(plan["parts"]) > 1 and not plan["batch"]
        told = {"terminal": bool(plan.get("terminal")), "spread": spread}
        whole.replace(path, {**kept, **told, "gpus": gpus}, durable=True)
        whole.sync(folder)
        whole.sync(os.path.join(self.root, ATTEMPTS))

    def own(self, key: str, name: str) -> dict[str, Any] | None:
        """One of the engine's files about an attempt."""
        return whole.read(os.path.join(self.attempt(key), name))

    def put(self, key: str, name: str, value: dict[str, Any], *, durable: bool = False) -> None:
        """Write one of them, in place of the old one. All users may read it: it holds no secret."""
        path = os.path.join(self.attempt(key), name)
        draft = whole.write_draft(path, json.dumps(value).encode(), durable=durable)
        os.chmod(draft, 0o644)
        os.rename(draft, path)

    # ---- what the nodes wrote

    def told(self, key: str, name: str, uid: int) -> dict[str, Any] | None:
        """A file that the job's user wrote, or the engine in its folder; None: there is none that can be trusted."""
        return read_of(os.path.join(self.run(key), name), uid)

    def claim(self, key: str, now_ms: int) -> bool:
        """Take the attempt's claim, so that no job of Slurm will ever run it; whether it was free."""
        value = {"slurm_id": 0, "node": "", "pid": 0, "at_ms": now_ms}
        # Drafted where no user can put a file of theirs in the way.
        draft = os.path.join(self.attempt(key), files.CLAIM)
        draft = whole.write_draft(draft, json.dumps(value).encode(), durable=True)
        return whole.publish_once(draft, os.path.join(self.run(key), files.CLAIM))

    def end(self, key: str, uid: int) -> dict[str, Any] | None:
        """How it ended: as the engine found, else as the nodes say."""
        return self.own(key, files.END) or check_end(self.told(key, files.END, uid))

    def forget(self, key: str) -> None:
        """Keep an attempt's output and where it is, and a trace that it existed; remove the rest."""
        folder = self.attempt(key)
        for name in (files.PLAN, files.SCRIPT, files.NEWS, files.BEAT, files.GO, frames.SOCKET):
            with suppress(OSError):
                os.unlink(os.path.join(self.run(key), name))
        for name in (files.HALT, files.WISH, files.LIMIT):
            with suppress(OSError):
                os.unlink(os.path.join(folder, name))
        # In one step: at any time the key is in one of the two places and so cannot start again.
        os.rename(folder, self.kept(key))


def read_of(path: str, uid: int) -> dict[str, Any] | None:
    """A small file, if it is a plain one of this user or ours. Names in users' folders may lead anywhere."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in (uid, os.geteuid()):
            return None
        try:
            value = json.loads(file.read(_END_BYTES_MAX))
        except (ValueError, OSError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def check_end(end: dict[str, Any] | None) -> dict[str, Any] | None:
    """An end that a node wrote, if every part of it is of the right kind."""
    numbers = ("exit_code", "started_ms", "ended_ms", "checkpoint_ms", "slurm_id")
    if end is None or not all([isinstance(end.get(name), str) for name in ("outcome", "why")]):
        return None
    if end["outcome"] not in _OUTCOMES:
        return None
    if not all([type(end.get(name)) is int and 0 <= end[name] < 1 << 52 for name in numbers]):
        return None
    return end | {"exit_code": end["exit_code"] & 255, "why": cut_short(end["why"])}


def check_news(news: dict[str, Any] | None) -> dict[str, Any] | None:
    """The news of a running attempt, if every part of it is of the right kind."""
    if news is None or type(news.get("started_ms")) is not int:
        return None
    gpus = news.get("gpus")
    whole_ = isinstance(gpus, dict) and all(
        [isinstance(each, list) and all([type(i) is int for i in each]) for each in gpus.values()]
    )
    return news if whole_ else {"started_ms": news["started_ms"], "gpus": {}}
