"""How podman is called: its command lines, its environment, and what its refusals mean.

Runs on the nodes as the job's user: only the standard library, nothing newer than Python 3.6.
"""

import ctypes
import glob
import hashlib
import json
import os
import pwd
import re
import signal
import subprocess
from typing import Any, Dict, Iterable, List, NamedTuple, Sequence, Tuple

OVERLAY = "overlay"
"""The driver of the yard's own stores: a container lies over the files of its image, and nothing is copied."""
_OF_USER, _OF_ROOT = ".local/share/containers/storage", "/var/lib/containers/storage"
_USERS_SETTINGS = ".config/containers/storage.conf"
SETTINGS = ("/etc/containers/storage.conf", "/usr/share/containers/storage.conf")
"""Podman's settings for stores, of the machine: the first that is there counts."""
_SETTINGS_BYTES_MAX = 64 << 10
_SECTION = re.compile(r"\s*\[\s*([^\]]*?)\s*\]\s*(?:#.*)?")
_SETTING = re.compile(r"""\s*([a-z_]+)\s*=\s*(?:"([^"\\]*)"|'([^']*)')\s*(?:#.*)?""")
_HOLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_RUNTIMES = ("crun", "runc")
"""What starts containers for podman, the better one first."""
_HYBRID = "/sys/fs/cgroup/unified"
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_OURS = re.compile(
    r"PATH|HOME|TMPDIR|LANG|TERM|(LD|XDG|CONTAINERS|CONTAINER|STORAGE|PODMAN|BUILDAH|REGISTRY|DBUS|GO)[A-Z_0-9]*|NOTIFY_SOCKET"
    r"|_CONTAINERS.*|(?i:https?_proxy|no_proxy)"
)
"""Variables that mean something to podman itself: the container gets them from a file."""
_INDEX = "$(JOB_COMPLETION_INDEX)"
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_CLONE_NEWNS, _MS_REC, _MS_PRIVATE = 0x20000, 0x4000, 0x40000

_libc = ctypes.CDLL(None, use_errno=True)


class ContainerContext(NamedTuple):
    """Where and how the containers of a task run."""

    folder: str
    short: str
    """The other folder, with a short path."""
    cwd: str
    """The job's folder; empty: it has none of its own, and containers begin where their images say."""
    umask: int
    terminal: bool
    has_ids: bool
    """Whether the user has ids for the other users of an image."""
    hybrid: bool
    """Whether cgroups are of both versions, with a controller in the second."""


def adopt_orphans() -> None:
    """Become the parent of every orphan below: monitors of containers, and the process that holds namespaces."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with(above: int) -> None:
    """Ask the kernel to kill this process when the one above it dies, even if it has died already."""
    _libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != above:
        os._exit(1)


def find_missing(hybrid: bool, path: str = PATH) -> List[str]:
    """Programs that are not installed here, without which no image runs for this user."""
    # Root hides from its containers what crun stumbles over.
    stumbles = hybrid and os.geteuid() != 0
    return find_lacking(["podman", runtime(stumbles, path)], path)


def find_lacking(names: Iterable[str], path: str = PATH) -> List[str]:
    """Programs that are not installed here, of these."""
    return [name for name in names if not program(name, path)]


def runtime(stumbles: bool, path: str = PATH) -> str:
    """The program that starts containers here; `stumbles`: crun cannot, as cgroups are of both versions.

    Where none is installed it is the one that should be.
    """
    usable = _RUNTIMES[1:] if stumbles else _RUNTIMES
    return next((name for name in usable if program(name, path)), usable[0])


def hybrid() -> bool:
    """Whether cgroups are of both versions, with a controller in the second: crun then starts no container."""
    try:
        with open(_HYBRID + "/cgroup.controllers") as file:
            return bool(file.read().strip())
    except OSError:
        return False


def hide_hybrid() -> None:
    """As root: hide the second version of cgroups from this process and what it starts, where crun would stumble."""
    if hybrid() and os.geteuid() == 0:
        _checked(_libc.unshare(_CLONE_NEWNS))
        _checked(_libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None))
        _checked(_libc.mount(b"none", _HYBRID.encode(), b"tmpfs", ctypes.c_ulong(0), None))


def _checked(answer: int) -> None:
    if answer != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def program(name: str, path: str = PATH) -> str:
    """Where a program of the node is; empty: it is not installed."""
    for folder in path.split(":"):
        if os.access("{}/{}".format(folder, name), os.X_OK):
            return "{}/{}".format(folder, name)
    return ""


# -- what podman finds around it ---------------------------------------------------------------------------------------


def short_folder(folder: str) -> str:
    """The other folder of an attempt, on its node: podman refuses long paths for the state of what runs."""
    own = "/run/user/{}".format(os.getuid())
    above = "/run/gpuyard" if os.getuid() == 0 else own if os.path.isdir(own) else "/tmp"
    return "{}/yard-{}".format(above, hashlib.sha256(folder.encode()).hexdigest()[:12])


def lay_out(folder: str, short: str, store: str) -> None:
    """Make the folders in which podman has all that it needs for one task, and its settings there."""
    folders = [
        folder + name for name in ("", "/tmp", "/run/containers", "/pull/containers", "/copy/containers")
    ]
    for path in folders + [short + name for name in ("", "/x", "/run", "/lib")]:
        os.makedirs(path, mode=0o700, exist_ok=True)
    engine = _engine()
    _set(folder + "/run/engine.conf", "engine", engine)
    _set(folder + "/run/containers/storage.conf", "storage", {"driver": OVERLAY})
    _of_store(folder + "/pull", short + "/pull", OVERLAY, store)
    if not has_ids():
        with open(folder + "/pull/containers/storage.conf", "a") as file:
            file.write('[storage.options.overlay]\nignore_chown_errors = "true"\n')


def lay_out_copy(folder: str, short: str, driver: str, store: str) -> None:
    """Settings with which podman reads a store of the user's own."""
    _of_store(folder + "/copy", short + "/copy", driver, store)


def _of_store(settings: str, state: str, driver: str, store: str) -> None:
    # A store holds images alone: what podman knows beside them is that of one attempt.
    engine = dict(_engine(), static_dir=state + "/static", tmp_dir=state + "/tmp")
    _set(settings + "/engine.conf", "engine", engine)
    _set(
        settings + "/containers/storage.conf",
        "storage",
        {"driver": driver, "graphroot": store, "runroot": state + "/run"},
    )


def _engine() -> Dict[str, str]:
    return {
        # Locks in files go with the folder; those in shared memory would stay, and be those of all jobs of the user.
        "lock_type": "file",
        "cgroup_manager": "cgroupfs",
        "events_logger": "none",
        "runtime": runtime(hybrid()),
    }


def _set(path: str, section: str, settings: Dict[str, str]) -> None:
    lines = ["{} = {}\n".format(name, json.dumps(settings[name])) for name in sorted(settings)]
    _write(path, "[{}]\n{}".format(section, "".join(lines)))


def podman_environment(
    folder: str, short: str, purpose: str, image: Dict[str, Any], env: Dict[str, str]
) -> Dict[str, str]:
    """The variables of podman itself, to `run`, `pull` or `copy`. Of the user's settings those for registries count."""
    found = {
        "PATH": PATH,
        "LANG": "C.UTF-8",
        "HOME": folder,
        "XDG_RUNTIME_DIR": short + "/x",
        "TMPDIR": folder + "/tmp",
        "XDG_CONFIG_HOME": "{}/{}".format(folder, purpose),
        "CONTAINERS_CONF": "{}/{}/engine.conf".format(folder, purpose),
    }
    registries = image["home"] + "/.config/containers/registries.conf"
    if os.access(registries, os.R_OK):
        found["CONTAINERS_REGISTRIES_CONF"] = registries
    found.update({name: env[name] for name in _PROXIES if name in env})
    return found


def pass_on(own: Dict[str, str], env: Dict[str, str]) -> Dict[str, str]:
    """Those of podman with those of a container, which it passes on by name: all users see a command line."""
    found = {name: value for name, value in env.items() if not _OURS.fullmatch(name)}
    found.update(own)
    return found


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, text.encode("utf-8", "surrogateescape"))
    finally:
        os.close(fd)


def storage_words(root: str, run: str, lib: str, has_ids: bool) -> List[str]:
    """The first words of podman over a store of containers."""
    words = ["podman", "--root", root, "--runroot", run, "--tmpdir", lib, "--log-level", "fatal"]
    words += ["--storage-driver", OVERLAY]
    if not has_ids:
        # All files of an image then belong to the user: there are no other users to own them.
        words += ["--storage-opt", "overlay.ignore_chown_errors=true"]
    return words


def has_ids() -> bool:
    """Whether this user has ids for the other users of an image."""
    if os.getuid() == 0:
        return True
    try:
        names = {str(os.getuid()), pwd.getpwuid(os.getuid()).pw_name}
    except KeyError:
        names = {str(os.getuid())}
    try:
        with open("/etc/subuid") as file:
            return any([line.partition(":")[0] in names for line in file])
    except OSError:
        return False


# -- images ------------------------------------------------------------------------------------------------------------


def full_names(name: str) -> List[str]:
    """The full names that a name may stand for: of an image that was built here, and in its registry."""
    path, at, digest = name.partition("@")
    first, slash, _rest = path.partition("/")
    last = path.rpartition("/")[2]
    if at:
        path = path[: len(path) - len(last)] + last.partition(":")[0]
    elif ":" not in last:
        path += ":latest"
    path += at + digest
    if slash and ("." in first or ":" in first or first == "localhost"):
        return [path]
    return ["localhost/" + path, "docker.io/" + ("" if slash else "library/") + path]


def find_user_stores(home: str, of_all: Sequence[str] = SETTINGS) -> Dict[str, List[str]]:
    """Where podman keeps what this user has built or pulled without the yard. In a process of the user's: settings of
    theirs may lead anywhere.

    `others`: stores that a container starts from as they are. `copied`: those of other drivers, such as vfs, which
    podman takes where it cannot lay folders over each other; an image comes from there by a copy.
    """
    own = find_own_store(home, of_all)
    found = sorted(glob.glob(glob.escape(own) + "/*-images/images.json"))
    drivers = [path.split("/")[-2][: -len("-images")] for path in found]
    return {
        "others": [own] if OVERLAY in drivers else [],
        "copied": ["{}@{}".format(driver, own) for driver in drivers if driver != OVERLAY],
    }


def find_own_store(home: str, of_all: Sequence[str] = SETTINGS) -> str:
    """The folder in which podman keeps the images of this user, by the settings that podman reads: of the user, and of
    all users of the machine.
    """
    users = _settings("{}/{}".format(home, _USERS_SETTINGS)) if os.getuid() else {}
    common = next((_settings(path) for path in of_all if os.path.exists(path)), {})
    if os.getuid() == 0:
        return _filled(common.get("graphroot", ""), home) or _OF_ROOT
    named = [users.get("graphroot"), users.get("rootless_storage_path"), common.get("rootless_storage_path")]
    paths = [_filled(path or "", home) for path in named]
    return next((path for path in paths if path), "{}/{}".format(home, _OF_USER))


def _settings(path: str) -> Dict[str, str]:
    """Texts of the section `storage` in a file of podman's; none where it cannot be read."""
    try:
        # It may be a pipe, and nobody waits for that.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            text = file.read(_SETTINGS_BYTES_MAX) or b""
    except OSError:
        return {}
    found: Dict[str, str] = {}
    section = ""
    for line in text.decode("utf-8", "replace").splitlines():
        head, setting = _SECTION.fullmatch(line), _SETTING.fullmatch(line)
        if head:
            section = head.group(1)
        elif setting and section == "storage":
            found[setting.group(1)] = setting.group(2) or setting.group(3) or ""
    return found


def _filled(path: str, home: str) -> str:
    """A path with what stands for variables in it; empty: it is no path."""
    known = {"HOME": home, "UID": str(os.getuid()), "USER": find_user()}
    path = _HOLE.sub(lambda hole: known.get(hole.group(1) or hole.group(2), ""), path)
    return path.rstrip("/") if path.startswith("/") else ""


def find_user() -> str:
    """The user of this process, by name or, without one, by number."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def list_images(store: str, driver: str = OVERLAY, field: str = "digest") -> Dict[str, str]:
    """The digests of the images in a store, or another of their fields, by their names."""
    try:
        with open("{}/{}-images/images.json".format(store, driver), "rb") as file:
            rows = json.loads(file.read().decode())
        return {name: str(row.get(field, "")) for row in rows for name in row.get("names") or ()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def measure_images(env: Dict[str, str]) -> Dict[str, int]:
    """The bytes of each image in a store, by its names; layers that two of them share count for both."""
    words = ["podman", "--log-level", "fatal", "images", "--format", "json"]
    try:
        said = subprocess.check_output(words, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        rows = json.loads(said.decode()) or []
        return {name: int(row.get("Size") or 0) for row in rows for name in row.get("Names") or ()}
    except (OSError, ValueError, AttributeError, TypeError, subprocess.SubprocessError):
        return {}


def remove(name: str, env: Dict[str, str]) -> bool:
    """Remove an image from a store, with the layers that no other image has; whether it is gone."""
    words = ["podman", "--log-level", "fatal", "rmi", "--force", name]
    done = subprocess.call(
        words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return done == 0


def pull_words(name: str, login: str) -> List[str]:
    """The command line that pulls an image into the store."""
    words = ["podman", "--log-level", "fatal", "pull", "--quiet"]
    return words + (["--authfile", login] if login else []) + [name]


_ASK_AGAIN, _ANOTHER_ATTEMPT, _UNLESS_LOGGED_IN, _NEVER = range(4)
"""What may help where an image was not pulled: to ask again at once, another attempt, another one where the user has
logged in and may renew that, or nothing.
"""
_MEANINGS = (
    # What the node lacks comes first: podman says of it, too, that something was not found or is denied.
    (r"no space left on device|disk quota exceeded", "the disk is full", _ANOTHER_ATTEMPT),
    (r"OCI runtime", "the node has no program that starts containers; root installs it: apt-get install {runtime}",
     _ANOTHER_ATTEMPT),
    (r"newuidmap|newgidmap|subuid|insufficient UIDs",
     "the node has too few ids for {user}: see /etc/subuid; root installs the programs for it: apt-get install uidmap",
     _ANOTHER_ATTEMPT),
    (r"executable file not found|permission denied|operation not permitted|read-only file system",
     "podman cannot work on this node", _ANOTHER_ATTEMPT),
    (r"unauthorized|authentication required|denied|incorrect username or password|invalid username/password|\b403\b",
     "{registry} refuses it; where it is private, log in as {user} on this node: podman login {registry}",
     _UNLESS_LOGGED_IN),
    (r"manifest unknown|name unknown|not found|no such image|does not exist|repository name not known",
     "{registry} has no such image", _NEVER),
    (r"no image found in manifest list|no image satisfies", "it has no variant for this kind of machine",
     _ANOTHER_ATTEMPT),
    (r"server gave HTTP response to HTTPS", "{registry} speaks no HTTPS; registries.conf may call it insecure",
     _ANOTHER_ATTEMPT),
    (r"certificate", "the certificate of {registry} is not trusted", _ANOTHER_ATTEMPT),
    (r"connection refused|no such host|i/o timeout|deadline exceeded|network is unreachable|no route to host"
     r"|server misbehaving|connection reset|unexpected EOF|temporary failure|\b50[0234]\b|toomanyrequests",
     "{registry} does not answer", _ASK_AGAIN),
)  # fmt: skip


class NotPulled(NamedTuple):
    """What podman's complaint about an image means."""

    why: str
    ask_again: bool = False
    """Whether asking the registry again at once may help."""
    for_good: bool = False
    """Whether another attempt would fail alike, on this node or another one."""


def last_line(said: str) -> str:
    """What podman said last, which is its complaint."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return (lines[-1] if lines else "podman said nothing")[-300:]


def why_not_pulled(name: str, said: str, user: str, login: str, starter: str) -> NotPulled:
    """What podman's complaint means; `login` is the file with the credentials that it was given, if any.

    `starter`: the program that is to start containers here.
    """
    registry = full_names(name)[-1].partition("/")[0]
    last = last_line(said)
    for pattern, means, helps in _MEANINGS:
        if re.search(pattern, said, re.IGNORECASE):
            text = means.format(registry=registry, user=user, runtime=starter)
            why = "image {} cannot be pulled: {} ({})".format(name, text, last)
            for_good = helps == _NEVER or (helps == _UNLESS_LOGGED_IN and not login)
            return NotPulled(why, helps == _ASK_AGAIN, for_good)
    return NotPulled("image {} cannot be pulled: {}".format(name, last))


# -- containers --------------------------------------------------------------------------------------------------------


def run_words(
    image: Dict[str, Any],
    container: Dict[str, Any],
    number: int,
    full: str,
    env: Dict[str, str],
    place: ContainerContext,
) -> List[str]:
    """The command line that runs one container of a task to its end."""
    folder = place.folder
    words = storage_words(folder + "/root", place.short + "/run", place.short + "/lib", place.has_ids)
    for store in [image["store"]] + image["others"]:
        words += ["--storage-opt", "additionalimagestore=" + store]
    words += ["run", "--rm", "--pull", "never", "--name", "c{}".format(number)]
    words += ["--pidfile", "{}/pid-{}".format(folder, number)]
    # Limits are those of the attempt's own group, in which podman runs; its network is that of the node.
    words += ["--cgroups", "enabled" if place.hybrid else "disabled", "--network", "host"]
    words += ["--security-opt", "no-new-privileges", "--security-opt", "label=disable"]
    words += ["--umask", "{:04o}".format(place.umask)]
    if os.getuid() and place.has_ids:
        # Without further ids the user is root inside, and the only user there is.
        words += ["--userns", "keep-id"] + ([] if place.hybrid else ["--group-add", "keep-groups"])
    words += ["--interactive", "--tty"] if place.terminal and not number else ["--log-driver", "passthrough"]
    words += _volumes(image, container, place)
    words += _gpus(image, env)
    words += _variables(env, "{}/env-{}".format(folder, number))
    workdir = container["workdir"] or place.cwd
    words += ["--workdir", workdir] if workdir else []
    if container["entrypoint"]:
        words += ["--entrypoint", json.dumps(fill_index(container["entrypoint"], env))]
    # Of a bundle its own files stay as they are: what is written lies over them.
    words += ["--rootfs", full + "/rootfs:O"] if full.startswith("/") else [full]
    return words + fill_index(container["argv"], env)


def read_bundle(container: Dict[str, Any]) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """A container with what its bundle says where the job does not, and the variables of the bundle."""
    try:
        with open(container["image"] + "/config.json", encoding="utf-8") as file:
            process = json.load(file).get("process") or {}
        args = [str(word) for word in process.get("args") or ()]
        env = dict([str(each).partition("=")[::2] for each in process.get("env") or ()])
        workdir = str(process.get("cwd") or "")
    except (OSError, ValueError, AttributeError, TypeError):
        # A folder with files alone will do where the job names its program.
        args, env, workdir = [], {}, ""
    own = dict(container)
    if not own["entrypoint"] and not own["argv"]:
        own["argv"] = args
    own["workdir"] = own["workdir"] or (workdir if workdir != "/" else "")
    return own, env


def fill_index(texts: Iterable[str], env: Dict[str, str]) -> List[str]:
    """Texts with the index of an array's task in them, where a manifest wants it: an image may have no shell."""
    return [text.replace(_INDEX, env.get("JOB_COMPLETION_INDEX", _INDEX)) for text in texts]


def list_volumes(image: Dict[str, Any], container: Dict[str, Any], place: ContainerContext) -> List[str]:
    """What a container sees of the node, as /source:/target[:ro]; empty folders that go with the attempt are made."""
    own = [place.cwd + ":" + place.cwd] if place.cwd else []
    found = []
    for each in dict.fromkeys(own + list(image["volumes"]) + list(container["volumes"])):
        source, _, rest = each.partition(":")
        if not source.startswith("/"):
            source = "{}/volumes/{}".format(place.folder, source)
            os.makedirs(source, exist_ok=True)
        found.append(source + ":" + rest)
    return found


def _volumes(image: Dict[str, Any], container: Dict[str, Any], place: ContainerContext) -> List[str]:
    # The machine's shared memory, or the job's own behind its fence: 64 MiB are too few for those that load data.
    words = ["--volume", "/dev/shm:/dev/shm"]
    for each in list_volumes(image, container, place):
        words += ["--volume", each]
    return words


def _gpus(image: Dict[str, Any], env: Dict[str, str]) -> List[str]:
    wanted = [image["gpus"].get(name, []) for name in env.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    # What two GPUs share, such as a library, is mounted once.
    pairs = dict.fromkeys([tuple(given[at : at + 2]) for given in wanted for at in range(0, len(given), 2)])
    words = [word for pair in pairs for word in pair]
    pipes = env.get("CUDA_MPS_PIPE_DIRECTORY", "")
    if pipes:
        # Programs that share a GPU speak to its daemon through files and shared memory.
        words += ["--volume", "{0}:{0}".format(pipes), "--ipc", "host"]
    return words


def _variables(env: Dict[str, str], path: str) -> List[str]:
    """Variables by their names; those that mean something to podman itself stand in a file."""
    apart = sorted([name for name in env if _OURS.fullmatch(name)])
    words: List[str] = []
    for name in sorted(env.keys() - set(apart)):
        words += ["--env", name]
    for name in apart:
        if "\n" in env[name]:
            raise ValueError("the variable {} cannot have a line break in an image".format(name))
    if apart:
        _write(path, "".join(["{}={}\n".format(name, env[name]) for name in apart]))
        words += ["--env-file", path]
    return words


def why_not_started(code: int, name: str) -> str:
    """What podman's exit code means for a container that did not start."""
    if code == 127:
        return "its program is not in image {}; its log says which".format(name)
    if code == 126:
        return "its program cannot be run in image {}; its log says why".format(name)
    return "the container of image {} could not be started; its log says why".format(name)
