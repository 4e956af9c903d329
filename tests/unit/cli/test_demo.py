"""`yard demo`: it tells its story and leaves a report."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpuyard.cli.commands.foresight import demo, demo_use, demo_yard
from gpuyard.config.reading import loads
from gpuyard.core import State, apply
from gpuyard.core.explain.admission import impossible_reason
from gpuyard.model import ConfigSet, NodeAdded
from gpuyard.sim import generate
from gpuyard.sim.study import cut_trace

from .conftest import Done, Yard


class NVMLError(Exception):
    """What the driver's library raises."""


class Looked(Exception):
    """Ends a demo once there is something to look at."""


TEAMS = ("interns", "product", "research")


@pytest.fixture
def shown(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> Done:
    """The demo on the first day of its week, which is enough to tell the story of."""
    week = generate.teams_week
    monkeypatch.setattr(generate, "teams_week", lambda seed: cut_trace(week(seed), 600))
    return yard("demo", "--no-live")


def test_a_table_two_sentences_and_a_report(shown: Done, tmp_path: Path) -> None:
    assert (0, "") == (shown.code, shown.err)
    lines = shown.out.splitlines()
    assert [1, 1] == [sum(line.startswith(f"{policy} ") for line in lines) for policy in demo.POLICIES]
    text = " ".join(shown.out.split())
    assert "With default instead of fifo the teams wait on average: " in text
    assert all(f" {team} " in text.partition("on average: ")[2] for team in TEAMS)
    assert "The price: " in text
    assert re.search(
        r"With default instead of fifo the \d+ jobs of 17\+ GPUs wait: median \S+ \w+ → \S+ \w+, 95 % within ",
        text,
    )
    assert "An average GPU-hour of work waits " in text
    report = tmp_path / demo.REPORT_NAME
    assert f"The report, with plots: {report}" in text
    assert report.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "\x1b" not in shown.out
    assert "\u00a0" not in shown.out


def test_gpus_that_cannot_be_asked_are_not_shown_and_end_no_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise NVMLError("GPU is lost")

    names = {"nvmlInit": list, "nvmlShutdown": list, "nvmlDeviceGetCount": refuse}
    driver = SimpleNamespace(NVMLError=NVMLError, **names)
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    count, why = demo_yard._own_gpus()

    assert 0 == count
    assert "its own cannot be asked" in why
    assert "GPU is lost" in why


def test_what_to_do_next_is_said_and_what_is_asked_for_is_kept(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    week = generate.teams_week
    monkeypatch.setattr(generate, "teams_week", lambda seed: cut_trace(week(seed), 60))
    done = yard("demo", "--no-live", "--keep", "made/kept")
    assert (0, "") == (done.code, done.err)
    kept = tmp_path / "made" / "kept"
    assert {demo.REPORT_NAME, "yard.yaml"} == {path.name for path in kept.iterdir()}
    text = " ".join(done.out.split())
    for line in (
        "yard up -d",
        "yard run -g 1 -- echo hello",
        "yard simulate --help",
        str(kept / "yard.yaml"),
    ):
        assert line in text
    assert 0 == yard("validate", kept / "yard.yaml").code

    (tmp_path / "file").touch()
    refused = yard("demo", "--keep", "file/x")
    assert (2, "") == (refused.code, refused.out)
    assert "--keep file/x: cannot be made: Not a directory" in refused.err


def test_nothing_is_rejected_in_the_whole_week() -> None:
    """The demo would have to explain it."""
    config = loads(demo._configuration(), "demo.yaml")
    state = State()
    apply(state, ConfigSet(0, config.settings))
    nodes = [node for pool in config.pools for node in pool.nodes]
    for node in nodes:
        apply(state, NodeAdded(0, node))
    assert generate.WEEK_GPUS == sum(node.gpus for node in nodes)
    specs = generate.teams_week(0).specs
    assert [] == [spec for spec in specs if impossible_reason(state, spec) is not None]
    assert {spec.klass for spec in specs} <= {klass.name for klass in config.settings.classes} | {""}


def test_the_report_goes_where_it_is_wanted(yard: Yard, tmp_path: Path) -> None:
    done = yard("demo", "--report", "no/such/dir.html")
    assert (2, "") == (done.code, done.out)
    assert done.err.startswith("yard: no/such/dir.html: there is no directory")


def test_the_end_says_how_to_type_yard_where_the_shell_does_not_find_it(tmp_path: Path) -> None:
    own = f"{tmp_path}/.venv/bin/yard"
    assert f'export PATH="{tmp_path}/.venv/bin:$PATH"' == demo.path_line(None, own)
    assert f'export PATH="{tmp_path}/.venv/bin:$PATH"' == demo.path_line("/usr/bin/yard", own)
    assert "" == demo.path_line(own, own)
    assert "" == demo.path_line(None, "/usr/lib/gpuyard/cli/__main__.py")


def test_what_is_waited_for_is_said_before_it_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    began_ms = 60_000
    said: list[str] = []

    def queue() -> object:
        assert "three jobs" in " ".join(said), "nothing has said what is waited for"
        if drawn := capsys.readouterr().err:
            raise Looked(drawn)
        return {"columns": ["id", "started_ms"], "rows": [[1, began_ms], [2, None]]}

    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("time.time", lambda: began_ms / 1000 + 5)
    with pytest.raises(Looked, match=f"1 of 3 done, {demo_use.RUN_S} s left"):
        demo_use._show_use(SimpleNamespace(queue=queue), said.append)  # type: ignore[arg-type]
