"""The page at `/`: the console where it was built, else what this address is and which commands show more.

The files of the console are the same for every visitor and say nothing about jobs, so they need no login; what they
show comes over the API, as the person that is signed in. The content security policy lets them load their own files
and ask their own server, and nothing else. A program that asks for JSON gets a few facts as JSON.
"""

import base64
import hashlib
import mimetypes
from collections.abc import Mapping
from functools import cache
from html import escape
from pathlib import Path
from typing import NamedTuple

from fastapi import Request, Response

import gpuyard
from gpuyard import __version__
from gpuyard.api.edge.routes import Handler, answer
from gpuyard.api.messages.problems import Problem
from gpuyard.control.serve import Yard
from gpuyard.wire.endpoints import DESCRIPTION
from gpuyard.wire.replies.people import FrontReply

WHAT = "The control plane for shared GPUs: it decides who gets which GPUs and when."
_STYLE = """
body { max-width: 42rem; margin: 3rem auto; padding: 0 1rem; font: 1rem/1.5 system-ui, sans-serif; }
body { color: #1c2733; background: #fff; }
h1 { font-size: 1.5rem; }
code { background: #eef1f4; padding: .1rem .3rem; border-radius: .2rem; }
dt { margin-top: .6rem; }
dd { margin: 0; }
footer { margin-top: 2rem; color: #5a6672; }
@media (prefers-color-scheme: dark) {
  body { color: #dfe5ea; background: #14191e; }
  code { background: #262e36; }
  a { color: #8ab8ff; }
}
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
CONSOLE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types svelte-trusted-html"
)
"""What is shown of jobs never becomes markup: only the templates of the console's own source do."""
_SAFE = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_HEADERS = {**_SAFE, "Content-Security-Policy": POLICY, "Vary": "Accept"}
_CONSOLE_HEADERS = {
    **_SAFE,
    "Content-Security-Policy": CONSOLE_POLICY,
    "Vary": "Accept, Accept-Encoding",
    # The page names its files by what is in them: it is asked for again each time, they never are.
    "Cache-Control": "no-cache",
}
_ASSET_HEADERS = {
    **_SAFE,
    "Content-Security-Policy": "default-src 'none'",
    "Vary": "Accept-Encoding",
    "Cache-Control": "public, max-age=31536000, immutable",
}
_COMMANDS = {
    "yard top": "GPUs, queue and tenants on one screen, live",
    "yard queue": "the jobs that run and wait, in order, and why they wait",
    "yard why ID": "everything that keeps one job from starting, and what would help",
    "yard --help": "all commands",
}


class ConsoleFile(NamedTuple):
    """A file of the console, plain and packed."""

    media_type: str
    plain: bytes
    packed: bytes


def console_files() -> Mapping[str, ConsoleFile]:
    """The files that the build of the console left in the package, by name; none: it was not built, so far."""
    try:
        return built_console()
    except FileNotFoundError:
        return {}


@cache
def built_console() -> Mapping[str, ConsoleFile]:
    """The files, as they were when they were first asked for. That there are none is not kept."""
    folder = Path(gpuyard.__file__).parent / "console"
    found = {}
    for path in sorted(folder.glob("**/*")):
        if path.suffix not in ("", ".gz") and path.is_file():
            kind = mimetypes.guess_type(path.name, strict=False)[0] or "application/octet-stream"
            packed = path.with_name(f"{path.name}.gz")
            found[path.name] = ConsoleFile(
                kind, path.read_bytes(), packed.read_bytes() if packed.exists() else b""
            )
    if "index.html" not in found:
        raise FileNotFoundError(folder)
    return found


def _sent(file: ConsoleFile, request: Request, headers: Mapping[str, str]) -> Response:
    kind = f"{file.media_type}; charset=utf-8" if file.media_type.startswith("text/") else file.media_type
    if file.packed and "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.packed, 200, {**headers, "Content-Encoding": "gzip"}, kind)
    return Response(file.plain, 200, dict(headers), kind)


async def serve_asset(request: Request, name: str) -> Response:
    """A file that the page of the console names."""
    file = console_files().get(name)
    if file is None or name == "index.html":
        raise Problem(404, f"the console has no file {name[:100]!r}", "Load its page again.")
    return _sent(file, request, _ASSET_HEADERS)


def make_front(yard: Yard) -> Handler:
    """What serves the page."""
    auth = yard.token_service is not None

    async def front(request: Request) -> Response:
        """What this address serves: a page, or JSON for programs that ask for JSON."""
        accepted = request.headers.get("accept", "")
        if "application/json" in accepted and "text/html" not in accepted:
            facts: FrontReply = {
                "what": f"gpuyard. {WHAT}",
                "version": __version__,
                "yard": yard.store.yard,
                "auth": auth,
                "commands": list(_COMMANDS),
                "description": DESCRIPTION,
            }
            return answer(facts, headers=_HEADERS)
        if console_files():
            return _sent(console_files()["index.html"], request, _CONSOLE_HEADERS)
        # A proxy may be in front of the server, so the address is the one that the browser used.
        address = f"{request.url.scheme}://{request.url.netloc}"
        text = _page(yard.store.yard, address if auth else "")
        return Response(text, 200, _HEADERS, "text/html; charset=utf-8")

    return front


def _page(yard: str, login: str) -> str:
    """The page; `login`: the address to log in at, empty where no login is needed."""
    commands = "\n".join(
        f"<dt><code>{escape(name)}</code></dt><dd>{escape(text)}</dd>" for name, text in _COMMANDS.items()
    )
    how = (
        f"This yard asks who you are: <code>yard login {escape(login)}</code>, then"
        if login
        else "In a terminal on this machine"
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>gpuyard</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>gpuyard</h1>
<p>{escape(WHAT)}</p>
<p>{how}:</p>
<dl>
{commands}
</dl>
<p>The console was not built into this installation: <code>make console</code> builds it in a checkout, and this page
has it then. <code>yard top</code> shows the same in a terminal.</p>
<p>Programs use the HTTP API; <a href="{DESCRIPTION}">{DESCRIPTION}</a> describes it.</p>
<footer>yard {escape(yard)}, gpuyard {escape(__version__)}</footer>
</body>
</html>
"""
