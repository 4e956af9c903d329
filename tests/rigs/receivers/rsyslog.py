"""A private rsyslog for tests, from Debian's package: on loopback, with a configuration of its own, ended with us."""

import json
import os
import socket
import subprocess
import time
from pathlib import Path

from harness.patience import Patience, patient
from rigs.components import Missing, install

_PROGRAM = "/usr/sbin/rsyslogd"
_START_S = 10

_CONFIG = """
global(workDirectory="{folder}" net.enableDNS="off")
module(load="imtcp")
module(load="imudp")
module(load="imuxsock" SysSock.Use="off")
input(type="imtcp" address="127.0.0.1" port="{tcp}")
input(type="imudp" address="127.0.0.1" port="{udp}")
input(type="imuxsock" socket="{path}" useSpecialParser="off" parseHostname="on" rateLimit.interval="0")
template(name="all" type="string" string="%inputname% %pri% %app-name% %procid% %msgid% %msg%\\n")
action(type="omfile" file="{folder}/all" template="all")
"""


class Rsyslog:
    """One rsyslog and its folder."""

    def __init__(self, folder: Path) -> None:
        _need_program()
        folder.mkdir()
        self._folder = folder
        self.tcp, self.udp = _free_port(socket.SOCK_STREAM), _free_port(socket.SOCK_DGRAM)
        # A path of a socket has 107 characters at most, and pytest's folders are deep.
        self.path = f"/tmp/yard-rsyslog-{os.getpid()}.sock"
        config = _CONFIG.format(folder=folder, tcp=self.tcp, udp=self.udp, path=self.path)
        (folder / "conf").write_text(config, encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Listen."""
        command = [_PROGRAM, "-n", "-f", str(self._folder / "conf"), "-i", str(self._folder / "pid")]
        with (self._folder / "said").open("ab") as said:
            self._process = subprocess.Popen(command, stdout=said, stderr=said, stdin=subprocess.DEVNULL)
        patience = Patience(_START_S)
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.tcp), timeout=patient(1)).close()
                return
            except OSError:
                told = (self._folder / "said").read_text(errors="replace")
                if self._process.poll() is not None or not patience:
                    raise Missing(f"rsyslogd did not start: {told[-500:]}") from None
                time.sleep(0.05)

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def lines(self, by: str) -> list[dict[str, str]]:
        """What came by `imtcp`, `imudp` or `imuxsock`, every message in the form that is promised."""
        try:
            content = (self._folder / "all").read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        found = []
        # The last line may be half written.
        for row in content.rpartition("\n")[0].splitlines():
            name, pri, app, process, message_id, message = row.split(" ", 5)
            if app != "gpuyard":
                # What rsyslog says of itself.
                continue
            fields = json.loads(message)
            assert ("134", fields["job"], fields["stream"]) == (pri, process, message_id), row
            if name == by:
                found.append(fields)
        return found


def _free_port(kind: int) -> int:
    with socket.socket(socket.AF_INET, kind) as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _need_program() -> None:
    if not os.path.exists(_PROGRAM):
        install("rsyslog")
