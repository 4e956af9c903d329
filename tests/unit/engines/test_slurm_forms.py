"""How Slurm writes things down."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuyard.engines.slurm.words import forms
from gpuyard.engines.slurm.words.forms import Gres, Unreadable


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("gpu:a100:8", (Gres("gpu", "a100", 8),)),
        ("gpu:8", (Gres("gpu", "", 8),)),
        ("gpu", (Gres("gpu", "", 1),)),
        ("gpu:a100:4(S:0-1),gpu:v100:2(S:1),shard:16", (
            Gres("gpu", "a100", 4), Gres("gpu", "v100", 2), Gres("shard", "", 16),
        )),
        ("gpu:1g.10gb:7", (Gres("gpu", "1g.10gb", 7),)),
        ("gres:gpu:2", (Gres("gpu", "", 2),)),
        ("(null)", ()),
        ("", ()),
    ],
)  # fmt: skip
def test_generic_resources(text: str, found: tuple[Gres, ...]) -> None:
    assert found == forms.parse_gres(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("n[1-3,7],gpu01", ["n1", "n2", "n3", "n7", "gpu01"]),
        ("r[1-2]c[08-10]", ["r1c08", "r1c09", "r1c10", "r2c08", "r2c09", "r2c10"]),
        ("None assigned", []),
        ("(null)", []),
    ],
)
def test_lists_of_nodes(text: str, found: list[str]) -> None:
    assert found == forms.parse_hosts(text)


@pytest.mark.parametrize("text", ["n[1-", "n[3-1]", "n[x]", "n[1-900000000]"])
def test_what_is_no_list_of_nodes(text: str) -> None:
    with pytest.raises(Unreadable):
        forms.parse_hosts(text)


def test_values_of_scontrol_may_hold_blanks_and_signs() -> None:
    line = "NodeName=n1 OS=Linux 6.1 #1 SMP @0  RealMemory=512 CfgTRES=cpu=64,mem=500G Reason=bad fan, ask Ann [root@5]"

    assert {
        "NodeName": "n1",
        "OS": "Linux 6.1 #1 SMP @0",
        "RealMemory": "512",
        "CfgTRES": "cpu=64,mem=500G",
        "Reason": "bad fan, ask Ann [root@5]",
    } == forms.parse_pairs(line)


def test_the_last_column_may_hold_the_separator() -> None:
    rows = list(forms.parse_table("A|Def B|Name\n1|2|x|y\n\n"))

    assert [(2, {"a": "1", "defb": "2", "name": "x|y"})] == rows
    with pytest.raises(Unreadable, match="line 2 has 1 of 2 columns"):
        list(forms.parse_table("A|B\nno\n"))


@pytest.mark.parametrize(
    ("text", "found"),
    [("1794738605", 1_794_738_605_000), ("2026-11-15T10:30:05", 1_794_738_605_000), ("Unknown", 0), ("0", 0)],
)
def test_moments(text: str, found: int) -> None:
    assert found == forms.parse_moment_ms(text, "Start")


@settings(max_examples=200)
@given(st.integers(0, 10**9))
def test_a_duration_is_read_as_it_was_written(seconds: int) -> None:
    assert seconds * 1000 == forms.parse_duration_ms(forms.duration_text(seconds * 1000), "x")


@settings(max_examples=300)
@given(st.text(max_size=60))
def test_whatever_is_there_is_read_or_refused(text: str) -> None:
    readers = (
        forms.parse_gres, forms.parse_hosts, forms.parse_tres, forms.parse_pairs, forms.parse_settings,
        forms.parse_words,
        lambda it: list(forms.parse_table(it)), lambda it: forms.parse_moment_ms(it, "x"),
        lambda it: forms.limit_ms(it, "x"),
    )  # fmt: skip
    for reader in readers:
        with suppress(Unreadable):
            reader(text)
