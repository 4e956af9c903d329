"""Scripts in the styles of real sites: every one is taken, every directive is among them. tests/slurm compares them."""

import copy
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpuyard.api.messages.schemas import JobRequest
from gpuyard.intake import PROPOSED, Caller, Form
from gpuyard.intake.forms import form_of, read
from gpuyard.intake.native import read_native, write_native
from gpuyard.intake.sbatch.getopt import parse_options
from gpuyard.intake.sbatch.options import OPTIONS
from gpuyard.intake.sbatch.words import read_directives

SCRIPTS = sorted((Path(__file__).parent / "scripts").iterdir())
CALLER = Caller(now=datetime(2026, 3, 10, tzinfo=UTC), cwd="/home/ana")

NOT_IN_SCRIPTS = {
    "batch": "needs nodes of several kinds",
    "bb": "needs a burst buffer",
    "bbf": "needs a burst buffer",
    "cluster-constraint": "needs a federation",
    "container": "needs a bundle",
    **dict.fromkeys([each.key for each in OPTIONS if "container-" in each.key], "needs pyxis"),
    "context": "needs a plugin of SELinux",
    "export-file": "names a file",
    "help": "refused",
    "ignore-pbs": "asks for nothing",
    "mcs-label": "needs a plugin",
    "network": "needs a Cray",
    "nodefile": "refused",
    "test-only": "submits nothing",
    "thread-spec": "excludes --core-spec",
    "usage": "refused",
    "version": "refused",
    "wait": "waits",
    "wrap": "is for the command line",
}
"""Options that no script of the folder has, and why."""


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_taken_and_the_wire_accepts_it(path: Path) -> None:
    text = path.read_text()
    (taken,) = read(text, path.name, CALLER)

    accepted = {name: value for name, value in copy.deepcopy(taken.job).items() if name not in PROPOSED}
    assert Form.SBATCH is form_of(text, path.name)
    assert text == JobRequest.model_validate(accepted).script
    assert [taken.job] == [each.job for each in read_native(write_native([taken.job]), "native.yaml")]


def test_every_option_is_in_some_script() -> None:
    used = set()
    for path in SCRIPTS:
        words, _ = read_directives(path.read_text(), path.name)
        used |= {given.option.key for given in parse_options(words)[0]}

    assert {option.key for option in OPTIONS} - used == NOT_IN_SCRIPTS.keys()
    assert len(SCRIPTS) >= 40
