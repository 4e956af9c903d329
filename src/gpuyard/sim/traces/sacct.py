"""Slurm's own history: the output of `sacct --parsable2` with a header, fields in any order.

What each job held (AllocTRES) is replayed for as long as it ran, from its real submission. Steps are not jobs and are
skipped. Jobs that never started and jobs without GPUs are left out and counted; a running job is kept with its run time
so far, because without the longest jobs the past would look idle.
"""

from dataclasses import dataclass

from gpuyard.engines.slurm.words.forms import Tres, Unreadable, limit_ms, parse_duration_ms, parse_tres
from gpuyard.model import Ask, JobSpec, Mig, Whole
from gpuyard.sim.traces.builder import Builder
from gpuyard.sim.traces.cells import RowError, name, parse_instant_ms, parse_seconds_ms, parse_tenant
from gpuyard.sim.traces.options import Options
from gpuyard.sim.traces.source import Source, Table

_TENANT = "slurm"
"""For a history without accounts and users."""

_NEVER = {"", "unknown", "none", "n/a"}


class LeftOut(Exception):
    """The row is no job to replay; the text says why."""


def matches(lines: list[str]) -> bool:
    """By its header."""
    header = {cell.strip().lower() for cell in lines[0].split("|")}
    return "submit" in header and not {"jobid", "jobidraw"}.isdisjoint(header)


def read(source: Source, builder: Builder, options: Options) -> None:
    """Hand every row to the builder."""
    table = source.table(builder, "|")
    columns = _Columns.of(table)
    known: dict[tuple[str, ...], int] = {}
    builder.epoch_ms = 0
    for number, cells in table.rows():
        if "." in cells[columns.job]:
            continue
        try:
            submit_ms = _instant_ms(cells[columns.submit], "Submit")
            run_ms = columns.run_ms(cells)
            job_limit_ms = columns.limit_of(cells)
            key = columns.key(cells)
            index = known.get(key)
            if index is None:
                index = known[key] = builder.index(_spec(key, options))
        except LeftOut as reason:
            builder.left_out(number, str(reason))
        except (RowError, Unreadable) as error:
            builder.broken(number, str(error))
        else:
            builder.add(index, submit_ms, run_ms, job_limit_ms)


@dataclass(frozen=True, slots=True)
class _Columns:
    """The positions of the fields; -1: the export lacks the field."""

    job: int
    submit: int
    start: int
    end: int
    elapsed: int
    elapsed_raw: int
    limit: int
    limit_raw: int
    allocated: int
    requested: int
    account: int
    user: int
    qos: int
    state: int

    @classmethod
    def of(cls, table: Table) -> "_Columns":
        table.require("end", "elapsed", "elapsedraw")
        table.require("alloctres", "reqtres")
        return cls(
            table.require("jobid", "jobidraw"),
            table.require("submit"),
            table.require("start"),
            *map(table.column, ("end", "elapsed", "elapsedraw", "timelimit", "timelimitraw")),
            *map(table.column, ("alloctres", "reqtres", "account", "user", "qos", "state")),
        )

    def run_ms(self, cells: list[str]) -> int:
        """How long the job ran, or has run so far."""
        state = cells[self.state].strip().upper() if self.state >= 0 else ""
        if cells[self.start].strip().lower() in _NEVER or state.startswith("PENDING"):
            raise LeftOut("never started")
        if self.elapsed_raw >= 0 and cells[self.elapsed_raw].strip():
            run_ms = parse_seconds_ms(cells[self.elapsed_raw], "ElapsedRaw")
        elif self.elapsed >= 0 and cells[self.elapsed].strip():
            run_ms = parse_duration_ms(cells[self.elapsed], "Elapsed")
        elif self.end < 0 or cells[self.end].strip().lower() in _NEVER:
            raise LeftOut("has neither an end nor an elapsed time")
        else:
            run_ms = _instant_ms(cells[self.end], "End") - _instant_ms(cells[self.start], "Start")
        if run_ms < 0:
            raise RowError("ends before it starts")
        # Older releases write the time of cancellation as the start of a job that was cancelled in the queue.
        empty = self.allocated >= 0 and not cells[self.allocated].strip()
        if run_ms == 0 and (empty or state.startswith("CANCELLED")):
            raise LeftOut("never started")
        return run_ms

    def limit_of(self, cells: list[str]) -> int:
        if self.limit >= 0:
            return limit_ms(cells[self.limit], "Timelimit")
        return limit_ms(cells[self.limit_raw], "TimelimitRaw") if self.limit_raw >= 0 else 0

    def key(self, cells: list[str]) -> tuple[str, ...]:
        """The cells that make the spec."""
        places = (self.allocated, self.requested, self.account, self.user, self.qos)
        return tuple(cells[place].strip() if place >= 0 else "" for place in places)


def _instant_ms(text: str, what: str) -> int:
    """Epoch seconds (SLURM_TIME_FORMAT=%s) or Slurm's usual form."""
    return parse_seconds_ms(text, what) if text.strip().isdecimal() else parse_instant_ms(text, what)


def _spec(key: tuple[str, ...], options: Options) -> JobSpec:
    allocated, requested, account, user, qos = key
    held = parse_tres(allocated or requested)
    if not held.gpus and held.shared:
        raise LeftOut("shares GPUs (gres/shard, gres/mps), and how much of one is not told")
    if not held.gpus and not options.cpu_jobs:
        raise LeftOut("asks for no GPU")
    # The models it asked for, not those it happened to get, if the export has both.
    models = parse_tres(requested or allocated).models if options.models else ()
    owner = "/".join(part for part in (account, user) if part) or _TENANT
    return JobSpec(parse_tenant(owner, "Account/User"), ask_of(held, models), klass=name(qos, "QOS"))


def ask_of(held: Tres, models: tuple[str, ...]) -> Ask:
    """One task per node if the GPUs divide evenly, else one task per GPU: how they were spread is unknown."""
    nodes = max(1, held.nodes)
    tasks = nodes if held.gpus % nodes == 0 else held.gpus
    per_task = held.gpus // tasks
    return Ask(
        Mig(per_task, held.profile) if held.profile else Whole(per_task),
        tasks,
        cpu_milli=-(-held.cpu_milli // tasks),
        memory_mib=-(-held.memory_mib // tasks),
        models=models,
    )
