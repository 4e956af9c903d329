"""`nvidia-smi` of a job on emulated GPUs: it shows the job's own cards, and says of each that it is emulated.

What a card is comes from `YARD_EMULATED_GPUS`, what it does from the script in `YARD_EMULATED_LOAD`, as the yard's own
telemetry has it; without a script nobody knows, and it says so.

A program by itself, which a job runs, in an image too: only the standard library, nothing newer than Python 3.7.
"""

from __future__ import annotations  # an image may have an older Python

import os
import re
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

GPUS, LOAD, START = "YARD_EMULATED_GPUS", "YARD_EMULATED_LOAD", "SLURM_JOB_START_TIME"
MARK = "emulated by gpuyard"
WRONG, NONE_FOUND = 2, 6
_STEP = re.compile(r"\s*(\d{1,3})%\s+(\d+(?:\.\d+)?)\s*(MiB|GiB|M|G)(?:\s+(\d+)\s*s)?\s*")
_IDLE_W, _FULL_W = 70, 700
_IDLE_C, _FULL_C = 34, 74
_UNKNOWN = "[N/A]"
_HELP = f"""\
nvidia-smi, {MARK}: the cards of this job.
  nvidia-smi                         a table
  nvidia-smi -L                      a line for each card
  nvidia-smi -q                      what is known of each card
  nvidia-smi --query-gpu=FIELDS --format=csv[,noheader][,nounits]
  nvidia-smi --query-compute-apps=FIELDS --format=csv[,noheader][,nounits]
  -i ID[,ID]                         of these cards alone, by index or UUID
"""


class Refused(Exception):
    """What cannot be asked, in words."""


class Card(NamedTuple):
    """One emulated GPU, as it is now."""

    number: int
    uuid: str
    model: str
    memory_mib: int
    busy: int | None
    """In percent; None: nobody knows."""
    used_mib: int | None

    @property
    def name(self) -> str:
        """With the mark, wherever a name is shown."""
        return f"NVIDIA {self.model} (emulated)"

    @property
    def bus(self) -> str:
        """An address that no card has."""
        return f"00000000:{self.number + 1:02X}:00.0"


_ANY = Card(0, "", "", 0, None, None)


class _Asked(NamedTuple):
    what: str
    fields: tuple[str, ...]
    formats: tuple[str, ...]
    only: tuple[str, ...]


def load_at(text: str, since_s: float) -> tuple[int, int] | None:
    """How busy a card is, in percent, and the MiB that it holds, by a script; None: it is no script."""
    until_s, parts = 0, text.split(",") if text.strip() else []
    found = None
    for place, part in enumerate(parts):
        match = _STEP.fullmatch(part)
        if match is None or int(match.group(1)) > 100 or (match.group(4) is None and place < len(parts) - 1):
            return None
        until_s += int(match.group(4) or 0)
        if found is None and (since_s < until_s or place == len(parts) - 1):
            factor = 1024 if match.group(3).startswith("G") else 1
            found = int(match.group(1)), round(float(match.group(2)) * factor)
    return found


def cards(env: dict[str, str], now_s: float) -> list[Card]:
    """The cards that a job sees."""
    found = []
    for text in filter(None, env.get(GPUS, "").split(",")):
        uuid, model, memory_mib = text.split("=", 2)
        found.append((uuid, model, int(memory_mib)))
    visible = [each for each in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if each]
    # Slices have names of their own, and lie on all cards that the job has.
    named = [each for each in found if each[0] in visible]
    numbered = [found[int(each)] for each in visible if each.isdigit() and int(each) < len(found)]
    shown = named or numbered or found
    start = env.get(START, "")
    load = load_at(env.get(LOAD, ""), now_s - int(start)) if start.isdigit() else None
    return [
        Card(index, uuid, model, memory_mib, load and load[0], load and min(memory_mib, load[1]))
        for index, (uuid, model, memory_mib) in enumerate(shown)
    ]


def _of(value: int | None, unit: str, form: str = "{}") -> str:
    return _UNKNOWN if value is None else form.format(value) + " " + unit


def _scaled(card: Card, idle: int, full: int) -> int | None:
    return None if card.busy is None else idle + (full - idle) * card.busy // 100


def fields_of(card: Card) -> dict[str, str]:
    """What can be asked of a card, as `--query-gpu` names it."""
    free = None if card.used_mib is None else card.memory_mib - card.used_mib
    heat, power = _scaled(card, _IDLE_C, _FULL_C), _scaled(card, _IDLE_W, _FULL_W)
    return {
        "index": str(card.number),
        "count": "1",
        "name": card.name,
        "gpu_name": card.name,
        "uuid": card.uuid,
        "gpu_uuid": card.uuid,
        "serial": _UNKNOWN,
        "pci.bus_id": card.bus,
        "gpu_bus_id": card.bus,
        "driver_version": "emulated",
        "timestamp": time.strftime("%Y/%m/%d %H:%M:%S.000"),
        "pstate": "P0",
        "fan.speed": _UNKNOWN,
        "persistence_mode": "Enabled",
        "compute_mode": "Default",
        "mig.mode.current": _UNKNOWN,
        "memory.total": _of(card.memory_mib, "MiB"),
        "memory.used": _of(card.used_mib, "MiB"),
        "memory.free": _of(free, "MiB"),
        "utilization.gpu": _of(card.busy, "%"),
        "utilization.memory": _UNKNOWN,
        "temperature.gpu": _UNKNOWN if heat is None else str(heat),
        "power.draw": _of(power, "W", "{}.00"),
        "power.limit": _of(_FULL_W, "W", "{}.00"),
    }


_UNITS = {"memory.total": "MiB", "memory.used": "MiB", "memory.free": "MiB", "utilization.gpu": "%",
          "utilization.memory": "%", "power.draw": "W", "power.limit": "W", "used_memory": "MiB",
          "used_gpu_memory": "MiB"}  # fmt: skip
_OF_APPS = ("pid", "process_name", "name", "used_memory", "used_gpu_memory", "gpu_uuid", "gpu_name", "gpu_bus_id",
            "gpu_serial", "timestamp")  # fmt: skip


def read(words: list[str]) -> _Asked:
    """A command line; `Refused` where this program does not know it."""
    what = "table"
    fields: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    left = list(words)
    while left:
        name, sign, value = left.pop(0).partition("=")

        def text(value: str = value, sign: str = sign, name: str = name) -> tuple[str, ...]:
            if not sign and not left:
                raise Refused(f"{name} needs a value")
            return tuple([each.strip() for each in (value if sign else left.pop(0)).split(",")])

        if name in ("-L", "--list-gpus"):
            what = "list"
        elif name in ("-q", "--query"):
            what = "all"
        elif name in ("-h", "--help"):
            what = "help"
        elif name == "--version":
            what = "version"
        elif name in ("-i", "--id"):
            only = text()
        elif name == "--format":
            formats = text()
        elif name in ("--query-gpu", "--query-compute-apps"):
            what, fields = name, text()
        else:
            raise Refused(f"{name} is not known here. `nvidia-smi --help` says what is.")
    if fields and "csv" not in formats:
        raise Refused(f"{what} needs --format=csv")
    known = fields_of(_ANY) if what == "--query-gpu" else _OF_APPS
    for field in fields:
        if field not in known:
            raise Refused(f'Field "{field}" is not a valid field to query.')
    return _Asked(what, fields, formats, only)


def lines_of(asked: _Asked, there: list[Card]) -> list[str]:
    """The answer, line by line."""
    if asked.what == "help":
        return _HELP.splitlines()
    if asked.what == "version":
        return [
            f"NVIDIA-SMI version  : {MARK}",
            "DRIVER version      : none",
            "CUDA Version        : none",
        ]
    if asked.what == "list":
        return [f"GPU {card.number}: {card.name} (UUID: {card.uuid})" for card in there]
    if asked.what == "all":
        return [line for card in there for line in _all_of(card)]
    if asked.what == "table":
        return _table(there)
    bare = "nounits" in asked.formats
    heads = [f"{field} [{_UNITS[field]}]" if field in _UNITS else field for field in asked.fields]
    lines = [] if "noheader" in asked.formats else [", ".join(heads)]
    if asked.what == "--query-gpu":
        for card in there:
            known = fields_of(card)
            cells = [(field, known[field]) for field in asked.fields]
            lines.append(
                ", ".join([cell.split(" ")[0] if bare and field in _UNITS else cell for field, cell in cells])
            )
    return lines


def _all_of(card: Card) -> list[str]:
    twice = ("index", "count", "name", "gpu_uuid", "gpu_bus_id", "timestamp")
    return [f"GPU {card.bus} ({MARK})"] + [
        f"    {name:<38} : {value}" for name, value in fields_of(card).items() if name not in twice
    ]


def _table(there: list[Card]) -> list[str]:
    rule = "+" + "-" * 77 + "+"

    def row(text: str) -> str:
        return f"| {text:<75} |"

    lines = [time.strftime("%a %b %e %H:%M:%S %Y"), rule, row(f"NVIDIA-SMI ({MARK})"), rule]
    form = "{:>3}  {:<30} {:>5} {:>6} {:>19} {:>6}"
    lines += [row(form.format("GPU", "Name", "Temp", "Power", "Memory", "Util"))]
    for card in there:
        memory = "{} / {} MiB".format("?" if card.used_mib is None else card.used_mib, card.memory_mib)
        heat, power = _scaled(card, _IDLE_C, _FULL_C), _scaled(card, _IDLE_W, _FULL_W)
        cells = ["N/A" if each is None else f"{each}{unit}" for each, unit in
                 ((heat, "C"), (power, "W"), (card.busy, "%"))]  # fmt: skip
        lines.append(row(form.format(card.number, card.name[:30], cells[0], cells[1], memory, cells[2])))
    return [*lines, rule, row("Processes on emulated GPUs are not known."), rule]


def main(words: list[str], env: dict[str, str], say: Callable[[str], Any]) -> int:
    """The whole program; its exit code."""
    try:
        asked = read(words)
        there = cards(env, time.time())
        for each in asked.only:
            if each not in [str(card.number) for card in there] + [card.uuid for card in there]:
                raise Refused(f"No device was found with the ID {each}; this job has {len(there)}.")
    except Refused as refused:
        say(f"nvidia-smi ({MARK}): {refused}")
        return WRONG
    if not there and asked.what not in ("help", "version"):
        say(f"No devices were found ({MARK})")
        return NONE_FOUND
    shown = [card for card in there if not asked.only or {str(card.number), card.uuid} & set(asked.only)]
    for line in lines_of(asked, shown):
        say(line)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], dict(os.environ), print))
