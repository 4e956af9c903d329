"""How the GPUs of every node are linked, as engines tell it."""

from collections.abc import Mapping

from gpuyard.control.replica.replica import Replica
from gpuyard.engines.contract import Engine, EngineError, GpuPlace, HasTopology
from gpuyard.model.catalogue import CATALOGUE
from gpuyard.wire.replies.fleet import GpuPlaceReply, TopologyReply


def topology_view(replica: Replica, engines: Mapping[str, Engine], cluster: str = "") -> TopologyReply:
    """Of all clusters, or of one. What nobody knows is null or empty."""
    # A single engine has every node, whatever the cluster was called when the node was seen first.
    several = len(engines) > 1
    found: dict[tuple[str, str, int], GpuPlace] = {}
    trouble = ""
    for name, engine in engines.items():
        if isinstance(engine, HasTopology):
            try:
                told = engine.topology()
            except EngineError as error:
                trouble = f"{name}: {error}" if several else str(error)
            else:
                found |= {(name if several else "", each.node, each.gpu): each for each in told}
    with replica.lock:
        replica.catch_up()
        nodes = [node for node in replica.state.nodes.node if cluster in ("", node.cluster)]
    rows: list[GpuPlaceReply] = []
    for node in nodes:
        known_mib = CATALOGUE[node.gpu_model].memory_mib if node.gpu_model in CATALOGUE else None
        for gpu in range(node.gpus):
            place = found.get((node.cluster if several else "", node.name, gpu))
            rows.append(
                {
                    "node": node.name,
                    "cluster": node.cluster,
                    "gpu": gpu,
                    "gpu_model": node.gpu_model,
                    "memory_mib": place.memory_mib if place else known_mib,
                    "links": list(place.links) if place else [],
                    "pcie": place.pcie if place else "",
                    "numa": place.numa if place else None,
                    "cores": place.cores if place else "",
                    "emulated": bool(place and place.emulated),
                    "switch": node.switch,
                    "rack": node.rack,
                    "fabric": node.fabric,
                }
            )
    return {"gpus": rows, "trouble": trouble}
