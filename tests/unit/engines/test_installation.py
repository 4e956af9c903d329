"""Whether other users can run what their jobs need of gpuyard: every folder on the way counts, through every link."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.engines.machine import installation
from gpuyard.engines.machine.installation import first_hidden, note_for_others


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everybody reaches, as that of pytest is not."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def _program(path: Path, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def test_a_folder_that_only_root_enters_is_named_wherever_it_is_on_the_way(place: Path) -> None:
    python = _program(place / "home" / "gpuyard" / "bin" / "python3")
    assert first_hidden([str(python)]) is None
    (place / "home").chmod(0o700)
    found = first_hidden([str(python)])
    assert f"{place}/home has mode 0700" == str(found)


def test_links_are_followed_to_the_interpreter_that_they_mean(place: Path) -> None:
    real = _program(place / "root" / ".pyenv" / "bin" / "python3.11")
    (place / "env").mkdir()
    (place / "env" / "python3").symlink_to("../shims/python3")
    (place / "shims").symlink_to(place / "root" / ".pyenv" / "bin")
    (real.parent / "python3").symlink_to("python3.11")
    link = str(place / "env" / "python3")
    assert first_hidden([link]) is None
    (place / "root").chmod(0o750)
    found = first_hidden([link])
    assert (link, f"{place}/root has mode 0750") == (found.path if found else "", str(found))


def test_a_program_needs_to_be_run_and_a_file_to_be_read(place: Path) -> None:
    assert "0744" in str(first_hidden([str(_program(place / "srun", 0o744))]))
    assert first_hidden([str(_program(place / "module.py", 0o644))]) is None
    assert "0640" in str(first_hidden([str(_program(place / "module.py", 0o640))]))


def test_the_note_says_what_is_in_the_way_and_where_to_install(place: Path) -> None:
    python = _program(place / "home" / "bin" / "python3")
    links = place / "data" / "slurm"
    links.mkdir(parents=True)
    assert "" == note_for_others(str(links), lambda: [str(python)])
    (place / "data").chmod(0o700)
    assert "choose another folder for the data" in note_for_others(str(links), lambda: [str(python)])
    (place / "home").chmod(0o700)
    note = note_for_others(str(links), lambda: [str(python)])
    assert f"{place}/home has mode 0700, on the way to {python}; install gpuyard" in note
    assert f"-m venv {installation.place()} && " in note


@pytest.mark.parametrize(("has", "first"), [("1", ""), ("0", "apt-get install -y python3-venv && ")])
def test_the_note_gets_what_debian_keeps_apart(place: Path, has: str, first: str) -> None:
    python = _program(place / "home" / "bin" / "python3")
    (place / "home").chmod(0o700)
    stand_in = place / "system-python"
    stand_in.write_text(f'#!/bin/sh\n[ "$*" = "-c import ensurepip" ] && [ {has} = 1 ]\n')
    stand_in.chmod(0o755)
    assert f"may read: `{first}{stand_in} -m venv {installation.place()} && " in note_for_others(
        "", lambda: [str(python)], str(stand_in)
    )


def test_a_place_that_a_checkout_has_is_not_named(place: Path) -> None:
    assert str(place) == installation.place(str(place))
    (place / "pyproject.toml").touch()
    assert "/opt/yard" == installation.place(str(place))


def test_all_that_a_command_needs_is_looked_at() -> None:
    names = {os.path.basename(path) for path in installation.parts()}
    assert {"__init__.py", "os.py", "site-packages"} <= names
    assert any(name.startswith("python") for name in names)
