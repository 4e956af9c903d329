"""From a launch to a job of Slurm: checked, on disk, handed in, and taken back where Slurm will not have it."""

import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from gpuyard.engines.contract import Answer, EngineError, Launch, Reply
from gpuyard.engines.machine.backoff import NodeBackoff
from gpuyard.engines.machine.launches import find_account
from gpuyard.engines.node import files
from gpuyard.engines.slurm import fleet
from gpuyard.engines.slurm import plan as plans
from gpuyard.engines.slurm.calls import submission
from gpuyard.engines.slurm.calls.client import Client
from gpuyard.engines.slurm.calls.commands import OutOfReach
from gpuyard.engines.slurm.calls.submission import Submission
from gpuyard.engines.slurm.fleet import ClusterSnapshot, SlurmSettings
from gpuyard.engines.slurm.folder import SUBMIT, Folder
from gpuyard.engines.slurm.watching import AttemptMonitor, KnownAttempt
from gpuyard.errors import error_text
from gpuyard.model import Outcome

_DONE = Reply(Answer.DONE)
_AT_ONCE = 4
"""How many commands hand in jobs at the same time: more would only wait for Slurm's controller."""
SETTLE_S = 5.0
"""How long nothing is handed in after Slurm was out of reach: its nodes first report what still runs there."""
_OUT_OF_ORDER = 16
"""Numbers of jobs that are handed in at the same time may come back a little out of order."""
_OWN_FAULT = (
    "invalid account",
    "invalid user",
    "user's group",
    "invalid qos",
    "permission denied",
    "access denied",
    "accounting/qos policy",
    "user not found",
)
"""Refusals because of the user or account: they would come anywhere on this cluster. Others concern the place."""


class Submitter:
    """Submits attempts to Slurm. The engine holds its lock around every call."""

    def __init__(
        self,
        folder: Folder,
        client: Client,
        site: SlurmSettings,
        monitor: AttemptMonitor,
        aside: NodeBackoff,
        yard: str,
        now_ms: Callable[[], int],
    ) -> None:
        self._folder, self._client, self._site = folder, client, site
        self._monitor, self._aside = monitor, aside
        self._yard = yard
        self._now_ms = now_ms
        self._id_max = 0
        self._hold_until_s = 0.0
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="yard-sbatch")

    def prepare(self, launch: Launch, scene: ClusterSnapshot) -> Reply | Submission:
        """Put a launch on disk; gives what is to be handed to Slurm, if anything is."""
        usable = {name: scene.nodes[name] for name in scene.names}
        if flaw := plans.find_flaw(launch, usable):
            return Reply(Answer.REFUSED, flaw)
        recipe = launch.recipe
        account = find_account(recipe.uid, recipe.gid, recipe.user)
        if account.uid != os.geteuid() and os.geteuid() != 0:
            return Reply(Answer.REFUSED, f"only a server of root can run jobs as {account.user}")
        key, folder = launch.key, self._folder
        if os.path.exists(folder.kept(key)):
            return Reply(Answer.REFUSED, "this attempt was ended before")
        if os.path.exists(os.path.join(folder.run(key), files.CLAIM)) or folder.own(key, files.END):
            return _DONE
        groups = submission.group_nodes(launch, usable, scene.partitions)
        program = submission.find_program(folder.program)
        place = plans.SlurmContext(
            folder=folder.attempt(key),
            job_folder=folder.job(launch.job_id),
            knock=os.path.join(folder.news, key),
            program=program,
            sruns=submission.list_sruns(groups) if len(launch.parts) > 1 else [],
            yard=self._yard,
            containers=self._site.containers.value,
        )
        try:
            folder.make(key, plans.plan_of(launch, account, place, usable), launch.job_id)
        except OSError as error:
            return Reply(Answer.UNSURE, f"the launch cannot be written: {error_text(error)}")
        known = self._monitor.known(key)
        now_ms = self._now_ms()
        for part in launch.parts:
            why = fleet.find_window(self._site, scene, part.node, now_ms, launch.limit_ms or None)
            if known is not None and why:
                return self._hand_back(key, known, why)
        return Submission(
            key=key,
            mark=folder.mark(key),
            name=launch.name,
            uid=account.uid,
            gid=account.gid,
            groups=groups,
            minutes=submission.choose_minutes(launch, groups, scene.partitions),
            output=os.path.join(folder.run(key), "slurm.out"),
            script=submission.make_script(self._site.python, program, folder.attempt(key)),
            reservation=self._site.reservation,
            account=self._site.account,
        )

    def _hand_back(self, key: str, known: KnownAttempt, why: str) -> Reply:
        """Slurm will not run it there now: it waits again, and its nodes are left out for a while."""
        self._aside.put(list(known.parts), why)
        self._monitor.withdraw(key, known, Outcome.PREEMPTED, why)
        return _DONE

    def hand_in(self, jobs: Mapping[str, Submission]) -> dict[str, Reply]:
        """Hand jobs to Slurm that it does not have yet."""
        if not jobs:
            return {}
        held_s = self._hold_until_s - time.monotonic()
        reach = getattr(self._client, "reach", None)
        if reach is not None and reach.returned_s is not None:
            held_s = max(held_s, reach.returned_s + SETTLE_S - time.monotonic())
        again = [key for key in jobs if os.path.exists(os.path.join(self._folder.attempt(key), SUBMIT))]
        try:
            if held_s > 0:
                raise OutOfReach(f"Slurm has just come back; its nodes get {SETTLE_S:g} s to report first")
            # Handed in before: Slurm may have it already.
            jobs_there = self._monitor.queue(fresh=True).jobs if again else ()
            there = {self._folder.key_of(job.comment) for job in jobs_there if job.lives or job.waits}
        except OutOfReach as error:
            return {key: Reply(Answer.UNSURE, str(error)) for key in jobs}
        wanted = {key: job for key, job in jobs.items() if key not in there}
        replies = dict(zip(wanted, self._pool.map(self._submit, wanted.values()), strict=True))
        return {key: replies.get(key, _DONE) for key in jobs}

    def _submit(self, job: Submission) -> Reply:
        key, folder = job.key, self._folder
        ids = (folder.own(key, SUBMIT) or {"ids": []})["ids"]
        try:
            folder.put(key, SUBMIT, {"at_ms": self._now_ms(), "ids": ids})
            number = self._client.submit(job)
            # An answer of Slurm from before this moment cannot have the job.
            folder.put(key, SUBMIT, {"at_ms": self._now_ms(), "ids": [*ids, number]})
        except OutOfReach as error:
            return Reply(Answer.UNSURE, str(error))
        except OSError as error:
            return Reply(Answer.UNSURE, f"the launch cannot be written: {error_text(error)}")
        except EngineError as error:
            return self._refused(job, str(error))
        if number < self._id_max - _OUT_OF_ORDER or number in ids:
            # Numbers begin again: Slurm has lost its state, and its nodes may still run an earlier job of this
            # number.
            self._hold_until_s = time.monotonic() + SETTLE_S
        self._id_max = max(self._id_max, number)
        return _DONE

    def _refused(self, job: Submission, why: str) -> Reply:
        known = self._monitor.known(job.key)
        assert known is not None, "what is handed in was written down before"
        if any([sign in why.lower() for sign in _OWN_FAULT]):
            # With an end it can be forgotten; without one its GPUs would count as held forever.
            self._monitor.withdraw(job.key, known, Outcome.FAILED, f"Slurm refused it: {why}")
            return Reply(Answer.REFUSED, f"Slurm refused it: {why}")
        # The place is wrong, not the job: it waits again.
        return self._hand_back(job.key, known, f"Slurm refused it: {why}")

    def close(self) -> None:
        """Let go."""
        self._pool.shutdown(wait=False)
