"""Microsoft's Philly job list, as published with several schedulers: timestamp, duration, num_gpus, cluster.

The tenant is the virtual cluster. The list has no time limits; each job gets one drawn from 1 to 3 times its duration
plus a minute, which is how far users overestimate.
"""

from random import Random

from gpuyard.model import JobSpec
from gpuyard.sim.traces.builder import Builder
from gpuyard.sim.traces.cells import RowError, parse_instant_ms, parse_seconds_ms, parse_tenant, parse_whole
from gpuyard.sim.traces.options import Options, make_gang_ask
from gpuyard.sim.traces.source import Source, split

_TENANT = "philly"
"""For a list without virtual clusters."""


def matches(lines: list[str]) -> bool:
    """By its header."""
    return {"timestamp", "duration", "num_gpus"} <= {cell.strip().lower() for cell in split(lines[0], ",")}


def read(source: Source, builder: Builder, options: Options) -> None:
    """Hand every row to the builder."""
    table = source.table(builder)
    at, duration, gpus = (table.require(name) for name in ("timestamp", "duration", "num_gpus"))
    cluster = table.column("cluster", "vc")
    draw = Random(options.seed).random
    known: dict[tuple[str, str], int] = {}
    builder.epoch_ms = 0
    for number, cells in table.rows():
        try:
            submit_ms = parse_instant_ms(cells[at], "timestamp")
            run_ms = parse_seconds_ms(cells[duration], "duration")
            key = (cells[gpus], cells[cluster] if cluster >= 0 else "")
            index = known.get(key)
            if index is None:
                ask = make_gang_ask(parse_whole(key[0], "num_gpus"), options.gpus_per_node)
                owner = parse_tenant(key[1], "cluster") if key[1].strip() else _TENANT
                index = known[key] = builder.index(JobSpec(owner, ask))
        except RowError as error:
            builder.broken(number, str(error))
        else:
            builder.add(index, submit_ms, run_ms, int(run_ms * (1 + 2 * draw())) + 60_000)
