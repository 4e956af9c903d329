"""Remedies and changes in words: every kind has some, and several are joined as a sentence."""

import re
from dataclasses import replace

import pytest

from gpuyard.control.wording import help_fields, help_flags, help_text, remedies_text
from gpuyard.core.explain.suggestions import Help
from gpuyard.model import Ask, AskFor, Cure, LimitTime, Remedy, Whole
from gpuyard.model.units import DAY_MS, HOUR_MS, MINUTE_MS, NO_LIMIT_MS


@pytest.mark.parametrize("kind", list(Cure))
def test_every_kind_has_words_with_and_without_names(kind: Cure) -> None:
    for names in ((), ("a",), ("a", "b", "c", "d")):
        said = remedies_text((Remedy(kind, names, HOUR_MS),))
        assert said
        assert not re.search(r"\{\w*\}", said), "a name that was not put in"


def test_several_remedies_are_joined_as_a_sentence() -> None:
    ends, limit, more = Remedy(Cure.JOBS_OF_END, ("lab",)), Remedy(Cure.HIGHER_LIMIT), Remedy(Cure.MORE_GPUS)

    assert "jobs of lab ending" == remedies_text((ends,))
    assert "jobs of lab ending, or a higher limit" == remedies_text((ends, limit))
    assert "jobs of lab ending, more GPUs, or a higher limit" == remedies_text((ends, more, limit))


@pytest.mark.parametrize(
    ("remedy", "words"),
    [
        (Remedy(Cure.RELEASE, ("4",)), "yard release 4"),
        (Remedy(Cure.RESUME_NODE, ("n1",)), "yard resume n1"),
        (Remedy(Cure.RELEASE_LAYOUT, ("n1",)), "yard mig release --node n1"),
        (Remedy(Cure.JOBS_END_BY, ("1", "2"), 2 * HOUR_MS), "jobs 1 and 2 ending (promised within 2 h)"),
        (Remedy(Cure.JOBS_END_BY, ("1",), 0), "job 1 ending (overdue)"),
        (Remedy(Cure.JOBS_END_BY, ("1",), NO_LIMIT_MS), "job 1 ending (no time limit)"),
        (Remedy(Cure.JOBS_START, ("1", "2", "3", "4", "5")), "the start of jobs 1, 2, 3 and 2 more"),
        (Remedy(Cure.JOBS_STOPPED), "the engine's word that they have stopped"),
        (Remedy(Cure.JOBS_STOPPED, ("7",)), "the engine's word that job 7 has stopped"),
        (Remedy(Cure.OTHER_POOL, ("a", "b")), "another pool: a or b"),
        (Remedy(Cure.LESS_TIME, (), HOUR_MS), "a time limit of at most 1 h"),
    ],
)
def test_words(remedy: Remedy, words: str) -> None:
    assert words == remedies_text((remedy,))


_EIGHT = Ask(Whole(8), models=("H100",), pools=("p",))


@pytest.mark.parametrize(
    ("ask", "text", "flags", "fields"),
    [
        ({"models": ("A100",)}, "on A100 it would start now", "--gpu-model A100", {"gpu_models": ["A100"]}),
        ({"pools": ("q",)}, "in pool q it would start now", "`pools: [q]` in its YAML", {"pools": ["q"]}),
        ({"gpus": Whole(2)}, "with 2 GPUs instead of 8 it would start now", "--gpus 2", {"gpus": 2}),
        (
            {"gpus": Whole(4), "tasks": 2, "nodes_max": 2, "memory_mib": 500},
            "2 x 4 on up to 2 nodes instead of 8 GPUs on one node would start now",
            "--tasks 2 --gpus 4, and `nodes_max: 2` in its YAML",
            {"tasks": 2, "gpus": 4, "nodes_max": 2, "memory_mib": 500},
        ),
    ],
)
def test_another_ask_is_told_by_what_differs(
    ask: dict[str, object], text: str, flags: str, fields: dict[str, object]
) -> None:
    change = Help(AskFor(1, replace(_EIGHT, **ask)), _EIGHT)  # type: ignore[arg-type]

    assert (text, flags, fields) == (help_text(change), help_flags(change), help_fields(change))


def test_a_gang_is_told_in_tasks() -> None:
    gang = Ask(Whole(2), tasks=4, nodes_max=8)
    fewer, smaller = Help(AskFor(1, replace(gang, tasks=3)), gang), replace(gang, gpus=Whole(1), tasks=8)

    assert "with 3 tasks instead of 4 it would start now" == help_text(fewer)
    assert "--tasks 3" == help_flags(fewer)
    assert "8 x 1 on up to 8 nodes instead of 4 x 2 GPUs would start now" == help_text(
        Help(AskFor(1, smaller), gang)
    )


def test_a_time_limit_is_told_in_the_unit_that_the_option_takes() -> None:
    change = Help(LimitTime(1, 90 * MINUTE_MS), _EIGHT)

    assert "with a time limit of 1 h 30 min it would start now" == help_text(change)
    assert ("--time 90m", {"time_limit_s": 5400}) == (help_flags(change), help_fields(change))
    assert "with a time limit it would start now" == help_text(Help(LimitTime(1, DAY_MS), _EIGHT, True))
