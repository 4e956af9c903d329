"""What tests need beside Python: packages of Debian's, installed where root may, or a sentence that says why not."""

import os
import shutil

import pytest

from rigs.accounts import CannotChange, change_accounts

_WAIT_S = 300
"""Tests beside this one may install something too."""


class Missing(Exception):
    """It cannot be had here; says why."""


def install(*packages: str) -> None:
    """Get packages of Debian's, without those that they recommend; `Missing` if this is not root on Debian."""
    named = " ".join(packages)
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Missing(
            f"{named}: not installed, and only root on Debian can be helped: apt-get install {named}"
        )
    apt = ["apt-get", "-o", f"DPkg::Lock::Timeout={_WAIT_S}", "-qq"]
    get = [*apt, "install", "-y", "--no-install-recommends", *packages]
    try:
        change_accounts(*get)
    except CannotChange:
        try:
            change_accounts(*apt, "update")
            change_accounts(*get)
        except CannotChange as error:
            raise Missing(f"apt-get could not install {named}: {error}") from None


def skip_or_fail(why: str) -> None:
    """Where a part cannot be had: the machine that judges changes must have it, others may do without."""
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(why, pytrace=False)
    pytest.skip(why)
