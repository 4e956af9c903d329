"""The console in a real Chromium, on a real yard with emulated GPUs: a person's way through it, by mouse and by keys.

Pictures of what was seen are made where GPUYARD_SHOTS names a folder for them.
"""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import Box
from rigs.console.browser import go, looked, page_of

pytestmark = pytest.mark.rig
CONFIG = """
version: 1
clusters:
  east:
    allow_root: true
    pools:
      h100: {gpus: 4 x H100, nodes: 1, emulate: true}
tenants:
  research: {}
  product: {limit: 3}
"""
HOSTILE = (
    "<img src=x onerror=alert(1)>\\033[31mred\\033[0m "
    "\\033]8;;http://evil.example\\007link\\033]8;;\\007 \\342\\200\\256rtl"
)
"""What a job prints: markup, colours, a link of OSC 8, and a character that turns the line round."""
BUSY, IDLE = "95% 40GiB", "0% 1GiB"


@pytest.fixture
def page(chrome: Any, tmp_path: Path) -> Iterator[Any]:
    """A page at a yard of its own; `box` of it runs commands there."""
    box = Box(tmp_path / "data", CONFIG)
    box.up()
    try:
        with page_of(chrome, f"http://127.0.0.1:{box.note()['port']}/") as found:
            found.box = box
            yield found
    finally:
        box("down", "--jobs")


def opened(page: Any) -> str:
    """Sign in; the address that `yard open` printed."""
    done = page.box("open", "--no-browser")
    assert 0 == done.code, done.err
    page.goto(done.out.strip())
    page.get_by_role("heading", name="Queue").wait_for()
    return str(done.out.strip())


def loaded(page: Any, name: str, tenant: str, load: str) -> int:
    """A job on one GPU that does as much as it is told."""
    done = page.box("submit", "--gpus", 1, "--tenant", tenant, "-t", "1h", "--name", name, "--", "sleep", "600",
                    YARD_EMULATED_LOAD=load)  # fmt: skip
    assert 0 == done.code, done.err
    page.box.wait(int(done.out), "RUNNING")
    return int(done.out)


def sure(page: Any, button: str) -> None:
    """Answer a question."""
    page.get_by_role("dialog").get_by_role("button", name=button, exact=True).click()


def test_a_way_through_the_yard(page: Any, tmp_path: Path) -> None:
    for name in ("first", "second"):
        loaded(page, name, "research", BUSY)
    idle = loaded(page, "forgotten", "product", IDLE)
    opened(page)

    # Which GPU of four does nothing, whose it is and what it costs.
    page.get_by_role("link", name="Yard", exact=True).click()
    aside = page.get_by_role("complementary")
    aside.get_by_text("1 held and not used").wait_for()
    said = aside.inner_text()
    assert f"job {idle} of root for product" in said
    assert "busy 0 %, $" in said
    assert "1 free, $" in said
    looked(page, "walk-yard")

    # A job that waits, why, and by when it starts.
    go(page, "submit")
    page.get_by_label("Name").fill("train")
    page.get_by_label("Tenant").select_option("product")
    page.get_by_label("GPUs for each task").fill("3")
    page.get_by_label("Time limit").fill("30m")
    page.get_by_label("Folder").fill(str(tmp_path))
    page.get_by_label("Script").fill(f"printf '{HOSTILE}\\n'; sleep 600")
    page.get_by_text("over its limit of 3").wait_for()
    page.get_by_role("button", name="Submit").click()
    page.get_by_role("heading", name="Why it waits").wait_for()
    looked(page, "walk-waits")
    go(page, "queue")
    row = page.get_by_role("listitem").filter(has_text="train")
    row.get_by_text("likely by ").wait_for()
    assert "limit" in row.inner_text()

    # A remedy by a button, the log, a shell, the end.
    page.get_by_role("link", name="train").click()
    page.get_by_role("button", name="Submit it with --gpus 1").click()
    sure(page, "Submit")
    page.get_by_role("heading", name="5 train").wait_for()
    page.get_by_role("log").filter(has_text="<img src=x onerror=alert(1)>red link").wait_for()
    assert 0 == page.locator("[role=log] a, [role=log] img").count()
    page.get_by_role("button", name="Shell").click()
    page.get_by_text("Enter ~ . leaves it").wait_for()
    page.keyboard.type("printf '\\033[38;2;9;200;9mhere %s\\033[0m\\n' $YARD_JOB_ID; echo ok > in-shell\n")
    page.locator(".xterm-rows").get_by_text("here 5").wait_for()
    looked(page, "walk-shell")
    assert "ok\n" == (tmp_path / "in-shell").read_text(encoding="utf-8")
    page.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_text("GPU-hours of work that was not saved are lost").wait_for()
    sure(page, "Cancel")
    assert ["CANCELLED"] * 2 == [page.box.wait(number, "CANCELLED")["state"] for number in (4, 5)]

    # A quota, simulated, applied and rolled back.
    page.get_by_role("link", name="Tenants").click()
    page.get_by_role("link", name="Change the quota of product").click()
    text = page.get_by_label("yard.yaml")
    text.fill(text.input_value().replace("limit: 3", "limit: 4"))
    page.locator("ins").get_by_text("4").wait_for()
    page.get_by_role("button", name="Simulate it").click()
    page.get_by_role("heading", name="What it would have done").wait_for()
    looked(page, "walk-whatif")
    page.get_by_role("button", name="Apply").click()
    sure(page, "Apply")
    page.get_by_text("version 2 is in force").first.wait_for()
    assert 4 == limit_of(page.box, "product")
    page.get_by_role("button", name="Roll back", exact=True).click()
    page.get_by_role("dialog").get_by_text("4").wait_for()
    sure(page, "Roll back")
    page.get_by_text("version 3 is in force").first.wait_for()
    assert 3 == limit_of(page.box, "product")


def limit_of(box: Box, tenant: str) -> Any:
    with box.client() as client:
        return next(each["limit"] for each in client.overview()["tenants"] if each["tenant"] == tenant)


def press(page: Any, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def test_the_same_by_keyboard_alone(page: Any, tmp_path: Path) -> None:
    for name in ("first", "second"):
        loaded(page, name, "research", BUSY)
    idle = loaded(page, "forgotten", "product", IDLE)
    opened(page)

    press(page, "?")
    page.get_by_role("dialog").get_by_text("Search").wait_for()
    press(page, "Escape", "g", "y")
    page.get_by_text("1 held and not used").wait_for()
    press(page, "j", "Enter")
    page.get_by_role("heading", name=f"{idle} forgotten").wait_for()

    press(page, "g", "s")
    page.get_by_role("heading", name="Submit").wait_for()
    page.get_by_role("option", name="product").wait_for(state="attached")
    page.keyboard.type("/")
    page.keyboard.type("train")
    press(page, "Tab")
    page.keyboard.type("product")
    for text in ("3", "1", "30m", str(tmp_path)):
        press(page, "Tab")
        page.keyboard.type(text)
    press(page, "Tab")
    page.keyboard.type("echo written; sleep 600")
    page.get_by_text("over its limit of 3").wait_for()
    press(page, "Tab", "Enter")
    page.get_by_role("heading", name="Why it waits").wait_for()
    page.get_by_role("button", name="Submit it with --gpus 1").wait_for()
    press(page, "r", "Tab", "Enter")
    page.get_by_role("heading", name="5 train").wait_for()
    page.get_by_role("log").get_by_text("written").wait_for()
    press(page, "/")
    page.keyboard.type("nothing")
    page.get_by_text("No line has “nothing”").wait_for()
    press(page, "Escape", "s")
    page.get_by_text("Enter ~ . leaves it").wait_for()
    page.keyboard.type("echo in $YARD_JOB_ID\n")
    page.locator(".xterm-rows").get_by_text("in 5").wait_for()
    page.keyboard.type("\n~.")
    page.locator(".xterm").wait_for(state="detached")

    press(page, "g", "q")
    page.get_by_role("heading", name="Queue").wait_for()
    press(page, "/")
    page.keyboard.type("train")
    page.get_by_role("listitem").nth(1).wait_for(state="detached")
    press(page, "Escape", "j", "k", "Enter")
    page.get_by_role("heading", name="5 train").wait_for()
    press(page, "c", "Tab", "Enter")
    assert "CANCELLED" == page.box.wait(5, "CANCELLED")["state"]

    press(page, "g", "t")
    page.get_by_role("link", name="Change the quota of product").wait_for()
    press(page, "j", "Enter")
    page.get_by_label("yard.yaml").wait_for()
    page.wait_for_function(
        "getSelection().toString().includes('product') || document.activeElement.id === 'yaml'"
    )
    page.keyboard.type("  product: {limit: 4}")
    page.locator("ins").get_by_text("4").wait_for()
    # However late the page hears of its new version: keys that follow are its own, and no text of yard.yaml.
    page.route("**/config/versions**", lambda route: (time.sleep(0.5), route.continue_()))
    press(page, "Escape", "a", "Tab", "Enter")
    page.get_by_text("version 2 is in force").first.wait_for()
    assert 4 == limit_of(page.box, "product")
    press(page, "Escape", "r")
    page.get_by_role("dialog").wait_for()
    press(page, "Tab", "Enter")
    page.get_by_text("version 3 is in force").first.wait_for()
    assert 3 == limit_of(page.box, "product")


def test_a_script_that_is_pasted_is_shown_before_it_is_submitted(page: Any, tmp_path: Path) -> None:
    opened(page)
    page.get_by_role("link", name="Submit", exact=True).click()
    page.get_by_role("link", name="Script or YAML").click()
    text = page.get_by_label("Paste a batch script")
    text.fill("#!/bin/sh\n#SBATCH --nodes=many\n")
    page.get_by_text("pasted:2:").wait_for()
    assert page.get_by_role("button", name="Submit").is_disabled()

    text.fill("#!/bin/sh\n#SBATCH --job-name=pasted-job --gpus=1 --time=10 --mail-user=me\nsleep 600\n")
    page.get_by_label("Tenant, if the file names none").select_option("research")
    page.get_by_label("Folder").fill(str(tmp_path))
    page.get_by_text("It starts at once").wait_for()
    said = page.locator("pre").inner_text()
    assert "name: pasted-job" in said
    assert "time_limit_s: 600" in said
    looked(page, "walk-paste")
    page.get_by_role("button", name="Submit").click()
    page.get_by_role("heading", name="1 pasted-job").wait_for()
    assert ("research", "RUNNING") == (
        page.box.wait(1, "RUNNING")["tenant"],
        page.box.wait(1, "RUNNING")["state"],
    )


def test_a_start_stands_apart_from_the_reason(page: Any) -> None:
    """It was `by 10:25 AM ·no room`."""
    page.box("submit", "-g", 4, "--tenant", "research", "-t", "1h", "--name", "holds", "--", "sleep", "600")
    page.box("submit", "-g", 1, "--tenant", "research", "-t", "1h", "--name", "waits", "--", "true")
    opened(page)
    row = page.get_by_role("listitem").filter(has_text="waits")
    row.get_by_text("·").wait_for()
    assert re.search(r"by [^·]+ · \w", row.inner_text()), row.inner_text()


def test_an_exit_code_is_told_once(page: Any) -> None:
    """It was `exit code 3: exit code 3`."""
    done = page.box("submit", "-g", 1, "--tenant", "research", "--", "sh", "-c", "exit 3")
    page.box.wait(int(done.out), "FAILED")
    opened(page)
    go(page, f"job/{done.out.strip()}")
    page.get_by_text("exit code 3").wait_for()
    assert 1 == page.get_by_role("main").inner_text().count("exit code 3")


def test_submit_again_drops_no_field(page: Any) -> None:
    done = page.box(
        "submit", "--gpus", 1, "--tenant", "research", "-t", "1h", "--name", "whole", "--label", "a=b",
        "--gpu-model", "H100", "--cpus", "1", "--memory", "100M", "--", "sleep", "600", SPECIAL="x y",
    )  # fmt: skip
    assert 0 == done.code, done.err
    opened(page)
    go(page, "submit?from=1")
    page.get_by_text("Kept as it is").wait_for()
    page.get_by_role("button", name="Submit").click()
    page.get_by_role("heading", name="2 whole").wait_for()
    with page.box.client() as client:
        first, second = (client.request(str(number))["request"] for number in (1, 2))
    assert first == second


def test_a_job_is_changed_on_its_page(page: Any) -> None:
    """What would become of it is looked at first; a job that asks for more is told to be behind others."""
    runs = loaded(page, "runs", "research", IDLE)
    waits = page.box(
        "submit", "-g", 4, "--tenant", "research", "-t", "1h", "--name", "big", "--", "sleep", "600"
    ).out.strip()
    opened(page)
    go(page, f"job/{waits}")
    page.get_by_role("button", name="Change", exact=True).click()
    form = page.get_by_role("region", name=f"Change job {waits}")
    form.get_by_text("Nothing is changed yet.").wait_for()
    form.get_by_label("GPUs for each task").fill("2")
    form.get_by_role("button", name="Look first").click()
    form.get_by_text("It starts at once").wait_for()
    form.get_by_label("GPUs for each task").fill("4")
    form.get_by_label("Time limit").fill("90m")
    form.get_by_role("button", name="Change", exact=True).click()
    page.get_by_text("it asks for more than before").wait_for()
    page.get_by_text("at most 1 h 30 min").wait_for()
    with page.box.client() as client:
        changed = client.job(waits, explain=False)
        assert (4, 5400) == (changed["gpus"], changed["time_limit_s"]), "the yard has it too"
    page.get_by_role("button", name="Change", exact=True).click()
    form.get_by_label("Class").fill("nosuch")
    form.get_by_role("button", name="Change", exact=True).click()
    form.get_by_text("unknown class").wait_for()
    looked(page, "change")

    go(page, f"job/{runs}")
    page.get_by_role("button", name="Change", exact=True).click()
    form = page.get_by_role("region", name=f"Change job {runs}")
    form.get_by_label("Time limit").fill("2h")
    form.get_by_role("button", name="Change", exact=True).click()
    page.get_by_text("at most 2 h").wait_for()
    with page.box.client() as client:
        assert (7200, 1) == tuple(
            client.job(runs, explain=False)[key] for key in ("time_limit_s", "attempts")
        )


def test_an_array_is_shown_and_cancelled_as_one(page: Any) -> None:
    done = page.box("submit", "--gpus", 1, "--tenant", "research", "-t", "1h", "--array", "0-5", "--name", "sweep",
                    "--", "sleep", "600")  # fmt: skip
    assert 0 == done.code, done.err
    page.box.wait("1_0", "RUNNING")
    opened(page)
    go(page, "job/1")
    page.get_by_role("heading", name="1 sweep").wait_for()
    page.get_by_role("row").filter(has_text="1_5").wait_for()
    page.get_by_role("button", name="Cancel").click()
    said = page.get_by_role("dialog").inner_text()
    assert ("Its tasks that wait leave the queue" in said, False) == (True, "NaN" in said)
    sure(page, "Cancel")
    page.get_by_text("cancelled").first.wait_for()


def test_a_code_signs_in_once(page: Any) -> None:
    used = opened(page)
    assert "open/" not in page.evaluate("location.href")
    cookie = page.context.cookies()[0]
    assert (True, "Strict") == (cookie["httpOnly"], cookie["sameSite"])
    page.get_by_role("button", name="Sign out").click()
    page.get_by_text("yard open").first.wait_for()
    page.goto("about:blank")
    page.goto(used)
    page.get_by_text("the code was used already").wait_for()


def test_the_page_goes_on_when_the_yard_comes_back(page: Any, tmp_path: Path) -> None:
    opened(page)
    port = page.box.note()["port"]
    page.box("down")
    page.get_by_text("The yard is away").wait_for()
    looked(page, "away")
    go(page, "cost/statement")
    page.get_by_text("It is shown here once the yard answers again").wait_for()
    go(page, "queue")
    assert 0 == page.box("up", "-d", "--port", port, "--config", page.box.config).code
    page.get_by_text("The yard is away").wait_for(state="detached")
    page.box.submit("--gpus", 1, "--tenant", "research", "--name", "later", "--", "sleep", "600")
    page.get_by_role("link", name="later").wait_for()
