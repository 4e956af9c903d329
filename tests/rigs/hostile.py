"""A job that tries everything to get at what is not its own, and says what it met: run as a program, by itself.

    python3 hostile.py OTHER-DEVICE OTHER-PID OTHER-TMP SECRET MAJOR MINOR OTHER-LAYER

It prints, for each try, the name of the error that it met, or `open`. Only the standard library: a job runs it.
"""

import contextlib
import ctypes
import errno
import json
import os
import stat
import sys

libc = ctypes.CDLL(None, use_errno=True)
NEWNS, NEWUSER = 0x20000, 0x10000000
BIND, REC = 0x1000, 0x4000
PTRACE_ATTACH = 16


def word(number):
    return errno.errorcode.get(number, str(number))


def call(answer):
    return "open" if answer == 0 else word(ctypes.get_errno())


def tried(what, *args):
    """The name of the error that a function meets; a device without a driver was reached."""
    try:
        what(*args)
    except OSError as error:
        return "open" if error.errno == errno.ENXIO else word(error.errno)
    return "open"


def opened(path, flags=os.O_RDWR):
    os.close(os.open(path, flags))


def mount(source, target, kind=None, flags=0, options=None):
    return call(
        libc.mount(
            source.encode(),
            target.encode(),
            kind and kind.encode(),
            ctypes.c_ulong(flags),
            options and options.encode(),
        )
    )


def first(*tries):
    """What the last of several steps meets; a step that fails ends them."""
    met = "none"
    for each in tries:
        met = each()
        if met != "open":
            break
    return met


def made(path, number):
    os.mknod(path, stat.S_IFCHR | 0o666, number)
    opened(path)


def below(what):
    """What a process in a namespace of its own meets."""
    ears, mouth = os.pipe()
    if os.fork() == 0:
        try:
            found = {"unshare": "open"}
            uid, gid = os.getuid(), os.getgid()
            if libc.unshare(NEWUSER | NEWNS):
                found = {"unshare": word(ctypes.get_errno())}
            else:
                for name, text in (
                    ("setgroups", "deny"),
                    ("uid_map", f"0 {uid} 1"),
                    ("gid_map", f"0 {gid} 1"),
                ):
                    with open(f"/proc/self/{name}", "w") as file:
                        file.write(text)
                found.update(what())
            os.write(mouth, json.dumps(found).encode())
        finally:
            os._exit(0)
    os.close(mouth)
    os.wait()
    with os.fdopen(ears) as file:
        return json.loads(file.read() or '{"died": "open"}')


def main(device, pid, tmp, secret, major, minor, layer):
    folder, number = os.path.dirname(device), os.makedev(int(major), int(minor))
    layers = os.path.dirname(layer)
    store = os.path.dirname(layers)
    for name in ("here", "there", "over", "upper", "work"):
        os.mkdir(name)
    given = os.environ["CUDA_VISIBLE_DEVICES"]
    for name in ("CUDA_VISIBLE_DEVICES", "YARD_GPUS"):
        os.environ.pop(name, None)

    def inside():
        return {
            "umount devices": call(libc.umount2(folder.encode(), 0)),
            "detach devices": call(libc.umount2(folder.encode(), 2)),
            "umount /tmp": call(libc.umount2(b"/tmp", 2)),
            "umount /proc": call(libc.umount2(b"/proc", 2)),
            "bind what lies under": mount(os.path.dirname(folder), "here", None, BIND),
            "bind all": mount(os.path.dirname(folder), "here", None, BIND | REC)
            and tried(opened, f"here/{os.path.basename(folder)}/{os.path.basename(device)}"),
            "devtmpfs": mount("none", "here", "devtmpfs"),
            "proc": mount("none", "here", "proc"),
            "mknod": tried(made, "made-inside", number),
            "device": tried(opened, device),
            "tmp": tried(opened, f"{tmp}/tmp/{secret}", os.O_RDONLY),
            "environment": tried(opened, f"/proc/{pid}/environ", os.O_RDONLY),
            "layer": tried(opened, layer, os.O_RDONLY),
            "bind layers": first(
                lambda: mount(store, "there", None, BIND | REC),
                lambda: tried(opened, os.path.join("there", os.path.relpath(layer, store)), os.O_RDONLY),
            ),
            "layers of a container of its own": first(
                lambda: mount(
                    "overlay",
                    "over",
                    "overlay",
                    0,
                    f"lowerdir={layers},upperdir=upper,workdir=work,userxattr",
                ),
                lambda: tried(opened, f"over/{os.path.basename(layer)}", os.O_RDONLY),
            ),
        }

    found = {
        "given": given,
        "own": sorted(os.listdir(folder)),
        "own opens": [tried(opened, f"{folder}/{name}") for name in sorted(os.listdir(folder))],
        "device": tried(opened, device),
        "mknod": tried(made, "made", number),
        "umount devices": call(libc.umount2(folder.encode(), 2)),
        "umount /tmp": call(libc.umount2(b"/tmp", 2)),
        "bind": mount(os.path.dirname(folder), "here", None, BIND),
        "unshare": call(libc.unshare(NEWNS)),
        "tmp": tried(opened, f"/tmp/{secret}", os.O_RDONLY),
        "var tmp": tried(opened, f"/var/tmp/{secret}", os.O_RDONLY),
        "tmp by its folder": tried(opened, f"{tmp}/tmp/{secret}", os.O_RDONLY),
        "shm": tried(opened, f"/dev/shm/{secret}", os.O_RDONLY),
        "own tmp": tried(opened, f"/tmp/{secret}-mine", os.O_RDWR | os.O_CREAT),
        "own shm": tried(opened, f"/dev/shm/{secret}-mine", os.O_RDWR | os.O_CREAT),
        "root": tried(os.listdir, f"/proc/{pid}/root/tmp"),
        "root of 1": tried(os.listdir, "/proc/1/root/"),
        "root of parent": tried(os.listdir, f"/proc/{os.getppid()}/root/"),
        "view": tried(opened, f"/proc/{pid}/ns/mnt", os.O_RDONLY),
        "environment": tried(opened, f"/proc/{pid}/environ", os.O_RDONLY),
        "command": tried(opened, f"/proc/{pid}/cmdline", os.O_RDONLY),
        "memory": tried(opened, f"/proc/{pid}/mem", os.O_RDONLY),
        "ptrace": call(libc.ptrace(PTRACE_ATTACH, int(pid), None, None)),
        "kill": tried(os.kill, int(pid), 9),
        "layers": tried(os.listdir, store),
        "layer": tried(opened, layer, os.O_RDONLY),
        "layer by its root": tried(opened, f"/proc/{pid}/root{layer}", os.O_RDONLY),
        "link to a layer": tried(os.link, layer, "linked"),
        "others": len(
            [
                name
                for name in os.listdir("/proc")
                if name.isdigit() and tried(os.kill, int(name), 0) == "EPERM"
            ]
        ),
    }
    found["namespace"] = below(inside)
    print(json.dumps(found))


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main(*sys.argv[1:])
