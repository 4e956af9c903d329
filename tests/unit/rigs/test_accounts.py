"""Tests of root see nobody but the system, also after somebody has made an account beside them."""

import os
import pwd
import subprocess
from collections.abc import Iterator

import pytest

from gpuyard.control.access.people import is_person
from rigs.accounts import CannotChange, change_accounts, hide_people

pytestmark = [pytest.mark.rig, pytest.mark.skipif(os.geteuid() != 0, reason="only root adds accounts")]
PERSON, SYSTEM = "yardview-person", "yardview-system"


@pytest.fixture
def accounts() -> Iterator[None]:
    """One of a person, so that there is somebody to hide, and one of the system."""
    try:
        change_accounts("useradd", "--no-create-home", "--shell", "/bin/bash", PERSON)
        change_accounts("useradd", "--system", "--shell", "/usr/sbin/nologin", SYSTEM)
        yield
    finally:
        for name in (PERSON, SYSTEM):
            change_accounts("sh", "-c", f"userdel {name} || ! grep -q ^{name}: /etc/passwd")


def people() -> list[str]:
    return [entry.pw_name for entry in pwd.getpwall() if is_person(entry.pw_uid, entry.pw_shell)]


def test_accounts_are_added_and_those_of_people_stay_hidden(accounts: None) -> None:
    assert [] == people()
    assert SYSTEM in {entry.pw_name for entry in pwd.getpwall()}


def test_the_view_comes_back_when_an_account_was_made_elsewhere(accounts: None) -> None:
    subprocess.run(
        ["umount", "/etc/passwd"], check=True
    )  # What the kernel does when /etc/passwd is replaced.
    assert PERSON in people()
    hide_people()
    assert [] == people()


def test_a_program_that_fails_says_why() -> None:
    with pytest.raises(CannotChange, match="does not exist"):
        change_accounts("userdel", "yardview-nobody")
