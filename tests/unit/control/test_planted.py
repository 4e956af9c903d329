"""What somebody puts into the folder where the yard was started is run by none of its processes."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard import interpreter
from gpuyard.cli.commands.foresight import demo_yard
from gpuyard.config.reading import loads
from gpuyard.control.commands.configs import Proposal
from gpuyard.control.foresight.previews import Previews
from gpuyard.control.parsing import Parser
from gpuyard.control.replica.follower import Follower
from gpuyard.control.replica.questions import QuestionContext
from gpuyard.control.upkeep.reading_ahead import ReadingAhead
from gpuyard.engines.engine_process import start_process
from gpuyard.keys.problems import ConfigError
from harness.patience import until
from harness.planted_folder import PlantedFolder
from rigs.request_service import rig


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlantedFolder]:
    made = PlantedFolder(tmp_path)
    monkeypatch.chdir(made.path)
    yield made
    assert [] == made.ran()


def test_the_process_that_reads_texts_runs_none_of_it(planted: PlantedFolder) -> None:
    parse = Parser(("gpuyard.config.reading",))
    try:
        with pytest.raises(ConfigError, match="add 'version: 1'"):
            parse(loads, "tenants: {}")
    finally:
        parse.close()


def test_the_process_that_answers_questions_runs_none_of_it(planted: PlantedFolder, tmp_path: Path) -> None:
    with rig(tmp_path) as found:
        follower = Follower(found.replica.store.place, ("gpuyard.control.views.views",))
        try:
            assert QuestionContext is follower.ask(found.replica.seq, False, type, ())
        finally:
            follower.close()


def test_the_process_that_reads_ahead_runs_none_of_it(planted: PlantedFolder, tmp_path: Path) -> None:
    with rig(tmp_path) as found:
        ahead = ReadingAhead(found.replica.store.place, 0, 1, 1)
        try:
            assert 1 == len(ahead.after(0, 1))
        finally:
            ahead.close()


def test_a_preview_runs_none_of_it(planted: PlantedFolder, tmp_path: Path) -> None:
    async def last(previews: Previews, proposal: Proposal) -> dict[str, object]:
        return [line async for line in previews.run(proposal, [], 1)][-1]

    with rig(tmp_path) as found:
        settings = found.replica.state.settings
        assert {"preview"} == set(
            asyncio.run(last(Previews(found.replica, found.now_ms), Proposal("", settings)))
        )


def test_a_new_process_of_the_engine_runs_none_of_it(planted: PlantedFolder) -> None:
    child = start_process()
    try:
        comm = Path(f"/proc/{child.pid}/comm")
        until(lambda: comm.read_text(encoding="utf-8") == "yard-engine\n")
    finally:
        child.end()


def test_the_yards_of_a_demo_run_none_of_it(planted: PlantedFolder) -> None:
    demo_yard._command("--version")


def test_what_pythonpath_names_stays_what_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(interpreter.PATH, "/a::b:")
    assert f"/a{os.pathsep}{tmp_path}/b" == interpreter.environment()[interpreter.PATH]
    monkeypatch.setenv(interpreter.PATH, "")
    assert "" == interpreter.environment()[interpreter.PATH]
