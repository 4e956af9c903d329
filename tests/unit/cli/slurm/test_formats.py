"""Format strings, widths and the ways in which Slurm writes things."""

import pytest

from gpuyard.cli.slurm.language.columns import (
    WIDTH_MAX,
    Cell,
    Field,
    Parsable,
    format_cells,
    parse_long_format,
    parse_short_format,
)
from gpuyard.cli.slurm.language.ids import WantedJobs, parse_id, split_ids
from gpuyard.cli.slurm.language.jobs import memory_text
from gpuyard.cli.slurm.language.times import full_span_text, short_span_text
from gpuyard.engines.name_lists import fold_indices, fold_names

FIELDS = {
    "i": Field("JOBID", lambda job: job["id"]),
    "j": Field("NAME", lambda job: job["name"]),
    "l": Field("TIME_LIMIT", lambda job: job["limit"], cut=False),
}
JOB = {"id": "17", "name": "averylongname", "limit": "1-02:00:00"}


@pytest.mark.parametrize(
    ("text", "header", "line"),
    [
        ("%i", "JOBID", "17"),
        ("%.8i", "   JOBID", "      17"),
        ("%8i|", "JOBID   |", "17      |"),
        ("%.3i", "JOB", " 17"),
        ("%.5j %5j", " NAME NAME ", "avery avery"),
        ("%.4l", "TIME", "1-02:00:00"),
        ("a%ib%jc", "aJOBIDbNAMEc", "a17baverylongnamec"),
        ("100%% %i", "100% JOBID", "100% 17"),
        ("%i 5%% %%", "JOBID 5% %", "17 5% %"),
        ("plain", "plain", "plain"),
        ("", "", ""),
    ],
)
def test_short_formats(text: str, header: str, line: str) -> None:
    found = parse_short_format(text, FIELDS)
    assert ([], header, [line]) == (found.unknown, found.header(), found.lines([JOB]))


def test_a_letter_that_means_nothing_stays_and_is_named() -> None:
    found = parse_short_format("%-5j|%i|%&|%", FIELDS)
    assert ["-", "&", ""] == found.unknown
    assert "%-5j|JOBID|%&|%" == found.header()
    assert ["%-5j|17|%&|%"] == found.lines([JOB])


@pytest.mark.parametrize(
    ("text", "header", "line"),
    [
        ("JobID", "JOBID".ljust(20), "17".ljust(20)),
        ("jobid:5,NAME:.6", "JOBID  NAME", "17   averyl"),
        ("jobid:0,name:3|", "JOBIDNAM|", "17ave|"),
    ],
)
def test_long_formats(text: str, header: str, line: str) -> None:
    found = parse_long_format(text, {"jobid": FIELDS["i"], "name": FIELDS["j"]})
    assert ([], header, [line]) == (found.unknown, found.header(), found.lines([JOB]))


def test_a_name_that_means_nothing_is_left_out_and_named() -> None:
    found = parse_long_format("jobid:5,nosuch,name:4", {"jobid": FIELDS["i"], "name": FIELDS["j"]})
    assert (["nosuch"], "JOBIDNAME") == (found.unknown, found.header())


def test_tables_of_the_accounting() -> None:
    cells = [Cell("JobID", 6, str, left=True), Cell("State", 4, lambda _: "CANCELLED")]
    assert ["JobID  Stat ", "------ ---- ", "17     CAN+ "] == format_cells(cells, [17], Parsable())
    assert ["17     CAN+ "] == format_cells(cells, [17], Parsable(), header=False)
    assert ["JobID|State|", "17|CANCELLED|"] == format_cells(cells, [17], Parsable(True, "|", True))
    assert ["17;CANCELLED"] == format_cells(cells, [17], Parsable(True, ";"), header=False)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["vm"], "vm"),
        (["n1"], "n1"),
        (["n1", "n2", "n3"], "n[1-3]"),
        (["n1", "n3"], "n[1,3]"),
        (["n9", "n10"], "n[9-10]"),
        (["n08", "n09", "n10", "m4"], "n[08-10],m4"),
        (["a1", "b1"], "a1,b1"),
        (["login", "n1", "n2"], "login,n[1-2]"),
    ],
)
def test_nodes_are_folded(names: list[str], text: str) -> None:
    assert text == fold_names(names)


def test_indices_are_folded() -> None:
    assert "1-4" == fold_indices([4, 3, 2, 1])
    assert "3,5,7,9-12" == fold_indices([3, 5, 7, 9, 10, 11, 12])


@pytest.mark.parametrize(
    ("seconds", "short", "full"),
    [
        (0, "0:00", "00:00:00"),
        (33, "0:33", "00:00:33"),
        (3723, "1:02:03", "01:02:03"),
        (93_784, "1-02:03:04", "1-02:03:04"),
        (-5, "0:00", "00:00:00"),
    ],
)
def test_durations(seconds: int, short: str, full: str) -> None:
    assert (short, full) == (short_span_text(seconds), full_span_text(seconds))


@pytest.mark.parametrize(("mib", "text"), [(512, "512M"), (4096, "4G"), (1536, "1.50G"), (1 << 21, "2T")])
def test_sizes(mib: int, text: str) -> None:
    assert text == memory_text(mib)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("17", WantedJobs(17)),
        ("17_3", WantedJobs(17, (3,))),
        ("17_[1-3,9]", WantedJobs(17, (1, 2, 3, 9))),
        ("17_[1-9:4%2]", WantedJobs(17, (1, 5, 9))),
        ("17.batch", WantedJobs(17)),
        ("x", None),
        ("0", None),
        ("17_", None),
        ("17_[]", None),
        ("17_[9-1]", None),
    ],
)
def test_ids(text: str, wanted: WantedJobs | None) -> None:
    assert wanted == parse_id(text)


def test_ids_in_a_list() -> None:
    assert ["1", "2_[1,3]", "4_5"] == split_ids("1,2_[1,3],,4_5")


def test_a_column_is_no_wider_than_anybody_reads() -> None:
    cell = Cell("HEAD", 10**11, str, left=True)
    lines = format_cells([cell], ["x"], Parsable())

    assert {WIDTH_MAX + 1} == {len(line) for line in lines}, "and a space behind it"
