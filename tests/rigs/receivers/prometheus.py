"""A private Prometheus for tests, from Debian's package: on loopback, in a folder of its own, ended with us."""

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from harness.patience import Patience, patient
from rigs.components import Missing, install

_START_S = 30


def need_programs() -> None:
    """Debian's package has both."""
    if not (shutil.which("prometheus") and shutil.which("promtool")):
        install("prometheus")


class Prometheus:
    """One Prometheus and its folder."""

    def __init__(self, folder: Path, config: str) -> None:
        need_programs()
        folder.mkdir(exist_ok=True)
        (folder / "run.yml").write_text(config, encoding="utf-8")
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        with (folder / "said").open("wb") as said:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={folder / 'run.yml'}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdout=said,
                stderr=said,
                stdin=subprocess.DEVNULL,
            )
        patience = Patience(_START_S)
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=patient(2)).close()
                return
            except OSError:
                if self._process.poll() is not None or not patience:
                    told = (folder / "said").read_text(errors="replace")[-500:]
                    self.kill()
                    raise Missing(f"prometheus did not start: {told}") from None
                time.sleep(0.1)

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()

    def get(self, what: str, **parameters: str) -> Any:
        """An answer of its API; an error as the words that it has for it."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=patient(30)) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from None

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """What an expression comes to now: labels and value of each series."""
        found = self.get("query", query=expression)["result"]
        return [(each["metric"], float(each["value"][1])) for each in found]
