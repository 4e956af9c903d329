"""The console in a real Chromium: one person's way through a job, under the policy that forbids everything else.

Screenshots of what was seen are in the folder that GPUYARD_SHOTS names, else in a temporary one.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import Box
from rigs.postgres import NoServer, install, skip_or_fail

pytestmark = pytest.mark.rig
ROOT = Path(__file__).resolve().parents[2]
AXE = ROOT / "console" / "node_modules" / "axe-core" / "axe.min.js"
CONFIG = """
version: 1
clusters:
  east:
    allow_root: true
    pools:
      h100: {gpus: 8 x H100, nodes: 2, emulate: true}
tenants:
  research: {}
  product: {limit: 8}
"""
HOSTILE = (
    "<img src=x onerror=alert(1)>\\033[31mred\\033[0m "
    "\\033]8;;http://evil.example\\007link\\033]8;;\\007 \\342\\200\\256rtl"
)
"""What a job prints: markup, colours, a link of OSC 8, and a character that turns the line round."""


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Any]:
    """A page in a browser that was signed in by `yard open`; any violation of the policy fails its test."""
    if not (ROOT / "src" / "gpuyard" / "console" / "index.html").exists():
        skip_or_fail("the console is not built here: make console")
    chromium = shutil.which("chromium")
    if chromium is None:
        try:
            install("chromium", NoServer)
        except NoServer as refusal:
            skip_or_fail(str(refusal))
        chromium = shutil.which("chromium")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    box = Box(tmp_path / "data", CONFIG)
    box.up()
    wrong: list[str] = []
    try:
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            context = browser.new_context(viewport={"width": 1440, "height": 900})
            found = context.new_page()
            found.set_default_timeout(90_000)
            found.on("pageerror", lambda error: wrong.append(str(error)))
            found.on(
                "console", lambda said: wrong.append(said.text) if "Content Security" in said.text else None
            )
            found.on("dialog", lambda dialog: wrong.append(f"a dialog: {dialog.message}"))
            own = f"http://127.0.0.1:{box.note()['port']}/"
            found.on("request", lambda asked: asked.url.startswith(own) or wrong.append(asked.url))
            found.box = box
            yield found
            browser.close()
    finally:
        box("down", "--jobs")
    assert [] == wrong


def opened(page: Any) -> str:
    """Sign in; the address that `yard open` printed."""
    done = page.box("open", "--no-browser")
    assert 0 == done.code, done.err
    page.goto(done.out.strip())
    page.get_by_role("heading", name="Queue").wait_for()
    return str(done.out.strip())


def shot(page: Any, name: str, tmp_path: Path) -> None:
    folder = Path(os.environ.get("GPUYARD_SHOTS") or tmp_path)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for width, height in ((1440, 900), (390, 844)):
            page.set_viewport_size({"width": width, "height": height})
            page.screenshot(path=str(folder / f"{name}-{scheme}-{width}.png"))
            assert not page.evaluate("document.documentElement.scrollWidth > innerWidth"), (name, width)
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1440, "height": 900})


def test_submit_see_why_take_a_remedy_read_the_log_and_cancel(page: Any, tmp_path: Path) -> None:
    first = page.box.submit(
        "--gpus", 4, "--tenant", "product", "-t", "1h", "--name", "first", "--", "sleep", "600"
    )
    opened(page)
    page.get_by_role("link", name="first").wait_for()

    page.keyboard.press("g")
    page.keyboard.press("s")
    page.get_by_label("Name").fill("second")
    page.get_by_label("Tenant").select_option("product")
    page.get_by_label("GPUs for each task").fill("6")
    page.get_by_label("Time limit").fill("30m")
    page.get_by_label("Folder").fill(str(tmp_path))
    page.get_by_label("Script").fill(f"printf '{HOSTILE}\\n'; sleep 600")
    page.get_by_text("over its limit of 8").wait_for()
    page.get_by_role("button", name="Submit").click()

    page.get_by_role("heading", name="Why it waits").wait_for()
    page.get_by_text("product would be 2 GPUs over its limit of 8").wait_for()
    shot(page, "waits", tmp_path)
    page.get_by_role("link", name="Submit it with --gpus 4").click()
    page.get_by_label("cancel job 2 once this one is submitted").wait_for()
    page.get_by_text("at most $").wait_for()
    page.get_by_role("button", name="Submit").click()

    page.get_by_role("heading", name="3 second").wait_for()
    page.get_by_role("log").get_by_text("red").wait_for()
    said = page.get_by_role("log").inner_text()
    assert "<img src=x onerror=alert(1)>red link" in said
    assert 0 == page.locator("[role=log] a, [role=log] img").count()
    shot(page, "runs", tmp_path)
    page.get_by_role("button", name="Cancel").click()
    page.get_by_text("GPU-hours of work that was not saved are lost").wait_for()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()

    assert "CANCELLED" == page.box.wait(3, "CANCELLED")["state"]
    assert "CANCELLED" == page.box.wait(2, "CANCELLED")["state"]
    assert "RUNNING" == page.box.wait(first, "RUNNING")["state"]


READY = {
    "queue": "big",
    "job/1": "Tries",
    "yard": "in use",
    "submit": "Script",
    "nodes": "h100-0001",
    "tenants": "product",
    "cost": "Charged",
    "audit": "submit",
}
"""Pages, and what each shows once it is there."""


def serious(page: Any) -> str:
    """What axe finds that keeps people out. The driver puts it in, beside the policy."""
    asked = (
        f"{AXE.read_text(encoding='utf-8')};axe.run().then(r => JSON.stringify("
        "r.violations.filter(v => ['serious', 'critical'].includes(v.impact))"
        ".map(v => [v.id, v.nodes[0].html, v.nodes[0].any.map(a => a.message).join()])))"
    )
    session = page.context.new_cdp_session(page)
    wanted = {"expression": asked, "awaitPromise": True, "returnByValue": True}
    return str(session.send("Runtime.evaluate", wanted)["result"].get("value"))


def test_pages_have_no_serious_finding_and_a_code_signs_in_once(page: Any, tmp_path: Path) -> None:
    page.box.submit("--gpus", 8, "--tenant", "research", "-t", "1h", "--name", "big", "--", "sleep", "600")
    used = opened(page)
    assert "open/" not in page.evaluate("location.href")
    cookie = page.context.cookies()[0]
    assert (True, "Strict") == (cookie["httpOnly"], cookie["sameSite"])
    findings: dict[str, str] = {}
    for name, ready in READY.items():
        page.evaluate("hash => { location.hash = hash }", f"#/{name}")
        page.get_by_text(ready).first.wait_for()
        page.wait_for_timeout(300)
        shot(page, name.replace("/", "-"), tmp_path)
        findings[name] = serious(page)

    assert dict.fromkeys(READY, "[]") == findings

    page.get_by_role("button", name="Sign out").click()
    page.get_by_text("yard open").first.wait_for()
    page.goto("about:blank")
    page.goto(used)
    page.get_by_text("the code was used already").wait_for()


def test_the_page_goes_on_when_the_yard_comes_back(page: Any) -> None:
    opened(page)
    port = page.box.note()["port"]
    page.box("down")
    page.get_by_text("The yard is away").wait_for()
    assert 0 == page.box("up", "-d", "--port", port, "--config", page.box.config).code
    page.get_by_text("The yard is away").wait_for(state="detached")
    page.box.submit("--gpus", 1, "--tenant", "research", "--name", "later", "--", "sleep", "600")
    page.get_by_role("link", name="later").wait_for()
