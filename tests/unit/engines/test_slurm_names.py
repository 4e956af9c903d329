"""What people call their jobs is theirs, and says nothing about other jobs: `sacct` and `squeue` print names raw."""

from collections.abc import Sequence

import pytest

from gpuyard.engines.slurm.calls.commands import Commands, Refusal
from gpuyard.engines.slurm.doctor.examine import examine
from gpuyard.engines.slurm.observed import ObservedSlurm
from gpuyard.engines.slurm.site import accounting, site
from gpuyard.engines.slurm.site.accounting import (
    JOB_FIELDS,
    QUEUE_FIELDS,
    JobRow,
    make_mark,
    read_jobs,
    remove_mark,
)
from gpuyard.engines.slurm.words.forms import Unreadable

ANN = ("56", "56", "8", "ann", "nlp", "normal", "main", "RUNNING", "0:0", "100", "100", "110", "Unknown", "60",
       "00:00:00", "5", "gres/gpu=1,node=1", "gres/gpu=1,node=1", "n1", "None", "")  # fmt: skip
BOBS = ("57", "57", "9", "bob", "nlp", "normal", "main", "COMPLETED", "0:0", "100", "100", "110", "120", "10",
        "00:00:00", "5", "gres/gpu=8,node=1", "gres/gpu=8,node=1", "n1", "None", "")  # fmt: skip
QUEUED = ("56", "56", "N/A", "ann", "nlp", "normal", "main", "RUNNING", "100", "100", "110", "N/A", "5:00",
          "gres/gpu=1,node=1", "n1", "0", "0", "1", "None", "(null)")  # fmt: skip
BOBS_QUEUED = ("57", "57", "N/A", "bob", "nlp", "normal", "main", "COMPLETED", "100", "100", "110", "120", "5:00",
               "gres/gpu=8,node=1", "n1", "0", "0", "1", "None", "(null)")  # fmt: skip


class Printing(Commands):
    """Slurm's commands over one job, parted as they are told and with its name as it is."""

    def __init__(self, name: str) -> None:
        super().__init__()
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "asked", [])

    def run(self, name: str, *words: str, **_: object) -> str:  # type: ignore[override]
        self.asked.append(words)  # type: ignore[attr-defined]
        job: str = self.name  # type: ignore[attr-defined]
        if name == "sacct" and any("JobName" in word for word in words):
            mark = next((word.partition("=")[2] for word in words if word.startswith("--delimiter=")), "|")
            return f"{mark.join(JOB_FIELDS)}\n{mark.join([*ANN, job])}\n"
        if name == "squeue":
            ends = [column.partition(":")[2] for column in words[words.index("-O") + 1].split(",")]
            rows = ([*map(str.upper, QUEUE_FIELDS)], [*QUEUED, job])
            return "".join(
                "".join(cell + end for cell, end in zip(row, ends, strict=True)) + "\n" for row in rows
            )
        if (name, *words) == ("scontrol", "ping"):
            return "Slurmctld(primary) at head is UP\n"
        raise Refusal(f"{name}: not here")


def forged(cells: Sequence[str], *partings: str) -> str:
    return "x" + "".join("\n" + parting.join([*cells, "y"]) for parting in partings)


def told(rows: Sequence[JobRow]) -> list[tuple[str, str, str]]:
    return [(row.label, row.user, row.name) for row in rows]


def test_a_name_makes_no_row_of_the_history_of_others() -> None:
    other = make_mark()
    slurm = ObservedSlurm("rig", Printing(forged(BOBS, "|", "\x1f", other)))

    found = slurm.history(0)

    assert [("56", "ann", "x")] == told(found.rows)
    assert 0 == found.broken


def test_a_name_makes_no_row_in_the_queue() -> None:
    slurm = ObservedSlurm("rig", Printing(forged(BOBS_QUEUED, "|", "\x1f", make_mark())))

    found = slurm.queue()

    assert [("56", "ann", "x")] == told(found.rows)
    assert 0 == found.broken


def test_the_doctor_and_the_import_are_told_the_truth_too() -> None:
    look = examine(Printing(forged(BOBS_QUEUED, "|")), 1)
    assert [("56", "ann", "x")] == told(look.queue)

    (source,) = [each for each in site.list_sources(1) if each.file == "jobs.txt"]
    text = site.answer(source, Printing(forged(BOBS, "|")).run)
    found = site.read({"jobs.txt": text}, {})
    assert [("56", "ann", "x")] == told(found.jobs.rows)
    # What is kept beside the imported file is read by others, by its bars.
    assert 2 == len(found.jobs_text.splitlines())


def test_every_answer_has_a_mark_of_its_own() -> None:
    commands = Printing("x")
    slurm = ObservedSlurm("rig", commands)

    for _ in range(3):
        slurm.history(0)
        slurm.queue()

    assert 6 == len({words[-1] for words in commands.asked})  # type: ignore[attr-defined]


def test_a_program_that_does_not_part_as_it_is_told_is_not_believed() -> None:
    with pytest.raises(Unreadable, match="not parted as was asked"):
        remove_mark("JobIDRaw|JobID\n1|1\n", make_mark())


@pytest.mark.parametrize("end", ["\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
def test_nothing_else_that_ends_a_line_somewhere_ends_a_row(end: str) -> None:
    header = "JobIDRaw|JobID|State|Submit|Start|End|JobName"
    queue = "|".join(QUEUE_FIELDS)

    past = read_jobs(f"{header}\n1|1|COMPLETED|10|20|30|x{end}2|2|COMPLETED|10|20|30|y\n")
    live = accounting.read_queue(f"{queue}\n{'|'.join([*QUEUED, 'x' + end + '|'.join(BOBS_QUEUED)])}\n")

    assert (["1"], 0) == ([row.label for row in past.rows], past.broken)
    assert (["56"], 0) == ([row.label for row in live.rows], live.broken)
    # And nothing of it reaches a terminal.
    assert "x?2|2|COMPLETED|10|20|30|y" == past.rows[0].name


def test_a_saved_history_is_parted_by_the_mark_it_begins_with() -> None:
    mark = make_mark()
    text = f"{mark.join(JOB_FIELDS)}\n{mark.join([*ANN, forged(BOBS, '|')])}\n"

    found = site.read({"jobs.txt": text}, {})

    assert [("56", "ann", "x")] == told(found.jobs.rows)
    by_bars = site.read({"jobs.txt": text.replace(mark, "|").split("\nx", maxsplit=1)[0]}, {})
    assert "56" == by_bars.jobs.rows[0].label


def test_an_older_sacctmgr_is_asked_for_less() -> None:
    (source,) = [each for each in site.list_sources(1) if each.file == "qos.txt"]

    def run(*words: str) -> str:
        if "LimitFactor" in words[-1]:
            raise Refusal("sacctmgr: Unknown field 'LimitFactor'")
        return "Name|Priority\nnormal|0\n"

    assert "normal" == site.read({"qos.txt": site.answer(source, run)}, {}).qos[0].name
