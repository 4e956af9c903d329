"""A private Slurm cluster for tests and benchmarks, from Debian's packages: real daemons, fake GPUs, one machine.

munged, MariaDB, slurmdbd, slurmctld, slurmrestd and any number of slurmd listen on loopback, on ports that were free,
and keep everything in one temporary folder. All of them stay in the foreground as our children, so that each is ended
by the pid we started it with, and goes by itself when we are killed. Needs root: Slurm's daemons run jobs as others.

    with SlurmCluster(nodes=2, gpus=8) as slurm:
        number = slurm.submit("#!/bin/sh\nnvidia-smi\n", "--gres=gpu:2")
        print(slurm.command("squeue", "--json"))
"""

import atexit
import os
import pwd
import secrets
import shutil
import signal
import socket
import stat
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

import pytest

from gpuyard.engines.node.containers import podman
from harness.patience import Patience, patient
from rigs.components import Missing, skip_or_fail
from rigs.slurm import config as slurm_config
from rigs.slurm.config import Layout
from rigs.slurm.packages import need_programs

REST = "openapi/v0.0.38"
_START_S = 60.0
_END_S = 20.0

_LOG_SIZE = "--innodb-log-file-size=8M"
_PREPARED: list[Path] = []
"""A database with the tables of slurmdbd. Each cluster of this process begins with it: making one takes ten seconds."""

_PLAINLY = 'mount -t tmpfs none /sys/fs/cgroup/unified && exec "$@"'


class SlurmCluster:
    """One cluster and its folder. `stop` ends what was started here and nothing else."""

    def __init__(
        self,
        nodes: int = 2,
        gpus: int = 8,
        *,
        accounting: bool = True,
        rest: bool = True,
        scheduler: str = "bf_interval=1,sched_interval=1,batch_sched_delay=1",
        extra: tuple[str, ...] = (),
        parent: Path | None = None,
    ) -> None:
        """`scheduler`: SchedulerParameters, quick ones for tests. `extra`: lines for slurm.conf. `parent`: where."""
        need_programs()
        self.folder = Path(tempfile.mkdtemp(prefix="yardslurm", dir=parent))
        ports = _free_ports(nodes + 4)
        self.layout = Layout(
            self.folder,
            socket.gethostname().partition(".")[0],
            tuple(ports[4:]),
            *ports[:3],
            gpus=gpus,
            accounting=accounting,
            scheduler=scheduler,
            extra=extra,
        )
        self.rest_port = ports[3] if rest else 0
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        try:
            self._write_files()
            self._bring_up()
        except BaseException as error:
            # What the daemons said goes with the folder, so it is read first.
            said = self._complaints() if isinstance(error, Missing) else ""
            self.stop()
            if said:
                raise Missing(f"{error}\n{said}") from error
            raise

    # -- use -----------------------------------------------------------------------------------------------------

    @property
    def environment(self) -> dict[str, str]:
        """For commands of this cluster. A token in the environment would turn every command into its owner's."""
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH"))
        }
        return {**clean, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def command(self, *arguments: str, text: str = "", timeout_s: float = 60) -> str:
        """What a command of Slurm prints. A failure raises with what it complained about."""
        done = subprocess.run(
            arguments,
            input=text,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=patient(timeout_s),
            check=False,
            cwd=self.folder,
        )
        if done.returncode:
            raise RuntimeError(
                f"{' '.join(arguments)}: exit code {done.returncode}: {(done.stderr or done.stdout).strip()}"
            )
        return done.stdout

    def submit(self, script: str, *options: str) -> int:
        """Hand in a batch script; gives the job's number."""
        said = self.command("sbatch", "--parsable", "--output=/dev/null", *options, text=script)
        return int(said.strip().partition(";")[0])

    def token(self, user: str = "root", lifespan_s: int = 3600) -> str:
        """A JSON web token for slurmrestd, sent as X-SLURM-USER-TOKEN beside X-SLURM-USER-NAME."""
        said = self.command("scontrol", "token", f"username={user}", f"lifespan={lifespan_s}")
        return said.strip().partition("=")[2]

    @property
    def names(self) -> tuple[str, ...]:
        """Every daemon that was started, by the name that `pid`, `end` and `start` take."""
        return tuple(self._processes)

    def pid(self, name: str) -> int:
        """The pid of a daemon: munged, mariadbd, slurmdbd, slurmctld, slurmrestd or a node's name."""
        return self._processes[name].pid

    def end(self, name: str, number: int = signal.SIGTERM) -> None:
        """End one daemon and wait until it is gone; KILL if it does not listen."""
        process = self._processes[name]
        if process.poll() is None:
            process.send_signal(number)
        try:
            process.wait(timeout=patient(_END_S))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=patient(_END_S))

    def stop(self) -> None:
        """End the jobs and every daemon, in the reverse order of the start, and remove the folder."""
        nodes = [name for name in self._processes if name in self.layout.nodes]
        for name in nodes:
            if self._processes[name].poll() is None:
                self._processes[name].terminate()
        for name in reversed(self._processes):
            # What the others would write at their end goes with the folder; slurmctld may take 20 s for it.
            self.end(name, signal.SIGTERM if name in nodes else signal.SIGKILL)
        for pid in self._jobs_left():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- start ---------------------------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Start one daemon, for the first time or again, and wait until it answers."""
        folder, layout = self.folder, self.layout
        if name == "munged":
            files = {
                "key-file": "munge.key",
                "pid-file": "munged.pid",
                "log-file": "log",
                "seed-file": "seed",
            }
            options = [f"--{option}={folder / 'munge' / file}" for option, file in files.items()]
            self._spawn(name, ["munged", "--foreground", f"--socket={layout.munge_socket}", *options])
            self._wait(name, lambda: _answers(layout.munge_socket))
        elif name == "mariadbd":
            self._spawn(name, self._database_command(), user="mysql")
            # It listens on the port first and on the socket, which its own client uses, a moment later.
            self._wait(name, lambda: _answers(layout.db_port) and _answers(folder / "db" / "db.sock"))
        elif name == "slurmdbd":
            self._spawn(name, ["slurmdbd", "-D"])
            self._wait(name, lambda: _answers(layout.dbd_port))
        elif name == "slurmctld":
            self._spawn(name, ["slurmctld", "-D"])
            self._wait(name, lambda: _answers(layout.ctld_port))
        elif name == "slurmrestd":
            # It refuses to run as root and as Slurm's own user.
            command = ["slurmrestd", "-a", "rest_auth/jwt", "-s", REST, f"127.0.0.1:{self.rest_port}"]
            self._spawn(name, command, user="nobody", SLURM_JWT="daemon")
            self._wait(name, lambda: _answers(self.rest_port))
        else:
            # On a machine with both versions of cgroups only root could start containers: its nodes have the first.
            plainly = ["unshare", "--mount", "sh", "-c", _PLAINLY, "slurmd"] if podman.hybrid() else []
            self._spawn(name, [*plainly, "slurmd", "-D", "-N", name])

    def settle(self) -> None:
        """Wait until every node takes work."""

        def ready() -> bool:
            with suppress(RuntimeError):
                return self.command("sinfo", "-h", "-o", "%D %t").split() == [str(len(nodes)), "idle"]
            return False

        nodes = self.layout.nodes
        self._wait(nodes[0], ready)

    def _bring_up(self) -> None:
        self.start("munged")
        if self.layout.accounting:
            if not _PREPARED:
                self._prepare_database()
            _checked(["cp", "-a", f"{_PREPARED[0]}/.", str(self.folder / "db")])
            self.start("mariadbd")
            self.start("slurmdbd")
        self.start("slurmctld")
        for name in self.layout.nodes:
            self.start(name)
        if self.rest_port:
            self.start("slurmrestd")
        self.settle()

    def _write_files(self) -> None:
        folder = self.folder
        # Other users pass through: the database, slurmrestd and the jobs of others run as somebody else.
        folder.chmod(0o755)
        for name in ("run", "log", "state", "spool", "dev", "munge", "db"):
            (folder / name).mkdir()
        (folder / "munge").chmod(0o700)
        shutil.chown(folder / "db", "mysql", "mysql")
        try:
            for number in range(self.layout.gpus):
                device = folder / "dev" / f"nvidia{number}"
                os.mknod(device, stat.S_IFCHR | 0o666, os.stat("/dev/null").st_rdev)
                device.chmod(0o666)
        except PermissionError as error:
            raise Missing("device files for fake GPUs cannot be made here (mknod)") from error
        private = {
            "munge/munge.key": secrets.token_bytes(1024),
            "jwt.key": secrets.token_bytes(32),
            "slurmdbd.conf": slurm_config.slurmdbd_conf(self.layout).encode(),
        }
        for name, content in private.items():
            fd = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(content)
        (folder / "slurm.conf").write_text(slurm_config.slurm_conf(self.layout))
        (folder / "gres.conf").write_text(slurm_config.gres_conf(self.layout))
        (folder / "oci.conf").write_text(slurm_config.oci_conf())
        v2 = Path("/sys/fs/cgroup/cgroup.controllers").exists()
        (folder / "cgroup.conf").write_text(slurm_config.cgroup_conf(v2))

    def _prepare_database(self) -> None:
        """Make the database that each cluster of this process copies, with a first life of its daemons here."""
        db = self.folder / "db"
        how = ["--no-defaults", "--user=mysql", f"--datadir={db}", "--skip-test-db", _LOG_SIZE]
        _checked(["mariadb-install-db", *how, "--auth-root-authentication-method=socket"])
        self.start("mariadbd")
        sql = ["mariadb", "--no-defaults", f"--socket={db / 'db.sock'}"]
        _checked(sql, text=slurm_config.database_sql())
        self.start("slurmdbd")
        # slurmctld does not start for a cluster that the accounting does not know.
        _checked(["sacctmgr", "-i", "add", "cluster", "yardrig"], env=self.environment)
        for name in ("slurmdbd", "mariadbd"):
            self.end(name)
        kept = Path(tempfile.mkdtemp(prefix="yardslurmdb", dir=self.folder.parent))
        atexit.register(shutil.rmtree, kept, ignore_errors=True)
        db.rename(kept / "db")
        db.mkdir()
        _PREPARED.append(kept / "db")

    def _database_command(self) -> list[str]:
        db = self.folder / "db"
        return [
            "mariadbd",
            "--no-defaults",
            f"--datadir={db}",
            f"--socket={db / 'db.sock'}",
            f"--pid-file={db / 'db.pid'}",
            f"--log-error={db / 'err.log'}",
            "--bind-address=127.0.0.1",
            f"--port={self.layout.db_port}",
            "--innodb-buffer-pool-size=256M",
            _LOG_SIZE,
            "--innodb-lock-wait-timeout=900",
            # Accounting need not survive a loss of power here.
            "--innodb-flush-log-at-trx-commit=0",
        ]

    def _spawn(self, name: str, command: list[str], user: str = "", **variables: str) -> None:
        # The kernel ends the daemon if we are killed before we can.
        wrapper = ["setpriv", "--pdeathsig", "TERM"]
        if user:
            wrapper += [f"--reuid={user}", f"--regid={_group_of(user)}", "--clear-groups"]
        with (self.folder / "log" / f"{name}.out").open("ab") as out:
            self._processes[name] = subprocess.Popen(
                [*wrapper, *command],
                env={**self.environment, **variables},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd="/",
                start_new_session=True,
            )

    def _wait(self, name: str, ready: Callable[[], bool]) -> None:
        patience = Patience(_START_S)
        while not ready():
            if self._processes[name].poll() is not None:
                raise Missing(f"{name} ended with exit code {self._processes[name].returncode}")
            if not patience:
                raise Missing(f"{name} was not ready within {_START_S:.0f} s")
            time.sleep(0.02)

    def _complaints(self) -> str:
        """The last words of every log that has any."""
        logs = [
            *(self.folder / "log").glob("*"),
            self.folder / "munge" / "log",
            self.folder / "db" / "err.log",
        ]
        found = [(path, path.read_text(errors="replace")[-600:].strip()) for path in logs if path.is_file()]
        return "\n".join(f"{path.name}: {tail}" for path, tail in found if tail)

    def _jobs_left(self) -> list[int]:
        """Processes of jobs: slurmstepd outlives its slurmd on purpose, each in a session of its own with its job.

        It hides its environment and has no parent, but listens on a socket in our folder, and the kernel knows who.
        """
        sessions = set()
        for path in (self.folder / "spool").glob("*/n*_*.*"):
            with suppress(OSError), socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
                peer = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
                sessions.add(os.getsid(struct.unpack("3i", peer)[0]))
        return [
            pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if _session(pid) in sessions
        ]


def _checked(command: list[str], text: str = "", env: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, input=text, env=env, capture_output=True, text=True, check=False, cwd="/")
    if done.returncode:
        raise Missing(f"{command[0]} failed: {(done.stderr or done.stdout).strip()[-500:]}")


def _free_ports(number: int) -> list[int]:
    """Ports that nobody had a moment ago, below those that the kernel gives to whoever asks for any: a daemon binds its
    own seconds later, and on one that a yard or a client of another test has by then it never answers.
    """
    found: list[int] = []
    with ExitStack() as held:
        while len(found) < number:
            port = 20_000 + secrets.randbelow(12_000)
            each = held.enter_context(socket.socket())
            with suppress(OSError):
                each.bind(("127.0.0.1", port))
                found.append(port)
    return found


def _answers(place: int | Path) -> bool:
    """Whether somebody listens on this port, or on this socket."""
    is_path = isinstance(place, Path)
    with suppress(OSError), socket.socket(socket.AF_UNIX if is_path else socket.AF_INET) as client:
        client.settimeout(1)
        client.connect(str(place) if is_path else ("127.0.0.1", place))
        return True
    return False


def _session(pid: int) -> int:
    with suppress(ProcessLookupError):
        return os.getsid(pid)
    return -1


def _group_of(user: str) -> int:
    return pwd.getpwnam(user).pw_gid


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[SlurmCluster]:
    """The cluster of this test process: 2 nodes of 8 GPUs."""
    yield from _shared(2)


@pytest.fixture(scope="session")
def slurm_of_eight() -> Iterator[SlurmCluster]:
    """A larger one: 8 nodes of 8 GPUs."""
    yield from _shared(8)


def _shared(nodes: int) -> Iterator[SlurmCluster]:
    try:
        cluster = SlurmCluster(nodes)
    except Missing as refusal:
        skip_or_fail(str(refusal))
        raise
    with cluster:
        yield cluster
