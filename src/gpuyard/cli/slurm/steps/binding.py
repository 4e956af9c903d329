"""Which GPUs of a step each of its tasks sees: `--gpu-bind`."""

import re

_MAP = re.compile(r"(?:0x)?([0-9a-fA-F]{1,16})(?:\*([0-9]{1,4}))?")


def bound(bind: str, per_task: int | None, gpus: int, tasks: int) -> list[tuple[int, ...]]:
    """For each local task, the places of its GPUs among the step's `gpus` on the node; `ValueError` if there are none.

    Without `--gpu-bind` a task sees all of them, or its own if they are counted by task.
    """
    said = re.sub(r"^(?:verbose|v|quiet|q)[,:]?", "", bind.strip(), flags=re.IGNORECASE)
    if not said and per_task:
        said = f"per_task:{per_task}"
    kind, _, value = said.partition(":")
    kind = kind.lower()
    everything = tuple(range(gpus))
    if not gpus or kind in ("", "none", "closest"):
        # Tasks are not bound to cores, so that no GPU is closer than another.
        return [everything] * tasks
    if kind in ("single", "per_task"):
        if not value.isdecimal() or not int(value):
            raise ValueError(said)
        number = int(value)
        if kind == "single":
            return [(local // number % gpus,) for local in range(tasks)]
        if number * tasks > gpus:
            raise ValueError(said)
        return [everything[local * number : (local + 1) * number] for local in range(tasks)]
    if kind in ("map_gpu", "map", "mask_gpu", "mask"):
        return _listed(said, value, gpus, tasks, masks=kind.startswith("mask"))
    raise ValueError(said)


def _listed(said: str, value: str, gpus: int, tasks: int, *, masks: bool) -> list[tuple[int, ...]]:
    """One entry for each task, from the beginning again where there are more tasks."""
    entries: list[tuple[int, ...]] = []
    for part in value.split(","):
        match = _MAP.fullmatch(part.strip())
        if not match:
            raise ValueError(said)
        # Masks are hexadecimal, with 0x in front or without.
        hexadecimal = masks or part.strip().startswith("0x")
        if not hexadecimal and not match[1].isdecimal():
            raise ValueError(said)
        number = int(match[1], 16 if hexadecimal else 10)
        places = tuple(bit for bit in range(number.bit_length()) if number >> bit & 1) if masks else (number,)
        if not places or max(places) >= gpus:
            raise ValueError(said)
        entries += [places] * int(match[2] or 1)
    return [entries[local % len(entries)] for local in range(tasks)]
