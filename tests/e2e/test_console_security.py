"""The console against hostile texts and hostile pages, in a real Chromium.

Two hundred strings stand in every text of every answer, on every page: none of them becomes more than text, and none
breaks the page. Pages of other origins get nothing out of a browser that is signed in.
"""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import Box
from rigs.console.browser import browser, fits, go, page_of
from rigs.console.strings import STRINGS, Poison

pytestmark = pytest.mark.rig
CONFIG = """
version: 1
clusters:
  east: {gpus: 4 x H100, emulate: true, allow_root: true}
tenants:
  research: {}
  product: {limit: 3}
budgets:
  month: {tenant: research, gpu_hours: 100, window: month}
"""
PAGES = (
    "queue", "job/1", "job/2", "yard", "submit", "submit?from=1", "submit/paste", "nodes", "gpus", "topology", "mig",
    "doctor", "tenants", "share", "budgets", "waits", "cost", "cost/savings",
    "cost/statement?tenant=research", "efficiency", "whatif", "audit",
)  # fmt: skip
TURNS = (
    "[\\u061c\\u200b-\\u200f\\u202a-\\u202e\\u2060\\u2066-\\u2069\\ufeff"
    "\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f]"
)
"""What cannot be seen, or turns the direction of what is around it."""
FOUND = f"""() => {{
  const main = document.querySelector("main") ?? document.body;
  const links = [...document.querySelectorAll("a")].map((each) => each.getAttribute("href"));
  return {{
    pwned: window.pwned ?? null,
    title: document.title,
    made: main.querySelectorAll("img, script, iframe, object, embed, style, link, base, form[action], marquee").length,
    links: links.filter((each) => !each.startsWith("#/")),
    turns: (main.innerText.match(/{TURNS}/gu) ?? []).map((each) => each.codePointAt(0).toString(16)).slice(0, 5),
    handlers: [...main.querySelectorAll("*")].flatMap((each) => each.getAttributeNames().filter((n) => /^on/.test(n))),
  }};
}}"""
GOOD = {"fits": (True, True), "poisoned": True}
CLEAN = {"pwned": None, "title": "gpuyard", "made": 0, "links": [], "turns": [], "handlers": []}


@pytest.fixture(scope="module")
def chrome() -> Iterator[Any]:
    with browser("--host-resolver-rules=MAP *.example 127.0.0.1") as made:
        yield made


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    made = Box(tmp_path_factory.mktemp("hostile") / "data", CONFIG)
    made.up()
    made.submit(
        "--gpus",
        1,
        "--tenant",
        "product",
        "-t",
        "1h",
        "--name",
        "runs",
        "--label",
        "a=b",
        "--",
        "sleep",
        "900",
    )
    made.submit("--gpus", 3, "--tenant", "product", "-t", "1h", "--name", "waits", "--", "sleep", "900")
    made.wait(1, "RUNNING")
    yield made
    made("down", "--jobs")


def own(box: Box) -> str:
    return f"http://127.0.0.1:{box.note()['port']}/"


def signed_in(page: Any, box: Box) -> None:
    page.goto(box("open", "--no-browser").out.strip())
    page.get_by_role("heading", name="Queue").wait_for()


def poisoned(page: Any, poison: Poison) -> None:
    """From here on every answer of the yard has other texts."""

    def answer(route: Any) -> None:
        path = route.request.url.partition("/api/v1")[2].partition("?")[0]
        if path == "/changes":
            route.continue_()
        elif path.endswith("/logs"):
            text = "\n".join(STRINGS) + "\n"
            first = "offset=0" in route.request.url
            end = {"x-next-offset": str(len(text.encode()))}
            route.fulfill(status=200, body=text.encode() if first else b"", headers=end)
        else:
            given = route.fetch()
            body = given.body() if given.status == 200 else b""
            try:
                value = json.loads(body)
            except ValueError:
                route.fulfill(response=given)
                return
            route.fulfill(response=given, json=poison.put(value))

    page.route("**/api/v1/**", answer)


def test_no_string_becomes_more_than_text_on_any_page(box: Box, chrome: Any) -> None:
    poison = Poison()
    found: dict[str, Any] = {}
    with page_of(chrome, own(box)) as page:
        signed_in(page, box)
        poisoned(page, poison)
        for place in PAGES:
            before = poison.at
            go(page, place)
            page.wait_for_load_state("networkidle") if place != "queue" else page.reload()
            page.get_by_role("heading").first.wait_for()
            page.wait_for_timeout(400)
            wide = fits(page)
            page.set_viewport_size({"width": 390, "height": 844})
            page.wait_for_timeout(100)
            narrow = fits(page)
            page.set_viewport_size({"width": 1440, "height": 900})
            told = page.evaluate(FOUND)
            seen = {**told, "fits": (wide, narrow), "poisoned": poison.at > before}
            found[place] = {name: value for name, value in seen.items() if {**CLEAN, **GOOD}[name] != value}

    assert {} == {place: wrong for place, wrong in found.items() if wrong}
    assert {
        "name",
        "tenant",
        "user",
        "reason",
        "why",
        "text",
        "label",
        "about",
        "by",
        "yaml",
        "gpu_model",
    } <= poison.fields
    assert poison.at > len(STRINGS) * len(PAGES) / 2


def test_what_is_typed_and_what_is_refused_stays_text(box: Box, chrome: Any) -> None:
    """Each string as a name: taken or refused, in the form, in the dry run and in the message."""
    with page_of(chrome, own(box)) as page:
        signed_in(page, box)
        go(page, "submit")
        page.get_by_label("Script").fill("true")
        told = page.locator("section[aria-labelledby=become]")
        for text in STRINGS[::9]:
            page.get_by_label("Name").evaluate(
                "(field, text) => { field.value = text; field.dispatchEvent(new Event('input')) }", text
            )
            page.wait_for_timeout(450)
            told.get_by_text("One moment…").wait_for(state="detached")
            assert CLEAN == page.evaluate(FOUND)
            assert fits(page), text[:40]
        # The address is a text of others, too: a link can be sent.
        for place in (
            "job/",
            "queue?q=",
            "yard?by=",
            "submit?from=",
            "submit?from=1&with=",
            "nodes?q=",
            "whatif?tenant=",
            "cost?by=",
            "",
        ):
            for text in STRINGS[:72:12]:
                go(page, place + text)
                page.wait_for_timeout(60)
                assert {**CLEAN, "turns": []} == {**page.evaluate(FOUND), "turns": []}, (place, text[:40])


class _Other(BaseHTTPRequestHandler):
    """A page of another origin: an empty one, on which the test runs its script."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>other</title>")

    def log_message(self, *_: Any) -> None:
        """Nothing is worth it."""


@pytest.fixture(scope="module")
def other() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Other)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join()


ATTACK = """async ([yard, key]) => {
  const tried = {};
  const say = async (name, work) => { try { tried[name] = await work(); } catch (error) { tried[name] = "refused"; } };
  const socket = (protocols) => new Promise((resolve) => {
    const made = new WebSocket(yard.replace("http", "ws") + "api/v1/jobs/1/terminal", protocols);
    made.onopen = () => resolve("open");
    made.onerror = () => resolve("refused");
  });
  const ask = (path, how) => fetch(yard + "api/v1" + path, {credentials: "include", ...how});
  const cancel = "/jobs/1/cancel";
  await say("read", async () => (await (await ask("/me")).text()).length);
  await say("opaque", async () => (await ask(cancel, {method: "POST", mode: "no-cors"})).type);
  await say("cancel", async () => (await ask(cancel, {method: "POST", headers: {"Yard-Page": key}})).status);
  await say("socket", () => socket(["yard"]));
  await say("socket with the key", () => socket(["yard", "yard-page." + key]));
  await say("script", () => import(yard + "assets/none.js"));
  const frame = document.createElement("iframe");
  frame.src = yard;
  document.body.append(frame);
  await new Promise((resolve) => { frame.onload = resolve; setTimeout(resolve, 3000); });
  await say("frame", async () => frame.contentDocument ? "read" : "refused");
  return tried;
}"""


@pytest.mark.parametrize("host", ["127.0.0.1", "evil.example"])
def test_a_page_of_another_origin_gets_nothing(host: str, box: Box, other: int, chrome: Any) -> None:
    """Of another port of the same machine, where the browser sends the cookie, and of another site."""
    context = chrome.new_context()
    page = context.new_page()
    page.set_default_timeout(20_000)
    signed_in(page, box)
    key = page.evaluate("Object.entries(localStorage).find(([name]) => name.startsWith('yard-page'))[1]")
    attacker = context.new_page()
    attacker.goto(f"http://{host}:{other}/")
    tried = attacker.evaluate(ATTACK, [own(box), key])
    shown = [frame for frame in attacker.frames if frame.url.startswith(own(box))]
    seen = [frame.evaluate("document.body?.innerText ?? ''") for frame in shown]
    context.close()

    opaque = tried.pop("opaque")
    assert (
        dict.fromkeys(("read", "cancel", "socket", "socket with the key", "script", "frame"), "refused")
        == tried
    )
    assert opaque in ("opaque", "refused"), "such a request is sent, and its answer tells nothing"
    assert [] == [text for text in seen if "Queue" in text or "gpuyard" in text]
    assert "RUNNING" == box.wait(1, "RUNNING")["state"]


def test_a_name_of_another_site_that_points_here_is_not_served(box: Box, chrome: Any) -> None:
    context = chrome.new_context()
    page = context.new_page()
    answer = page.goto(f"http://rebound.example:{box.note()['port']}/")
    text = page.evaluate("document.body.innerText")
    inside = page.evaluate("fetch('/api/v1/me', {credentials: 'include'}).then((found) => found.status)")
    context.close()

    assert (421, 421) == (answer.status, inside)
    assert "is not called" in text


def test_the_headers_of_the_page_forbid_frames_and_everything_foreign(
    box: Box, chrome: Any, tmp_path: Path
) -> None:
    context = chrome.new_context()
    answer = context.request.get(own(box), headers={"Accept": "text/html"})
    headers = {name.lower(): value for name, value in answer.headers.items()}
    context.close()
    policy = dict(each.strip().partition(" ")[::2] for each in headers["content-security-policy"].split(";"))

    assert ("'none'", "'self'", "'self'", "'none'") == tuple(
        [policy[each] for each in ("default-src", "script-src", "style-src", "frame-ancestors")]
    )
    assert "unsafe" not in headers["content-security-policy"]
    assert ("DENY", "nosniff", "no-referrer") == tuple(
        [headers[each] for each in ("x-frame-options", "x-content-type-options", "referrer-policy")]
    )
