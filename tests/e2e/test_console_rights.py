"""Each role in a real Chromium, over TLS: what it sees and may press is what the server's table of rights says.

The pages, buttons and links of the console stand here with the action that each takes; whether somebody gets them is
asked of `control/access/rights.py` alone.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from e2e.test_auth import Secured
from gpuyard.control.access.rights import Right, Rights, Role, may, may_ever
from gpuyard.wire.endpoints import Action
from rigs.console.browser import go, page_of
from rigs.teams import ROLES

pytestmark = pytest.mark.rig
RIGHTS: dict[str, Rights] = {
    "viewer": (Right(Role.VIEWER, "research"),),
    "user": (Right(Role.USER, "research"),),
    "tenant-admin": (Right(Role.TENANT_ADMIN, "research"),),
    "admin": (Right(Role.ADMIN),),
}
"""As yard.yaml has them."""
PAGES = {
    "Queue": Action.SEE_QUEUE,
    "Yard": Action.SEE_NODES,
    "Submit": Action.SUBMIT,
    "Nodes": Action.SEE_NODES,
    "Tenants": Action.SEE_TENANTS,
    "Money": Action.SEE_TENANTS,
    "What if": Action.MANAGE_CONFIG,
    "Audit": Action.SEE_ALL,
}
ON_JOB = {
    "Cancel": (Action.ACT_ON_JOB,),
    "Requeue": (Action.ACT_ON_JOB,),
    "Suspend": (Action.ACT_ON_JOB,),
    "Shell": (Action.ENTER_JOB,),
    "Submit again": (Action.READ_JOB, Action.SUBMIT),
    "Log": (Action.READ_JOB,),
}
"""What the page of a running job has, and what somebody must be allowed to do for it."""
OWNERS = {"same": ("carl", "research/carl"), "sub": ("dora", "research/vision"), "other": ("erik", "product")}


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("roles") / "yard")
    made.up()
    yield made
    made("down", "--jobs")


@pytest.fixture(scope="module")
def jobs(yard: Secured) -> dict[str, tuple[int, str, str]]:
    """A running job of each person that may submit: its number, its owner and its tenant."""
    wanted = {relation: (user, tenant) for relation, (user, tenant) in OWNERS.items()}
    wanted |= {f"own {role}": (user, "research") for role, user in ROLES.items() if role != "viewer"}
    found = {}
    for relation, (user, tenant) in wanted.items():
        words = ("--gpus", 1, "--tenant", tenant, "-t", "1h", "--name", f"of-{user}", "--", "sleep", "900")
        done = yard("submit", *words, YARD_TOKEN=yard.token(user), YARD_URL=yard.url, YARD_CA=str(yard.cert))
        assert 0 == done.code, done.err
        yard.wait(int(done.out), "RUNNING")
        found[relation] = (int(done.out), user, tenant)
    return found


def has(page: Any, control: str) -> bool:
    """Whether the page has a button, a link or a part of that name."""
    return any(
        [
            page.get_by_role(kind, name=control, exact=True).count() > 0
            for kind in ("button", "link", "heading")
        ]
    )


@pytest.mark.parametrize("role", ROLES)
def test_a_role_sees_and_may_do_what_the_table_says(
    role: str, yard: Secured, chrome: Any, jobs: dict[str, tuple[int, str, str]]
) -> None:
    rights = RIGHTS[role]
    with page_of(chrome, f"{yard.url}/", ignore_https_errors=True) as page:
        page.goto(f"{yard.url}/")
        page.get_by_label("token").fill(yard.token(ROLES[role]))
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", name="Queue").wait_for()
        assert [(True, "Strict", True)] == [
            (each["httpOnly"], each["sameSite"], each["secure"]) for each in page.context.cookies()
        ]

        links = set(page.get_by_role("navigation").get_by_role("link").all_inner_texts())
        assert {name for name, action in PAGES.items() if may_ever(rights, action)} == links
        page.get_by_role("listitem").nth(len(jobs) - 1).wait_for()

        for relation, (number, owner, tenant) in jobs.items():
            own = owner == ROLES[role]
            row = page.get_by_role("listitem").filter(
                has=page.get_by_label(f"Choose job {number}", exact=True)
            )
            sees, text = may(rights, Action.SEE_JOB, tenant), row.inner_text()
            assert [sees, not sees] == [f"of-{owner}" in text, "another tenant's" in text], relation
            # What is hidden reads as 0, and so long ago no job began.
            assert " d " not in text, relation
            allowed = may(rights, Action.ACT_ON_JOB, tenant, own=own)
            assert allowed == row.get_by_role("checkbox").is_enabled(), relation
            assert allowed == (row.get_by_label(f"Cancel job {number}", exact=True).count() == 1), relation

        for relation, (number, owner, tenant) in jobs.items():
            own = owner == ROLES[role]
            go(page, f"job/{number}")
            if not may(rights, Action.SEE_JOB, tenant):
                page.get_by_role("alert").get_by_text(f"no job {number}").wait_for()
                continue
            page.get_by_role("heading", name=f"{number} of-{owner}").wait_for()
            page.get_by_role("heading", name="Tries").wait_for()
            told = {control: has(page, control) for control in ON_JOB}
            wanted = {
                control: all([may(rights, each, tenant, own=own) for each in actions])
                for control, actions in ON_JOB.items()
            }
            assert wanted == told, relation

        go(page, "nodes")
        page.get_by_role("cell", name="box").first.wait_for()
        manages = may(rights, Action.MANAGE_NODES, "")
        assert manages == (page.get_by_role("button", name="Drain").count() > 0)
        go(page, "tenants")
        page.get_by_role("cell", name="research", exact=True).first.wait_for()
        assert may(rights, Action.MANAGE_CONFIG, "") == (page.get_by_role("link", name="Change").count() > 0)

        # A page that was typed in, without the right to it, says so.
        for name, action in (
            ("audit", Action.SEE_ALL),
            ("whatif", Action.MANAGE_CONFIG),
            ("submit", Action.SUBMIT),
        ):
            go(page, name)
            refused = page.get_by_role("alert").get_by_text("do not reach this page")
            if may_ever(rights, action):
                page.get_by_role("heading", level=1).wait_for()
                assert 0 == refused.count()
            else:
                refused.wait_for()
