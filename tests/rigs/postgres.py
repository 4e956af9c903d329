"""A private PostgreSQL server for tests, from Debian's package: started by the first test that needs it, ended with us.

It listens on a Unix socket in a folder of its own and on no port. Every test gets a schema of its own, which is
as good as a database and made in no time. PostgreSQL refuses to run as root, so root runs it as the package's user.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest

from harness.patience import Patience, patient
from rigs.components import Missing, install, skip_or_fail

_START_S = 30
_names = count(1)


class PostgresServer:
    """One server and its folder. `stop` ends what was started here and nothing else."""

    def __init__(self, fsync: bool = False) -> None:
        """`fsync`: as in real life, for measurements. Tests kill clients, not the machine, and save the time."""
        self._fsync = fsync
        self._bin = _binaries()
        self._as_user = _other_user()
        self.folder = Path(tempfile.mkdtemp(prefix="yardpg"))
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        if self._as_user:
            shutil.chown(self.folder, "postgres", "postgres")
        data = self.folder / "data"
        how = ["-U", "yard", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"]
        made = subprocess.run(
            [*self._as_user, str(self._bin / "initdb"), "-D", str(data), *how],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
        )
        if made.returncode:
            raise Missing(f"initdb failed: {made.stderr.strip() or made.stdout.strip()}")
        log = (self.folder / "log").open("wb")
        options = [
            f"fsync={'on' if self._fsync else 'off'}",
            f"unix_socket_directories={self.folder}",
            "listen_addresses=",
            "max_connections=60",
        ]
        # The server goes with us even if we are killed: the kernel sends it the signal for a quick end.
        command = [str(self._bin / "postgres"), "-D", str(data)]
        for option in options:
            command += ["-c", option]
        if self._as_user:
            command = [*self._as_user, "--pdeathsig", "INT", *command]
        self._process = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            cwd="/",
        )
        log.close()
        patience = Patience(_START_S)
        while True:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=2).close()
                return
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or not patience:
                    tail = (self.folder / "log").read_text(errors="replace")[-1000:]
                    raise Missing(f"the server did not start: {error}\n{tail}") from error
                time.sleep(0.05)

    def url(self, database: str = "postgres", **settings: str) -> str:
        """Where to connect, with settings of the server for every session."""
        options = "%20".join([f"-c{name}%3D{value}" for name, value in settings.items()])
        return f"postgresql://yard@/{database}?host={self.folder}" + (
            f"&options={options}" if options else ""
        )

    def fresh(self, **settings: str) -> str:
        """A URL of an empty schema."""
        name = f"t{os.getpid()}_{next(_names)}"
        self.execute(f"CREATE SCHEMA {name}")
        return self.url(search_path=name, **settings)

    def execute(self, statement: str, url: str = "") -> None:
        """One statement, by the server's owner, outside any transaction."""
        with psycopg.connect(url or self.url(), autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[call-overload]

    def stop(self) -> None:
        """Ends the server at once: nobody needs its data any more."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(3)  # SIGQUIT: at once, without tidying up.
            self._process.wait(timeout=patient(30))
        shutil.rmtree(self.folder, ignore_errors=True)


def _binaries() -> Path:
    found = _installed()
    if found is None:
        install("postgresql")
        found = _installed()
    if found is None:
        raise Missing("PostgreSQL is not under /usr/lib/postgresql; install Debian's package postgresql")
    return found


def _installed() -> Path | None:
    versions = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if (path / "initdb").exists()]
    return max(versions, key=lambda path: int(path.parent.name), default=None)


def _other_user() -> list[str]:
    """How to run a command as somebody else than root; nothing if we are not root."""
    if os.geteuid() != 0:
        return []
    try:
        pwd.getpwnam("postgres")
    except KeyError:
        raise Missing("PostgreSQL refuses to run as root, and there is no user postgres") from None
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The server of this test process."""
    try:
        server = PostgresServer()
    except Missing as refusal:
        skip_or_fail(str(refusal))
        raise
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """An empty place on the server, for one test."""
    url = postgres_server.fresh()
    yield url
    schema = url.rpartition("search_path%3D")[2]
    postgres_server.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
