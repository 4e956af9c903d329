"""The suite under the Python of the newest Debian: what a later Python changed is seen here, and not by people.

A base made here is the root of a namespace with processes of its own, and there a copy of this checkout is set up and
tested as a developer would.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from harness.patience import patient
from rigs.components import Missing, install, skip_or_fail

pytestmark = [pytest.mark.rig, pytest.mark.wide]

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "python3,python3-venv,make,git,procps,util-linux,ca-certificates,openssh-client,fuse3,iproute2,adduser"
)
LONG_S = 3600
OURS = ("/etc/resolv.conf", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
"""How this machine reaches an index of packages."""
KEPT = (
    "PIP_CERT",
    "PIP_INDEX_URL",
    "SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)
ENTER = """
set -e
mount --rbind "$1" "$1"
cd "$1"
mount --rbind /dev dev
mount --rbind /sys sys
mount -t tmpfs tmpfs tmp
mount -t proc proc proc
mkdir -p old
pivot_root . old
cd /
umount -l /old
cd /root/gpuyard
# Not by exec: the first process of the namespace buries what outlives its parent, as the tests expect it.
bash -c "$2"
exit $?
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The newest Debian with what a developer needs, and this checkout in it."""
    if os.geteuid() != 0:
        skip_or_fail("only root on Debian can make a base with debootstrap")
    try:
        if shutil.which("debootstrap") is None:
            install("debootstrap")
    except Missing as refusal:
        skip_or_fail(str(refusal))
    made = tmp_path_factory.mktemp("newer") / "base"
    words = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "trixie", str(made)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=patient(LONG_S), check=False)
    assert 0 == done.returncode, done.stdout[-1000:]
    for name in OURS:
        if Path(name).exists():
            shutil.copy(name, made / name[1:])
    checkout = made / "root" / "gpuyard"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, checkout / name)
    return made


def inside(base: Path, command: str) -> "subprocess.CompletedProcess[str]":
    """What a command in the checkout comes to there, as root."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--propagation", "private", "bash", "-c", ENTER, "enter", base,
         command],
        env={"HOME": "/root", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", **kept},
        capture_output=True, text=True, timeout=patient(LONG_S), check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.mark.timeout(0)
def test_all_that_needs_no_server_holds_under_a_newer_python(base: Path) -> None:
    made = inside(base, "git init -q . && git add -A && make setup && .venv/bin/python -V")
    assert 0 == made.returncode, made.stdout[-2000:] + made.stderr[-2000:]
    assert "Python 3.13" in made.stdout
    suite = ".venv/bin/pytest -n 2 --dist loadfile -q -m 'not soak and not rig' --ignore tests/hardware"
    done = inside(base, suite)
    assert 0 == done.returncode, done.stdout[-6000:]
