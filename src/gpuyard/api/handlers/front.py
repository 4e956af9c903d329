"""The page at `/`: what this address is, and which commands show more.

The page is the same for every visitor and says nothing about jobs, so it needs no login. It loads nothing and runs
nothing; its content security policy forbids both. A program that asks for JSON gets the same facts as JSON.
"""

import base64
import hashlib
from html import escape

from fastapi import Request, Response

from gpuyard import __version__
from gpuyard.api.edge.routes import Handler, answer
from gpuyard.control.serve import Yard
from gpuyard.wire.endpoints import DESCRIPTION

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
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept",
}
_COMMANDS = {
    "yard top": "GPUs, queue and tenants on one screen, live",
    "yard queue": "the jobs that run and wait, in order, and why they wait",
    "yard why ID": "everything that keeps one job from starting, and what would help",
    "yard --help": "all commands",
}


def front_of(yard: Yard) -> Handler:
    """What serves the page."""
    auth = yard.token_service is not None

    async def front(request: Request) -> Response:
        """What this address is, as a page, or as JSON for programs that ask for JSON."""
        accepted = request.headers.get("accept", "")
        if "application/json" in accepted and "text/html" not in accepted:
            facts = {
                "what": f"gpuyard. {WHAT}",
                "version": __version__,
                "yard": yard.store.yard,
                "auth": auth,
                "commands": list(_COMMANDS),
                "description": DESCRIPTION,
            }
            return answer(facts, headers=_HEADERS)
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
<p>Programs use the HTTP API; <a href="{DESCRIPTION}">{DESCRIPTION}</a> describes it.</p>
<footer>yard {escape(yard)}, gpuyard {escape(__version__)}</footer>
</body>
</html>
"""
