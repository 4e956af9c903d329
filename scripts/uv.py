"""`uv pip install`, from where pip is told to take packages: `.venv/bin/python scripts/uv.py -r REQUIREMENTS`.

uv installs in a fraction of pip's time and does not read pip's settings. People whose index is a mirror of their own
have told pip of it, in a file or in PIP_… variables; what they have told uv itself goes before that.
"""

import configparser
import os
import subprocess
import sys
from pathlib import Path

SETTINGS = {
    "index_url": "UV_DEFAULT_INDEX",
    "extra_index_url": "UV_INDEX",
    "find_links": "UV_FIND_LINKS",
    "no_index": "UV_NO_INDEX",
    "trusted_host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
    "no_cache_dir": "UV_NO_CACHE",
}
"""What pip is told (its files may have dashes), and the variable by which uv is told the same."""


def pip_settings(environment: dict[str, str]) -> dict[str, str]:
    """What pip is told: by its files, the machine's first, and by its variables, which go before them."""
    home = Path(environment.get("HOME") or "/nowhere")
    config = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    files = [Path("/etc/pip.conf"), home / ".pip/pip.conf", config / "pip/pip.conf"]
    if own := environment.get("PIP_CONFIG_FILE"):
        files = [] if own == os.devnull else [*files, Path(own)]
    read = configparser.RawConfigParser()
    read.read([file for file in files if os.access(file, os.R_OK)], encoding="utf-8")
    told = {key.replace("-", "_"): value for part in ("global", "install") if read.has_section(part)
            for key, value in read.items(part)}  # fmt: skip
    variables = {key: environment.get(f"PIP_{key.upper()}", "") for key in SETTINGS}
    return told | {key: value for key, value in variables.items() if value}


def uv_environment(environment: dict[str, str]) -> dict[str, str]:
    """The environment of uv."""
    told = pip_settings(environment)
    words = {key: told.get(key, "").split() for key in SETTINGS}
    # pip passes over a folder of wheels that is not there; for uv that is an error.
    words["find_links"] = [
        each for each in words["find_links"] if not each.startswith("/") or os.path.isdir(each)
    ]
    ours = {
        name: ("," if key == "find_links" else " ").join(words[key])
        for key, name in SETTINGS.items()
        if words[key]
    }
    # A file that is linked to uv's cache would change with it.
    fixed = {"UV_LINK_MODE": "copy", "UV_PYTHON_DOWNLOADS": "never"}
    return fixed | ours | environment


def main() -> int:
    python = Path(sys.executable)
    command = [python.with_name("uv"), "pip", "install", "--quiet", "--python", python, "--no-deps"]
    try:
        done = subprocess.run([*command, *sys.argv[1:]], env=uv_environment(dict(os.environ)), check=False)
    except OSError:
        # It is not there: the caller has another way.
        return 1
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
