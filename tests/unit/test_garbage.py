"""What a server keeps of memory that was freed."""

import gc
import json
import subprocess
import sys
import weakref

import pytest

from gpuyard.garbage import strip_traceback

SCRIPT = """
import json, sys, threading
from pathlib import Path
from gpuyard.garbage import give_back_large

def mib():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4 // 1024

def work():
    for _ in range(20):
        first = bytearray(900_000)
        second = bytes(first).decode("ascii")
        kept.append([str(number) for number in range(200)])
        del first, second

if sys.argv[1] == "less":
    give_back_large()
kept, before = [], mib()
for _ in range(2):
    threads = [threading.Thread(target=work) for _ in range(24)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
print(json.dumps(mib() - before))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_long_scripts_took_goes_back() -> None:
    kept = {
        how: json.loads(
            subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, check=True).stdout
        )
        for how in ("less", "as ever")
    }
    assert kept["less"] < 32
    assert kept["less"] < kept["as ever"]


def test_an_error_that_was_dealt_with_holds_no_call_nor_does_the_one_it_came_from() -> None:
    class Work:
        """What a call works on."""

    class Deep(Exception):
        """As a library raises it: its call holds it, too."""

    def fails() -> None:
        work = Work()
        seen.append(weakref.ref(work))
        error = Deep()
        raise error

    seen: list[weakref.ref[Work]] = []
    gc.disable()
    try:
        try:
            try:
                fails()
            except Deep:
                raise ValueError from None
        except ValueError as error:
            kept = strip_traceback(error)
        assert [None] == [each() for each in seen]
        assert (None, None) == (kept.__context__, kept.__traceback__)
    finally:
        gc.enable()
