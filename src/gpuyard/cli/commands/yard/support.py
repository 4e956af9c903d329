"""`yard support`: a bundle for a report of a fault, with what is seen of the yard and without secrets."""

import json
import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from gpuyard.cli.commands.yard.redaction import Redactor, is_secret_name
from gpuyard.cli.connection.places import DataOption
from gpuyard.cli.line.options import Argument
from gpuyard.cli.terminal.streams import result
from gpuyard.errors import BadInput, YardError, names_text

if TYPE_CHECKING:
    from gpuyard.api.client import Client
    from gpuyard.control.places import DataDir, Instance

ANSWER_S = 15.0
"""How long the server has for each answer: it may be the one that is at fault."""
PATIENCE_S = 2.0
LOG_BYTES = 2 * 1024 * 1024
"""Of the end of each log."""
JOURNAL_LINES = 20_000
_NEVER = "names, commands, scripts, environments and output of jobs, tokens, passwords"


class Part(NamedTuple):
    """One file of a bundle."""

    name: str
    holds: str
    """For people."""
    text: str = ""
    missing: str = ""
    """Why it is not there."""


def support(
    file: Annotated[
        Path | None,
        Argument(
            metavar="[FILE]",
            help="The file to write. Default: gpuyard-support-TIME.tar.gz in this folder.",
        ),
    ] = None,
    data: DataOption = None,
) -> None:
    """Write a bundle for a bug report: versions, `yard doctor`, configuration, log, metrics, nodes, queue.

    The command lists what the bundle holds. It collects no names, commands, scripts, environments or output of jobs,
    and removes tokens and passwords; names of users, tenants and nodes stay. If a server is down or does not answer,
    the bundle has the rest. Run the command on the yard's machine, as the user that runs the yard: other users collect
    only what they may see.
    """
    from gpuyard import __version__

    now = time.gmtime()
    name = f"gpuyard-support-{time.strftime('%Y%m%dT%H%M%SZ', now)}"
    target = file or Path(f"{name}.tar.gz")
    bundle = SupportBundle(data)
    parts = [*bundle.parts()]
    lines = _contents(parts, f"gpuyard {__version__}, {time.strftime('%Y-%m-%d %H:%M:%S UTC', now)}")
    contents = "".join([f"{begins}{text}\n" for begins, text in lines])
    _write(target, name, [Part("contents.txt", "this list", contents), *parts], int(time.time()))
    lines += [
        ("", ""),
        ("", f"written to {target.absolute()}, {target.stat().st_size:,} bytes, for you alone (mode 0600)"),
    ]
    for begins, text in lines:
        result(text, begins, " " * len(begins))


class SupportBundle:
    """What is collected, part by part: of the server, if it answers, and of its folder, if it is here."""

    def __init__(self, data: Path | None, answer_s: float = ANSWER_S) -> None:
        from gpuyard.api.client import Client
        from gpuyard.control.places import DataDir, default_data, likely_data

        self._client: Client | None = None
        self._gone = ""
        """Why the server is not asked any more."""
        try:
            self._client = Client(data=data, timeout_s=answer_s, patience_s=min(answer_s, PATIENCE_S))
        except YardError as error:
            self._gone = error.message
        self._folder: DataDir | None = None
        if data is not None or self._client is None or self._client.here:
            places = [data] if data is not None else [*likely_data()]
            self._folder = DataDir(next((each for each in places if each.exists()), data or default_data()))
        self._config, self._config_from = self._configuration()
        self._redactor = Redactor([*self._secrets()])

    def parts(self) -> Iterator[Part]:
        """All of it, without secrets."""
        clean = self._redactor.text
        for part in self._collected():
            yield part._replace(name=clean(part.name), text=clean(part.text), missing=clean(part.missing))
        if self._client is not None:
            self._client.close()

    def _collected(self) -> Iterator[Part]:
        yield Part(
            "versions.json", "releases of gpuyard, Python, the system and packages", _json(_versions())
        )
        yield self._asked("server.json", "the release of the server", lambda yard: yard.version())
        yield self._asked(
            "ready.json", "whether the server can do its work (/readyz)", lambda yard: yard.ready()[1]
        )
        yield self._asked("doctor.json", "what keeps jobs to what they asked for (`yard doctor`)", _doctor)
        yield self._config_part()
        yield self._asked("nodes.json", "the nodes (`yard nodes`)", lambda yard: yard.nodes())
        yield self._asked("queue.json", "how many jobs run and wait, and why; no job by name", _queue)
        yield self._asked("metrics.txt", "what Prometheus finds (/metrics)", _metrics)
        yield from self._of_folder()

    # -- of the server -------------------------------------------------------------------------------------------

    def _asked(self, name: str, holds: str, ask: "Callable[[Client], Any]") -> Part:
        """What the server answers, or why it does not: one that is gone is asked once."""
        if self._client is None or self._gone:
            return Part(name, holds, missing=self._gone)
        from gpuyard.api.client import NoServer

        try:
            found = ask(self._client)
        except NoServer as error:
            self._gone = error.message
            return Part(name, holds, missing=error.message)
        except YardError as error:
            return Part(name, holds, missing=error.message)
        return Part(name, holds, found if isinstance(found, str) else _json(self._redactor.document(found)))

    def _configuration(self) -> tuple[str, str]:
        """The text of yard.yaml, and where it is from; else nothing, and why."""
        from gpuyard.api.client import NoServer

        why = self._gone
        if self._client is not None:
            try:
                return self._client.config()["yaml"], "in force"
            except NoServer as error:
                self._gone = why = error.message
            except YardError as error:
                why = error.message
        if self._folder is not None:
            with suppress(YardError):
                if (found := self._folder.remembered()) is not None:
                    return found[0], "of the last start; the server is not asked"
            with suppress(OSError):
                return self._folder.config.read_text(encoding="utf-8", errors="replace"), "in the data folder"
        return "", why

    def _config_part(self) -> Part:
        if not self._config:
            return Part("config.yaml", "the configuration", missing=self._config_from or "there is none")
        import yaml

        from gpuyard.config.document import parse
        from gpuyard.keys.problems import ConfigError

        holds, where = f"the configuration {self._config_from}, without comments", ""
        try:
            parse(self._config, "yard.yaml")
            found = yaml.safe_load(self._config)
        except (ConfigError, yaml.YAMLError, ValueError) as error:
            if isinstance(error, ConfigError):
                where = f", line {error.problems[0].place.line}"
            # Its text is not written: in what cannot be read, no secret can be told from the rest.
            return Part("config.yaml", holds, missing=f"it is no YAML that a yard reads{where}")
        return Part(
            "config.yaml", holds, yaml.safe_dump(self._redactor.document(found), sort_keys=False, width=110)
        )

    # -- of the folder -------------------------------------------------------------------------------------------

    def _of_folder(self) -> Iterator[Part]:
        if self._folder is None:
            yield Part("log", "the server's log", missing="the yard is on another machine: run this there")
            return
        root = self._folder.root
        try:
            found = [_entry(each) for each in sorted(root.iterdir())]
        except OSError as error:
            why = f"{root}: {error.strerror}"
            yield Part("data.json", "the files of the data folder, by name and size", missing=why)
            yield Part("log", "the server's log", missing=why)
            return
        told = {
            "folder": str(root),
            "free_bytes": self._folder.free_bytes(),
            "files": found,
            "servers": [each.note() for each in self._folder.instances()],
        }
        told = self._redactor.document(told)
        yield Part("data.json", "the files of the data folder, by name and size", _json(told))
        yield from self._logs(self._folder)

    def _logs(self, folder: "DataDir") -> Iterator[Part]:
        paths = [path for path in sorted(folder.root.glob("yard*.log*")) if path.is_file()]
        for path in paths:
            try:
                text = _tail(path)
            except OSError as error:
                yield Part(f"log/{path.name}", "the server's log", missing=f"{path}: {error.strerror}")
            else:
                yield Part(
                    f"log/{path.name}", f"the server's log, its last {LOG_BYTES >> 20} MiB at most", text
                )
        if not paths:
            yield _journal(folder.instances())

    # -- secrets -------------------------------------------------------------------------------------------------

    def _secrets(self) -> Iterator[str]:
        """Every secret that can be read from here: of the yard, of its configuration's files, of this environment."""
        import re

        from gpuyard.api.connecting.finding import read_login
        from gpuyard.control.places import resolve_store

        # Not of the authorities: their lines say how keys begin, and keys are told by that.
        files = re.findall(r"(?m)\b(?!ca_)\w+_file[\"']?:\s*[\"']?([^\s\"',}#]+)", self._config)
        if self._folder is not None:
            files.append(str(self._folder.token_file))
        for name in files:
            with suppress(OSError, UnicodeDecodeError):
                yield from Path(name).read_text(encoding="utf-8").splitlines()
        with suppress(YardError):
            login = read_login()
            yield login.token if login is not None else ""
        with suppress(YardError, ValueError):
            yield from _of_url(resolve_store(""))
        for name, value in os.environ.items():
            # The shell's own `PWD` is a folder.
            if name != "PWD" and (is_secret_name(name) or name.lower().endswith("_key")):
                yield value


def _of_url(url: str) -> Iterator[str]:
    from urllib.parse import parse_qs, urlsplit

    parts = urlsplit(url)
    yield parts.password or ""
    yield from parse_qs(parts.query).get("password", ())


def _doctor(yard: "Client") -> Any:
    from gpuyard.reports.doctor import REPORT

    return yard.report(REPORT)


def _metrics(yard: "Client") -> str:
    """Without the lines that say what a job is called."""
    lines = yard.metrics().splitlines(keepends=True)
    return "".join([line for line in lines if not line.startswith("gpuyard_job_info{")])


def _queue(yard: "Client") -> Any:
    """How many jobs are where; which jobs those are is left out."""
    found = yard.queue()
    place = {name: number for number, name in enumerate(found["columns"])}

    def count(column: str, rows: list[list[Any]]) -> dict[str, int]:
        return dict(Counter(str(row[place[column]]) for row in rows).most_common(50))

    waiting = [row for row in found["rows"] if row[place["state"]] == "PENDING"]
    submitted = [row[place["submitted_ms"]] for row in waiting if row[place["submitted_ms"]]]
    return {
        "running": found["running"],
        "waiting": found["waiting"],
        "set_aside": found["set_aside"],
        "by_state": count("state", found["rows"]),
        "by_class": count("class", found["rows"]),
        "by_gpus": count("gpus", found["rows"]),
        "waiting_by_reason": count("reason", waiting),
        "longest_wait_s": (found["at_ms"] - min(submitted)) // 1000 if submitted else 0,
    }


def _versions() -> dict[str, Any]:
    import platform
    import sqlite3
    import sys
    from importlib import metadata

    from gpuyard import __version__, compiled

    known: dict[str, str] = {}
    with suppress(metadata.PackageNotFoundError):
        for line in metadata.requires("gpuyard") or ():
            name = line.split(";")[0].split("[")[0].rstrip("=<>~!., 0123456789")
            with suppress(metadata.PackageNotFoundError):
                known[name] = metadata.version(name)
    driver = Path("/proc/driver/nvidia/version")
    return {
        "gpuyard": __version__,
        "compiled_core": compiled(),
        "code": str(Path(__file__).parents[3]),
        "python": sys.version,
        "sqlite": sqlite3.sqlite_version,
        "system": _system(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "nvidia_driver": driver.read_text().splitlines()[0] if driver.exists() else None,
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "uid": os.geteuid(),
        "programs": [
            name for name in ("podman", "crun", "runc", "sbatch", "nvidia-smi") if shutil.which(name)
        ],
        "packages": dict(sorted(known.items())),
    }


def _system() -> str:
    import platform

    with suppress(OSError):
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    return platform.system()


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def _entry(path: Path) -> dict[str, Any]:
    found = path.lstat()
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(found.st_mtime))
    mode = oct(found.st_mode & 0o7777)
    return {"name": path.name, "bytes": found.st_size, "mode": mode, "uid": found.st_uid, "changed": at}


def _tail(path: Path) -> str:
    """The end of a log, from the start of a line on."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LOG_BYTES))
        found = file.read(LOG_BYTES)
    if size > LOG_BYTES:
        found = found.partition(b"\n")[2]
    return found.decode(errors="replace")


def _journal(servers: "list[Instance]") -> Part:
    """The log of a service, which systemd has."""
    name, holds = "log/journal.txt", "the server's log, as systemd has it"
    unit = "gpuyard.service"
    for each in servers:
        with suppress(OSError, YardError):
            group = Path(f"/proc/{each.running() or 0}/cgroup").read_text().split()[-1]
            unit = next((part for part in reversed(group.split("/")) if part.endswith(".service")), unit)
    words = ["journalctl", "--no-pager", "-o", "short-iso", "-n", str(JOURNAL_LINES), "-u", unit]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, errors="replace", timeout=ANSWER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return Part(name, holds, missing="there is no yard.log, and no journal that could be read")
    return Part(name, holds, done.stdout, "" if done.stdout else f"the journal has nothing of {unit}")


def _contents(parts: list[Part], head: str) -> list[tuple[str, str]]:
    """What it holds, line by line: how the line begins, and the rest, which may go on below."""
    there = [part for part in parts if not part.missing]
    width = max(len(part.name) for part in there)
    lines = [
        (f"{part.name:<{width}}  ", f"{part.holds}, {len(part.text.encode()):,} bytes") for part in there
    ]
    for why in dict.fromkeys(part.missing for part in parts if part.missing):
        lines.append(
            ("", f"without {names_text([part.name for part in parts if part.missing == why])}: {why}")
        )
    stays = "names of users, tenants and nodes stay in it: look through it before you hand it on"
    return [("", head), ("", ""), *lines, ("", ""), ("", f"not collected: {_NEVER}; {stays}")]


def _write(target: Path, name: str, parts: list[Part], now_s: int) -> None:
    """The bundle as one file that only its owner can read, from its first byte on."""
    import io
    import tarfile

    try:
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        raise BadInput(f"{target} is there already", "Name another file, or remove that one.") from None
    except OSError as error:
        raise YardError(
            f"{target} cannot be written: {error.strerror}", "Name a file in another folder."
        ) from error
    try:
        with os.fdopen(fd, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for part in parts:
                if part.missing:
                    continue
                content = part.text.encode()
                entry = tarfile.TarInfo(f"{name}/{part.name}")
                entry.size, entry.mtime, entry.mode = len(content), now_s, 0o600
                archive.addfile(entry, io.BytesIO(content))
    except OSError as error:
        with suppress(OSError):
            target.unlink()
        raise YardError(
            f"{target} cannot be written: {error.strerror}", "Name a file in another folder."
        ) from error
