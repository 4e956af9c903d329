"""slurmrestd beside Slurm's commands: the same rows by both ways, and what it cannot do is done by the other."""

from pathlib import Path

import pytest

from contract.rigs import EPOCH, Program, ended, launch, until_alive
from contract.slurm_rig import SlurmRig
from gpuyard.engines.contract import Answer, StopRequest
from gpuyard.engines.slurm.calls.client import CommandClient
from gpuyard.engines.slurm.calls.commands import OutOfReach
from gpuyard.engines.slurm.calls.rest import RestClient
from gpuyard.engines.slurm.engine import SlurmEngine
from gpuyard.model import Outcome

pytestmark = pytest.mark.slurm


def rest_of(rig: SlurmRig, token: str, port: int = 0) -> RestClient:
    path = rig.effects.parent / "token"
    path.write_text(token, encoding="utf-8")
    url = f"http://127.0.0.1:{port or rig.cluster.rest_port}"
    return RestClient(url, str(path), "root", CommandClient(rig.commands(), as_user=True))


def test_both_ways_give_the_same_rows(slurm: SlurmRig) -> None:
    """Over a whole job, which this release hands in by `sbatch`: its interface cannot name nodes."""
    commands = CommandClient(slurm.commands(), as_user=True)
    rest = rest_of(slurm, slurm.cluster.token())
    slurm.engine = SlurmEngine(slurm.data, rest, slurm.site)
    slurm.engines.append(slurm.engine)
    (reply,) = slurm.engine.start(EPOCH, [launch(slurm, "y-1-1", Program(run_ms=60_000), gpus=(0, 1))])
    until_alive(slurm, "y-1-1")

    assert (Answer.DONE, "v0.0.38") == (reply.answer, rest.version())
    assert commands.nodes() == rest.nodes()
    assert commands.partitions() == rest.partitions()
    assert commands.reservations() == rest.reservations()
    mark = slurm.engine._folder.mark("y-1-1")
    (one,) = [job for job in commands.queue().jobs if job.comment == mark]
    (other,) = [job for job in rest.queue().jobs if job.comment == mark]
    assert one == other
    rest.cancel([one.id, 999_999])
    assert Outcome.CANCELLED is ended(slurm, "y-1-1").outcome
    slurm.engine.stop(EPOCH, [StopRequest("y-1-1", Outcome.CANCELLED, 0)])


def test_a_wrong_token_is_said_and_nothing_is_concluded(slurm: SlurmRig, tmp_path: Path) -> None:
    rest = rest_of(slurm, "wrong")

    with pytest.raises(
        OutOfReach, match=r"slurmrestd refuses the token of .*; make a new one with `scontrol token"
    ):
        rest.nodes()
    rest_of(slurm, slurm.cluster.token())
    # The file is read anew, once the pause after a failure is over.
    rest.reach.found()
    assert 8 == len(rest.nodes())


def test_nobody_at_the_other_end(slurm: SlurmRig) -> None:
    with pytest.raises(OutOfReach, match=r"slurmrestd at 127.0.0.1:1 does not answer"):
        rest_of(slurm, "any", port=1).queue()
    missing = RestClient(
        "http://127.0.0.1:1", "/nowhere/token", "root", CommandClient(slurm.commands(), as_user=True)
    )
    with pytest.raises(OutOfReach, match="the token of slurmrestd cannot be read"):
        missing.queue()
