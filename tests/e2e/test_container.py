"""The server in an image: `Containerfile` on a base made here, run as an ordinary user, and its first job."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.conftest import Done, until
from harness.patience import patient
from rigs.components import Missing, install, skip_or_fail

pytestmark = [pytest.mark.rig, pytest.mark.wide]

ROOT = Path(__file__).resolve().parents[2]
LONG_S = 900
BASE = "debootstrap --variant=minbase --include=python3,python3-venv bookworm"
ORPHANS = "grep -l '^Name:.sleep' /proc/[0-9]*/status 2>/dev/null | wc -l"
"""Those that sleep, and what is left of those that did, where nobody has buried them."""
SHOW = 'import os; print(os.environ["CUDA_VISIBLE_DEVICES"])'

HOW = ("--network", "host", "--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096")
"""Of limits, podman asks for more than the root of a small machine may have; and the network is the machine's."""


class Podman:
    """podman with a store of its own, apart from everything else on the machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Sockets lie in it: their paths are short.
        self._run = Path(tempfile.mkdtemp(prefix="yardc", dir="/run"))

    def __call__(self, *words: object, stdin: int | None = None) -> Done:
        own = ["--root", str(self.folder / "root"), "--runroot", str(self._run / "r")]
        own += ["--tmpdir", str(self._run / "t"), "--cgroup-manager", "cgroupfs", "--runtime", "runc"]
        own += ["--log-level", "error"]
        done = subprocess.run(
            ["podman", *own, *map(str, words)],
            capture_output=True, text=True, timeout=patient(LONG_S), check=False, stdin=stdin,
            env={**os.environ, "HOME": str(self.folder), "XDG_RUNTIME_DIR": str(self._run)},
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)

    def must(self, *words: object, stdin: int | None = None) -> str:
        done = self(*words, stdin=stdin)
        assert 0 == done.code, done.err[-3000:]
        return done.out.strip()

    def close(self) -> None:
        self("rm", "--force", "--all")
        self("volume", "rm", "--force", "--all")
        self("unmount", "--all")
        shutil.rmtree(self._run, ignore_errors=True)


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    if os.geteuid() != 0:
        skip_or_fail("only root on Debian can make a base with debootstrap")
    try:
        if not all(map(shutil.which, ("podman", "runc", "debootstrap"))):
            install("podman", "runc", "debootstrap")
    except Missing as refusal:
        skip_or_fail(str(refusal))
    made = Podman(tmp_path_factory.mktemp("container"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def image(podman: Podman) -> str:
    """The image, built as the page says: of the wheel, and of what it needs from the index."""
    base = podman.folder / "base"
    done = subprocess.run(
        [*BASE.split(), str(base)], capture_output=True, text=True, timeout=patient(LONG_S), check=False
    )
    assert 0 == done.returncode, done.stdout[-1000:]
    with subprocess.Popen(["tar", "-C", str(base), "-c", "."], stdout=subprocess.PIPE) as packing:
        assert packing.stdout is not None
        podman.must("import", "--quiet", "-", "yard-base", stdin=packing.stdout.fileno())
    shutil.rmtree(base)

    context = podman.folder / "context"
    wheels = context / "dist"
    subprocess.run(
        [ROOT / "scripts" / "dist", wheels], check=True, capture_output=True, timeout=patient(LONG_S)
    )
    # What it needs is fetched here: how a build reaches an index is not what this is about.
    (wheel,) = wheels.glob("gpuyard-*.whl")
    (python,) = podman.must(
        "run", *HOW, "yard-base", "python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"
    ).split()
    fetched = subprocess.run(
        [ROOT / "build/dist/bin/python", "-m", "pip", "download", "-qq", "--only-binary", ":all:",
         "--python-version", python, "--dest", wheels, f"{wheel}[auth,postgresql,ui]"],
        capture_output=True, text=True, timeout=patient(LONG_S), check=False,
    )  # fmt: skip
    assert 0 == fetched.returncode, fetched.stderr
    arguments = ["--build-arg", "BASE=localhost/yard-base", "--build-arg", "PIP_NO_INDEX=1"]
    podman.must("build", "--format", "docker", "--isolation", "chroot", *arguments, "--tag", "yard-image",
                "--file", ROOT / "Containerfile", context)  # fmt: skip
    return "yard-image"


def test_the_image_is_not_root_s_and_keeps_its_data_in_a_volume(podman: Podman, image: str) -> None:
    told = podman.must(
        "inspect", "--type", "image", "--format", "{{.User}} {{.Config.Volumes}} {{.HealthCheck.Test}}", image
    )
    assert told.startswith("yard map[/var/lib/gpuyard:")
    assert "ready()" in told


def test_the_first_job_in_a_container(podman: Podman, image: str) -> None:
    server = ("up", "--host", "127.0.0.1", "--port", "0", "--auth")
    podman.must("run", "-d", "--name", "yard", *HOW, "-v", "yarddata:/var/lib/gpuyard", image, *server)
    until(lambda: "the yard is up" in podman("logs", "yard").err + podman("logs", "yard").out, 120)
    assert 0 == podman("healthcheck", "run", "yard").code
    assert "7447" == podman.must("exec", "yard", "id", "-u")
    shown = podman.must("exec", "yard", "yard", "run", "-g", "1", "--", "python3", "-c", SHOW)
    assert shown.startswith("GPU-emulated-")
    podman.must("exec", "yard", "yard", "run", "--", "true")
    podman.must("exec", "yard", "sh", "-c", "sleep 1 & sleep 1 & exit")
    until(lambda: "0" == podman.must("exec", "yard", "sh", "-c", ORPHANS), 60)

    podman.must("stop", "--time", "60", "yard")
    assert "0" == podman.must("inspect", "--format", "{{.State.ExitCode}}", "yard"), "it was killed"
    podman.must("start", "yard")
    until(lambda: 0 == podman("exec", "yard", "yard", "history").code, 120)
    assert 2 == podman.must("exec", "yard", "yard", "history", "-o", "csv").count("COMPLETED")
