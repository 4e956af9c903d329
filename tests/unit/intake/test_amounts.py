"""Values of options: every form sbatch takes, and what it does not."""

import pytest

from gpuyard.intake.sbatch import amounts, gpus
from gpuyard.intake.sbatch.arrays import Array, parse_array
from gpuyard.intake.sbatch.dependencies import parse_dependencies
from gpuyard.intake.sbatch.exports import Export, export
from gpuyard.intake.sbatch.gpus import Gpus, Gres
from gpuyard.intake.sbatch.hostlists import expand
from gpuyard.intake.sbatch.reading import Ahead, ahead


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("90", 90),
        ("1:30", 2),
        ("1:2:3", 63),
        ("1-2", 26 * 60),
        ("1-2:3", 26 * 60 + 3),
        ("1-2:3:4", 26 * 60 + 4),
        ("0:1", 1),
        ("0:0", 0),
        ("0", 0),
        ("-1", 0),
        ("INFINITE", 0),
        ("unlimited", 0),
        ("1-", 24 * 60),
        ("100:00:00", 6000),
        ("5-30", 6 * 24 * 60 + 6 * 60),
    ],
)
def test_a_time_limit_has_six_forms(text: str, minutes: int) -> None:
    assert minutes == amounts.parse_minutes(text)


@pytest.mark.parametrize(
    "text",
    ["", "1h", "30m", "1.5", "10:", ":30", "1:2:3:4", "1-2-3", "+5", " 10", "9" * 12, "99999999", "1-:30"],
)
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        amounts.parse_minutes(text)


@pytest.mark.parametrize(
    ("text", "meant"), [("2h", "2:00:00"), ("45m", "45"), ("3d", "3-0"), ("30s", "0:30")]
)
def test_a_time_with_a_unit_is_told_how_to_be_written(text: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"for {text} write {meant}$"):
        amounts.parse_minutes(text)


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("512", 512),
        ("4G", 4096),
        ("4g", 4096),
        ("4GB", 4096),
        ("1T", 1 << 20),
        ("1025K", 2),
        ("1K", 1),
        ("0", 0),
    ],
)
def test_memory_is_in_mib_unless_it_says_otherwise(text: str, mib: int) -> None:
    assert mib == amounts.parse_memory_mib(text)


@pytest.mark.parametrize("text", ["", "1.5G", "-1", "4Gi", "4X", "1P", "G", "4 G", "2048T"])
def test_other_memory_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        amounts.parse_memory_mib(text)


@pytest.mark.parametrize(
    ("text", "nodes"), [("2", (2, 2)), ("2-4", (2, 4)), ("1k", (1024, 1024)), ("1K-2k", (1024, 2048))]
)
def test_nodes_are_a_number_or_a_range(text: str, nodes: tuple[int, int]) -> None:
    assert nodes == amounts.parse_node_range(text)


@pytest.mark.parametrize("text", ["", "0", "4-2", "2-", "-2", "2=3", "1,2", "two", "9m"])
def test_other_nodes_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        amounts.parse_node_range(text)


@pytest.mark.parametrize("text", ["", "0", "-1", "x", "1.5", "=2", "1000001", "\u0661"])
def test_other_counts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="whole number"):
        amounts.count(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("gpu", Gres(Gpus(1), ())),
        ("gpu:2", Gres(Gpus(2), ())),
        ("gpu:a100", Gres(Gpus(1, "a100"), ())),
        ("gpu:a100:2", Gres(Gpus(2, "a100"), ())),
        ("gpu:a100=2", Gres(Gpus(2, "a100"), ())),
        ("gres:gpu:2", Gres(Gpus(2), ())),
        ("gres/gpu:2", Gres(Gpus(2), ())),
        ("gpu:1g.10gb:3", Gres(Gpus(3, "1g.10gb"), ())),
        ("gpu:0", Gres(Gpus(0), ())),
        ("none", Gres(None, ())),
        ("nvme:100,gpu:2", Gres(Gpus(2), ("nvme:100",))),
        ("craynetwork:1", Gres(None, ("craynetwork:1",))),
    ],
)
def test_gres(text: str, meant: Gres) -> None:
    assert meant == gpus.parse_gres(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gpu:", "must be a number"),
        ("gpu:a100:", "must be a number"),
        ("gpu:x:y:2", "must be a number"),
        ("gpu:-1", "must be a number"),
        ("gpu:a100:2,gpu:h100:1", "several types"),
        ("gpu:2,gpu:2", "twice"),
        ("gpu:2,", "empty entry"),
        ("mps:50", "a part of a GPU"),
        ("shard:1", "a part of a GPU"),
        ("gpu:1p", "at most"),
    ],
)
def test_other_gres_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        gpus.parse_gres(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [("4", Gpus(4)), ("a100:4", Gpus(4, "a100")), ("a100", Gpus(1, "a100")), ("1k", Gpus(1024))],
)
def test_gpus(text: str, meant: Gpus) -> None:
    assert meant == gpus.parse_gpus(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("0-3", Array("0-3", 4, 0)),
        ("1-10:2%4", Array("1-10:2", 5, 4)),
        ("1,3,5", Array("1,3,5", 3, 0)),
        ("[1-5]", Array("1-5", 5, 0)),
        ("007", Array("7", 1, 0)),
        ("1-3%2,5", Array("1-3,5", 4, 2)),
        ("1-5%", Array("1-5", 5, 0)),
        ("1-5%0", Array("1-5", 5, 0)),
        ("3-3:5", Array("3", 1, 0)),
        ("1-3,", Array("1-3", 3, 0)),
        ("0-9999", Array("0-9999", 10_000, 0)),
    ],
)
def test_arrays(text: str, meant: Array) -> None:
    assert meant == parse_array(text)


@pytest.mark.parametrize(
    "text", ["", "a", "10-1", "1-10:0", "-1", "1 - 3", "0-10000", "1-5%x", "%4", "1-999999999"]
)
def test_other_arrays_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must|range|more than"):
        parse_array(text)


def test_a_long_list_of_tasks_is_written_as_ranges() -> None:
    listed = ",".join(map(str, range(500)))

    assert Array("0-499", 500, 0) == parse_array(listed)
    with pytest.raises(ValueError, match="use ranges"):
        parse_array(",".join(map(str, range(0, 1000, 2))))


def one(kind: str, job: int | str, **more: int) -> dict[str, object]:
    return {"kind": kind, "job": job, **more}


@pytest.mark.parametrize(
    ("text", "each", "any_will_do"),
    [
        ("afterok:12", [one("afterok", 12)], False),
        ("AfterAny:12", [one("afterany", 12)], False),
        ("afternotok:12", [one("afternotok", 12)], False),
        ("aftercorr:12", [one("aftercorr", 12)], False),
        ("after:12", [one("after", 12)], False),
        ("after:12+5", [one("after", 12, delay_s=300)], False),
        ("singleton", [{"kind": "singleton"}], False),
        ("12", [one("afterany", 12)], False),
        ("afterok:12:13", [one("afterok", 12), one("afterok", 13)], False),
        ("afterok:12,afterany:13", [one("afterok", 12), one("afterany", 13)], False),
        ("afterok:12?afterany:13", [one("afterok", 12), one("afterany", 13)], True),
        ("afterok:12_3", [one("afterok", "12_3")], False),
        ("afterok:12_*", [one("afterok", 12)], False),
        ("afterok:12_[1-2,5]", [one("afterok", f"12_{task}") for task in (1, 2, 5)], False),
        ("afterok:12,afterok:12", [one("afterok", 12)], False),
        ("", [], False),
    ],
)
def test_dependencies(text: str, each: list[dict[str, object]], any_will_do: bool) -> None:
    found = parse_dependencies(text)

    assert (each, any_will_do) == (list(found.each), found.any_will_do)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("afterokay:1", "did you mean 'afterok'"),
        ("afterok", "afterok:12:13"),
        ("afterok:", "by their number"),
        ("afterok:x", "by their number"),
        ("afterok:0", "by their number"),
        ("singleton:1", "afterok:12:13"),
        ("afterok:1,afterany:2?after:3", "mixes"),
        ("expand:1", "not served"),
        ("afterburstbuffer:1", "not served"),
        ("afterok:1?", "unknown kind"),
        ("afterok:1_[1-9999]", "more than"),
    ],
)
def test_other_dependencies_are_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_dependencies(text)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n1,n2", ["n1", "n2"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[01-03,7]", ["n01", "n02", "n03", "n7"]),
        ("n[009-011]", ["n009", "n010", "n011"]),
        ("r[1-2]c[0-1]", ["r1c0", "r1c1", "r2c0", "r2c1"]),
        ("gpu-[1,3]-ib,login", ["gpu-1-ib", "gpu-3-ib", "login"]),
        ("n1,n1", ["n1"]),
        ("n1 n2", ["n1", "n2"]),
    ],
)
def test_hostlists(text: str, names: list[str]) -> None:
    assert names == expand(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "n[1-",
        "n1]",
        "n[[1]]",
        "n[a-b]",
        "n[3-1]",
        "n[1-99999]",
        "/etc/hosts",
        "n[1-999][1-999]",
        "n[]",
    ],
)
def test_other_hostlists_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"name|bracket|range|must|written"):
        expand(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("USR1@60", Ahead(10, 60, False, False)),
        ("B:USR1@60", Ahead(10, 60, True, False)),
        ("R:SIGUSR2", Ahead(12, 60, False, True)),
        ("RB:15@5", Ahead(15, 5, True, True)),
        ("usr1@", Ahead(10, 60, False, False)),
        ("TERM@65535", Ahead(15, 65_535, False, False)),
    ],
)
def test_signals(text: str, meant: Ahead) -> None:
    assert meant == ahead(text)


@pytest.mark.parametrize(
    "text", ["", "FOO", "0", "65", "USR1@90000", "@60", "B:", "USR1@1:30", "RTMIN", "X:USR1"]
)
def test_other_signals_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must|names no|at most"):
        ahead(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("ALL", Export(True, (), {})),
        ("NONE", Export(False, (), {})),
        ("NIL", Export(False, (), {})),
        ("HOME,SEED=7", Export(False, ("HOME",), {"SEED": "7"})),
        ("ALL,SEED=7", Export(True, (), {"SEED": "7"})),
        ("A='x,y',B", Export(False, ("B",), {"A": "'x,y'"})),
        ("A=", Export(False, (), {"A": ""})),
    ],
)
def test_exports(text: str, meant: Export) -> None:
    assert meant == export(text)


def test_a_variable_needs_a_name() -> None:
    with pytest.raises(ValueError, match="names of variables"):
        export("2=3")
