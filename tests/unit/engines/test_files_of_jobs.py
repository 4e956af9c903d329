"""Files of a job that root reads: no link of the job's leads to another file, and nothing there is waited for."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuyard.engines.local import images
from gpuyard.engines.local.attempt import room
from gpuyard.engines.node.containers import image

Read = Callable[[Path], object]
"""What is read of a job whose folder this is."""


def _facts(folder: Path) -> object:
    return image.read_facts(str(folder), 7)


def _starters(folder: Path) -> object:
    return room.find_starters({"room": {"steps": f"{folder}/7"}})


KINDS = pytest.mark.parametrize(
    ("read", "name", "content", "found"),
    [
        (_facts, image.FACTS, {"image": "anothers"}, {"image": "anothers"}),
        (_starters, room.LEDGER, {"live": [{"pid": 77}]}, {77}),
    ],
)


@KINDS
def test_no_link_on_the_way_is_followed(
    tmp_path: Path, read: Read, name: str, content: object, found: object
) -> None:
    theirs, own = tmp_path / "theirs", tmp_path / "own"
    for folder in (theirs / "7", own):
        folder.mkdir(parents=True)
    (theirs / "7" / name).write_text(json.dumps(content))
    assert found == read(theirs)

    (own / "7").symlink_to(theirs / "7")
    assert not read(own)
    (own / "7").unlink()
    (own / "7").mkdir()
    (own / "7" / name).symlink_to(theirs / "7" / name)
    assert not read(own)


@KINDS
def test_a_pipe_is_not_waited_for(
    tmp_path: Path, read: Read, name: str, content: object, found: object
) -> None:
    del content, found
    (tmp_path / "7").mkdir()
    pipe = tmp_path / "7" / name
    os.mkfifo(pipe)
    assert not read(tmp_path)
    # Of one that somebody writes to, there may be nothing to read for ever.
    writer = os.open(pipe, os.O_RDWR)
    assert not read(tmp_path)
    os.close(writer)


def test_a_store_of_images_that_does_not_answer_keeps_no_other_from_being_pruned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = tmp_path / "store"
    (store / "overlay-images").mkdir(parents=True)
    os.mkfifo(store / "overlay-images" / "images.json")
    assert {} == images._pruned(str(store), os.geteuid(), 0, dry_run=True, within_s=1.0)
    assert [store] == list(tmp_path.iterdir())
