"""The server's log stays within bounds, and is written anew where somebody moved it."""

import subprocess
import sys
from pathlib import Path

from harness.patience import patient

WRITER = """
import logging, os, sys
from pathlib import Path
from gpuyard.api.server.serving import ServerLog
path = Path(sys.argv[1])
log = logging.getLogger()
log.addHandler(ServerLog(path, 1000))
for number in range(900):
    log.warning("line %03d", number)
os.write(1, b"a library's own words\\n")
os.rename(path, path.with_name("moved"))
log.warning("after the move")
path.unlink()
log.warning("after the loss")
"""


def test_a_log_is_put_aside_when_it_is_full_and_begun_again_when_it_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "yard.log"
    done = subprocess.run(
        [sys.executable, "-c", WRITER, str(path)],
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )

    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)
    assert {"yard.log", "moved", *(f"yard.log.{n}" for n in range(1, 5))} == {
        each.name for each in tmp_path.iterdir()
    }
    assert "after the loss\n" == path.read_text()
    assert (tmp_path / "moved").read_text().endswith("line 899\na library's own words\n")
    aside = "".join((tmp_path / f"yard.log.{n}").read_text() for n in range(4, 0, -1))
    kept = [
        line for line in (aside + (tmp_path / "moved").read_text()).splitlines() if line.startswith("line")
    ]
    # The oldest are gone; of the others none is missing, doubled or cut.
    assert [f"line {number:03}" for number in range(900 - len(kept), 900)] == kept
    assert 4 * 1000 <= len(aside) <= 4 * 1010
