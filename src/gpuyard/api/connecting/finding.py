"""Which yard a command speaks to, and with which token. Light, because every command imports it.

First the caller's own arguments, then `YARD_URL` (or `YARD_SERVER`), then `YARD_DATA`, then what `yard login` keeps in
~/.config/gpuyard/login.json, then the yard of this machine.
"""

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gpuyard.control.places import DataDir, likely_data
from gpuyard.errors import BadInput, YardError, error_text

if TYPE_CHECKING:
    import ssl

HTTPS_PORT = 443
_LOOK_S = 1.0
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Login:
    """What `yard login` keeps. Written out, like `YardAddress`: the first NamedTuple of a process takes 2 ms."""

    def __init__(self, url: str, token: str, ca: str = "") -> None:
        self.url, self.token = url, token
        self.ca = ca
        """A file with the certificate that signed the server's, if the machine does not know it."""


class YardAddress:
    """Where a yard is, and the token for it."""

    def __init__(
        self,
        address: tuple[str, int] | str,
        token: str = "",
        tls: "ssl.SSLContext | None" = None,
        url: str = "",
        local: bool = False,
    ) -> None:
        self.address, self.token, self.tls = address, token, tls
        self.url = url
        """As people would write it."""
        self.local = local
        """Whether it was found in a data folder: any server there will do."""

    @property
    def host(self) -> str:
        """For the header of that name."""
        if isinstance(self.address, str):
            return "yard"
        name = f"[{self.address[0]}]" if ":" in self.address[0] else self.address[0]
        return f"{name}:{self.address[1]}"


def find(server: str, token: str, data: Path | None, ca: str = "") -> YardAddress:
    """Where to ask."""
    said = server or ("" if data else os.environ.get("YARD_URL") or os.environ.get("YARD_SERVER") or "")
    login = None
    if not said and data is None and not os.environ.get("YARD_DATA"):
        login = read_login()
        said = login.url if login else ""
    if not said:
        local = socket_of(data)
        return YardAddress(local, url=local, local=True)
    where = parse_address(said)
    if isinstance(where, str):
        return YardAddress(where, url=where)
    secure = said.strip().startswith("https://")
    login = login or (_login_of(said) if not token else None)
    token = token or os.environ.get("YARD_TOKEN") or (login.token if login else "")
    if not token and where[0] in LOOPBACK:
        own = own_socket(data, where[1])
        if own:
            return YardAddress(own, url=said)
    if token and not secure and where[0] not in LOOPBACK and not os.environ.get("YARD_INSECURE_HTTP"):
        raise BadInput(
            f"{said} is not https: your token could be read on the way",
            "Use https://, or set YARD_INSECURE_HTTP=1 if nobody else is on that network.",
        )
    ca = ca or os.environ.get("YARD_CA") or (login.ca if login else "")
    return YardAddress(where, token, trusted(ca) if secure else None, said)


def trusted(ca: str) -> "ssl.SSLContext":
    """The certificates that are trusted: the machine's own, or one file."""
    import ssl  # noqa: PLC0415 (takes longer to import than most commands run)

    try:
        return ssl.create_default_context(cafile=ca or None)
    except (OSError, ssl.SSLError) as error:
        raise BadInput(
            f"{ca} is not a file of certificates: {error_text(error)}", "Name a PEM file."
        ) from error


def parse_address(server: str) -> tuple[str, int] | str:
    """`https://yard.example.org`, `http://127.0.0.1:7447`, `127.0.0.1:7447`, `unix:/path` or `/path`."""
    text = server.strip().rstrip("/")
    if text.startswith(("unix:", "/")):
        path = text.removeprefix("unix:")
        return "/" + path.lstrip("/")
    secure = text.startswith("https://")
    text = text.removeprefix("https://").removeprefix("http://")
    if secure and not text.rpartition("]")[2].count(":"):
        text = f"{text}:{HTTPS_PORT}"
    host, _, port = text.rpartition(":")
    if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise BadInput(
            f"{server!r} (YARD_URL or YARD_SERVER) is not an address",
            "For example: https://yard.example.org or http://127.0.0.1:7447",
        )
    return host.strip("[]"), int(port)


def find_sockets(data: Path | None) -> list[str]:
    """The sockets of servers on this machine, in the first folder that has any."""
    for folder in [data] if data is not None else likely_data():
        found = [each for each in DataDir(folder).instances() if each.socket.exists()]
        if len(found) > 1:
            # One of several servers may have been killed, and its socket is still there.
            found = [each for each in found if each.running() is not None] or found[:1]
        if found:
            return [str(each.socket) for each in found]
    return []


def socket_of(data: Path | None) -> str:
    """The socket of a server on this machine."""
    found = find_sockets(data)
    return found[0] if found else str(DataDir(data or next(likely_data())).root / "yard.sock")


def answering(folders: Iterable[Path]) -> Path | None:
    """The first of these folders whose server takes connections."""
    import socket  # noqa: PLC0415 (asked only where no server answered)

    for folder in folders:
        for path in find_sockets(folder):
            with suppress(OSError), socket.socket(socket.AF_UNIX) as line:
                line.settimeout(_LOOK_S)
                line.connect(path)
                return folder
    return None


def own_socket(data: Path | None, port: int) -> str:
    """The socket of the asker's own yard that listens at this port; empty: none does.

    Over it the kernel identifies the asker, and no token has to be sent to the program at the port.
    """
    for folder in [data] if data is not None else likely_data():
        for each in DataDir(folder).instances():
            with suppress(OSError, YardError):
                if each.note().get("port") == port and each.running():
                    return str(each.socket)
    return ""


def login_file() -> Path:
    """Where a login is kept."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "gpuyard" / "login.json"


def read_login() -> Login | None:
    """The login that is kept, if there is one."""
    path = login_file()
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8")
    except OSError:
        return None
    if mode & 0o077:
        raise YardError(f"{path} can be read by others, and holds your token", f"chmod 600 {path}")
    try:
        return Login(**json.loads(text))
    except (ValueError, TypeError):
        raise YardError(f"{path} is damaged", "Log in again with `yard login`, or remove the file.") from None


def keep_login(login: Login) -> Path:
    """Keep a login, for its owner alone."""
    path = login_file()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_suffix(f".{os.getpid()}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        json.dump(vars(login), file)
    os.replace(draft, path)
    return path


def forget_login() -> bool:
    """Forget it; whether there was one."""
    with suppress(FileNotFoundError):
        login_file().unlink()
        return True
    return False


def _login_of(url: str) -> Login | None:
    """The login that is kept, if it is for this very server: a token is sent to no other."""
    login = read_login()
    return login if login is not None and login.url.rstrip("/") == url.strip().rstrip("/") else None
