"""`yard mig`: how the GPUs of the yard are cut, as a picture."""

from collections.abc import Mapping
from typing import Any

from gpuyard.cli.options import Output, OutputOption
from gpuyard.cli.places import client

FIELDS = ("node", "gpu_model", "gpu", "profile", "start", "job")
_SLOT = 8
"""Characters for one memory slot."""


def mig(output: OutputOption = Output.TABLE) -> None:
    """Show how GPUs are cut into MIG slices, and which job has which.

    Nobody has to cut them: `-g 1g.18gb` does, when the job starts. A box is as wide as the memory of its slice.
    """
    with client() as yard:
        nodes = yard.nodes()
    if output in (Output.TABLE, Output.WIDE):
        _draw(nodes)
        return
    from gpuyard.cli.tables import emit

    rows = [
        dict(zip(FIELDS, (node["name"], node["gpu_model"], *piece), strict=True))
        for node in nodes
        for piece in node["slices"]
    ]
    emit(rows, [], output, fields=FIELDS)


def _draw(nodes: list[Any]) -> None:
    from gpuyard.model.mig import MOLDS

    able = [node for node in nodes if node["gpu_model"] in MOLDS]
    if not able:
        models = sorted({node["gpu_model"] or "no GPUs" for node in nodes})
        print(f"no GPU here can be cut: {', '.join(models)}")
        return
    for place, node in enumerate(able):
        mold = MOLDS[node["gpu_model"]]
        print(("\n" if place else "") + f"{node['name']}, {node['gpus']} x {mold.model}")
        for gpu in range(node["gpus"]):
            held = {start: (profile, job) for at, profile, start, job in node["slices"] if at == gpu}
            print(f"  {gpu:>2}  {picture(mold.slots, held, mold) if held else 'not cut'}")
        sizes = [f"{profile.name} ({profile.memory_mib / 1024:.1f} GiB)" for profile in mold.profiles]
        print(f"  sizes: {', '.join([each for each in sizes if '+' not in each])}")


def picture(slots: int, held: Mapping[int, tuple[str, str]], mold: Any) -> str:
    """One GPU from its first slot to its last: `[1g.18gb 12]` where something is, dots where nothing is."""
    parts, slot = [], 0
    while slot < slots:
        if slot in held:
            name, job = held[slot]
            width = mold.profile(name).memory
            room = width * _SLOT - 2
            text = f"{name} {job}" if len(f"{name} {job}") <= room else f"{name.partition('.')[0]} {job}"
            parts.append(f"[{text[:room]:<{room}}]")
            slot += width
        else:
            parts.append("." * _SLOT)
            slot += 1
    return "".join(parts)
