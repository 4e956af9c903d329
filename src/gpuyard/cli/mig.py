"""`yard mig`: how the GPUs of the yard are cut, as a picture; and layouts planned, applied, released and exported."""

from collections.abc import Mapping
from typing import Any

from gpuyard.cli.options import Output, OutputOption
from gpuyard.cli.places import client

FIELDS = ("node", "gpu_model", "gpu", "profile", "start", "job", "pinned")
_SLOT = 8
"""Characters for one memory slot."""
IDLE = "-"
"""In place of a job."""


def mig(output: OutputOption = Output.TABLE) -> None:
    """Show how GPUs are cut into MIG slices, and which job has which.

    You need not cut them: `-g 1g.18gb` does, when the job starts. A box is as wide as the memory of its slice; `-` in
    it: no job uses it. `yard mig apply` pins a GPU to one layout and no other.

    \b
    Examples:
      yard mig
      yard mig plan
      yard mig plan 7x1g.18gb --node gpu-1
      yard mig apply 3g.71gb+2x2g.35gb --node gpu-1 --gpu 0
      yard mig apply -f mig-parted.yaml all-balanced --node gpu-1
      yard mig release --node gpu-1
      yard mig export > mig-parted.yaml
    """
    with client() as yard:
        found = yard.mig()
        models = (
            sorted({node["gpu_model"] or "no GPUs" for node in yard.nodes()}) if not found["nodes"] else []
        )
    if output in (Output.TABLE, Output.WIDE):
        if not found["nodes"]:
            print(f"no GPU here can be cut: {', '.join(models)}")
        for place, node in enumerate(found["nodes"]):
            print(("\n" if place else "") + drawn(node))
        return
    from gpuyard.cli.tables import emit

    emit(rows(found["nodes"]), [], output, fields=FIELDS)


def rows(nodes: list[Any]) -> list[dict[str, Any]]:
    """One row for each slice."""
    found = []
    for node in nodes:
        pinned = {pin["gpu"] for pin in node["pins"]}
        for gpu, profile, start, job in node["slices"]:
            values = (node["node"], node["gpu_model"], gpu, profile, start, job, gpu in pinned)
            found.append(dict(zip(FIELDS, values, strict=True)))
    return found


def drawn(node: Mapping[str, Any]) -> str:
    """A node, a line for each GPU."""
    from gpuyard.model.mig import MIG_MODELS

    geometry = MIG_MODELS[node["gpu_model"]]
    pins = {pin["gpu"]: pin for pin in node["pins"]}
    lines = [f"{node['node']}, {node['gpus']} x {geometry.model}"]
    for gpu in range(node["gpus"]):
        held = {start: (profile, job or IDLE) for at, profile, start, job in node["slices"] if at == gpu}
        picture_of = picture(geometry.slots, held, geometry) if held else "not cut"
        lines.append(f"  {gpu:>2}  {picture_of}{_pin_text(pins.get(gpu))}")
    sizes = [f"{profile.name} ({profile.memory_mib / 1024:.1f} GiB)" for profile in geometry.profiles]
    lines.append(f"  sizes: {', '.join([each for each in sizes if '+' not in each])}")
    return "\n".join(lines)


def _pin_text(pin: Mapping[str, Any] | None) -> str:
    if pin is None:
        return ""
    if pin["made"]:
        return "  pinned" if pin["slices"] else "  pinned whole"
    return f"  pinned to {pin['layout']}, {'not made: ' + pin['why'] if pin['why'] else 'being made'}"


def picture(slots: int, held: Mapping[int, tuple[str, str]], geometry: Any) -> str:
    """One GPU from its first slot to its last: `[1g.18gb 12]` where something is, dots where nothing is."""
    parts, slot = [], 0
    while slot < slots:
        if slot in held:
            name, job = held[slot]
            width = geometry.profile(name).memory
            room = width * _SLOT - 2
            text = f"{name} {job}" if len(f"{name} {job}") <= room else f"{name.partition('.')[0]} {job}"
            parts.append(f"[{text[:room]:<{room}}]")
            slot += width
        else:
            parts.append("." * _SLOT)
            slot += 1
    return "".join(parts)
