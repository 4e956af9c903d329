"""The containers of a task: images are pulled and containers run by podman, as the job's user, without a daemon.

An attempt has a folder of its own in which podman keeps all that it needs, so that two jobs of a user do not meet, and
nothing is left once that folder is gone. Only images are kept: in one store for each user, which no other user can
read. The process of the task stays beside its containers: it passes signals on, and ends with their exit code
when all that podman has started is gone.

Runs on the nodes as the job's user: only the standard library, nothing newer than Python 3.6.
"""

import fcntl
import hashlib
import json
import os
import signal
import time
from typing import Any, Dict, List, NoReturn, Optional, Tuple

from ..files import open_of_job
from ..kernel.processes import cut_short, error_text, find_descendants, signal_all, signal_below
from . import podman, runtimes
from .runtimes import Failed

Image = Dict[str, Any]
"""What a plan says of images:

    folder      the attempt's own, which its user may write to and which goes with it
    short       the same for the state of what runs, with a short path
    store       where the user's images are kept on this node
    containers  each with image, name, entrypoint, argv, env, workdir, volumes, init, pull; the first is the job's own
    volumes     what all of them see, as /source:/target[:ro]
    cwd         the folder in which they run, which they see where it is; empty: the one that an image names
    gpus        words for podman by the name of a GPU or slice, as CUDA_VISIBLE_DEVICES has it
    home        the user's home, where credentials for registries are looked for
    by          what runs the containers: podman, oci, pyxis or apptainer; left out: podman

A task finds the user's own stores, as the user, and adds:

    others      stores of images besides `store`, which are only read
    copied      DRIVER@STORE of images that are copied into `store` first
"""
NOT_RUN = 125
"""The exit code for a container that did not start, as podman and docker have it."""
FACTS = "facts.json"
"""In the folder of a task: when its image was there, its container started and its first line came; or what failed."""
_TRIES, _PAUSE_S = 3, 2.0
_POLL_S, _POLL_S_MAX, _IDLE_S = 0.01, 1.0, 3600.0
_ERROR_BYTES_MAX = 64 << 10
_TEXTS, _TIMES = ("image", "digest", "why"), ("pull_ms", "start_ms", "line_ms")
_TIME_MS_MAX = 1 << 53
"""What is more than that is none of ours."""
_PASSED_ON = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGALRM,
    signal.SIGCONT, signal.SIGWINCH,
)  # fmt: skip

_SPARING = (signal.SIGCONT, signal.SIGWINCH)
"""Signals that end no process."""


def prepare(image: Image, env: Dict[str, str]) -> "Containers":
    """Have every image of the task on this node, which may take long; what comes next is `Containers.run`."""
    containers = Containers(image, env)
    containers.prepare()
    return containers


class Containers:
    """The containers of one task, from their images to their end."""

    def __init__(self, image: Image, env: Dict[str, str]) -> None:
        self.image, self.env = dict(image, **podman.find_user_stores(image["home"])), env
        self.folder = "{}/{}".format(image["folder"], os.getpid())
        self.facts: Dict[str, Any] = {}
        self.found: Dict[str, str] = {}
        """Full names of images, by what the job calls them."""
        self.short = "{}/{}".format(image["short"], os.getpid())
        self.own, self.for_pull = (
            podman.podman_environment(self.folder, self.short, purpose, image, env)
            for purpose in ("run", "pull")
        )

    def prepare(self) -> None:
        """Pull what is missing."""
        podman.adopt_orphans()
        podman.lay_out(self.folder, self.short, self.image["store"])
        pulled_ms = 0
        for each in self.image["containers"]:
            began = time.time()
            if not runtimes.pulls(self.image):
                self.found[each["image"]] = podman.full_names(each["image"])[-1]
            elif self._have(each["image"], each["pull"]) | self._unpack(each["image"]):
                pulled_ms += max(1, int(1000 * (time.time() - began)))
            self._hold(self.found[each["image"]])
        self.facts["image"] = self.found[self.image["containers"][0]["image"]]
        if pulled_ms:
            self.facts["pull_ms"] = pulled_ms
        self._note()

    # ---- images

    def _have(self, name: str, pull: str) -> bool:
        """Have an image on this node; whether it had to be pulled."""
        if name.startswith("/"):
            if not os.path.isdir(name + "/rootfs"):
                raise Failed(
                    "{} is not a bundle: it has no folder rootfs that {} can read".format(
                        name, podman.find_user()
                    )
                )
            self.found[name] = name
            return False
        copied = self._copy(name)
        there = self._look(name)
        if there and pull != "always":
            self.found[name] = there
            return copied
        full = podman.full_names(name)[-1]
        if full.startswith("localhost/") and not there:
            own = podman.find_own_store(self.image["home"])
            why = "image {} cannot be had: {} has built no such image on this node; `podman images` shows those in {}"
            raise Failed(why.format(name, podman.find_user(), own), for_good=True)
        if pull == "never":
            raise Failed("image {} is not on this node, and is never to be pulled".format(name))
        if there.startswith("localhost/"):
            # It was built here: there is no registry to ask for a newer one.
            self.found[name] = there
            return copied
        lock = self._alone(full)
        try:
            pulled = pull == "always" or not self._look(name)
            if pulled:
                self._pull(name, full)
        finally:
            os.close(lock)
        self.found[name] = self._look(name) or full
        return pulled

    def _alone(self, full: str) -> int:
        """Wait until no other job of this user has an image on its way; held for as long as the answer is open."""
        path = _file_of(self.image["store"], "lock", full)
        lock = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return lock

    def _copy(self, name: str) -> bool:
        """Have an image that the user built or pulled with another driver as it is there now; whether it was copied."""
        for each in self.image["copied"]:
            driver, _, source = each.partition("@")
            there = podman.list_images(source, driver, "id")
            full = next((full for full in podman.full_names(name) if full in there), "")
            if not full:
                continue
            note = _file_of(self.image["store"], "copied", full)
            lock = self._alone(full)
            try:
                if full in podman.list_images(self.image["store"]) and _text(note) == there[full]:
                    return False
                self._carry(full, driver, source)
                with open(note, "w") as file:
                    file.write(there[full])
                return True
            finally:
                os.close(lock)
        return False

    def _carry(self, full: str, driver: str, source: str) -> None:
        """Copy an image from a store of another driver into the yard's."""
        between = self.folder + "/tmp/copied.tar"
        copy = podman.podman_environment(self.folder, self.short, "copy", self.image, self.env)
        podman.lay_out_copy(self.folder, self.short, driver, source)
        out = ["podman", "--log-level", "fatal", "save", "--quiet", "--output", between, full]
        into = ["podman", "--log-level", "fatal", "load", "--quiet", "--input", between]
        try:
            for words, env in ((out, copy), (into, self.for_pull)):
                status, said = self._asked(words, env)
                if status:
                    why = podman.last_line(said)
                    raise Failed("image {} cannot be copied from {}: {}".format(full, source, why))
        finally:
            if os.path.exists(between):
                os.unlink(between)

    def _asked(self, words: List[str], env: Dict[str, str]) -> Tuple[int, str]:
        """Ask podman for something; how it ended, and what it said."""
        ears, mouth = os.pipe()
        pid = self._fork(words, env, (mouth, mouth), False)
        os.close(mouth)
        said = _all_of(ears)
        _, status = os.waitpid(pid, 0)
        _sweep()
        return status, said.decode(errors="replace")

    def _hold(self, full: str) -> None:
        """Keep an image from being removed for as long as this process lives, and say that it was used."""
        if full.startswith("/") or not runtimes.pulls(self.image):
            return
        fd = os.open(
            _file_of(self.image["store"], "used", full), os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        fcntl.flock(fd, fcntl.LOCK_SH)
        os.utime(fd)
        if full not in podman.list_images(self.image["store"]) and not self._look(full):
            # It was being removed meanwhile.
            raise Failed("image {} was removed from this node just now; try again".format(full))

    def _unpack(self, name: str) -> bool:
        """Have the files of an image where Slurm's support of containers can use them; whether they were not there."""
        if runtimes.kind_of(self.image) != runtimes.OCI or name.startswith("/"):
            return False
        full = self.found[name]
        self.image.setdefault("digests", {})[full] = self.facts["digest"]
        try:
            return runtimes.unpack(
                self.image, full, self.facts["digest"], (self.folder, self.short), self.own
            )
        finally:
            _sweep()

    def _look(self, name: str) -> str:
        """The full name of an image that is in one of the stores; empty: none has it."""
        stores = [podman.list_images(store) for store in [self.image["store"]] + self.image["others"]]
        for full in podman.full_names(name):
            for there in stores:
                if full in there:
                    self.facts["digest"] = there[full]
                    return full
        return ""

    def _pull(self, name: str, full: str) -> None:
        login = _login(self.image["home"], self.env)
        words = podman.pull_words(full, login)
        for left in reversed(range(_TRIES)):
            status, said = self._asked(words, self.for_pull)
            if status == 0:
                return
            failed = podman.why_not_pulled(
                name, said, podman.find_user(), login, podman.runtime(podman.hybrid())
            )
            if not failed.ask_again or not left:
                raise Failed(failed.why, failed.for_good)
            time.sleep(_PAUSE_S)

    # ---- containers

    def run(self, argv: List[str], script: bool, umask: int) -> NoReturn:
        """Run init steps one after the other, then all others together; end as the first that failed."""
        code, terminal = 1, os.isatty(0)
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *_PASSED_ON})
            first = self.image["containers"][0]
            own = dict(first, argv=argv)
            if script:
                # It is a file of the attempt, which the container sees where it is.
                seen = "{0}:{0}:ro".format(argv[0])
                own = dict(own, entrypoint=argv[:1], argv=argv[1:], volumes=own["volumes"] + [seen])
            place = podman.ContainerContext(
                self.folder,
                self.short,
                self.image["cwd"],
                umask,
                terminal,
                podman.has_ids(),
                podman.hybrid(),
            )
            steps = [each for each in self.image["containers"][1:] if each["init"]]
            beside = [each for each in self.image["containers"][1:] if not each["init"]]
            code = 0
            for number, each in enumerate(steps):
                code = code or self._ended([(each, number + 1)], place)
            if not code:
                others = [(each, len(steps) + 1 + number) for number, each in enumerate(beside)]
                code = self._ended([(own, 0)] + others, place)
        except Failed as failed:
            code, self.facts["why"] = NOT_RUN, str(failed)
        except BaseException as error:  # a task must never go on as a second supervisor
            self.facts["why"] = "its containers could not be run: {}".format(error_text(error))
        finally:
            _sweep()
            self._note()
            os._exit(code)

    def _ended(self, containers: List[Tuple[Dict[str, Any], int]], place: podman.ContainerContext) -> int:
        """Run containers together; the exit code of the first that failed, 0 if none did."""
        running = {}
        for wanted, number in containers:
            of_bundle = wanted["image"].startswith("/")
            each, inside = podman.read_bundle(wanted) if of_bundle else (wanted, {})
            env = dict(inside, **self.env)
            env.update(each["env"])
            env = {name: podman.fill_index([value], env)[0] for name, value in env.items()}
            order = runtimes.Order(each, number, self.found[each["image"]], env, place)
            words, own = runtimes.run_words(self.image, order, self.own)
            running[self._fork(words, own, None, place.terminal)] = (each, number)
        watched = None
        if containers[0][1] == 0 and runtimes.notes_start(self.image):
            watched = _Watch("{}/pid-0".format(self.folder))
        failed = 0
        while running:
            self._take_signal(running, watched)
            while True:
                try:
                    pid, status = os.waitpid(-1, os.WNOHANG)
                except ChildProcessError:
                    return failed
                if pid == 0:
                    break
                if pid in running:
                    each, number = running.pop(pid)
                    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
                    if code and not failed:
                        failed = code
                        self._say_why(code, each, number)
            if watched is not None and watched.look():
                self.facts.update(watched.seen)
                self._note()
        if watched is not None:
            watched.look(last=True)
            self.facts.update(watched.seen)
        return failed

    def _take_signal(
        self, running: Dict[int, Tuple[Dict[str, Any], int]], watched: Optional["_Watch"]
    ) -> None:
        """Wait for a while, and pass on what the task is told."""
        wait_s = watched.wait_s() if watched is not None else _IDLE_S
        told = signal.sigtimedwait({signal.SIGCHLD, *_PASSED_ON}, wait_s)
        if told is not None and told.si_signo != signal.SIGCHLD:
            for pid, (_container, number) in running.items():
                self._pass_on(told.si_signo, pid, number)

    def _pass_on(self, signo: int, podman_pid: int, number: int) -> None:
        """Tell the first process of a container; podman itself where there is none yet.

        The kernel spares that process what it neither heeds nor ignores: then it ends as any other process would.
        """
        path = "{}/pid-{}".format(self.folder, number)
        try:
            with open(path) as file:
                pid = int(file.read())
            with open("/proc/{}/status".format(pid)) as file:
                fields = dict([line.split(":", 1) for line in file])
            heeded = int(fields["SigCgt"], 16) | int(fields["SigIgn"], 16)
        except (OSError, ValueError, KeyError):
            if signo not in _SPARING:
                signal_all([podman_pid], signo)
            return
        number = signo if signo in _SPARING or heeded >> (signo - 1) & 1 else signal.SIGKILL
        runtimes.tell(self.image, self.env.get(runtimes.MARK, ""), path, pid, number)

    def _say_why(self, code: int, container: Dict[str, Any], number: int) -> None:
        """What is known of a container that did not even start, or is not the job's own."""
        called = container["name"] or container["image"]
        begun = not runtimes.notes_start(self.image) or os.path.exists(
            "{}/pid-{}".format(self.folder, number)
        )
        if not begun:
            self.facts["why"] = podman.why_not_started(code, container["image"])
        elif number:
            step = "init step" if container["init"] else "container"
            self.facts["why"] = "{} {}: exit code {}".format(step, called, code)

    @staticmethod
    def _fork(
        words: List[str], env: Dict[str, str], output: Optional[Tuple[int, int]], terminal: bool
    ) -> int:
        above = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        try:
            podman.die_with(above)
            if not terminal:
                # Signals for the task reach its containers through the process of the task, once.
                os.setpgid(0, 0)
            for target, fd in enumerate(output or (), 1):
                os.dup2(fd, target)
            signal.pthread_sigmask(signal.SIG_SETMASK, set())
            os.execvpe(words[0], words, env)
        except OSError as error:
            os.write(2, "{}: {}\n".format(words[0], error.strerror).encode())
        finally:
            os._exit(NOT_RUN)

    def _note(self) -> None:
        """Keep the facts, whole or not at all; on a full disk they are missing."""
        try:
            with open(self.folder + "/facts.new", "w") as file:
                json.dump(self.facts, file)
            os.rename(self.folder + "/facts.new", "{}/{}".format(self.folder, FACTS))
        except OSError:
            pass


def _file_of(store: str, kind: str, full: str) -> str:
    """A file about an image in a store: `lock`, held while it is pulled; `used`, held while a task may need it."""
    return "{}/{}-{}".format(store, kind, hashlib.sha256(full.encode()).hexdigest()[:12])


def prune(store: str, folder: str, unused_since_s: float, dry_run: bool) -> Dict[str, int]:
    """Remove the images of a store that no task has needed since then; their sizes by name.

    One that a task needs or that is being pulled stays. As the user whose store it is; `folder` is an empty one.
    """
    short = folder + "/s"
    podman.lay_out(folder, short, store)
    env = podman.podman_environment(folder, short, "pull", {"home": folder}, {})
    sizes = podman.measure_images(env)
    removed = {}
    for full in sorted(podman.list_images(store)):
        locks = [
            os.open(_file_of(store, kind, full), os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            for kind in ("lock", "used")
        ]
        try:
            for fd in locks:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if max([os.fstat(fd).st_mtime for fd in locks]) >= unused_since_s:
                continue
            if dry_run or podman.remove(full, env):
                removed[full] = sizes.get(full, 0)
        except BlockingIOError:
            continue
        finally:
            for fd in locks:
                os.close(fd)
    return removed


def prune_as(uid: int, gid: int, store: str, folder: str, unused_since_ms: int, dry_run: bool) -> None:
    """In a process of its own: become the user of a store, prune it, and print what went, as JSON."""
    podman.hide_hybrid()
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    podman.adopt_orphans()
    try:
        os.write(1, json.dumps(prune(store, folder, unused_since_ms / 1000, dry_run)).encode())
    finally:
        _sweep()


def _sweep() -> None:
    """End what podman has left: monitors, its pause process, what a container has left behind."""
    while True:
        signal_below(os.getpid(), find_descendants({os.getpid()}), signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(_POLL_S)


class _Watch:
    """When the job's own container started, and when it wrote its first line."""

    def __init__(self, pidfile: str) -> None:
        self.pidfile, self.pause_s = pidfile, _POLL_S
        self.seen: Dict[str, int] = {}
        self.sizes = _written()

    def wait_s(self) -> float:
        """How long until the next look; once all is seen there is none."""
        if len(self.seen) == 2:
            return _IDLE_S
        self.pause_s = min(_POLL_S_MAX, self.pause_s * 1.2)
        return self.pause_s

    def look(self, last: bool = False) -> bool:
        """Whether something was seen for the first time."""
        before = len(self.seen)
        if "start_ms" not in self.seen:
            try:
                self.seen["start_ms"] = int(1000 * os.stat(self.pidfile).st_mtime)
            except OSError:
                return False
        if "line_ms" not in self.seen and _written() != self.sizes:
            self.seen["line_ms"] = int(1000 * time.time())
        return len(self.seen) != before


def _written() -> List[int]:
    return [os.fstat(fd).st_size for fd in (1, 2)]


def _all_of(fd: int) -> bytes:
    """What comes out of a pipe until its end, of which only the last part is kept."""
    said = b""
    with os.fdopen(fd, "rb", 0) as file:
        while True:
            part = file.read(4096)
            if not part:
                return said
            said = (said + part)[-_ERROR_BYTES_MAX:]


def _text(path: str) -> str:
    """The text of a small file; empty: there is none."""
    try:
        with open(path) as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _login(home: str, env: Dict[str, str]) -> str:
    """The file with the user's credentials for registries; empty: there is none."""
    own = "/run/user/{}/containers/auth.json".format(os.getuid())
    usual = [own, home + "/.config/containers/auth.json", home + "/.docker/config.json"]
    named = env.get("REGISTRY_AUTH_FILE", "")
    return next((path for path in [named] + usual if path and os.access(path, os.R_OK)), "")


def first_process(folder: str, pid: int) -> str:
    """The file that names the first process of the job's own container in a task."""
    return "{}/{}/pid-0".format(folder, pid)


def read_facts(folder: str, pid: int) -> Dict[str, Any]:
    """What a task has noted. The file is the job's own: it may hold anything, so only what makes sense is taken."""
    try:
        with os.fdopen(open_of_job(folder, "{}/{}".format(pid, FACTS)), "rb") as file:
            found = json.loads(file.read(_ERROR_BYTES_MAX).decode())
    except (OSError, ValueError, RecursionError):
        return {}
    return keep_sane(found)


def keep_sane(found: Any) -> Dict[str, Any]:
    """Of what a task or its node has noted, what makes sense."""
    if not isinstance(found, dict):
        return {}
    texts = {name: cut_short(found[name]) for name in _TEXTS if type(found.get(name)) is str}
    times = {name: found[name] for name in _TIMES if type(found.get(name)) is int}
    return dict(texts, **{name: ms for name, ms in times.items() if 0 <= ms < _TIME_MS_MAX})
