"""What runs the container of a task: podman; Slurm's own support of containers (OCI) or pyxis, by `srun`; Apptainer.

podman pulls images for Slurm's support as well. They are unpacked once for each user and node, and every task sees
them below a layer of its own, so what it writes goes with the attempt.

Runs on the nodes as the job's user: only the standard library, nothing newer than Python 3.6.
"""

import fcntl
import json
import os
import pwd
import shutil
import signal
import subprocess
import time
from typing import Any, Dict, List, NamedTuple, Tuple

from ..kernel.processes import is_running, read_stat, signal_below, signal_seen
from . import devices, podman

PODMAN, OCI, PYXIS, APPTAINER = "podman", "oci", "pyxis", "apptainer"
_UNPACKED, _IMAGE = "unpacked", "image.json"
_NOT_LAID_OVER = ("dev", "proc", "sys")
"""Folders of an image that the kernel's own take the place of."""
_NEEDS = {OCI: ("podman", "srun", "tar"), PYXIS: ("srun",), APPTAINER: ("apptainer",)}
HOOK = (
    "since=$1; pid=$(sed -n 's/.*\"pid\" *: *\\([0-9]*\\).*/\\1/p') || exit; "
    'line=$(cat "/proc/$pid/stat") && set -f -- ${line##*) } && '
    'echo "${20}" >"$since.new" && mv "$since.new" "$since"; '
    'echo "$pid" >"$0.new" && mv "$0.new" "$0"'
)
"""Told by the runtime which container has started; the number of its first process goes into a file, and when that has
begun into another one: it tells that process from a later one of the same number, whatever its environment is."""
_END_S_MAX, _POLL_S = 10.0, 0.02
_BECOMING_S_MAX = 1.0
"""The kernel shows no environment of a process for a moment after it has become another program."""
MARK = "YARD_ATTEMPT_KEY"
"""The variable of a container that says whose it is."""


class Failed(Exception):
    """Why a task cannot run in its image: in words, for the job's owner.

    `for_good`: another attempt would fail alike, wherever and whenever it ran.
    """

    def __init__(self, why: str, for_good: bool = False) -> None:
        Exception.__init__(self, why)
        self.for_good = for_good


class Order(NamedTuple):
    """What a container of a task is to run, and where."""

    container: Dict[str, Any]
    number: int
    full: str
    """The full name of its image, or the path of its bundle."""
    env: Dict[str, str]
    place: podman.ContainerContext


def find_missing(image: Dict[str, Any]) -> List[str]:
    """Programs that are not installed here, without which these images do not run."""
    if kind_of(image) == PODMAN:
        return podman.find_missing(podman.hybrid())
    lacking = podman.find_lacking(_NEEDS[kind_of(image)])
    # Slurm's commands may lie in a folder of their own.
    return [name for name in lacking if name != "srun" or not shutil.which(name)]


def kind_of(image: Dict[str, Any]) -> str:
    """What runs the containers of a plan; one that an older yard wrote says nothing of it."""
    return str(image.get("by", PODMAN))


def pulls(image: Dict[str, Any]) -> bool:
    """Whether podman has the images here; pyxis and Apptainer fetch them themselves."""
    return kind_of(image) in (PODMAN, OCI)


def notes_start(image: Dict[str, Any]) -> bool:
    """Whether a file names the first process of a container once it has started."""
    return pulls(image)


def run_words(image: Dict[str, Any], order: Order, own: Dict[str, str]) -> Tuple[List[str], Dict[str, str]]:
    """The command line that runs a container to its end, and its environment. `own`: podman's variables."""
    if kind_of(image) == PODMAN:
        container, number, full, env, place = order
        words = podman.run_words(image, container, number, full, env, place)
        return words, podman.pass_on(own, env)
    if kind_of(image) == OCI:
        return _words_of_bundle(image, order)
    if order.full.startswith("/"):
        raise Failed("{} is a bundle, and {} runs images alone".format(order.full, kind_of(image)))
    return words_of_pyxis(image, order) if kind_of(image) == PYXIS else words_of_apptainer(image, order)


def _srun(env: Dict[str, str], terminal: bool) -> List[str]:
    """A step of one task beside the one that asks for it, on this node, with all that the job has there.

    It hands on its own environment. What would change `srun` itself goes by its command line.
    """
    apart = sorted([name for name in env if name.startswith("LD_")])
    for name in apart:
        if "," in env[name]:
            raise Failed("the variable {} cannot have a comma in a container of Slurm".format(name))
    node, cpus = os.environ.get("SLURMD_NODENAME", ""), os.environ.get("SLURM_CPUS_ON_NODE", "1")
    return [
        shutil.which("srun") or "srun",
        "--nodes=1",
        "--ntasks=1",
        "--nodelist=" + node,
        "--cpus-per-task=" + cpus,
        "--mem=0",
        "--overlap",
        "--wait=0",
        "--kill-on-bad-exit=0",
        # Twice: it need not tell what the task's end tells.
        "--quiet",
        "--quiet",
        "--chdir=/",
        "--export=" + ",".join(["ALL"] + ["{}={}".format(name, env[name]) for name in apart]),
        *(["--pty"] if terminal else ["--input=none"]),
    ]


def _of_srun(env: Dict[str, str]) -> Dict[str, str]:
    return {name: value for name, value in env.items() if not name.startswith("LD_")}


# -- Slurm's own support of containers ---------------------------------------------------------------------------------


def unpack(
    image: Dict[str, Any], name: str, digest: str, place: Tuple[str, str], own: Dict[str, str]
) -> bool:
    """Have the files of an image in a folder of this user; whether they had to be unpacked.

    `place`: the folders of the task; `own`: podman's variables there.
    """
    final = _unpacked(image, digest)
    if os.path.exists("{}/{}".format(final, _IMAGE)):
        # When it was last used, for what clears away.
        os.utime(final)
        return False
    os.makedirs(os.path.dirname(final), mode=0o700, exist_ok=True)
    lock = os.open(final + ".lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists("{}/{}".format(final, _IMAGE)):
            return False
        shutil.rmtree(final, ignore_errors=True)
        os.makedirs(final + "/rootfs", mode=0o755)
        storage = podman.storage_words(
            place[0] + "/root", place[1] + "/run", place[1] + "/lib", podman.has_ids()
        )
        for store in [image["store"]] + image["others"]:
            storage += ["--storage-opt", "additionalimagestore=" + store]
        called = "unpacked-" + os.path.basename(final)[:12]
        _run(storage + ["create", "--pull", "never", "--name", called, name, "none"], own)
        about = _run(storage + ["image", "inspect", "--format", "{{json .Config}}", name], own)
        with subprocess.Popen(storage + ["export", called], env=own, stdout=subprocess.PIPE) as export:
            # All files become the user's: there is no other user in the container.
            words = [
                "tar",
                "-x",
                "-C",
                final + "/rootfs",
                "--no-same-owner",
                "--mode=u+rwX",
                "--exclude=dev/*",
            ]
            done = subprocess.run(
                words,
                check=False,
                env=own,
                stdin=export.stdout,
                stderr=subprocess.PIPE,
                universal_newlines=True,
            )
        if done.returncode or export.returncode:
            raise Failed("image {} cannot be unpacked: {}".format(name, _last(done.stderr)))
        with open(final + "/image.new", "w") as file:
            file.write(about)
        os.rename(final + "/image.new", "{}/{}".format(final, _IMAGE))
    except OSError as error:
        raise Failed("image {} cannot be unpacked: {}".format(name, error.strerror or error)) from error
    finally:
        os.close(lock)
    return True


def _unpacked(image: Dict[str, Any], digest: str) -> str:
    return "{}/{}/{}".format(os.path.dirname(image["store"]), _UNPACKED, digest.rpartition(":")[2])


def _run(words: List[str], env: Dict[str, str]) -> str:
    done = subprocess.run(
        words, check=False, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        universal_newlines=True,
    )  # fmt: skip
    if done.returncode:
        raise Failed("podman cannot unpack an image: {}".format(_last(done.stderr)))
    return done.stdout


def _last(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return (lines[-1] if lines else "nothing was said of why")[-300:]


def _words_of_bundle(image: Dict[str, Any], order: Order) -> Tuple[List[str], Dict[str, str]]:
    container, number, full, env, place = order
    about: Dict[str, Any] = {}
    if full.startswith("/"):
        files = full + "/rootfs"
    else:
        kept = _unpacked(image, image["digests"][full])
        files = kept + "/rootfs"
        with open("{}/{}".format(kept, _IMAGE)) as file:
            about = json.load(file) or {}
    bundle = "{}/bundle-{}".format(place.folder, number)
    inside = dict([each.partition("=")[::2] for each in about.get("Env") or ()])
    inside.update(env)
    inside.setdefault("PATH", podman.PATH)
    rest = podman.fill_index(container["argv"], env)
    if container["entrypoint"]:
        args = podman.fill_index(container["entrypoint"], env) + rest
    else:
        args = list(about.get("Entrypoint") or ()) + (rest or list(about.get("Cmd") or ()))
    if not args:
        raise Failed("image {} names no program to run, and neither does the job".format(container["image"]))
    cwd = container["workdir"] or place.cwd or about.get("WorkingDir") or "/"
    write_bundle(bundle, files, config_of(image, order, bundle, files, args, inside, cwd))
    return _srun(inside, place.terminal and not number) + ["--container=" + bundle] + args, _of_srun(inside)


def config_of(
    image: Dict[str, Any],
    order: Order,
    bundle: str,
    files: str,
    args: List[str],
    env: Dict[str, str],
    cwd: str,
) -> Dict[str, Any]:
    """The `config.json` of a bundle: the job's user alone, in namespaces of its own, with the files of an image."""
    uid, gid = os.getuid(), os.getgid()
    ids = {
        kind + "Mappings": [{"containerID": number, "hostID": number, "size": 1}]
        for kind, number in (("uid", uid), ("gid", gid))
    }
    pid_file = "{}/pid-{}".format(order.place.folder, order.number)
    hook = {
        "path": "/bin/sh",
        "args": ["sh", "-c", HOOK, pid_file, since_file(pid_file)],
        "env": ["PATH=" + podman.PATH],
    }
    return {
        "ociVersion": "1.0.0",
        "root": {"path": bundle + "/rootfs"},
        "hostname": os.uname().nodename,
        "process": {
            "user": {"uid": uid, "gid": gid, "umask": order.place.umask},
            "args": args,
            "env": ["{}={}".format(name, env[name]) for name in sorted(env)],
            "cwd": cwd,
            "noNewPrivileges": True,
        },
        "mounts": _mounts(image, order, bundle, files),
        "hooks": {"poststart": [hook]},
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "mount", "user", "ipc", "uts")],
            **ids,
        },
    }


def _mounts(image: Dict[str, Any], order: Order, bundle: str, files: str) -> List[Dict[str, Any]]:
    """What a container sees where: its image below a layer of its own, the job's volumes, and its GPUs."""
    mounts = [
        {
            "destination": "/" + name,
            "type": "overlay",
            "source": "overlay",
            "options": [
                "lowerdir={}/{}".format(files, name),
                "upperdir={}/over/{}".format(bundle, name),
                "workdir={}/layer/{}".format(bundle, name),
                "userxattr",
            ],
        }
        for name in _laid_over(files)
    ]
    mounts += [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
        {
            "destination": "/dev/pts",
            "type": "devpts",
            "source": "devpts",
            "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"],
        },
        _bind("/sys", "/sys", "ro"),
    ]
    mounts += [_bind(path, path, "ro") for path in ("/etc/resolv.conf", "/etc/hosts") if os.path.exists(path)]
    mounts += [_bind("/dev/shm", "/dev/shm", "")]
    for each in podman.list_volumes(image, order.container, order.place):
        source, _, rest = each.partition(":")
        target, _, options = rest.partition(":")
        mounts.append(_bind(source, target or source, options))
    for name in order.env.get("CUDA_VISIBLE_DEVICES", "").split(","):
        mounts += _of_gpu(name) if name else []
    return mounts


def _laid_over(files: str) -> List[str]:
    """The folders at the top of an image; links and files there are copied."""
    names = sorted(os.listdir(files))
    return [
        name
        for name in names
        if name not in _NOT_LAID_OVER
        and os.path.isdir("{}/{}".format(files, name))
        and not os.path.islink("{}/{}".format(files, name))
    ]


def _bind(source: str, target: str, options: str) -> Dict[str, Any]:
    return {
        "destination": target,
        "type": "none",
        "source": source,
        "options": ["rbind", "nosuid"] + (["ro"] if "ro" in options.split(",") else []),
    }


def _of_gpu(name: str) -> List[Dict[str, Any]]:
    """The devices and libraries of a GPU as Slurm numbers it."""
    mounts = []
    for edits in (devices.edits_of_gpu(name), devices.common_edits()):
        for node in edits.get("deviceNodes", ()):
            mounts.append(_bind(node.get("hostPath", node["path"]), node["path"], ""))
        for mount in edits.get("mounts", ()):
            mounts.append(_bind(mount["hostPath"], mount["containerPath"], "ro"))
    return mounts


def write_bundle(bundle: str, files: str, config: Dict[str, Any]) -> None:
    """Make the folder that a runtime is given."""
    shutil.rmtree(bundle, ignore_errors=True)
    names = _laid_over(files)
    for part in ["/rootfs"] + ["/rootfs/" + name for name in names]:
        os.makedirs(bundle + part)
    for name in names:
        for part in ("/over/", "/layer/"):
            os.makedirs(bundle + part + name)
            shutil.copymode("{}/{}".format(files, name), bundle + part + name)
    for name in sorted(set(os.listdir(files)) - set(names) - set(_NOT_LAID_OVER)):
        shutil.copy2("{}/{}".format(files, name), "{}/rootfs/{}".format(bundle, name), follow_symlinks=False)
    if "etc" in names:
        _name_user(files + "/etc", bundle + "/over/etc")
    with open(bundle + "/config.json", "w") as file:
        json.dump(config, file)
    os.chmod(bundle + "/config.json", 0o600)


def _name_user(etc: str, over: str) -> None:
    """Have the job's user among those of the image."""
    user = pwd.getpwuid(os.getuid())
    own = {
        "passwd": "{}:x:{}:{}::/:/bin/sh\n".format(user.pw_name, user.pw_uid, os.getgid()),
        "group": "{}:x:{}:\n".format(user.pw_name, os.getgid()),
    }
    for name, line in own.items():
        try:
            with open("{}/{}".format(etc, name), "rb") as file:
                before = file.read()
        except OSError:
            before = b""
        with open("{}/{}".format(over, name), "wb") as file:
            file.write(before + (b"" if before.endswith(b"\n") or not before else b"\n") + line.encode())


def remove(path: str) -> None:
    """Remove a folder of this user with all that is in it, as far as it is the user's own."""
    for above, names, _files in os.walk(path):
        for name in names:
            # What the kernel keeps beside a layer cannot even be listed.
            each = "{}/{}".format(above, name)
            if not os.path.islink(each) and not os.access(each, os.R_OK | os.W_OK | os.X_OK):
                try:
                    os.chmod(each, 0o700)
                except OSError:
                    continue
    shutil.rmtree(path, ignore_errors=True)


def since_file(pid_file: str) -> str:
    """The file beside one that names the first process of a container, with the time when that has begun."""
    above, name = os.path.split(pid_file)
    return os.path.join(above, name.replace("pid-", "since-"))


def tell(image: Dict[str, Any], key: str, pid_file: str, pid: int, number: int) -> None:
    """Send a signal to the first process of a container of this task, and to none that has its number since."""
    if kind_of(image) == OCI:
        # Slurm runs it, and not below the task that asked for it.
        signal_seen(lambda: [pid] if _is_of(pid, key, pid_file) else [], number)
    else:
        # It may have ended since, or before: its monitor, not this process, has taken its end in.
        signal_below(os.getpid(), [pid], number)


def _is_of(pid: int, key: str, pid_file: str) -> bool:
    """Whether a process is the one that was noted at the start of a container.

    Where that was not noted, it has the mark of the attempt; one that just becomes its program shows none at first.
    """
    stat = read_stat(pid)
    try:
        with open(since_file(pid_file)) as noted:
            return stat is not None and stat.ticks == int(noted.read())
    except (OSError, ValueError):
        pass
    until = time.monotonic() + _BECOMING_S_MAX
    while True:
        try:
            with open("/proc/{}/environ".format(pid), "rb") as about:
                said = about.read()
        except OSError:
            return False
        if said or not is_running(pid) or time.monotonic() > until:
            return "{}={}".format(MARK, key).encode() in said.split(b"\0")
        time.sleep(_POLL_S)


def end_all(image: Dict[str, Any], key: str) -> None:
    """End what Slurm runs of an attempt's containers here: it does not run below the task that asked for it."""
    if kind_of(image) != OCI:
        return
    until = time.monotonic() + _END_S_MAX
    while True:
        left = signal_seen(lambda: _first_processes(image["folder"], key), signal.SIGKILL)
        if not left or time.monotonic() > until:
            return
        time.sleep(_POLL_S)


def _first_processes(folder: str, key: str) -> List[int]:
    """The first processes of containers that files in a folder name, if they are still those of this attempt."""
    found = []
    for above, _folders, names in os.walk(folder):
        for name in names:
            if not name.startswith("pid-"):
                continue
            try:
                path = "{}/{}".format(above, name)
                with open(path) as file:
                    pid = int(file.read())
                if _is_of(pid, key, path):
                    found.append(pid)
            except (OSError, ValueError):
                continue
        _folders[:] = [each for each in _folders if each.isdigit()]
    return found


# -- pyxis and Apptainer -----------------------------------------------------------------------------------------------


def words_of_pyxis(image: Dict[str, Any], order: Order) -> Tuple[List[str], Dict[str, str]]:
    """The command line of `srun` with pyxis, and its environment."""
    container, number, full, env, place = order
    registry, _, path = full.partition("/")
    if "@" in path:
        raise Failed("image {} is named by its digest, and pyxis knows tags alone".format(container["image"]))
    # docker.io has another name for those who fetch from it, which pyxis knows.
    uri = path if registry == "docker.io" else "{}#{}".format(registry, path)
    words = _srun(env, place.terminal and not number) + ["--container-image=" + uri]
    volumes = podman.list_volumes(image, container, place)
    if any(["," in each for each in volumes]):
        raise Failed("the path of a volume cannot have a comma with pyxis")
    words += ["--container-mounts=" + ",".join(volumes)] if volumes else []
    workdir = container["workdir"] or place.cwd
    words += ["--container-workdir=" + workdir] if workdir else []
    words += ["--no-container-mount-home", "--container-writable", "--no-container-remap-root"]
    words += ["--container-env=" + ",".join(sorted(env))] if env else []
    args = podman.fill_index(container["argv"], env)
    if container["entrypoint"]:
        args = podman.fill_index(container["entrypoint"], env) + args
        return words + ["--no-container-entrypoint"] + args, _of_srun(env)
    return words + ["--container-entrypoint"] + args, _of_srun(env)


def words_of_apptainer(image: Dict[str, Any], order: Order) -> Tuple[List[str], Dict[str, str]]:
    """The command line of Apptainer, and its environment: what the container gets stands there under other names."""
    container, _number, full, env, place = order
    words = ["apptainer", "exec" if container["entrypoint"] else "run"]
    words += ["--nv"] if env.get("CUDA_VISIBLE_DEVICES") else []
    words += ["--contain", "--cleanenv", "--no-home", "--pid", "--writable-tmpfs"]
    # Its own /tmp would be of 64 MiB.
    own = ["{}/tmp:/tmp".format(place.folder), "{}/tmp:/var/tmp".format(place.folder), "/dev/shm:/dev/shm"]
    for each in own + podman.list_volumes(image, container, place):
        words += ["--bind", each]
    workdir = container["workdir"] or place.cwd
    words += ["--pwd", workdir] if workdir else []
    words += ["docker://" + full]
    words += podman.fill_index(list(container["entrypoint"]) + list(container["argv"]), env)
    above = os.path.dirname(image["store"])
    outer = {
        "PATH": podman.PATH,
        "LANG": "C.UTF-8",
        "HOME": image["home"],
        "APPTAINER_CACHEDIR": above + "/apptainer",
        "APPTAINER_TMPDIR": place.folder + "/tmp",
    }
    outer.update({"APPTAINERENV_" + name: value for name, value in env.items()})
    return words, outer
