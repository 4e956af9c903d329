"""What a container asks for: GPUs, MIG slices, cores and memory, by the rules of Kubernetes itself.

Devices cannot be overcommitted: their limit must be given, and a request must equal it. A missing request of cores or
memory equals the limit. A yard counts one number where Kubernetes has two: for cores the request, which is what the
container gets, and for memory the limit, at which it would be killed.
Not `gpuyard.quantities`: `1G` of Kubernetes is a power of ten, `500m` a number, and what is too fine is rounded up.
"""

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from gpuyard.errors import quote
from gpuyard.intake.kubernetes.tree import Part

_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]{1,18}(?:\.[0-9]{0,9})?|\.[0-9]{1,9}))([numkMGTPE]?|[KMGTPE]i|[eE][+-]?[0-9]{1,2})"
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_MIB = 1024 * 1024
_CORES_MAX = 100_000
_MEMORY_MIB_MAX = 1 << 30


def quantity(text: str) -> Fraction:
    """The number that a quantity stands for; else `ValueError` with the rest of a sentence."""
    match = _QUANTITY.fullmatch(text)
    if not match:
        raise ValueError(f"must be a quantity such as 2, 500m or 64Gi, not {quote(text)}")
    figure, unit = Fraction(match[1]), match[2]
    if unit in _BINARY:
        value = figure * Fraction(1024) ** _BINARY[unit]
    elif unit in _DECIMAL:
        value = figure * Fraction(10) ** _DECIMAL[unit]
    else:
        value = figure * Fraction(10) ** int(unit[1:])
    if value < 0:
        raise ValueError(f"must not be negative, not {quote(text)}")
    return value


def cores(text: str) -> float | int:
    """Cores, to a thousandth and rounded up to it as Kubernetes does."""
    milli = -((-quantity(text) * 1000) // 1)
    if milli > _CORES_MAX * 1000:
        raise ValueError(f"must be at most {_CORES_MAX} cores, not {quote(text)}")
    return int(milli) // 1000 if milli % 1000 == 0 else int(milli) / 1000


def memory_mib(text: str) -> int:
    """Memory in MiB, rounded up."""
    value = int(-((-quantity(text) / _MIB) // 1))
    if value > _MEMORY_MIB_MAX:
        raise ValueError(f"must be at most 1024Ti, not {quote(text)}")
    return value


def devices(text: str) -> int:
    """A number of devices: whole ones only."""
    value = quantity(text)
    if value.denominator != 1 or value > _CORES_MAX:
        raise ValueError(f"must be a whole number of devices, not {quote(text)}")
    return int(value)


GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-"
_NOT_COUNTED = {"ephemeral-storage": "disk space is not counted"}


def resource_fields(container: Part) -> dict[str, Any]:
    """Fields of a job for `resources` of a container."""
    with container.part("resources") as both:
        if both.has("claims"):
            both.problem("claims", f"cannot be served: ask for devices as {GPU}")
        with both.part("requests") as requests, both.part("limits") as limits:
            found = _devices(requests, limits)
            cpus = _amount("cpu", requests, limits, cores)
            memory = _amount("memory", requests, limits, memory_mib)
            if requests.has("cpu") or limits.has("cpu"):
                found["cpus"] = cpus[0] or cpus[1]
                if cpus[0] and cpus[1] != cpus[0]:
                    _differ(limits, "cpu", f"the request of {cpus[0]} cores is what the job gets")
            if memory[0] or memory[1]:
                found["memory_mib"] = memory[1] or memory[0]
                if memory[1] and memory[0] and memory[1] != memory[0]:
                    _differ(limits, "memory", f"the limit of {memory[1]} MiB is what the job gets")
            for part in (requests, limits):
                part.left_out(_NOT_COUNTED)
                _others(part)
    return found


def _differ(limits: Part, key: str, text: str) -> None:
    if limits.has(key):
        limits.warn(key, f"differs from the request; a yard counts one of them: {text}")


def _amount(key: str, requests: Part, limits: Part, parse: Callable[[str], float]) -> tuple[float, float]:
    """Request and limit; a missing request equals the limit."""
    limit = limits.get(key, parse, 0.0)
    request = requests.get(key, parse, limit)
    if limits.has(key) and request > limit:
        requests.problem(key, f"must be less than or equal to the limit, {limits.text(key)}")
    return request, limit


def _devices(requests: Part, limits: Part) -> dict[str, Any]:
    names = [
        key
        for key in dict.fromkeys([*requests.names(), *limits.names()])
        if key == GPU or key.startswith(MIG)
    ]
    asked: dict[str, int] = {}
    for name in names:
        limit = limits.get(name, devices, 0)
        request = requests.get(name, devices, limit)
        if not limits.has(name):
            requests.problem(name, "needs the same number in limits: devices cannot be overcommitted")
        elif request != limit:
            requests.problem(name, f"must equal its limit, {limit}: devices cannot be overcommitted")
        if limit:
            asked[name] = limit
    if len(asked) > 1:
        limits.problem(names[-1], f"and {names[0]} in one job are not served; ask for one kind of device")
    if not asked:
        return {}
    name, number = next(iter(asked.items()))
    return {"gpus": number} | ({} if name == GPU else {"mig": name.removeprefix(MIG).replace(".me", "+me")})


def _others(part: Part) -> None:
    for key in part.names():
        if key.startswith("hugepages-"):
            part.left_out({key: "huge pages are not counted"})
        elif "/" in key and key != GPU and not key.startswith(MIG):
            part.refused({key: f"a yard has no {quote(key)}"})
