"""`yard shell JOB -- COMMAND` in pipes, where a stream has been closed or its reader has gone."""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from gpuyard.cli.connection import piped_command

from .conftest import environment


class _Shown:
    """A visit in which a command writes, and no server has to be."""

    def messages(self) -> Iterator[tuple[bytes, bytes]]:
        yield b"d", b"a line\n"


def test_a_reader_that_has_gone_is_no_lost_connection() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    visit: Any = _Shown()
    with pytest.raises(BrokenPipeError):
        piped_command.passed_on(visit, 1, reads=False, out={b"d": writes})
    os.close(writes)


def test_nothing_else_gets_the_number_of_a_closed_standard_input() -> None:
    """A connection that is opened first would be read as what a person sends."""
    look = (
        "import os; from gpuyard.cli import _prepare_streams; _prepare_streams(); "
        "print(os.readlink('/proc/self/fd/0'))"
    )
    words = ["sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-c", look]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, check=True)
    assert "/dev/null\n" == done.stdout
