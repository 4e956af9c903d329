"""The examination: every command only reads, and a command that fails does not keep the others from being run."""

import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from gpuyard.engines.contract import EngineError, Transient
from gpuyard.engines.slurm.calls.commands import Commands
from gpuyard.engines.slurm.doctor.evidence import Evidence, Used
from gpuyard.engines.slurm.site.accounting import Row, Rows, make_mark, queue_command, read_queue, remove_mark
from gpuyard.engines.slurm.site.site import Source, answer, list_sources, read
from gpuyard.engines.slurm.words.forms import (
    Unreadable,
    drop_null,
    parse_memory_mib,
    parse_settings,
    parse_table,
    parse_tres,
    parse_whole,
    parse_words,
)

QUICK_S = 20.0
"""How long one command may take: without its controller Slurm lets commands wait long."""
_USED_FIELDS = "JobIDRaw,JobID,User,State,ElapsedRaw,TimelimitRaw,AllocTRES,MaxRSS"


def examine(commands: Commands, since_days: int, rest_url: str = "") -> Evidence:
    """Ask everything."""
    found = Evidence(now_ms=time.time_ns() // 1_000_000, host=socket.gethostname().partition(".")[0])
    errors = found.errors

    def attempt(name: str, call: Callable[[], str]) -> str | None:
        try:
            return call()
        except (EngineError, Unreadable) as error:
            errors[name] = str(error)
            return None

    def run(*line: str) -> str:
        return commands.run(*line, timeout_s=QUICK_S)

    def ask(name: str, *line: str) -> str | None:
        return attempt(name, lambda: run(*line))

    found.client_version = (ask("client", "sinfo", "--version") or "").rpartition(" ")[2].strip()
    found.controller = _controller(ask("ping", "scontrol", "ping"), errors)
    _site(found, since_days, lambda source: attempt(source.file, lambda: answer(source, run)))
    if not found.site.config:
        _from_file(found, commands.conf)
    database = ask("slurmdbd", "sacctmgr", "show", "configuration")
    found.database = parse_settings(database.partition("SlurmDBD configuration")[2]) if database else {}
    if not found.controller:
        mark = make_mark()
        queue = attempt("queue", lambda: remove_mark(run(*queue_command(mark)), mark))
        found.queue = _readable(found, "squeue", read_queue(queue or ""))
    if "jobs.txt" not in errors:
        line = ("--allusers", "--parsable2", f"--starttime=now-{since_days}days", f"--format={_USED_FIELDS}")
        found.used = _readable(found, "sacct", read_used(ask("used", "sacct", *line) or ""))
    found.munge = _munge(commands, found)
    found.host_gpus = _gpus_here()
    if rest_url:
        found.rest_url, found.rest = rest_url, _rest(rest_url)
    return found


def _controller(said: str | None, errors: dict[str, str]) -> str:
    # It frames what it says with stars.
    told = errors.get("ping", "") if said is None else said
    lines = [line.strip() for line in told.splitlines() if line.strip(" *")]
    return "" if any("is UP" in line for line in lines) else (lines or ["no answer"])[0]


def _site(found: Evidence, since_days: int, ask: Callable[[Source], str | None]) -> None:
    readable = {}
    for source in list_sources(since_days):
        needs_controller = source.words[0] in ("scontrol", "sinfo") and source.file != "version.txt"
        if needs_controller and found.controller:
            continue
        said = ask(source)
        try:
            if said is not None:
                read({source.file: said}, {})
                readable[source.file] = said
        except Unreadable as wrong:
            found.errors[source.file] = str(wrong)
    found.site = read(readable, {})
    _readable(found, "sacct", found.site.jobs)


def _readable(found: Evidence, program: str, rows: Rows[Row]) -> list[Row]:
    """The rows that could be read; of the others, the number and the first are kept."""
    # The accounting is asked twice, and the same rows are wrong in both answers.
    if rows.broken > found.unread.get(program, (0, ""))[0]:
        found.unread[program] = (rows.broken, rows.broken_named[0])
    return rows.rows


def _from_file(found: Evidence, conf: str) -> None:
    """Read settings from the file, where Slurm does not answer."""
    path = Path(conf or os.environ.get("SLURM_CONF") or "/etc/slurm/slurm.conf")
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    plain = [line for line in lines if line and not line.startswith(("NodeName", "PartitionName", "Include"))]
    found.site.config = parse_settings("\n".join(plain))
    found.conf_file = str(path)


def read_used(text: str) -> Rows[Used]:
    """What jobs asked for and needed, from `sacct` with its steps: the memory is that of the largest step.

    A row that cannot be read is skipped, and counted.
    """
    found = Rows[Used]()
    jobs: dict[str, dict[str, str]] = {}
    peak: dict[str, int] = {}
    header, *lines = text.split("\n")
    for place, line in enumerate(lines, start=2):
        try:
            for _, cells in parse_table(f"{header}\n{line}"):
                _take_step(cells, jobs, peak)
        except (Unreadable, KeyError) as wrong:
            found.bad(f"line {place}", wrong if isinstance(wrong, Unreadable) else f"has no {wrong}")
    for number, cells in jobs.items():
        try:
            if cells["state"].split(" ")[0] in ("COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY"):
                found.rows.append(_used(cells, peak.get(number, 0)))
        except Unreadable as wrong:
            found.bad(f"job {cells['jobid']}", wrong)
    return found


def _take_step(cells: dict[str, str], jobs: dict[str, dict[str, str]], peak: dict[str, int]) -> None:
    """A row of a job, or of one of its steps."""
    number = cells["jobidraw"].partition(".")[0]
    if "." not in cells["jobidraw"]:
        jobs[number] = cells
    if drop_null(cells["maxrss"]):
        peak[number] = max(peak.get(number, 0), parse_memory_mib(cells["maxrss"], "MaxRSS"))


def _used(cells: dict[str, str], used_mib: int) -> Used:
    held = parse_tres(cells["alloctres"])
    limit = cells["timelimitraw"].strip()
    return Used(
        label=cells["jobid"],
        user=cells["user"],
        limit_ms=int(limit) * 60_000 if limit.isdecimal() else 0,
        elapsed_ms=parse_whole(cells["elapsedraw"] or "0", "ElapsedRaw", 10**12) * 1000,
        asked_mib=held.memory_mib // max(1, held.nodes),
        used_mib=used_mib,
    )


def _munge(commands: Commands, found: Evidence) -> str | None:
    """Whether a credential made here is understood here."""
    if found.setting("AuthType") not in ("", "auth/munge"):
        return None
    if not (shutil.which("munge") and shutil.which("unmunge")):
        return "the programs munge and unmunge are not here"
    where = parse_words(found.setting("AuthInfo")).get("socket", "")
    socket_word = (f"--socket={where}",) if where else ()
    try:
        made = commands.run("munge", "--no-input", *socket_word, timeout_s=QUICK_S)
        commands.run("unmunge", *socket_word, text=made, timeout_s=QUICK_S)
    except EngineError as error:
        return str(error)
    return ""


def _gpus_here() -> int | None:
    # The local engine knows how to ask the driver; only where there is one.
    from gpuyard.engines.machine import nvml  # noqa: PLC0415

    try:
        return len(nvml.read_gpus()) or None
    except (Transient, subprocess.SubprocessError):
        return None


def _rest(url: str) -> str:
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/openapi/v3", timeout=QUICK_S):
            return ""
    except urllib.error.HTTPError as error:
        # A refusal is an answer, too.
        return "" if error.code in (401, 403, 500) else f"it answers {error.code} {error.reason}"
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", error))
