"""What each GPU does now, and the jobs on it: as its driver says at this moment, or as its collector told last."""

from collections.abc import Mapping
from dataclasses import replace

from gpuyard.control.access.rights import ALL, Sight
from gpuyard.control.replica.labels import current_key, node_key, parse_attempt_key
from gpuyard.control.replica.replica import Replica
from gpuyard.control.upkeep.watching import Watch
from gpuyard.core import State
from gpuyard.engines.contract import Engine, EngineError, GpuSignals, HasTelemetry
from gpuyard.model.units import DAY_MS, MILLI
from gpuyard.telemetry.samples import Sample
from gpuyard.telemetry.signals import attempt_subject, gpu_subject
from gpuyard.telemetry.sources import GpuLook
from gpuyard.wire.replies.fleet import GpuJobReply, GpuReply, GpusReply

_Place = tuple[str, str, int]
"""A cluster, a node and a GPU there."""


def gpus_view(
    replica: Replica,
    engines: Mapping[str, Engine],
    yard: str,
    watch: Watch | None = None,
    sight: Sight = ALL,
) -> GpusReply:
    """Every GPU of the fleet. Figures that nobody knows are null."""
    # A single engine has every node, whatever the cluster was called when the node was seen first.
    several = len(engines) > 1
    found, trouble = _told_by_engines(engines, several)
    looks = watch.emulated() if watch is not None else {}
    samples = {each.node: each for each in watch.newest()} if watch is not None else {}
    now_ms = watch.now_ms() if watch is not None else 0
    with replica.lock:
        replica.catch_up()
        state = replica.state
        rows = []
        for number, node in enumerate(state.nodes.node):
            key = node_key(node.cluster, node.name)
            sample = samples.get(key)
            for gpu in range(node.gpus):
                signals, age_s = found.get((node.cluster if several else "", node.name, gpu)), 0
                if signals is not None and signals.emulated:
                    signals = _emulated(signals, looks.get(key, ()))
                elif signals is None and sample is not None:
                    signals = _sampled(state, number, gpu, sample, yard)
                    age_s = max(0, now_ms - sample.at_ms) // 1000
                rows.append(_row(state, number, gpu, signals, age_s, yard, sight))
    return {"gpus": rows, "trouble": trouble}


def _told_by_engines(engines: Mapping[str, Engine], several: bool) -> tuple[dict[_Place, GpuSignals], str]:
    found: dict[_Place, GpuSignals] = {}
    trouble = ""
    for cluster, engine in engines.items():
        if isinstance(engine, HasTelemetry):
            try:
                signals = engine.signals()
            except EngineError as error:
                trouble = f"{cluster}: {error}" if several else str(error)
            else:
                found |= {(cluster if several else "", each.node, each.gpu): each for each in signals}
    return found, trouble


def _emulated(signals: GpuSignals, looks: "list[GpuLook] | tuple[()]") -> GpuSignals:
    """What the jobs on an emulated GPU say that they do there."""
    look = next((each for each in looks if each.gpu == signals.gpu), None)
    if look is None:
        return signals
    return replace(
        signals,
        busy_pct=_percent(look.values.get("busy")),
        memory_used_mib=_whole(look.values.get("memory_used")),
        power_w=_whole(look.values.get("power")),
        temperature_c=_whole(look.values.get("temperature")),
        attempts=tuple([(each.attempt, each.memory_mib or 0) for each in look.processes]),
    )


def _sampled(state: State, number: int, gpu: int, sample: Sample, yard: str) -> GpuSignals | None:
    """What a collector told last of a GPU; None: nothing."""
    subject, values = gpu_subject(gpu), sample.values
    told = {
        name: values.get(f"{subject}/{name}")
        for name in ("busy", "memory_used", "memory_free", "power", "temperature")
    }
    if all([value is None for value in told.values()]):
        return None
    attempts = []
    for job_id, (_end_ms, grant) in sorted(state.nodes.attempts_on[number].items()):
        if job_id in state.jobs and grant.gpus == 1 << gpu:
            # Of an attempt with several GPUs the collector tells the sum.
            key = current_key(yard, state.jobs[job_id])
            if (mib := values.get(f"{attempt_subject(key)}/gpu_memory")) is not None:
                attempts.append((key, mib))
    used, free = told["memory_used"], told["memory_free"]
    return GpuSignals(
        state.nodes.node[number].name,
        gpu,
        used + free if used is not None and free is not None else 0,
        _percent(told["busy"]),
        used,
        told["power"],
        told["temperature"],
        tuple(attempts),
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _percent(permille: float | None) -> int | None:
    return None if permille is None else round(permille / 10)


def _row(
    state: State,
    number: int,
    gpu: int,
    signals: GpuSignals | None,
    age_s: int,
    yard: str,
    sight: Sight,
) -> GpuReply:
    node = state.nodes.node[number]
    memory: dict[int, int] = {}
    for key, mib in signals.attempts if signals else ():
        if (whose := parse_attempt_key(yard, key)) is not None:
            memory[whose[0]] = memory.get(whose[0], 0) + mib
    jobs: list[GpuJobReply] = []
    for job_id, (_end_ms, grant) in sorted(state.nodes.attempts_on[number].items()):
        record = state.jobs.get(job_id)
        if record is None or not grant.gpus >> gpu & 1:
            continue
        seen = sight.sees(record.job.spec.tenant)
        jobs.append(
            {
                "label": record.job.label if seen else str(job_id),
                "user": record.job.spec.user if seen else "",
                "tenant": record.job.spec.tenant if seen else "",
                "share": grant.milli / MILLI if not grant.slices else None,
                "slices": [piece.profile for piece in grant.slices if piece.gpu == gpu],
                "memory_used_mib": memory.get(job_id),
            }
        )
    return {
        "node": node.name,
        "cluster": node.cluster,
        "gpu": gpu,
        "gpu_model": node.gpu_model,
        "busy_pct": signals.busy_pct if signals else None,
        "memory_used_mib": signals.memory_used_mib if signals else None,
        "memory_mib": signals.memory_mib or None if signals else None,
        "power_w": signals.power_w if signals else None,
        "temperature_c": signals.temperature_c if signals else None,
        "others_mib": signals.others_mib if signals else None,
        "emulated": bool(signals and signals.emulated),
        "age_s": age_s if signals else None,
        "price_micro_usd_h": state.gpu_price(number, state.now_ms // DAY_MS) or None,
        "jobs": jobs,
    }
