"""The line that installs an extra of this package where it is: from the checkout or the wheel that it came from.

Without either it came from an index of packages.
"""

import json
import shlex
import sys
from urllib.parse import unquote, urlsplit


def install_text(extra: str) -> str:
    """What to type so that this installation has an extra."""
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 (takes long to import)

    try:
        origin = distribution("gpuyard").read_text("direct_url.json")
    except PackageNotFoundError:
        origin = None
    return line_for(extra, origin or "", sys.executable)


def line_for(extra: str, origin: str, python: str) -> str:
    """The same for an origin as pip keeps it (PEP 610); empty: an index of packages."""
    said = json.loads(origin) if origin else {}
    url = urlsplit(said.get("url", ""))
    if url.scheme != "file":
        return f"pip install 'gpuyard[{extra}]'"
    editable = "-e " if said.get("dir_info", {}).get("editable") else ""
    where = shlex.quote(f"{unquote(url.path)}[{extra}]")
    return f"{shlex.quote(python)} -m pip install {editable}{where}"
