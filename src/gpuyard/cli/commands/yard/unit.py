"""The unit file with which systemd runs a yard.

Jobs are children of the server and must outlive it, so systemd ends the server alone (`KillMode=process`) and does not
stop it because a job ran out of memory (`OOMPolicy=continue`). What a unit takes away from a service it takes from the
jobs too: home folders, /tmp, devices. So nothing is hidden from it here.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

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
# Exit codes that trying again does not mend: bad options or configuration, a yard that runs there already.
RestartPreventExitStatus=2 3
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
    """The text. `words` are those after `yard up`; `own_data`: the data is where systemd would make a folder."""
    limits = "" if user else _SYSTEM_LIMITS + (_STATE if own_data else "")
    return _UNIT.format(
        name=f"--user {name}" if user else name,
        after="" if user else _SYSTEM_AFTER,
        command=" ".join(_quoted(word) for word in [*program(), "up", *words]),
        limits=limits,
        target="default.target" if user else "multi-user.target",
    )


def program() -> list[str]:
    """The command that starts `yard` of this installation, from any folder."""
    beside = Path(sys.executable).parent / "yard"
    return [str(beside)] if beside.is_file() else [sys.executable, "-m", "gpuyard.cli"]


def _quoted(word: str) -> str:
    """A word of a command line in systemd's own quoting: percent signs and dollars are special there."""
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    plain = text == word and word and not any(sign in word for sign in " \t\n'\";")
    return text if plain else '"' + text.replace("\n", "\\n").replace("\t", "\\t") + '"'
