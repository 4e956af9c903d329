"""Directives are found, cut and strung together as sbatch does it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.cli.slurm.commands.sbatch import GRAMMAR
from gpuyard.cli.slurm.language.getopt import read
from gpuyard.cli.slurm.language.stopping import Stop
from gpuyard.errors import BadInput
from gpuyard.intake.sbatch.getopt import Unreadable, parse_options
from gpuyard.intake.sbatch.words import Word, read_directives, split


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", []),
        ("   ", []),
        (" -N 2", ["-N", "2"]),
        ("-N2", ["-N2"]),
        ("\t-N2\t-n4", ["-N2", "-n4"]),
        (' --comment="two words"', ["--comment=two words"]),
        (" --comment='two words' -H", ["--comment=two words", "-H"]),
        (" --comment=a' 'b", ["--comment=a b"]),
        (r" --comment=a\ b", ["--comment=a b"]),
        (r' --comment="a\"b"', ['--comment=a"b']),
        (" --comment='it is \"so\"'", ['--comment=it is "so"']),
        (" -N 2 # two", ["-N", "2"]),
        (" -t 10#ten", ["-t", "10"]),
        (r" --comment=a\#b", ["--comment=a#b"]),
        (" --container-image=nvcr.io#a/b:1 -N 2", ["--container-image=nvcr.io#a/b:1", "-N", "2"]),
        (" --container-image nvcr.io#a/b # it", ["--container-image", "nvcr.io#a/b"]),
        (" --comment='a#b'", ["--comment=a#b"]),
        (" --dependency=afterok:1", ["--dependency=afterok:1"]),
        (" -J ''", ["-J", ""]),
    ],
)
def test_a_line_is_cut_into_words(line: str, words: list[str]) -> None:
    assert words == split(line)


@pytest.mark.parametrize("line", [' --comment="abc', " --comment='abc -N 2", ' -J "', " -N1 : -N2", " :"])
def test_a_line_that_cannot_be_cut_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"never closed|heterogeneous"):
        split(line)


def texts(script: str) -> list[str]:
    return [word.text for word in read_directives(script, "job.sh")[0]]


def test_directives_end_at_the_first_command() -> None:
    script = "#!/bin/bash\n#SBATCH -N2\n\n# a comment\n   \n#SBATCH -t 5\nset -e\n#SBATCH -n 8\n"
    words, warnings = read_directives(script, "job.sh")

    assert [Word("-N2", 2), Word("-t", 6), Word("5", 6)] == words
    assert [(8, "not read: directives end at the first command, on line 7")] == [
        (w.line, w.text) for w in warnings
    ]


@pytest.mark.parametrize("opens", ["<<EOF", "<<'EOF'", '<< "EOF"', "<<-EOF", "<<\\EOF | sbatch", "3<<EOF"])
def test_directives_of_a_script_that_the_script_writes_are_no_concern_of_ours(opens: str) -> None:
    end = "\tEOF" if "-" in opens else "EOF"
    lines = ["#!/bin/bash", f"cat {opens}", "#!/bin/bash", "#SBATCH -N2", end, "#SBATCH -n 8"]

    assert [6] == [warning.line for warning in read_directives("\n".join(lines), "job.sh")[1]]


def test_what_only_looks_like_a_here_document_hides_nothing() -> None:
    for line in ("cat <<<EOF", "echo $((1 <<two))", "# cat <<EOF"):
        script = f"#!/bin/bash\nset -e\n{line}\n#SBATCH -n 8\n"
        assert [4] == [warning.line for warning in read_directives(script, "job.sh")[1]]
    assert [3] == [
        w.line for w in read_directives("#!/usr/bin/python3\nx = 1 <<EOF\n#SBATCH -n 8\nEOF\n", "job.py")[1]
    ]


@pytest.mark.parametrize(
    "line", ["##SBATCH -N2", " #SBATCH -N2", "# SBATCH -N2", "#sbatch -N2", "echo #SBATCH -N2"]
)
def test_what_only_looks_like_a_directive_is_none(line: str) -> None:
    assert [] == texts(f"#!/bin/bash\n{line}\n")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (" #SBATCH -N2", "at the start of the line"),
        ("# SBATCH -N2", "at the start of the line"),
        ("#sbatch -N2", "at the start of the line"),
        ("#PBS -l walltime=1:00:00", "PBS"),
        ("#BSUB -W 1:00", "LSF"),
        ("#$ -pe smp 4", "Grid Engine"),
    ],
)
def test_a_near_miss_is_named(line: str, says: str) -> None:
    _, warnings = read_directives(f"#!/bin/bash\n{line}\n{line}\nhostname\n", "job.sh")

    assert warnings
    assert 2 == warnings[0].line
    assert says in warnings[0].text


def test_a_directive_may_follow_the_magic_word_at_once() -> None:
    assert ["-N2"] == texts("#!/bin/bash\n#SBATCH-N2\n")


def test_every_open_quote_is_reported_with_its_line() -> None:
    with pytest.raises(BadInput) as refused:
        read_directives("#!/bin/bash\n#SBATCH -J \"a\n#SBATCH -N2\n#SBATCH --comment='b\n", "job.sh")

    assert ["job.sh:2:", "job.sh:4:"] == [line.split(" ")[0] for line in refused.value.message.splitlines()]


def parsed(*words: str) -> list[tuple[str, str]]:
    found, rest = parse_options([Word(word, 1) for word in words])
    assert [] == rest
    return [(given.option.key, given.value) for given in found]


@pytest.mark.parametrize("words", [("-N2",), ("-N", "2"), ("--nodes=2",), ("--nodes", "2"), ("-HN2",)])
def test_an_option_has_many_spellings(words: tuple[str, ...]) -> None:
    assert ("nodes", "2") == parsed(*words)[-1]


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (("-HQ",), [("hold", ""), ("quiet", "")]),
        (("--exclusive", "-N2"), [("exclusive", ""), ("nodes", "2")]),
        (("--exclusive=user",), [("exclusive", "user")]),
        (("--nice", "-N2"), [("nice", ""), ("nodes", "2")]),
        (("-k", "-N2"), [("no-kill", ""), ("nodes", "2")]),
        (("-koff",), [("no-kill", "off")]),
        (("--job=a",), [("job-name", "a")]),
        (("--depend=singleton",), [("dependency", "singleton")]),
        (("--tasks-per-node=2",), [("ntasks-per-node", "2")]),
        (("--cluster=a",), [("clusters", "a")]),
        (("--clust=a",), None),
        (("--nodes=",), [("nodes", "")]),
        (("--time", "-1"), [("time", "-1")]),
    ],
)
def test_options_are_told_apart(words: tuple[str, ...], options: list[tuple[str, str]] | None) -> None:
    if options is None:
        with pytest.raises(Unreadable):
            parsed(*words)
    else:
        assert options == parsed(*words)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--n=2",), "write the whole name"),
        (("--ti=5",), "--time"),
        (("--nodez=2",), "did you mean '--nodes'"),
        (("-Z",), "unknown option '-Z'"),
        (("--requeue=yes",), "takes no value"),
        (("--nodes",), "needs a value"),
        (("-N",), "needs a value"),
        (("-N=2",), "write -N 2 or --nodes=2"),
        (("--workdir=/x",), "it is --chdir now"),
        (("--share",), "--oversubscribe"),
    ],
)
def test_a_word_that_is_no_option_is_refused(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(Unreadable, match=says):
        parsed(*words)


TYPED = "-N2 -N 2 -HQ -Z --nodes=2 --node --no --hold --hold=x -- --exclusive --exclusive=user - run.sh --nope -k -HN"


@given(st.lists(st.sampled_from(TYPED.split()), max_size=6))
def test_a_script_and_the_command_line_of_sbatch_are_read_alike(words: list[str]) -> None:
    try:
        read_by_sbatch = read(GRAMMAR, words)
    except Stop:
        with pytest.raises(Unreadable):
            parse_options([Word(word, 1) for word in words])
        return
    found, rest = parse_options([Word(word, 1) for word in words])
    assert read_by_sbatch.given == [(each.option.key, each.value) for each in found]
    assert read_by_sbatch.rest == [word.text for word in rest]
