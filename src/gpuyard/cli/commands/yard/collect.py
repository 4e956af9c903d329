"""`yard collect`: the eyes of a yard on another machine. It looks, hands in what it saw, and changes nothing."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gpuyard.cli.line.options import Option
from gpuyard.errors import BadInput, error_text

if TYPE_CHECKING:
    from gpuyard.api.client import Client
    from gpuyard.telemetry.collector import Collector
    from gpuyard.telemetry.exports.job_files import JobFiles

_UNIT = """\
# Written by `yard collect --unit`. The token is made by an admin of the yard, and is good for this node alone:
#   yard token create --role collector --user {node} --to {token}
[Unit]
Description=gpuyard's collector: what this node's GPUs and jobs do
After=network-online.target nvidia-persistenced.service
Wants=network-online.target

[Service]
ExecStart={command}
Restart=on-failure
RestartSec=10
# Bad options: trying again does not mend them.
RestartPreventExitStatus=2
# It only looks: it needs no place to write, and gives way to every job.
Nice=10
CPUQuota=20%
MemoryMax=256M
ProtectSystem=strict
ProtectHome=read-only
NoNewPrivileges=yes
{paths}
[Install]
WantedBy=multi-user.target
"""
_AWAY_S = 60.0
"""How long a collector that was refused waits before it asks again."""


def collect(
    server: Annotated[
        str, Option("--server", metavar="URL", help="The yard: https://HOST:PORT. Default: $YARD_URL.")
    ] = "",
    token_file: Annotated[
        Path | None,
        Option(
            "--token-file",
            metavar="FILE",
            help="A file with the collector's token (yard token create --role collector --user NODE). "
            "Default: $YARD_TOKEN.",
        ),
    ] = None,
    ca: Annotated[str, Option("--ca", metavar="FILE", help="The certificate that signed the server's.")] = "",
    node: Annotated[
        str,
        Option(
            "--node",
            metavar="NODE",
            help="The node's name in the yard. Default: this machine's short name.",
        ),
    ] = "",
    slurm: Annotated[
        Path | None,
        Option(
            "--slurm",
            metavar="DIR",
            help="The shared folder of a yard that drives this Slurm cluster; the collector finds the "
            "yard's jobs there.",
        ),
    ] = None,
    dcgm_jobs: Annotated[
        Path | None,
        Option(
            "--dcgm-jobs",
            metavar="DIR",
            help="Write which job is on which GPU into this folder, which is dcgm-exporter's "
            "--hpc-job-mapping-dir.",
        ),
    ] = None,
    every: Annotated[
        int, Option("--every", metavar="SECONDS", min=1, max=60, help="How often to measure.")
    ] = 10,
    once: Annotated[bool, Option("--once", help="Measure once, send the sample and exit.")] = False,
    unit: Annotated[bool, Option("--unit", help="Print a systemd unit with these options and exit.")] = False,
) -> None:
    """Watch this node and send samples of it to a yard elsewhere.

    A collector only measures: jobs do not depend on it. While it cannot reach the yard it keeps up to an hour of
    samples.
    """
    import socket

    name = node or socket.gethostname().partition(".")[0]
    if unit:
        print(_unit(server, token_file, ca, name, slurm, every, dcgm_jobs), end="")
        return
    token = _token(token_file)
    from gpuyard.api.client import Client

    with Client(server, token, ca=ca, timeout_s=20.0, patience_s=0.5) as yard:
        _Process(name, _collector(name, slurm), yard, every, dcgm_jobs).run(once)


def _token(file: Path | None) -> str:
    if file is None:
        return ""
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        raise BadInput(
            f"{file}: {error.strerror}",
            "The file has the collector's token: one word that begins with yard_.",
        ) from None


def _collector(node: str, slurm: Path | None) -> "Collector":
    import time

    from gpuyard.telemetry.collector import Collector
    from gpuyard.telemetry.samples import LATE_MS
    from gpuyard.telemetry.sources import AttemptPlace
    from gpuyard.telemetry.sources.kernel import Kernel
    from gpuyard.telemetry.sources.kernel_log import KernelLog
    from gpuyard.telemetry.sources.nvml import NvmlSource

    places: Callable[[], Sequence[AttemptPlace]] = tuple
    if slurm is not None:
        from gpuyard.engines.node.files import ATTEMPTS, RUN
        from gpuyard.telemetry.sources.slurm_attempts import Supervised

        folder = slurm / ATTEMPTS
        if not folder.is_dir():
            raise BadInput(
                f"{slurm} is not a shared folder of a yard that drives Slurm",
                "It is `shared_folder` of the cluster in yard.yaml, and has to be mounted on this node.",
            )
        places = Supervised(str(folder), RUN, lambda: [look.uuid for look in made.looks]).places
    log = KernelLog(since_ms=time.time_ns() // 1_000_000 - LATE_MS)
    made = Collector(node, NvmlSource(), places, Kernel(), log=log)
    return made


class _Process:
    """Look, hand in, rest; again until somebody ends it."""

    def __init__(
        self,
        node: str,
        collector: "Collector",
        yard: "Client",
        every_s: int,
        dcgm_jobs: Path | None = None,
    ) -> None:
        from gpuyard.telemetry.batches import Buffer
        from gpuyard.telemetry.exports.job_files import JobFiles

        self._node = node
        self._collector = collector
        self._yard = yard
        self._every_s = every_s
        self._buffer = Buffer()
        self._files = JobFiles(str(dcgm_jobs)) if dcgm_jobs is not None else None
        self._trouble = self._unwritten = ""

    def run(self, once: bool) -> None:
        import signal
        import threading
        import time

        closing = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: closing.set())
        again_s = 0.0
        while True:
            began_s = time.monotonic()
            self._look()
            if began_s >= again_s:
                again_s = began_s + self._hand_in(once)
            if once or closing.wait(max(0.1, self._every_s - (time.monotonic() - began_s))):
                break
        self._collector.close()
        if self._files is not None and not once:
            self._files.close()

    def _look(self) -> None:
        import time

        from gpuyard.telemetry.samples import check_sample

        now_ms = time.time_ns() // 1_000_000
        self._buffer.add(check_sample(self._node, now_ms, self._collector.take(now_ms), now_ms))
        self._buffer.note(self._collector.lines())
        if self._files is not None:
            self._write_jobs(self._files)

    def _write_jobs(self, files: "JobFiles") -> None:
        """Say once what keeps the files from being written: looking goes on."""
        from gpuyard.cli.terminal.streams import print_notice

        # The number of the job is the last but one part of an attempt's key.
        jobs = {
            gpu: [int(key.split("-")[-2]) for key in keys if key.count("-") >= 2]
            for gpu, keys in self._collector.on_gpus.items()
        }
        try:
            files.write(jobs)
            self._unwritten = ""
        except OSError as error:
            if error_text(error) != self._unwritten:
                print_notice(f"jobs are not written for dcgm-exporter: {error.filename}: {error.strerror}")
            self._unwritten = error_text(error)

    def _hand_in(self, once: bool) -> float:
        """Hand in all that waits; how long to leave the yard alone."""
        import time

        from gpuyard.api.client import NoServer, Refused

        off_ms = 0
        try:
            while len(self._buffer):
                now_ms, steady_ms = time.time_ns() // 1_000_000, time.monotonic_ns() // 1_000_000
                batch = self._buffer.batch(now_ms, steady_ms, self._collector.looks)
                off_ms = self._yard.hand_in(self._node, batch)["clock_off_ms"]
                self._buffer.taken()
        except (NoServer, Refused) as error:
            if once:
                raise
            self._tell(f"{error.message}; samples wait here, for up to an hour")
            if isinstance(error, Refused) and error.status in (400, 413, 422):
                # Not as the yard wants it, and no better the next time.
                self._buffer.taken()
            return _AWAY_S if isinstance(error, Refused) else 0.0
        if abs(off_ms) >= 1000:
            side = "behind" if off_ms > 0 else "ahead of"
            self._tell(f"the clock of this machine is {abs(off_ms) // 1000} s {side} the yard's")
        else:
            self._tell("")
        return 0.0

    def _tell(self, trouble: str) -> None:
        """Say once what is wrong, and once that it no longer is."""
        from gpuyard.cli.terminal.streams import print_notice

        if trouble != self._trouble:
            print_notice(trouble or "all is well again")
            self._trouble = trouble


def _unit(
    server: str,
    token_file: Path | None,
    ca: str,
    node: str,
    slurm: Path | None,
    every: int,
    dcgm_jobs: Path | None,
) -> str:
    from gpuyard.cli.commands.yard.service import find_program, quote_for_systemd

    if not server or token_file is None:
        raise BadInput(
            "a unit needs --server and --token-file",
            "yard collect --unit --server https://HOST:PORT --token-file /etc/gpuyard/collector.token",
        )
    words = ["--server", server, "--token-file", os.path.abspath(token_file), "--node", node]
    words += ["--ca", os.path.abspath(ca)] if ca else []
    words += ["--slurm", os.path.abspath(slurm)] if slurm else []
    words += ["--dcgm-jobs", os.path.abspath(dcgm_jobs)] if dcgm_jobs else []
    words += ["--every", str(every)] if every != 10 else []
    paths = f"ReadWritePaths={quote_for_systemd(os.path.abspath(dcgm_jobs))}\n" if dcgm_jobs else ""
    command = " ".join([quote_for_systemd(str(word)) for word in [*find_program(), "collect", *words]])
    return _UNIT.format(node=node, token=token_file, command=command, paths=paths)
