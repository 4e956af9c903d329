"""The yard's own past for `yard simulate --history`: its jobs, its nodes and its configuration, through the API.

Users get the jobs that they may see, and the configuration if they may see that.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuyard.cli.connection.places import open_client
from gpuyard.cli.terminal.streams import print_notice
from gpuyard.errors import BadInput
from gpuyard.model import CATALOGUE, Market, Node, Pool, Settings
from gpuyard.model.units import MILLI

if TYPE_CHECKING:
    from gpuyard.config import Config
    from gpuyard.sim.trace import Trace

PAGE = 1000


def check(file: Path | None, within: str) -> None:
    """The jobs come from one place."""
    if (file is None) == (not within):
        raise BadInput(
            "the jobs to replay come from --trace or from --history", "Give --trace FILE, or --history 30d."
        )


def read_trace(within: str) -> "Trace":
    """The jobs that ended within a time."""
    import time

    from gpuyard.quantities import parse_positive_duration_ms
    from gpuyard.sim.traces import history

    try:
        since_ms = time.time_ns() // 1_000_000 - parse_positive_duration_ms(within)
    except ValueError as error:
        raise BadInput(f"--history {error}") from None
    rows: list[Any] = []
    cursor: str | None = None
    with open_client() as yard:
        while True:
            page = yard.history(since_ms=since_ms, limit=PAGE, cursor=cursor)
            rows += page.jobs
            cursor = page.next_cursor
            if cursor is None:
                break
    if not rows:
        raise BadInput(f"no job that you may see has ended within {within}", "Name a longer time.")
    return history.of_rows(rows, "history")


def read_fleet() -> "Config":
    """The yard's own fleet and configuration."""
    from gpuyard.api.client import Refused
    from gpuyard.cli.commands.foresight import fleet
    from gpuyard.config.reading import loads
    from gpuyard.policies.registry import PRESETS

    with open_client() as yard:
        nodes = [node for node in yard.nodes() if node["state"] == "UP"]
        settings, policies, clusters = Settings(policy=PRESETS["default"]), dict(PRESETS), {}
        try:
            live = loads(yard.config()["yaml"], "the configuration in force")
            settings, policies, clusters = live.settings, live.policies, live.clusters
        except Refused as error:
            if error.status != 403:
                raise
            print_notice(
                "note: only an admin sees the configuration: simulated without quotas, with list prices "
                "and with the default policy"
            )
    if not nodes:
        raise BadInput("no node of the yard is up", "Give --config yard.yaml, or --gpus 64.")
    found = fleet.make_preset_config(settings, *_pools(nodes))
    found.policies.update(policies)
    found.clusters.update(clusters)
    return found


def _pools(nodes: list[Any]) -> list[Pool]:
    pools: dict[tuple[str, str, str], list[Node]] = {}
    for node in nodes:
        model = CATALOGUE.get(node["gpu_model"])
        made = Node(
            name=node["name"],
            cluster=node["cluster"],
            pool=node["pool"],
            gpu_model=node["gpu_model"],
            gpus=node["gpus"],
            cpu_milli=round(node["cpus"] * MILLI),
            memory_mib=node["memory_mib"],
            nvlink_group_size=node["gpus"] if model and model.nvlink and node["gpus"] > 1 else 0,
        )
        pools.setdefault((node["cluster"], node["pool"], node["gpu_model"]), []).append(made)
    return [
        Pool(pool, cluster, Market.RESERVED, tuple(each))
        for (cluster, pool, _model), each in sorted(pools.items())
    ]
