"""`yard service`: the yard as a service of systemd, started with the machine and again after a failure."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gpuyard import interpreter
from gpuyard.cli.line.options import Argument, Option
from gpuyard.errors import BadInput, YardError

if TYPE_CHECKING:
    from gpuyard.control.places import DataDir

NAME = "gpuyard"
_UNIT = """\
# Written by `yard service install`, which writes it anew: changes of your own go into `systemctl edit {name}`.
[Unit]
Description=gpuyard, the control plane for shared GPUs
{after}
[Service]
Type=notify
NotifyAccess=main
ExecStart={command}
Restart=on-failure
RestartSec=2
# Exit codes that trying again does not mend: bad options or configuration, a yard that runs there already,
# a store that is damaged.
RestartPreventExitStatus=2 3 5
# Jobs are children of the server and outlive it: only the server is stopped, and no job's end stops it.
KillMode=process
TimeoutStartSec=10min
TimeoutStopSec=60
OOMPolicy=continue
Delegate=yes
TasksMax=infinity
LimitNOFILE=65536:524288
{limits}
[Install]
WantedBy={target}
"""
_SYSTEM_AFTER = "After=network-online.target nvidia-persistenced.service\nWants=network-online.target\n"
_SYSTEM_LIMITS = "LimitMEMLOCK=infinity\n"
_STATE = "StateDirectory=gpuyard\nStateDirectoryMode=0711\n"


def unit(words: Sequence[str], *, user: bool, name: str, own_data: bool) -> str:
    """The unit file. `words` are those after `yard up`; `own_data`: the data is where systemd would make a folder.

    Jobs are children of the server and must outlive it, so systemd ends the server alone (`KillMode=process`) and does
    not stop it because a job ran out of memory (`OOMPolicy=continue`). What a unit takes away from a service it takes
    from the jobs too: home folders, /tmp, devices. So nothing is hidden from it here.
    """
    limits = "" if user else _SYSTEM_LIMITS + (_STATE if own_data else "")
    return _UNIT.format(
        name=f"--user {name}" if user else name,
        after="" if user else _SYSTEM_AFTER,
        command=" ".join(quote_for_systemd(word) for word in [*find_program(), "up", *words]),
        limits=limits,
        target="default.target" if user else "multi-user.target",
    )


def find_program() -> list[str]:
    """The command that starts `yard` of this installation, from any folder."""
    beside = Path(sys.executable).parent / "yard"
    return [str(beside)] if beside.is_file() else interpreter.command("-m", "gpuyard.cli")


def quote_for_systemd(word: str) -> str:
    """A word of a command line in systemd's own quoting: percent signs and dollars are special there."""
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    plain = text == word and word and not any(sign in word for sign in " \t\n'\";")
    return text if plain else '"' + text.replace("\n", "\\n").replace("\t", "\\t") + '"'


UserOption = Annotated[
    bool, Option("--user", help="Use a service of your own instead of the machine's; it needs no root.")
]
NameOption = Annotated[
    str, Option("--name", metavar="NAME", help="The service's name, if there are several yards.")
]
_PASSWORD = re.compile(r"://[^/@]*:[^/@]+@")
_FOREGROUND = ("-d", "--detach")


def install(
    words: Annotated[
        list[str] | None,
        Argument(
            metavar="-- OPTIONS",
            help="Options of `yard up` for the service, after --: `-- --auth --host 0.0.0.0`.",
            unknown=True,
        ),
    ] = None,
    user: UserOption = False,
    name: NameOption = NAME,
    print_: Annotated[bool, Option("--print", help="Print the unit and change nothing.")] = False,
    root: Annotated[
        Path | None,
        Option(
            "--root",
            metavar="DIR",
            help="Write the unit below this folder, for a machine image; start nothing.",
        ),
    ] = None,
) -> None:
    """Write a unit file, then enable and start the service. Jobs outlive it: stop and restart it at any time."""
    from gpuyard.cli.terminal.streams import print_notice
    from gpuyard.control.places import SYSTEM_DATA, DataDir
    from gpuyard.engines.machine.installation import note_for_others

    data, given = _checked(list(words or []))
    own = not user and (data is None or data == SYSTEM_DATA)
    text = unit(given, user=user, name=name, own_data=own)
    if any(_PASSWORD.search(word) for word in given):
        print_notice(
            "note: a unit can be read by every user, with the password of --store in it: ~/.pgpass keeps one"
        )
    if root is None and not user and (hidden := note_for_others()):
        print_notice(f"note: {hidden}")
    if print_:
        print(text, end="")
        return
    path = _path(user, name, root)
    if root is not None:
        _write(path, text)
        print(f"{path} is written; `systemctl --root {root} enable {name}` starts it with the machine")
        return
    _check_systemd(user)
    _check_root(user)
    there = DataDir(data or _default_data(user))
    _check_free(there, user, name)
    _write(path, text)
    _systemctl(user, "daemon-reload")
    _systemctl(user, "enable", name)
    # Restart a running service, so that it runs as the unit says now; jobs go on.
    _systemctl(user, "restart", name)
    print(f"the service {name} is enabled and runs: {path}")
    if user:
        print_notice("note: it ends with your last login, unless you run `loginctl enable-linger`")


def status(user: UserOption = False, name: NameOption = NAME) -> int:
    """Show what systemd says of the service. Exit code 0: it runs, 3: it does not run, 4: there is none."""
    _check_systemd(user)
    done = subprocess.run([*_command(user), "--no-pager", "--lines", "5", "status", name], check=False)
    return done.returncode


def uninstall(
    user: UserOption = False,
    name: NameOption = NAME,
    root: Annotated[
        Path | None, Option("--root", metavar="DIR", help="Remove the unit below this folder.")
    ] = None,
) -> None:
    """Stop the service and remove its unit. Jobs keep running, and the data stays where it is."""
    path = _path(user, name, root)
    if root is None:
        _check_systemd(user)
        _check_root(user)
    if not path.is_file():
        raise BadInput(f"there is no service {name}: {path} does not exist", "Name the service with --name.")
    if root is None:
        _systemctl(user, "disable", "--now", name)
    path.unlink()
    if root is None:
        _systemctl(user, "daemon-reload")
    print(f"the service {name} is gone; data and jobs stay")


def _checked(words: list[str]) -> tuple[Path | None, list[str]]:
    """The data folder that the words name, and the words with whole paths; raises the errors of `yard up`."""
    from gpuyard.cli.commands.yard.up import up
    from gpuyard.cli.line.options import read

    if any(word in _FOREGROUND for word in words):
        raise BadInput("a service runs in the foreground, where systemd watches it", "Leave -d out.")
    values = read(up, words, "yard up")
    paths = {"data": "--data", "config": "--config", "tls_cert": "--tls-cert", "tls_key": "--tls-key"}
    given = list(words)
    for key, option in paths.items():
        value = values.get(key)
        if value is None:
            continue
        # systemd starts it in /, so relative paths are written out.
        for place, word in enumerate(given):
            if word == option:
                given[place + 1] = str(Path(value).absolute())
            elif word.startswith(f"{option}="):
                given[place] = f"{option}={Path(value).absolute()}"
    data = values.get("data")
    return (Path(data).absolute() if data is not None else None), given


def _default_data(user: bool) -> Path:
    from gpuyard.control.places import SYSTEM_DATA, default_data

    return default_data() if user else SYSTEM_DATA


def _path(user: bool, name: str, root: Path | None) -> Path:
    if not name or not all(sign.isalnum() or sign in "-_.@" for sign in name):
        raise BadInput(f"{name!r} is not a name of a service", "Letters, digits, -, _ and . will do.")
    if user:
        config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
        folder = config / "systemd" / "user"
    else:
        folder = Path("/etc/systemd/system")
    if root is not None:
        folder = root / str(folder).lstrip("/")
    return folder / f"{name}.service"


def _check_systemd(user: bool) -> None:
    running = Path("/run/systemd/system").is_dir()
    if user:
        running = running and Path(os.environ.get("XDG_RUNTIME_DIR") or "/nowhere", "systemd").is_dir()
    if not running:
        raise YardError(
            f"systemd does not run {'for this user' if user else 'on this machine'}: nothing was changed",
            "`yard up -d` starts a yard without it; `yard service install --print` shows the unit for another machine.",
        )


def _check_root(user: bool) -> None:
    if not user and os.geteuid() != 0:
        raise BadInput(
            "only root sets up services of the machine", "Use sudo, or --user for a service of your own."
        )


def _check_free(data: "DataDir", user: bool, name: str) -> None:
    """Refuse if a yard that was started by hand has the folder: the service could not start."""
    pids = [pid for each in data.instances() if (pid := each.running())]
    asked = subprocess.run(
        [*_command(user), "show", "--property", "MainPID", "--value", name],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    others = [pid for pid in pids if str(pid) != asked.stdout.strip()]
    if others:
        raise YardError(
            f"a yard is running on {data.root} already, with pid {others[0]}: nothing was changed",
            f"Stop it with `yard down --data {data.root}`; its jobs go on, and the service finds them.",
        )


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.write_text(text, encoding="utf-8")
        draft.chmod(0o644)
        draft.replace(path)
    except OSError as error:
        raise YardError(f"{path} cannot be written: {error.strerror}") from error


def _command(user: bool) -> list[str]:
    return ["systemctl", *(["--user"] if user else [])]


def _systemctl(user: bool, *words: str) -> None:
    done = subprocess.run([*_command(user), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise YardError(
            f"`{' '.join([*_command(user), *words])}` failed: {done.stderr.strip() or done.stdout.strip()}",
            f"`journalctl {'--user ' if user else ''}-u {words[-1]}` may say why.",
        )
