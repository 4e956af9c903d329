"""The console when things go wrong under an open page: tokens end, servers are killed, jobs end, people sign in twice.

And when people do what nobody thought of: double clicks, a reload within a form, addresses that were cut off.
"""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.test_auth import Secured
from e2e.test_console_pictures import PAGES
from rigs.console.browser import NARROW, PATIENCE_MS, fits, go, page_of

pytestmark = pytest.mark.rig
CUT = (
    "job/%", "job/%E0%A4%A", "job/", "job/1/2", "queue?q=%&state=%00&tenant=..%2F..&mine=2", "nodes?q=(%5B*",
    "yard?by=none&q=%F0", "submit?from=999&with={", "submit?from=1&with=%7B", "submit/paste/more", "constructor", "?",
    "//", "cost?by=__proto__&from=x&to=%", "cost/statement?tenant=%2F&month=x", "whatif?tenant=(", "tenants?q=%22%27",
)  # fmt: skip
"""Addresses that somebody cut off or made up."""


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("mishaps") / "yard")
    made.up()
    yield made
    made("down", "--jobs")


@pytest.fixture
def page(chrome: Any, yard: Secured) -> Iterator[Any]:
    """Signed in as an administrator."""
    with page_of(chrome, f"{yard.url}/", ignore_https_errors=True) as found:
        entered(found, yard, yard.token("adam"))
        yield found


def entered(page: Any, yard: Secured, token: str) -> None:
    page.goto(f"{yard.url}/")
    page.get_by_label("token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="Queue").wait_for()


def submitted(yard: Secured, name: str, *command: str) -> int:
    done = yard("submit", "--gpus", 0, "--tenant", "research", "-t", "1h", "--name", name, "--", *command)
    assert 0 == done.code, done.err
    return int(done.out)


def test_a_second_person_on_another_page_is_not_taken_for_the_first(page: Any, yard: Secured) -> None:
    job = submitted(yard, "secret-of-research", "sleep", "900")
    page.get_by_role("link", name="secret-of-research").wait_for()
    go(page, "submit")
    page.get_by_label("Script").fill("echo mine")
    other = page.context.new_page()
    other.set_default_timeout(PATIENCE_MS)
    other.goto(f"{yard.url}/")
    other.get_by_role("button", name="Sign out").click()
    page.get_by_text("This browser was signed out on another page").wait_for()
    entered(other, yard, yard.token("erik"))

    # The first page goes on as the second person, says so, and shows nothing of the first.
    page.get_by_text("This browser is now signed in as erik").or_(
        page.locator("header").get_by_text("erik")
    ).first.wait_for()
    go(page, "submit")
    assert "" == page.get_by_label("Script").input_value()
    go(page, f"job/{job}")
    page.get_by_text(f"no job {job}").wait_for()
    assert 0 == page.get_by_role("link", name="What if").count()
    other.close()
    yard("cancel", job)


def test_a_token_that_is_revoked_closes_pages_and_one_that_is_new_opens_them(
    chrome: Any, yard: Secured
) -> None:
    with page_of(chrome, f"{yard.url}/", ignore_https_errors=True) as page:
        token = yard.token("ulla")
        entered(page, yard, token)
        assert 0 == yard("token", "revoke", token).code
        page.get_by_text("this browser was signed out").wait_for()
        assert "secret" not in page.locator("body").inner_text()
        entered(page, yard, yard.token("ulla"))


def test_rows_are_right_after_the_server_was_killed(page: Any, yard: Secured) -> None:
    go_on = yard.data.parent / "go-on"
    before = submitted(yard, "before", "sh", "-c", f"until [ -e {go_on} ]; do sleep 0.1; done")
    yard.wait(before, "RUNNING")
    page.get_by_role("link", name="before").wait_for()
    port = yard.note()["port"]
    os.kill(yard.note()["pid"], signal.SIGKILL)
    page.get_by_text("The yard is away").wait_for()
    # The job ends while no page is connected: nothing tells them of it.
    go_on.touch()
    # A page that asks nothing by itself finds out that the yard is away, too.
    go(page, "whatif")
    page.get_by_text("It is shown here once the yard answers again").wait_for()
    yard.up(port)
    page.get_by_text("The yard is away").wait_for(state="detached")
    page.get_by_label("yard.yaml").wait_for()
    assert 0 == yard.wait(before, "COMPLETED")["exit_code"]
    after = submitted(yard, "after", "sleep", "900")
    yard.wait(after, "RUNNING")
    go(page, "queue")
    page.get_by_role("link", name="after").wait_for()
    page.get_by_text("1 running, 0 waiting").wait_for()
    assert 0 == page.get_by_role("link", name="before").count()
    yard("cancel", after)


def test_a_shell_stays_to_be_read_when_its_job_ends(page: Any, yard: Secured) -> None:
    job = submitted(yard, "short", "sleep", "900")
    yard.wait(job, "RUNNING")
    go(page, f"job/{job}")
    page.get_by_role("button", name="Shell").click()
    page.get_by_text("Enter ~ . leaves it").wait_for()
    page.keyboard.type("echo last words $((40 + 2))\n")
    page.locator(".xterm-rows").get_by_text("last words 42").wait_for()
    yard("cancel", job)
    page.get_by_text("cancelled", exact=True).wait_for()
    page.get_by_text("Enter ~ . leaves it").wait_for(state="detached")
    assert "last words 42" in page.locator(".xterm-rows").inner_text()
    page.get_by_role("button", name="Close").click()
    page.locator(".xterm").wait_for(state="detached")


def test_what_is_typed_outlives_a_reload_and_is_sent_once(page: Any, yard: Secured) -> None:
    go(page, "submit")
    page.get_by_label("Name").fill("n" * 10_000)
    page.get_by_label("GPUs for each task").fill("many")
    page.get_by_text("GPUs for each task: a whole number").wait_for()
    assert page.get_by_role("button", name="Submit").is_disabled()
    page.get_by_label("GPUs for each task").fill("0")
    page.get_by_label("Tenant").select_option("research")
    page.get_by_label("Script").fill("sleep 900")
    page.get_by_role("alert").wait_for()
    assert fits(page)
    page.reload()
    page.get_by_label("Script").wait_for()
    assert ("sleep 900", "0") == (
        page.get_by_label("Script").input_value(),
        page.get_by_label("GPUs for each task").input_value(),
    )
    page.get_by_label("Name").fill("twice")
    page.get_by_text("It starts at once").wait_for()
    page.get_by_role("button", name="Submit").dblclick()
    page.get_by_role("heading", name="twice").wait_for()
    with yard.client() as client:
        (row,) = [each for each in client.queue()["rows"] if "twice" in each]
    page.go_back()
    page.get_by_role("heading", name="Submit").wait_for()
    assert "" == page.get_by_label("Script").input_value()
    page.go_forward()
    page.get_by_role("heading", name="twice").wait_for()
    yard("cancel", row[0])


def test_addresses_that_were_cut_off_break_nothing(page: Any, yard: Secured) -> None:
    """Nor does any page at twice the size, where motion is not wanted: `page_of` watches for errors of scripts."""
    page.emulate_media(reduced_motion="reduce")
    for width, height in ((720, 450), (NARROW, 844)):
        page.set_viewport_size({"width": width, "height": height})
        for place in (*CUT, *PAGES):
            go(page, place)
            page.wait_for_timeout(50)
            assert fits(page), place
            assert page.locator("main").inner_text().strip(), place
    job = submitted(yard, "again", "true")
    go(page, f"submit?from={job}&with=%7B")
    page.get_by_text("this link was cut off").wait_for()
    page.goto("about:blank")
    page.goto(f"{yard.url}/#/job/%")
    page.get_by_role("alert").wait_for()
