"""What Slurm's commands show of another tenant's job: that it is there, and no column that shifts or lies."""

from typing import Any

from gpuyard.cli.slurm.commands import sacct
from gpuyard.cli.slurm.commands.scontrol_show import job_block
from gpuyard.cli.slurm.language.columns import parse_short_format
from gpuyard.cli.slurm.language.jobs import SlurmJob, jobs_from_queue
from gpuyard.cli.slurm.language.pools import Pools
from gpuyard.cli.slurm.language.squeue_fields import BY_LETTER
from gpuyard.control.reading.plain_views import NOTHING_MORE

OWN = (2, "2", "mine", "a/me", "me", "batch", "RUNNING", "RUNNING", 4, "n1", 5, 1_000, 60, "",
       "", "", 1, 0, 0, 0, "", 0, 0, 0, 0, True, 0, 0)  # fmt: skip
THEIRS = (1, "1", "", "", "", "", "RUNNING", "", 4, "", 0, 0, 0, "", *NOTHING_MORE)
QUEUE = {"at_ms": 31_000, "rows": [THEIRS, OWN]}
POOLS = Pools([{"name": "n1", "pool": "local"}])


def test_every_column_has_a_word_and_none_is_made_up() -> None:
    jobs = jobs_from_queue(QUEUE, POOLS)
    found = parse_short_format("%i %j %u %a %q %T %M %l %L %S %e %V %D %R", BY_LETTER)

    lines = [line.split() for line in found.lines(jobs)]

    assert ["1", *"----", "RUNNING", *["N/A"] * 6, "1", "(None)"] == lines[0]
    assert len(lines[0]) == len(lines[1])


class Yard:
    """A client of someone who sees one of two jobs."""

    def queue(self, **_: Any) -> dict[str, Any]:
        return QUEUE

    def history(self, **_: Any) -> Any:
        return type("Page", (), {"jobs": [], "next_cursor": None})


def test_the_accounting_has_only_what_one_may_see() -> None:
    yard: Any = Yard()
    assert [2] == [job.id for job in sacct._since(yard, POOLS, 0)]


def test_scontrol_says_what_a_job_waits_for() -> None:
    job: SlurmJob = jobs_from_queue(QUEUE, POOLS)[1]
    job.waits_for = "afterok:17,afterany:12_3"

    (line,) = [line for line in job_block({}, job) if line.startswith("JobState")]

    assert "Dependency=afterok:17(unfulfilled),afterany:12_3(unfulfilled)" in line
