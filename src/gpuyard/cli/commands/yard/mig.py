"""`yard mig`: how the GPUs of the yard are cut, as a picture; and layouts planned, applied, released and exported."""

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from gpuyard.cli.connection.places import open_client
from gpuyard.cli.line.options import Argument, Option, Output, OutputOption
from gpuyard.errors import BadInput, YardError
from gpuyard.quantities import memory_used, seconds_text

if TYPE_CHECKING:
    from gpuyard.api.client import Client
    from gpuyard.wire.replies.fleet import MigNodeReply

FIELDS = ("node", "gpu_model", "gpu", "profile", "start", "job", "pinned")
_SLOT = 8
"""Characters for one memory slot."""
IDLE = "-"
"""In place of a job."""
WAIT_S = 60
_TROUBLE_S = 10.0
"""How long a trouble may last before it is reported; the yard goes on trying."""
_PAUSE_S = 0.1
_ROW = re.compile(r"([0-9]{1,3})(?:-([0-9]{1,3}))?")
"""A GPU, or the first and the last of several."""

LayoutArgument = Annotated[
    str,
    Argument(
        metavar="LAYOUT",
        help="7x1g.18gb, 2x2g.35gb+3x1g.18gb or whole; with -f, the name of a layout in FILE.",
    ),
]
NodeOption = Annotated[str, Option("--node", metavar="NODE", help="The node. Default: the only one.")]
GpuOption = Annotated[str | None, Option("--gpu", metavar="N", help="Only these GPUs: 0, or 0,2-3.")]
FileOption = Annotated[
    Path | None, Option("-f", "--file", metavar="FILE", help="An NVIDIA mig-parted configuration file.")
]


class NotMade(YardError):
    """A layout is pinned and not made."""

    exit_code = 1


def mig(output: OutputOption = Output.TABLE) -> None:
    """Show how GPUs are cut into MIG slices, and which job has which slice.

    You need not cut them yourself: a job with `-g 1g.18gb` has its slice cut when it starts. A box is as wide as the
    memory of its slice; `-` in a box means that no job uses it. `yard mig apply` pins a GPU to one layout.

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
    with open_client() as yard:
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
    from gpuyard.cli.listings.tables import print_records

    print_records(rows(found["nodes"]), [], output, fields=FIELDS)


def plan(
    layout: LayoutArgument = "",
    node: NodeOption = "",
    gpu: GpuOption = None,
    file: FileOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show what a layout would do to each GPU of a node, and why; without a layout, what the queue would do.

    A running job is never moved: the plan says where a layout is impossible because of one. This command changes
    nothing.

    \b
    Examples:
      yard mig plan
      yard mig plan 7x1g.18gb --node gpu-1
    """
    if file is not None and not layout:
        raise BadInput("-f needs the name of a layout in the file", f"It has: {', '.join(_names(file))}.")
    with open_client() as yard:
        name = _node(yard, node) if layout else node
        found = yard.mig_plan(name, _layouts(yard, name, layout, gpu, file) if layout else ())
    if output not in (Output.TABLE, Output.WIDE):
        from gpuyard.cli.listings.tables import print_records, write_document

        if output is Output.CSV:
            print_records(found["gpus"], [], output)
        else:
            write_document(found, output)
        return
    for line in told(found):
        print(line)


def apply(
    layout: LayoutArgument,
    node: NodeOption = "",
    gpu: GpuOption = None,
    file: FileOption = None,
    wait: Annotated[
        int,
        Option(
            "--wait", metavar="SECONDS", min=0, max=3600, help="How long to wait until the layout is made."
        ),
    ] = WAIT_S,
) -> None:
    """Pin GPUs of a node to a layout: they are cut that way and stay so until `yard mig release`.

    A pinned GPU takes only jobs that ask for slices of its layout. Slices in use stay where they are and have to be
    part of the layout. A GPU pinned to `whole` is never cut. Either all named GPUs are pinned or none.

    \b
    Examples:
      yard mig apply 7x1g.18gb --node gpu-1
      yard mig apply whole --gpu 0,1
      yard mig apply -f mig-parted.yaml all-balanced --node gpu-1
    """
    with open_client() as yard:
        name = _node(yard, node)
        layouts = _layouts(yard, name, layout, gpu, file)
        asked = {pin["gpu"]: pin["slices"] for pin in yard.mig_apply(name, layouts)["gpus"]}
        mine = {each: asked[each] for part in layouts for each in part.get("gpus") or asked}
        found, troubles = _made(yard, name, mine, wait)
    print(drawn(found))
    took_ms = max([pin["took_ms"] for pin in found["pins"] if pin["gpu"] in mine], default=0)
    if not troubles and took_ms:
        from gpuyard.cli.terminal.streams import print_aside

        print_aside(f"made in {seconds_text(took_ms)}")
    if troubles:
        raise NotMade(
            "; ".join([f"GPU {each}: {text}" for each, text in sorted(troubles.items())]),
            "It is pinned, and the yard goes on trying; `yard mig` shows how it stands.",
        )


def release(node: NodeOption = "", gpu: GpuOption = None) -> None:
    """Release pinned GPUs, to be cut on demand again. Slices in use stay; idle ones are removed after a minute."""
    with open_client() as yard:
        name = _node(yard, node)
        done = yard.mig_release(name, None if gpu is None else _gpus(gpu))
    gpus = done["released"]
    verb = "GPU {} is" if len(gpus) == 1 else "GPUs {} are"
    said = verb.format(", ".join(map(str, gpus))) + " cut by demand again"
    print(f"{name}: {said if gpus else 'nothing was pinned'}")


def export(node: NodeOption = "") -> None:
    """Write the present layouts as an NVIDIA mig-parted configuration file, one layout for each node.

    \b
    Example:
      yard mig export > mig-parted.yaml
      nvidia-mig-parted apply -f mig-parted.yaml -c gpu-1
    """
    from gpuyard.intake.mig_parted import layouts_text

    with open_client() as yard:
        nodes = yard.mig()["nodes"]
    if node:
        nodes = [each for each in nodes if each["node"] == _known(node, [each["node"] for each in nodes])]
    print(layouts_text({each["node"]: _profiles(each) for each in nodes}), end="")


# -- what was said -------------------------------------------------------------------------------------------------


def _node(yard: "Client", node: str) -> str:
    if node:
        return node
    names = [each["name"] for each in yard.nodes()]
    if len(names) != 1:
        raise BadInput(
            f"there are {len(names)} nodes: which one?", f"Say --node, one of {', '.join(names[:20])}."
        )
    only: str = names[0]
    return only


def _known(node: str, names: Sequence[str]) -> str:
    if node in names:
        return node
    from gpuyard.errors import quote, suggest

    raise BadInput(f"there is no node {quote(node)} that can be cut; {suggest(node, names, 'nodes')}")


def _gpus(text: str) -> list[int]:
    """GPUs as people write them."""
    found: set[int] = set()
    for part in text.split(","):
        row = _ROW.fullmatch(part.strip())
        first, last = (int(row[1]), int(row[2] or row[1])) if row else (1, 0)
        if first > last:
            from gpuyard.errors import quote

            raise BadInput(f"--gpu {quote(text)} is not a list of GPUs", "Write 0, or 0,2-3.")
        found.update(range(first, last + 1))
    return sorted(found)


def _layouts(
    yard: "Client", node: str, layout: str, gpu: str | None, file: Path | None
) -> list[dict[str, Any]]:
    """The layouts that a request carries."""
    gpus = None if gpu is None else _gpus(gpu)
    if file is None:
        return [{"layout": layout, **({"gpus": gpus} if gpus is not None else {})}]
    from gpuyard.intake.mig_parted import layout_for_node

    nodes = {each["name"]: each for each in yard.nodes()}
    known = nodes[_known(node, list(nodes))]
    found = layout_for_node(_text(file), str(file), layout, known["gpu_model"], known["gpus"])
    chosen = {each: text for each, text in found.items() if gpus is None or each in gpus}
    if not chosen:
        raise BadInput(
            f"{file}: {layout} has nothing for these GPUs of {node} ({known['gpus']} x {known['gpu_model']})"
        )
    by_text = groupby(sorted(chosen, key=lambda each: (chosen[each], each)), lambda each: chosen[each])
    return [{"layout": text, "gpus": list(each)} for text, each in by_text]


def _text(file: Path) -> str:
    from gpuyard.intake.mig_parted import BYTES_MAX

    try:
        with file.open("rb") as opened:
            # Read a little more than is allowed: the reader then refuses it. A device has no end.
            return opened.read(BYTES_MAX + 1).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadInput(f"{file} cannot be read: {why}", "Name a file of NVIDIA mig-parted.") from None


def _names(file: Path) -> list[str]:
    from gpuyard.intake.mig_parted import list_layouts

    return list_layouts(_text(file), str(file))


def _profiles(node: Mapping[str, Any]) -> dict[int, list[str]]:
    """The profiles that each GPU of a node is cut to: as it is pinned, else as it is."""
    pins = {pin["gpu"]: [profile for profile, _start in pin["slices"]] for pin in node["pins"]}
    return {
        gpu: pins.get(gpu, [profile for at, profile, _start, _job in node["slices"] if at == gpu])
        for gpu in range(node["gpus"])
    }


# -- what came of it -----------------------------------------------------------------------------------------------


def _made(
    yard: "Client", name: str, asked: Mapping[int, Any], wait_s: int
) -> "tuple[MigNodeReply, dict[int, str]]":
    """The node once its pins are made, or what keeps them from being made; others may pin and release meanwhile."""
    import time

    until = time.monotonic() + wait_s
    troubled: float | None = None
    while True:
        (found,) = [each for each in yard.mig()["nodes"] if each["node"] == name]
        by_gpu = {pin["gpu"]: pin for pin in found["pins"]}
        if lost := {gpu: by_gpu.get(gpu) for gpu in asked if not _is_pinned(by_gpu.get(gpu), asked[gpu])}:
            fates = {gpu: f"pinned to {pin['layout']}" if pin else "released" for gpu, pin in lost.items()}
            said = [f"GPU {gpu} was {fates[gpu]}" for gpu in sorted(fates)]
            raise NotMade(f"somebody else was here meanwhile: {', '.join(said)}", "`yard mig` shows it.")
        pins = [by_gpu[gpu] for gpu in asked]
        left = {pin["gpu"]: pin["why"] or "not made yet" for pin in pins if not pin["made"]}
        now = time.monotonic()
        troubled = (troubled or now) if any([pin["why"] for pin in pins]) else None
        if not left or now > until or (troubled is not None and now - troubled > _TROUBLE_S):
            return found, left
        time.sleep(_PAUSE_S)


def _is_pinned(pin: Mapping[str, Any] | None, slices: Any) -> bool:
    return pin is not None and pin["slices"] == slices


def told(found: Mapping[str, Any]) -> list[str]:
    """A plan in lines."""
    lines: list[str] = []
    for gpu in found["gpus"]:
        change = f" -> {gpu['layout']}" if gpu["layout"] and gpu["layout"] != gpu["now"] else ""
        why = f": {'refused: ' if gpu['refused'] else ''}{gpu['why']}" if gpu["why"] else ""
        lines.append(f"{gpu['node']}  GPU {gpu['gpu']}  {gpu['now']}{change}{why}")
        steps = groupby(gpu["steps"], key=lambda step: (step["do"], step["profile"], step["why"]))
        for (do, profile, because), same in steps:
            starts = [str(step["start"]) for step in same]
            many = f"{len(starts)} x {profile} at slots" if len(starts) > 1 else f"{profile} at slot"
            lines.append(f"    {do:<9}  {many} {', '.join(starts)}{f' ({because})' if because else ''}")
    for row in found["waiting"]:
        jobs = "1 job waits" if row["jobs"] == 1 else f"{row['jobs']} jobs wait"
        lines.append(f"{jobs} for {row['slices']} x {row['profile']}, first {row['first']}: {row['why']}")
    if not found["waiting"] and not any(gpu["layout"] or gpu["refused"] for gpu in found["gpus"]):
        lines.append("nobody waits for slices" if found["gpus"] else "no GPU here can be cut")
    return lines + [f"note: {note}" for note in found["notes"]]


# -- as a picture -------------------------------------------------------------------------------------------------


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
    sizes = [f"{profile.name} ({memory_used(profile.memory_mib)} GiB)" for profile in geometry.profiles]
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
