"""`yard nodes --topo`, `GET /topology`: how the GPUs of each node are linked, and what is next to them."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpuyard.errors import names_text
from gpuyard.quantities import memory_size
from gpuyard.reports.report import Report
from gpuyard.reports.table import Row, Table
from gpuyard.tables import Column
from gpuyard.wire.endpoints import TOPOLOGY

if TYPE_CHECKING:
    from gpuyard.control.access.rights import Sight
    from gpuyard.control.readings import Readings
    from gpuyard.wire.replies.fleet import TopologyReply

_NAMED_MAX = 3
_WORDS = {
    "NV": "NVLink",
    "PIX": "one PCIe bridge",
    "PXB": "several PCIe bridges",
    "PHB": "the host bridge of a CPU",
    "NODE": "the host bridges of one NUMA domain",
    "SYS": "the link between NUMA domains",
}
"""What the words of `nvidia-smi topo -m` mean, the closest first."""


def build(readings: "Readings", values: Mapping[str, Any], _sight: "Sight") -> Table:
    """The topology as the driver or the emulation reports it."""
    found = readings.topology(values["cluster"] or "")
    return Table(found["gpus"], {"trouble": found["trouble"]})


def _to(other: int) -> Callable[[Row], str]:
    """The link to one of the other GPUs; empty where the node has fewer, a dash where nobody knows."""

    def cell(row: Row) -> str:
        if row["links"]:
            return (row["links"][other] or "-") if other < len(row["links"]) else ""
        return "-"

    return cell


def _columns(rows: Sequence[Row]) -> list[Column]:
    """A column for each GPU of the largest node."""
    most = max([row["gpu"] + 1 for row in rows], default=0)
    pcie = [Column("PCIE", lambda row: row["pcie"] or "-")] if any([row["pcie"] for row in rows]) else []
    return [
        Column("NODE", lambda row: row["node"]),
        Column("CLUSTER", lambda row: row["cluster"], wide=True),
        Column("GPU", lambda row: str(row["gpu"]), right=True),
        *[Column(f"GPU{other}", _to(other)) for other in range(most)],
        Column("MODEL", lambda row: row["gpu_model"] or "-"),
        Column(
            "VRAM",
            lambda row: "-" if row["memory_mib"] is None else memory_size(row["memory_mib"]),
            right=True,
        ),
        *pcie,
        Column("NUMA", lambda row: "-" if row["numa"] is None else str(row["numa"]), right=True),
        Column("CORES", lambda row: row["cores"] or "-"),
        Column("SWITCH", lambda row: row["switch"] or "-", wide=True),
        Column("RACK", lambda row: row["rack"] or "-", wide=True),
        Column("FABRIC", lambda row: row["fabric"] or "-", wide=True),
    ]


def _notes(reply: Row) -> list[str]:
    """What the words mean, and which nodes tell nothing."""
    rows = reply["gpus"]
    used = {link.rstrip("0123456789") for row in rows for link in row["links"]}
    words = ", ".join([f"{word} {meaning}" for word, meaning in _WORDS.items() if word in used])
    untold = sorted({row["node"] for row in rows if not row["links"]})
    notes = [
        reply["trouble"],
        f"two GPUs reach each other over: {words}" if words else "",
        f"nobody tells how the GPUs of {names_text(untold, _NAMED_MAX)} are linked"
        if untold and not reply["trouble"]
        else "",
    ]
    return [each for each in notes if each]


REPORT: "Report[TopologyReply]" = Report(
    "topology",
    TOPOLOGY,
    build,
    _columns,
    rows="gpus",
    help="Show how the GPUs of each node are linked, and their memory, PCIe, NUMA domain and cores.",
    notes=_notes,
)
