"""Other users of this machine, without accounts: processes with another number, which only root can make."""

import json
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

OTHER = 54_321
THIRD = 54_322
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as other users")


def act(uid: int, what: Callable[[], Any]) -> Any:
    """What somebody else gets to see, as JSON has it, in a process of theirs. What they do not get raises here."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.close(read)
            _become(uid)
            os.write(write, json.dumps(what()).encode())
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as news:
        text = news.read()
    _, status = os.waitpid(child, 0)
    assert 0 == status, "the other user's part failed; its traceback is above"
    return json.loads(text)


@contextmanager
def meanwhile(uid: int, what: Callable[[], Any]) -> Iterator[int]:
    """Somebody else does something for as long as the block lasts; the pid of their process."""
    child = os.fork()
    if not child:
        try:
            _become(uid)
            what()
        finally:
            os._exit(0)
    try:
        yield child
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def _become(uid: int) -> None:
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)


def refused(what: Callable[[], Any]) -> str:
    """The name of the error that it meets; empty: none."""
    try:
        what()
    except OSError as error:
        return type(error).__name__
    return ""
