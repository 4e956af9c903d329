"""A job that computes on a GPU by the driver alone, whatever its environment says, and tells what it met, as JSON.

    python3 cuda.py [NAME=VALUE …] [-NAME …]

Before it looks, it sets and unsets these variables, as a job that wants more than it was given would. ALLOC_MIB is how
much memory it takes.
"""

import ctypes
import errno
import json
import os
import sys

MIB = 1 << 20


def opened(path):
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))
    return "open"


def computed():
    """The driver's first error, by number; 0: memory was had on the first GPU that it shows."""
    cuda = ctypes.CDLL("libcuda.so.1")
    size = ctypes.c_size_t(int(os.environ.get("ALLOC_MIB", "64")) * MIB)
    device, context, memory, free, total = (
        ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(),
    )  # fmt: skip
    for call in (
        lambda: cuda.cuInit(0),
        lambda: cuda.cuDeviceGet(ctypes.byref(device), 0),
        lambda: cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device),
        lambda: cuda.cuMemAlloc_v2(ctypes.byref(memory), size),
        lambda: cuda.cuMemsetD8_v2(memory, 1, size),
        cuda.cuCtxSynchronize,
        lambda: cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)),
    ):
        if code := call():
            return {"error": code, "memory_mib": 0}
    return {"error": 0, "memory_mib": total.value // MIB}


def main():
    for word in sys.argv[1:]:
        name, equals, value = word.partition("=")
        if equals:
            os.environ[name] = value
        else:
            os.environ.pop(word[1:], None)
    devices = sorted([name for name in os.listdir("/dev") if name[:6] == "nvidia" and name[6:].isdigit()])
    print(json.dumps({"devices": {name: opened(f"/dev/{name}") for name in devices}, **computed()}))


if __name__ == "__main__":
    main()
