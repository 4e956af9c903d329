"""What an attempt has on every node, written where its job can read it, and the place for its steps.

A job divides its room among its steps itself: `srun` inside the job reads the room, and keeps a ledger of what each
step holds in a folder of the job, which the first step makes. The supervisor reads it for one thing: which processes
are steps, so that a signal for them reaches them and not the shell that started them. Runs in supervisors: only the
standard library, and little of it.
"""

import json
import os
import subprocess
from contextlib import suppress
from typing import Any

from gpuyard.engines.machine import files
from gpuyard.engines.node.attempt import fence
from gpuyard.engines.node.containers import podman
from gpuyard.engines.node.files import open_of_job

ROOM = "room.json"
"""The nodes of the attempt in the order of its ranks, each with its GPUs, cores and memory; 0: not counted."""
SCRATCH = "tmp"
"""A folder for files that go when the attempt ends, SLURM_TMPDIR, of a job that has Slurm's commands."""
PRIVATE = "private"
"""The folder behind the job's own /tmp and /var/tmp, where its fence gives it some; it goes when the attempt ends."""
FOLDERS = (SCRATCH, PRIVATE, files.IMAGE)
"""Folders that go when the attempt ends."""
NAMES = "hosts"
"""The machine's own list of names, with those of the job's emulated nodes."""
LEDGER = "ledger.json"
"""In the folder of the steps: the live steps, the processes that started them, and what they hold."""
_LEDGER_BYTES_MAX = 4 << 20
_READABLE = 0o644


def prepare(plan: dict[str, Any]) -> None:
    """Write the room into the attempt's folder, which is the current one, and make the job's scratch folder."""
    if "room" not in plan:
        # It was put on disk by a yard of an earlier version, and started by this one.
        return
    draft = files.write_draft(ROOM, json.dumps(plan["room"]).encode(), durable=False)
    os.chmod(draft, _READABLE)
    os.rename(draft, ROOM)
    wanted = {SCRATCH: plan.get("scratch", True), files.IMAGE: plan.get("image")}
    for folder, is_wanted in wanted.items():
        if is_wanted:
            with suppress(FileExistsError):
                os.mkdir(folder, 0o700)
            if plan["drop"]:
                os.chown(folder, plan["uid"], plan["gid"])
    if plan.get("image"):
        short = plan["image"]["short"]
        if os.geteuid() == 0:
            os.makedirs(os.path.dirname(short), mode=0o711, exist_ok=True)
        os.mkdir(short, 0o700)
        if plan["drop"]:
            os.chown(short, plan["uid"], plan["gid"])


def write_names(plan: dict[str, Any], system: str) -> None:
    """Write the machine's list of names, and the names of the job's emulated nodes: they are all this machine.

    `MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -1)` is an address then, as it is on a cluster.
    """
    names = plan.get("names")
    if not names:
        return
    known = b""
    with suppress(OSError), open(system, "rb") as file:
        known = file.read()
    lines = "".join([f"127.0.0.1 {name}\n" for name in names]).encode()
    draft = files.write_draft(NAMES, known.rstrip(b"\n") + b"\n" + lines, durable=False)
    os.chmod(draft, _READABLE)
    os.rename(draft, NAMES)


def sweep(plan: dict[str, Any]) -> None:
    """Remove what is not needed afterwards."""
    wanted = plan.get("fence") or {}
    if wanted.get("tmp"):
        if wanted.get("keep") or wanted.get("code"):
            # Where something is shown there is no removal; it is not if the fence could not be raised.
            with suppress(OSError):
                fence.leave_temporary()
        with suppress(OSError):
            for name in os.listdir(PRIVATE):
                os.rmdir(f"{PRIVATE}/{name}")
    for folder in FOLDERS:
        _remove(folder)
    if plan.get("image"):
        _remove(plan["image"]["short"])


def _remove(folder: str) -> None:
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return
    except OSError:
        # A job may nest folders as deep as it likes: Python's own function would recurse too deep.
        words = ["rm", "-rf", "--one-file-system", "--", folder]
        subprocess.run(words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        if os.path.lexists(folder) and os.geteuid() != 0:
            # Files of an image's other users belong to ids that only its owner's user namespace may touch.
            subprocess.run(
                ["podman", "unshare", *words],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
            )


def find_starters(plan: dict[str, Any]) -> set[int]:
    """Numbers of the processes that the ledger calls starters of live steps.

    The ledger belongs to the job: it may hold anything, so check it against what is known.
    """
    try:
        above, _, name = plan["room"]["steps"].rpartition("/")
        with os.fdopen(open_of_job(above, f"{name}/{LEDGER}"), "rb") as file:
            live = json.loads(file.read(_LEDGER_BYTES_MAX))["live"]
        return {each["pid"] for each in live if type(each["pid"]) is int and each["pid"] > 1}
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return set()


def clear(folder: str, aside: str) -> None:
    """Put aside what a killed supervisor did not remove: it may be a lot."""
    for name in FOLDERS:
        path = os.path.join(folder, name)
        if os.path.isdir(path) and not os.path.islink(path):
            # What something is mounted on stays, and goes with the attempt's log.
            with suppress(OSError):
                os.makedirs(aside, mode=0o700, exist_ok=True)
                os.rename(path, os.path.join(aside, f"{name}-{os.path.basename(folder)}"))
    _remove(podman.short_folder(folder))
