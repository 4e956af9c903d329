"""A real identity provider on this machine: the certified `oidc-provider` of npm, fetched once, or a reason why not."""

import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from harness.patience import Patience, patient
from rigs.components import Missing, skip_or_fail
from rigs.kills import free_port

PACKAGE = "oidc-provider"
VERSION = "9.13.3"
_INSTALL_S = 240
_START_S = 30


def package() -> Path:
    """The folder of the package, installed if need be."""
    for program in ("node", "npm"):
        if not shutil.which(program):
            raise Missing(f"{program} is not installed; {PACKAGE} {VERSION} needs it")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "gpuyard-tests" / f"{PACKAGE}-{VERSION}"
    found = folder / "node_modules" / PACKAGE
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [
            "npm",
            "install",
            "--no-audit",
            "--no-fund",
            "--prefix",
            str(folder),
            f"{PACKAGE}@{VERSION}",
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
        except subprocess.TimeoutExpired:
            raise Missing(f"npm did not install {PACKAGE} within {_INSTALL_S} s") from None
        if done.returncode:
            raise Missing(f"npm could not install {PACKAGE}: {done.stderr.strip()[-300:]}")
        (folder / "done").touch()
    return found


@pytest.fixture(scope="session")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a provider that runs."""
    try:
        folder = package()
    except Missing as refusal:
        skip_or_fail(str(refusal))
        raise
    port = free_port()
    program = Path(__file__).parent / "provider.mjs"
    log = tmp_path_factory.mktemp("oidc") / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["node", str(program), str(folder), str(port)], stdout=out, stderr=out, stdin=subprocess.DEVNULL
        )
    try:
        address = f"http://127.0.0.1:{port}"
        patience = Patience(_START_S)
        while True:
            with suppress(OSError):
                urllib.request.urlopen(
                    f"{address}/.well-known/openid-configuration", timeout=patient(5)
                ).close()
                break
            assert process.poll() is None, log.read_text()
            assert patience, log.read_text()
            time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(120)
