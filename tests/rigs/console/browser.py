"""Debian's Chromium at the console of a real yard, through Playwright: whatever breaks the policy fails the test."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rigs.components import Missing, install, skip_or_fail

ROOT = Path(__file__).resolve().parents[3]
AXE = ROOT / "console" / "node_modules" / "axe-core" / "axe.min.js"
PATIENCE_MS = 30_000
WIDE, NARROW = 1440, 390
DRAWN = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
WATCH = """
addEventListener("securitypolicyviolation", (event) =>
  console.error(`Content Security Policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
"""


class Wrong(list[str]):
    """What a page did that it must not do."""

    def watch(self, page: Any, own: str, also: tuple[str, ...]) -> None:
        """Note violations of the policy, errors of scripts, dialogs, and requests to any other host than these."""
        page.on("pageerror", lambda error: self.append(f"an error: {error}"))
        page.on("console", lambda said: self.append(said.text) if "Content Security" in said.text else None)
        page.on("dialog", lambda dialog: (self.append(f"a dialog: {dialog.message}"), dialog.dismiss()))
        page.on(
            "request",
            lambda asked: asked.url.startswith((own, *also)) or self.append(f"a request: {asked.url}"),
        )
        page.on("websocket", lambda made: made.url[2:].startswith(own[4:]) or self.append(made.url))


def chromium() -> str:
    """The program, installed where that can be; the test is left out where it cannot."""
    if not (ROOT / "src" / "gpuyard" / "console" / "index.html").exists():
        skip_or_fail("the console is not built here: make console")
    found = shutil.which("chromium")
    if found is None:
        try:
            install("chromium", "chromium-sandbox", "fonts-liberation")
        except Missing as refusal:
            skip_or_fail(str(refusal))
        found = shutil.which("chromium")
    return str(found)


@contextmanager
def browser(*more: str) -> Iterator[Any]:
    """A browser, for as many pages as a test wants."""
    program = chromium()
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    with sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=program, args=["--no-sandbox", *more])
        try:
            yield made
        finally:
            made.close()


@contextmanager
def page_of(made: Any, own: str, also: tuple[str, ...] = (), **context: Any) -> Iterator[Any]:
    """A page of its own session at the server `own`, watched to its end; `also`: where else a login leads."""
    wrong = Wrong()
    context.setdefault("viewport", {"width": 1440, "height": 900})
    session = made.new_context(**context)
    session.add_init_script(WATCH)
    page = session.new_page()
    page.set_default_timeout(PATIENCE_MS)
    wrong.watch(page, own, also)
    try:
        yield page
    finally:
        session.close()
    assert not wrong, "\n".join(wrong[:10])


def looked(page: Any, name: str, axe: str = "") -> str:
    """The page wide and narrow: nothing may be wider than it. Pictures, light and dark, if GPUYARD_SHOTS is a folder.

    With `axe`, what that finds: of the wide page in these colours, "light" or "dark", of the narrow one in the others.
    """
    folder = os.environ.get("GPUYARD_SHOTS", "")
    if folder:
        page.wait_for_timeout(300)
    findings = []
    for width, height, first in (
        (WIDE, 900, axe or "light"),
        (NARROW, 844, "light" if axe == "dark" else "dark"),
    ):
        page.set_viewport_size({"width": width, "height": height})
        for scheme in (first, *(() if not folder else ({"light", "dark"} - {first}))):
            page.emulate_media(color_scheme=scheme)
            page.evaluate(DRAWN)
            assert fits(page), (name, width)
            if folder:
                page.wait_for_timeout(60)
                page.screenshot(path=str(Path(folder) / f"{name}-{scheme}-{width}.png"))
            if axe and scheme == first:
                findings.append(serious(page))
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": WIDE, "height": 900})
    return " ".join([each for each in findings if each != "[]"])


def fits(page: Any) -> bool:
    """Whether the page has no horizontal bar."""
    return not page.evaluate("document.documentElement.scrollWidth > innerWidth")


def go(page: Any, place: str) -> None:
    """To a place of the console, as a link of it does."""
    page.evaluate("place => { location.hash = `#/${place}` }", place)


def serious(page: Any) -> str:
    """What axe finds that keeps people out. The driver puts it in, beside the policy, once for each document."""
    source = "" if page.evaluate("'axe' in window") else AXE.read_text(encoding="utf-8")
    asked = (
        f"{source};axe.run().then(r => JSON.stringify("
        "r.violations.filter(v => ['serious', 'critical'].includes(v.impact))"
        ".map(v => [v.id, v.nodes[0].html, v.nodes[0].any.map(a => a.message).join()])))"
    )
    session = page.context.new_cdp_session(page)
    wanted = {"expression": asked, "awaitPromise": True, "returnByValue": True}
    return str(session.send("Runtime.evaluate", wanted)["result"].get("value"))
