"""JupyterLab as a job: a script that starts it, says where it listens, and stops it once it has been idle for long.

`yard notebook` sends this file along as the job's script, so it runs wherever jobs do, with the Python that is there:
only the standard library, nothing newer than Python 3.6. JupyterLab is the user's own. Idle means that no cell has run
and nothing has happened at a terminal: a browser that is only open uses no GPU.
"""

import calendar
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from typing import Any, Dict, List

PORT = "yard: the notebook listens at port "
MISSING = 127
_LOOKS = 20
"""How often to look, in the time that it may be idle."""
_WARN_S_MAX = 300.0
_GRACE_S = 10.0


def say(text: str) -> None:
    """A line for the person at the other end."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def program() -> List[str]:
    """The command of JupyterLab; empty: there is none here."""
    found = shutil.which("jupyter-lab")
    if found:
        return [found]
    return [sys.executable, "-m", "jupyterlab"] if importlib.util.find_spec("jupyterlab") else []


def free_port() -> int:
    """A port of this machine that is free now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def asked(port: int, path: str) -> Any:
    """What the notebook says about itself; None: it does not answer."""
    headers = {"Authorization": "token " + os.environ.get("JUPYTER_TOKEN", "")}
    request = urllib.request.Request("http://127.0.0.1:{}/{}".format(port, path), headers=headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=10) as answer:
            return json.loads(answer.read().decode())
    except (OSError, ValueError):
        return None


def moment_s(text: Any) -> float:
    """A time as JupyterLab writes it, in seconds since 1970."""
    try:
        return float(calendar.timegm(time.strptime(str(text)[:19], "%Y-%m-%dT%H:%M:%S")))
    except ValueError:
        return 0.0


def used_s(kernels: List[Dict[str, Any]], terminals: List[Dict[str, Any]], now_s: float) -> float:
    """When it was last used; now, while a cell runs. 0: never."""
    if any([each.get("execution_state") == "busy" for each in kernels]):
        return now_s
    return max([moment_s(each.get("last_activity", "")) for each in kernels + terminals] or [0.0])


def span(seconds: float) -> str:
    """A time for people."""
    if seconds >= 7200:
        return "{:.0f} h".format(seconds / 3600)
    return "{:.0f} min".format(seconds / 60) if seconds >= 120 else "{:.0f} s".format(seconds)


def watched(process: "subprocess.Popen[bytes]", port: int, idle_s: float) -> int:
    """Wait for its end, and bring it about when it has been idle for so long; gives the exit code."""
    warn_s = min(_WARN_S_MAX, idle_s / 4)
    since_s, warned, told = time.time(), False, False
    while True:
        try:
            return process.wait(max(0.2, min(60.0, idle_s / _LOOKS)) if told else 0.1)
        except subprocess.TimeoutExpired:
            pass
        kernels, terminals = asked(port, "api/kernels"), asked(port, "api/terminals")
        if kernels is None:
            continue
        if not told:
            told = True
            say("{}{}".format(PORT, port))
        now_s = time.time()
        since_s = max(since_s, used_s(kernels, terminals or [], now_s))
        left_s = since_s + idle_s - now_s
        if left_s > warn_s:
            warned = False
        elif left_s > 0 and not warned:
            warned = True
            say("yard: the notebook is idle, and stops in {} unless it is used".format(span(left_s)))
        elif left_s <= 0:
            say(
                "yard: the notebook was idle for {} and is stopped; files that were saved are kept".format(
                    span(idle_s)
                )
            )
            process.terminate()
            try:
                process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            return 0


def main() -> int:
    """Start it, and stay with it."""
    idle_s = float(os.environ.get("YARD_NOTEBOOK_IDLE_S", "3600"))
    command, port = program(), free_port()
    if not command:
        say("yard: there is no JupyterLab on {}: pip install jupyterlab".format(os.uname().nodename))
        return MISSING
    command += ["--no-browser", "--ip=127.0.0.1", "--port={}".format(port), "--ServerApp.port_retries=0"]
    if os.geteuid() == 0:
        command.append("--allow-root")
    process = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    return watched(process, port, idle_s)


if __name__ == "__main__":
    sys.exit(main())
