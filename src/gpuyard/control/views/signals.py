"""What GPUs do now, with the jobs that are on them: the engine tells of the one, the books of the other."""

from gpuyard.control.replica.attempt_keys import attempt_of
from gpuyard.control.replica.books import Books
from gpuyard.core import State
from gpuyard.engines.contract import Engine, EngineError, GpuSignals, HasTelemetry
from gpuyard.model.units import MILLI
from gpuyard.wire.replies.fleet import GpuJobReply, GpuReply, GpusReply


def gpus_view(books: Books, engine: Engine, yard: str) -> GpusReply:
    """Every GPU of the fleet. Figures that the engine does not know are null."""
    found: dict[tuple[str, int], GpuSignals] = {}
    trouble = ""
    if isinstance(engine, HasTelemetry):
        try:
            found = {(each.node, each.gpu): each for each in engine.signals()}
        except EngineError as error:
            trouble = str(error)
    with books.lock:
        books.catch_up()
        state = books.state
        rows = [
            _row(state, number, gpu, found.get((node.name, gpu)), yard)
            for number, node in enumerate(state.nodes.node)
            for gpu in range(node.gpus)
        ]
    return {"gpus": rows, "trouble": trouble}


def _row(state: State, number: int, gpu: int, signals: GpuSignals | None, yard: str) -> GpuReply:
    node = state.nodes.node[number]
    memory: dict[int, int] = {}
    for key, mib in signals.attempts if signals else ():
        if (whose := attempt_of(yard, key)) is not None:
            memory[whose[0]] = memory.get(whose[0], 0) + mib
    jobs: list[GpuJobReply] = [
        {
            "label": state.jobs[job_id].job.label,
            "share": grant.milli / MILLI if not grant.slices else None,
            "slices": [piece.profile for piece in grant.slices if piece.gpu == gpu],
            "memory_used_mib": memory.get(job_id),
        }
        for job_id, (_end_ms, grant) in sorted(state.nodes.attempts_on[number].items())
        if job_id in state.jobs and grant.gpus >> gpu & 1
    ]
    return {
        "node": node.name,
        "gpu": gpu,
        "gpu_model": node.gpu_model,
        "busy_pct": signals.busy_pct if signals else None,
        "memory_used_mib": signals.memory_used_mib if signals else None,
        "memory_mib": signals.memory_mib if signals else None,
        "power_w": signals.power_w if signals else None,
        "temperature_c": signals.temperature_c if signals else None,
        "others_mib": signals.others_mib if signals else None,
        "emulated": bool(signals and signals.emulated),
        "jobs": jobs,
    }
