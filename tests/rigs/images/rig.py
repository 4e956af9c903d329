"""Real images: a user with ids for the users of an image, images made of one static program, registries on loopback.

Nothing is fetched from outside. What is missing is installed where this is root on Debian.
"""

import base64
import fcntl
import json
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from harness.patience import Patience, patient
from rigs.accounts import change_accounts
from rigs.components import Missing, install, skip_or_fail

PACKAGES = ("podman", "crun", "uidmap", "busybox-static", "docker-registry", "apache2-utils")
PROGRAMS = ("podman", "crun", "newuidmap", "docker-registry", "htpasswd")
USER = "yardpod"
"""Has no shell, so that it is no person to other tests."""
BUSYBOX = "/bin/busybox"
_IDS = "300000-365535"
_FILE = """FROM scratch
COPY busybox /bin/busybox
{more}ENTRYPOINT ["/bin/busybox"]
CMD ["echo", "hello from the image"]
"""


def need_podman() -> pwd.struct_passwd:
    """See to it that podman and a user for it are there; the user."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        skip_or_fail(f"only root on Debian can install {' '.join(PACKAGES)} and run jobs as another user")
    if not all([shutil.which(name) for name in PROGRAMS]) or not os.path.exists(BUSYBOX):
        try:
            install(*PACKAGES)
        except Missing as refusal:
            skip_or_fail(str(refusal))
    return _user()


def _user() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(USER)
    except KeyError:
        change_accounts("useradd", "--system", "--create-home", "--shell", "/usr/sbin/nologin", USER)
        change_accounts("usermod", "--add-subuids", _IDS, "--add-subgids", _IDS, USER)
        return pwd.getpwnam(USER)


class Registry:
    """A registry on loopback, with or without credentials."""

    def __init__(self, folder: Path, user: str = "", password: str = "", port: int = 0) -> None:
        self.folder, self.login = folder, (user, password)
        folder.mkdir(parents=True, exist_ok=True)
        self.port = port or _free_port()
        self.log = folder / "log"
        auth = ""
        if user:
            hashed = subprocess.run(
                ["htpasswd", "-nbB", user, password], capture_output=True, text=True, check=True
            ).stdout
            (folder / "htpasswd").write_text(hashed.strip() + "\n")
            auth = f"auth:\n  htpasswd:\n    realm: yard\n    path: {folder}/htpasswd\n"
        (folder / "config.yml").write_text(
            "version: 0.1\nlog:\n  accesslog:\n    disabled: false\n"
            f"storage:\n  filesystem:\n    rootdirectory: {folder}/data\n"
            f"http:\n  addr: 127.0.0.1:{self.port}\n{auth}"
        )
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def name(self) -> str:
        """Its name in references."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        with self.log.open("ab") as log:
            words = ["docker-registry", "serve", str(self.folder / "config.yml")]
            self.process = subprocess.Popen(words, stdout=log, stderr=log)
        patience = Patience(20)
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            assert patience, self.log.read_text()[-1000:]
            time.sleep(0.05)

    def stop(self) -> None:
        """Take it down; what it holds stays."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def pulls(self) -> int:
        """How often a layer or a configuration was fetched, as its own log says."""
        return sum(['"GET /v2/' in line and "/blobs/" in line for line in self.log.read_text().splitlines()])

    def credentials(self) -> str:
        """What `podman login` would write."""
        plain = ":".join(self.login).encode()
        return json.dumps({"auths": {self.name: {"auth": base64.b64encode(plain).decode()}}})

    def has(self, path: str) -> bool:
        """Whether it has a repository."""
        request = urllib.request.Request(f"http://{self.name}/v2/{path}/tags/list")
        if self.login[0]:
            plain = base64.b64encode(":".join(self.login).encode()).decode()
            request.add_header("Authorization", f"Basic {plain}")
        with suppress(OSError):
            return urllib.request.urlopen(request, timeout=patient(5)).status == 200
        return False


class Shelf:
    """Where images are made: a store of root's own, apart from everything else on the machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "context").mkdir(parents=True)
        shutil.copy(BUSYBOX, folder / "context" / "busybox")
        self._short = Path("/run") / f"shelf-{os.getpid()}"

    def _podman(self, *words: str) -> None:
        environment = {**os.environ, "HOME": str(self.folder), "XDG_RUNTIME_DIR": str(self._short)}
        self._short.mkdir(exist_ok=True)
        own = ["--root", str(self.folder / "root"), "--runroot", str(self._short / "r")]
        own += ["--tmpdir", str(self._short / "t"), "--storage-driver", "overlay", "--log-level", "error"]
        done = subprocess.run(
            ["podman", *own, *words], capture_output=True, text=True, check=False, env=environment
        )
        assert 0 == done.returncode, done.stderr

    def make(self, name: str, more: str = "") -> None:
        """Make an image."""
        (self.folder / "context" / "Containerfile").write_text(_FILE.format(more=more))
        file, context = str(self.folder / "context" / "Containerfile"), str(self.folder / "context")
        self._podman("build", "--quiet", "--isolation", "chroot", "--file", file, "--tag", name, context)

    def push(self, name: str, registry: Registry, path: str) -> str:
        """Put an image into a registry; its reference there."""
        words = ["--tls-verify=false"]
        if registry.login[0]:
            words += ["--creds", ":".join(registry.login)]
        self._podman("push", "--quiet", *words, name, f"{registry.name}/{path}")
        return f"{registry.name}/{path}"

    def close(self) -> None:
        self._podman("unmount", "--all")
        shutil.rmtree(self._short, ignore_errors=True)


class Silent:
    """A registry that takes calls and never answers, so that a pull takes for ever."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.name = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.calls: list[socket.socket] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                self.calls.append(self._socket.accept()[0])

    def close(self) -> None:
        for call in [self._socket, *self.calls]:
            call.close()


def call_insecure(home: str, *names: str, mirror: str = "") -> None:
    """Tell podman that these registries speak plain HTTP, and which stands in for docker.io."""
    folder = Path(home, ".config", "containers")
    folder.mkdir(parents=True, exist_ok=True)
    texts = [f'[[registry]]\nlocation = "{name}"\ninsecure = true\n' for name in names]
    if mirror:
        texts.append(f'[[registry]]\nprefix = "docker.io"\nlocation = "{mirror}"\ninsecure = true\n')
    (folder / "registries.conf").write_text("".join(texts))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


class Images:
    """All of it together."""

    def __init__(self, folder: Path) -> None:
        self.account = need_podman()
        self.home = self.account.pw_dir
        self.shelf = Shelf(folder / "shelf")
        self.open = Registry(folder / "open")
        self.closed = Registry(folder / "closed", "ana", "s3cret")
        self.silent = Silent()
        self.shelf.make("plain")
        self.plain = self.shelf.push("plain", self.open, "team/plain:1")
        self.private = self.shelf.push("plain", self.closed, "team/private:1")
        self.shelf.push("plain", self.open, "myrepo/train:latest")
        call_insecure(self.home, self.open.name, self.closed.name, self.silent.name, mirror=self.open.name)

    @property
    def login(self) -> Path:
        """The file in which podman keeps the user's credentials."""
        return Path(self.home, ".config", "containers", "auth.json")

    def processes(self) -> list[str]:
        """What runs as the user."""
        words = ["ps", "-u", USER, "-o", "pid=,args="]
        listed = subprocess.run(words, capture_output=True, text=True, check=False).stdout
        return [line.strip()[:120] for line in listed.splitlines() if "<defunct>" not in line]

    def close(self) -> None:
        self.open.stop()
        self.closed.stop()
        self.silent.close()
        self.shelf.close()
        shutil.rmtree(Path(self.home, ".config"), ignore_errors=True)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images]:
    """Registries, images and their user. One file of tests at a time has them: podman's settings are the user's."""
    with Path(tempfile.gettempdir(), "gpuyard-images.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield from _images(tmp_path_factory)


def _images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images]:
    found = Images(tmp_path_factory.mktemp("images"))
    yield found
    found.close()
