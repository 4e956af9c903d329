"""The kernel refuses an attempt the devices of others, wherever it finds or makes them: `devices` of cgroup v1, or a
program on its group of v2.

A rule is a driver's number and the devices of that driver that are the attempt's. Only the standard library, and
little of it: supervisors import this.
"""

import ctypes
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from gpuyard.engines.node.attempt import fence
from gpuyard.engines.node.kernel.processes import put

Rules = Mapping[int, Sequence[int]]
"""By major number, the minor numbers that may be opened; a driver without a rule is left alone."""

V1, V2 = "v1", "v2"
"""How a plan says which of the two refuses."""

_NVIDIA, _CONTROL = 195, (254, 255)
"""The number of NVIDIA's driver, and its devices that belong to no GPU: nvidia-modeset and nvidiactl."""

_SYS_BPF = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}
_PROG_LOAD, _PROG_ATTACH = 5, 8
_CGROUP_DEVICE_PROGRAM, _CGROUP_DEVICE, _ALLOW_MULTI = 15, 6, 2
_CHARACTER = 2

_libc = ctypes.CDLL(None, use_errno=True)


def refuse(plan: Mapping[str, Any]) -> None:
    """Have the kernel refuse what a plan says; raises OSError where it cannot."""
    wanted = plan.get("fence") or {}
    if wanted.get("devices") == V2:
        refuse_v2(plan["cgroup"], rules_of(wanted))
    elif wanted.get("devices") == V1:
        refuse_v1(plan["v1"]["devices"], wanted)


def rules_of(wanted: fence.Fence) -> dict[int, list[int]]:
    """The rules that go with a fence, from the devices that are there."""
    found: dict[int, list[int]] = {}
    if "gpus" in wanted:
        found[_NVIDIA] = [*_CONTROL, *[int(name[len("nvidia") :]) for name in wanted["gpus"]]]
    for folder, names in wanted.get("only", {}).items():
        for name, major, minor in _there(folder):
            own = found.setdefault(major, [])
            if name in names:
                own.append(minor)
    return found


def _there(folder: str) -> Iterator[tuple[str, int, int]]:
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            number = entry.stat(follow_symlinks=False).st_rdev
            if number:
                yield entry.name, os.major(number), os.minor(number)


# -- cgroup v1 ---------------------------------------------------------------------------------------------------------


def refuse_v1(group: str, wanted: fence.Fence) -> None:
    """Refuse the devices that are there and not the attempt's: the kernel has no rule for all but some."""
    paths = [f"{fence.DEV}/{name}" for name in fence.hidden_gpus(wanted["gpus"])] if "gpus" in wanted else []
    numbers = [os.stat(path).st_rdev for path in paths]
    refused = {(os.major(number), os.minor(number)) for number in numbers if number}
    for folder, names in wanted.get("only", {}).items():
        refused |= {(major, minor) for name, major, minor in _there(folder) if name not in names}
    for major, minor in sorted(refused):
        put(f"{group}/devices.deny", f"c {major}:{minor} rwm")


# -- cgroup v2 ---------------------------------------------------------------------------------------------------------


def refuse_v2(group: str, rules: Rules) -> None:
    """Hang a program on a group that is asked for every device; it goes with the group. Raises OSError."""
    code = program(rules)
    words = ctypes.create_string_buffer(code, len(code))
    licence = ctypes.create_string_buffer(b"")
    load = struct.pack(
        "<IIQQ", _CGROUP_DEVICE_PROGRAM, len(code) // 8, ctypes.addressof(words), ctypes.addressof(licence)
    )
    made = _bpf(_PROG_LOAD, load.ljust(128, b"\0"))
    try:
        folder = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _bpf(
                _PROG_ATTACH,
                struct.pack("<IIII", folder, made, _CGROUP_DEVICE, _ALLOW_MULTI).ljust(128, b"\0"),
            )
        finally:
            os.close(folder)
    finally:
        os.close(made)


def _bpf(command: int, attributes: bytes) -> int:
    number = _SYS_BPF.get(os.uname().machine)
    if number is None:
        raise OSError(0, f"the number of the call is not known on {os.uname().machine}")
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    answer: int = _libc.syscall(
        ctypes.c_long(number), ctypes.c_int(command), buffer, ctypes.c_uint(len(attributes))
    )
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), "bpf")
    return answer


_LOAD_WORD, _AND, _SET, _EXIT, _JUMP = 0x61, 0x57, 0xB7, 0x95, 0x05
_IF_EQUAL, _IF_OTHER = 0x15, 0x55


def program(rules: Rules) -> bytes:
    """The program in the kernel's code: 1 lets a device be opened, 0 refuses it.

    It is given three words: the kind of device in the lower half of the first, its major and its minor number.
    """
    # Register 2 has the kind, 3 the major number, 4 the minor number.
    code = [_step(_LOAD_WORD, 2, 1, 0), _step(_AND, 2, value=0xFFFF)]
    code += [_step(_LOAD_WORD, 3, 1, 4), _step(_LOAD_WORD, 4, 1, 8)]
    allow = [_step(_SET, 0, value=1), _step(_EXIT)]
    refuse = [_step(_SET, 0, value=0), _step(_EXIT)]
    code += [_step(_IF_EQUAL, 2, offset=len(allow), value=_CHARACTER), *allow]
    for major, minors in sorted(rules.items()):
        own = sorted(set(minors))
        block = [
            _step(_IF_EQUAL, 4, offset=len(own) - place + 1, value=minor) for place, minor in enumerate(own)
        ]
        # The kernel takes no program with a step that is never reached.
        block += [*refuse, *(allow if own else ())]
        code += [_step(_IF_OTHER, 3, offset=len(block), value=major), *block]
    return b"".join([*code, *allow])


def _step(operation: int, target: int = 0, source: int = 0, offset: int = 0, value: int = 0) -> bytes:
    return struct.pack("<BBhi", operation, source << 4 | target, offset, value)
