"""Quantities are exact: what people write comes out as the integer it means, or is refused."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard import quantities as q
from gpuyard.keys import values
from gpuyard.quantities import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, count_digits, hour_rate_text, usd_text

HOURS = [
    (0, "0.00"),
    (0.0036, "0.0036"),
    (0.0001, "0.0001"),
    (0.05, "0.05"),
    (0.25, "0.25"),
    (1240, "1,240.00"),
]


@pytest.mark.parametrize(("hours", "text"), HOURS)
def test_few_gpu_hours_are_not_rounded_to_none(hours: float, text: str) -> None:
    assert text == q.gpu_hours_text(hours)


EXACT = [
    (q.parse_gpu_milli, "16", 16_000),
    (q.parse_gpu_milli, "0.5", 500),
    (q.parse_gpu_milli, ".125", 125),
    (q.parse_gpu_milli, "1.", 1000),
    (q.parse_gpu_milli, "+2", 2000),
    (q.parse_gpu_milli, "0", 0),
    (q.parse_gpu_milli, "0.100", 100),
    # A float has 1.001 * 1000 = 1000.9999999999999.
    (q.parse_gpu_milli, "1.001", 1001),
    (q.parse_positive_gpu_milli, "0.001", 1),
    (q.parse_cpu_milli, "96", 96_000),
    (q.parse_micro_usd, "2.50", 2_500_000),
    # A float has 2.3 * 1000000 = 2299999.9999999995.
    (q.parse_micro_usd, "2.3", 2_300_000),
    (q.parse_micro_usd, "0.000001", 1),
    (q.parse_micro_usd, "0", 0),
    (q.parse_share_weight, "6.88", 6880),
    (q.parse_share_weight, "0.001", 1),
    (q.parse_gpu_hours_ms, "5000", 5000 * HOUR_MS),
    (q.parse_gpu_hours_ms, "0.5", HOUR_MS // 2),
    (q.parse_duration_ms, "90s", 90 * SECOND_MS),
    (q.parse_duration_ms, "10m", 10 * MINUTE_MS),
    (q.parse_duration_ms, "24h", 24 * HOUR_MS),
    (q.parse_duration_ms, "7d", 7 * DAY_MS),
    (q.parse_duration_ms, "1h30m", HOUR_MS + 30 * MINUTE_MS),
    (q.parse_duration_ms, "1d2h3m4s", DAY_MS + 2 * HOUR_MS + 3 * MINUTE_MS + 4 * SECOND_MS),
    (q.parse_duration_ms, "0s", 0),
    (q.parse_duration_ms, "3650d", 3650 * DAY_MS),
    (q.parse_memory_mib, "512M", 512),
    (q.parse_memory_mib, "80G", 81_920),
    (q.parse_memory_mib, "80GB", 81_920),
    (q.parse_memory_mib, "80Gi", 81_920),
    (q.parse_memory_mib, "80GiB", 81_920),
    (q.parse_memory_mib, "1T", 1_048_576),
    (q.parse_memory_mib, "1.5G", 1536),
    (q.parse_memory_mib, "2048K", 2),
    (values.gpus_of_node, "8 x H100", (8, "H100")),
    (values.gpus_of_node, "4x A100-80GB", (4, "A100-80GB")),
    (values.gpus_of_node, "1 × T4", (1, "T4")),
    (values.gpus_of_node, "0", (0, "")),
    (values.boolean, "true", True),
    (values.boolean, "false", False),
    (values.name, "a.b_c-9", "a.b_c-9"),
]


@pytest.mark.parametrize(("parse", "text", "value"), EXACT, ids=[f"{p.__name__} {t}" for p, t, _ in EXACT])
def test_exact(parse: Callable[[str], object], text: str, value: object) -> None:
    assert value == parse(text)


REFUSED = [
    (
        q.parse_gpu_milli,
        ["", " 1", "1 ", "1,5", "1_000", "0x10", "1e3", "nan", ".nan", "inf", "-.inf", "--1", ".", "\u0661"],
    ),
    (q.parse_gpu_milli, ["0.0005", "-1", "64000001", "9" * 19]),
    (q.parse_positive_gpu_milli, ["0", "0.0"]),
    (q.parse_micro_usd, ["$1", "-0.1", "0.0000001"]),
    (q.parse_share_weight, ["0", "0.0005", "1.0005"]),
    (q.parse_gpu_hours_ms, ["0", "0.0000001", "1.00000001"]),
    (
        q.parse_duration_ms,
        ["", "10", "10 m", "m", "1m1h", "1.5h", "-1m", "1w", "1M", "3650d1s", "9999999999s"],
    ),
    (q.parse_positive_duration_ms, ["0s", "0d0h"]),
    (q.parse_memory_mib, ["", "80", "80g", "G", "-1G", "0G", "1K", "1.3M", "1B", "1 G", "1025T"]),
    (
        values.gpus_of_node,
        ["", "8", "x H100", "8 H100", "8 x", "65 x H100", "0 x H100", "8 X H100", "8 x -a"],
    ),
    (values.boolean, ["yes", "True", "on", "1", ""]),
    (values.name, ["", "-a", ".a", "_a", "a b", "a/b", "é", "a" * 64, "a\n"]),
]
EACH = [(parse, text) for parse, texts in REFUSED for text in texts]


@pytest.mark.parametrize(("parse", "text"), EACH, ids=[f"{p.__name__} {t!r}" for p, t in EACH])
def test_refused(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(ValueError, match=r"must be|must name|is finer|cannot be"):
        parse(text)


@given(st.integers(0, 3650 * 24 * 3600))
def test_a_duration_is_read_as_it_is_written(seconds: int) -> None:
    assert seconds * SECOND_MS == q.parse_duration_ms(q.duration_text(seconds * SECOND_MS))


@given(st.integers(0, q.GPUS_MAX * 1000))
def test_gpus_are_read_as_they_are_written(milli: int) -> None:
    assert milli == q.parse_gpu_milli(q.decimal_text(milli, 1000))


@given(st.integers(1, 10**9))
def test_memory_is_read_as_it_is_written(mib: int) -> None:
    assert mib == q.parse_memory_mib(q.memory_text(mib))


@given(st.integers(0, 10**15))
def test_money_is_read_as_it_is_written(micro: int) -> None:
    assert micro == q.parse_micro_usd(q.decimal_text(micro, q.MICRO_USD), 10**9)


def value_or_refusal(parse: Callable[[str], object], text: str) -> str:
    try:
        return str(parse(text))
    except ValueError as error:
        return str(error)


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in {parse for parse, _ in EACH}:
        assert "\n" not in value_or_refusal(parse, text)


@pytest.mark.parametrize(
    ("amounts", "texts"),
    [
        ([0, 1_230_000, 1_234_567_890], ["$0.00", "$1.23", "$1,234.57"]),
        ([500_000, 2_500_000], ["$0.50", "$2.50"]),
        # One amount that cents would hide makes all of them finer, so that they are seen to add up.
        ([60_400, 395_800, 99_543_800, 100_000_000], ["$0.0604", "$0.3958", "$99.5438", "$100.0000"]),
        ([-4_321, 0], ["-$0.0043", "$0.0000"]),
    ],
)
def test_amounts_side_by_side_have_as_many_digits(amounts: list[int], texts: list[str]) -> None:
    assert texts == [usd_text(each, count_digits(amounts)) for each in amounts]


def test_what_a_job_may_take_is_rounded_up_and_a_rate_keeps_its_digits() -> None:
    assert ["$1.01", "$0.0001", "$0.00"] == [usd_text(each, up=True) for each in (1_000_001, 1, 0)]
    assert ["$2.50", "$0.000125", "$1,000.00"] == [hour_rate_text(each) for each in (2_500_000, 125, 10**9)]


@pytest.mark.parametrize(
    ("ms", "table", "words", "up", "down"),
    [
        (-1, "0s", "0 s", "1 s", "1 min"),
        (999, "0s", "0 s", "1 s", "1 min"),
        (59_999, "59s", "59 s", "1 min", "1 min"),
        (MINUTE_MS, "1m00s", "1 min", "1 min", "1 min"),
        (200 * MINUTE_MS, "3h20m", "3 h 20 min", "4 h", "3 hours"),
        (HOUR_MS + 1, "1h00m", "1 h", "61 min", "60 min"),
        (DAY_MS + MINUTE_MS, "1d00h", "1 d", "25 h", "24 hours"),
        (40 * DAY_MS + 3 * HOUR_MS, "40d03h", "40 d 3 h", "41 days", "40 days"),
    ],
)
def test_a_span_has_one_text_for_each_place(ms: int, table: str, words: str, up: str, down: str) -> None:
    assert (table, words, up, down) == (q.span(ms), q.span_words(ms), q.span_up(ms), q.span_down(ms))


def test_a_duration_in_one_unit_is_read_again() -> None:
    texts = {90 * MINUTE_MS: "90m", 2 * DAY_MS: "2d", 36 * HOUR_MS: "36h", 61_000: "61s"}
    assert texts == {ms: q.duration_in_one_unit(ms) for ms in texts}
    assert list(texts) == [q.parse_duration_ms(text) for text in texts.values()]


def test_memory_in_a_sentence_is_exact_and_in_a_table_short() -> None:
    amounts = [512, 65_536, 65_537, 1_572_864]
    assert ["512M", "64G", "65537M", "1536G"] == [q.memory_text(mib) for mib in amounts]
    assert ["512 MiB", "64 GiB", "65537 MiB", "1536 GiB"] == [q.memory_words(mib) for mib in amounts]
    assert ["512 MiB", "64 GiB", "64 GiB", "1.5 TiB"] == [q.memory_size(mib) for mib in amounts]
    assert ["0 GiB", "64 GiB"] == [q.memory_gib(mib) for mib in (1023, 65_537)]


def test_percent() -> None:
    assert ["41 %", "0.5 %", "100 %"] == [q.percent_words(ppm) for ppm in (410_000, 4_999, 999_999)]
    assert ["41.2%", "0.0%"] == [q.percent_share(ppm) for ppm in (412_345, 0)]
    assert ["41 %", "41.2 %", "+12 %", "-3 %"] == [
        q.percent_text(41.2), q.percent_text(41.2, 1), q.percent_change(12), q.percent_change(-3)
    ]  # fmt: skip


def test_gpu_hours_of_milliseconds_keep_their_digits() -> None:
    assert ["12", "0.5", "1.000003", "0.016667"] == [
        q.decimal_text(ms, HOUR_MS) for ms in (12 * HOUR_MS, HOUR_MS // 2, HOUR_MS + 9, MINUTE_MS)
    ]
