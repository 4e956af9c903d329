"""What a user is told whose yard cannot limit jobs."""

import codecs
import os

import pytest

from gpuyard.engines.local.attempt import cgroups
from gpuyard.engines.local.fencing import Groups


def test_it_says_whose_yard_can_and_no_error_of_the_system() -> None:
    assert "only a yard that root starts can hold them to that" == cgroups.who_can(systemd=False)
    assert "or one that `yard service install --user` has set up, can" in cgroups.who_can(systemd=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_user_without_groups_is_told_so() -> None:
    # Looked up before: the other user may not read Python's own folder.
    codecs.lookup("ascii")
    ears, mouth = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            os.setresuid(65534, 65534, 65534)
            os.write(mouth, Groups("/nowhere/of/a/user", wanted=True).note.encode())
        finally:
            os._exit(0)
    os.close(mouth)
    os.waitpid(pid, 0)
    with os.fdopen(ears) as file:
        note = file.read()
    if note.startswith("jobs may use more memory and CPU than they ask for: no cgroup v2 tree"):
        pytest.skip(note)
    assert note.startswith("jobs may use more memory and CPU than they ask for: only a yard that root starts")
