"""Quantities are exact: what people write comes out as the integer it means, or is refused."""

from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard import durations
from gpuyard.keys import quantities as q
from gpuyard.model.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

EXACT = [
    (q.gpu_milli, "16", 16_000),
    (q.gpu_milli, "0.5", 500),
    (q.gpu_milli, ".125", 125),
    (q.gpu_milli, "1.", 1000),
    (q.gpu_milli, "+2", 2000),
    (q.gpu_milli, "0", 0),
    (q.gpu_milli, "0.100", 100),
    # A float has 1.001 * 1000 = 1000.9999999999999.
    (q.gpu_milli, "1.001", 1001),
    (q.gpu_milli_positive, "0.001", 1),
    (q.cpu_milli, "96", 96_000),
    (q.micro_usd, "2.50", 2_500_000),
    # A float has 2.3 * 1000000 = 2299999.9999999995.
    (q.micro_usd, "2.3", 2_300_000),
    (q.micro_usd, "0.000001", 1),
    (q.micro_usd, "0", 0),
    (q.share_weight, "6.88", 6880),
    (q.share_weight, "0.001", 1),
    (q.gpu_hours_ms, "5000", 5000 * HOUR_MS),
    (q.gpu_hours_ms, "0.5", HOUR_MS // 2),
    (durations.duration_ms, "90s", 90 * SECOND_MS),
    (durations.duration_ms, "10m", 10 * MINUTE_MS),
    (durations.duration_ms, "24h", 24 * HOUR_MS),
    (durations.duration_ms, "7d", 7 * DAY_MS),
    (durations.duration_ms, "1h30m", HOUR_MS + 30 * MINUTE_MS),
    (durations.duration_ms, "1d2h3m4s", DAY_MS + 2 * HOUR_MS + 3 * MINUTE_MS + 4 * SECOND_MS),
    (durations.duration_ms, "0s", 0),
    (durations.duration_ms, "3650d", 3650 * DAY_MS),
    (q.memory_mib, "512M", 512),
    (q.memory_mib, "80G", 81_920),
    (q.memory_mib, "80GB", 81_920),
    (q.memory_mib, "80Gi", 81_920),
    (q.memory_mib, "80GiB", 81_920),
    (q.memory_mib, "1T", 1_048_576),
    (q.memory_mib, "1.5G", 1536),
    (q.memory_mib, "2048K", 2),
    (q.gpus_of_node, "8 x H100", (8, "H100")),
    (q.gpus_of_node, "4x A100-80GB", (4, "A100-80GB")),
    (q.gpus_of_node, "1 × T4", (1, "T4")),
    (q.gpus_of_node, "0", (0, "")),
    (q.boolean, "true", True),
    (q.boolean, "false", False),
    (q.name, "a.b_c-9", "a.b_c-9"),
]


@pytest.mark.parametrize(("parse", "text", "value"), EXACT, ids=[f"{p.__name__} {t}" for p, t, _ in EXACT])
def test_exact(parse: Callable[[str], object], text: str, value: object) -> None:
    assert value == parse(text)


REFUSED = [
    (
        q.gpu_milli,
        ["", " 1", "1 ", "1,5", "1_000", "0x10", "1e3", "nan", ".nan", "inf", "-.inf", "--1", ".", "\u0661"],
    ),
    (q.gpu_milli, ["0.0005", "-1", "64000001", "9" * 19]),
    (q.gpu_milli_positive, ["0", "0.0"]),
    (q.micro_usd, ["$1", "-0.1", "0.0000001"]),
    (q.share_weight, ["0", "0.0005", "1.0005"]),
    (q.gpu_hours_ms, ["0", "0.0000001", "1.00000001"]),
    (
        durations.duration_ms,
        ["", "10", "10 m", "m", "1m1h", "1.5h", "-1m", "1w", "1M", "3650d1s", "9999999999s"],
    ),
    (durations.duration_positive_ms, ["0s", "0d0h"]),
    (q.memory_mib, ["", "80", "80g", "G", "-1G", "0G", "1K", "1.3M", "1B", "1 G", "1025T"]),
    (q.gpus_of_node, ["", "8", "x H100", "8 H100", "8 x", "65 x H100", "0 x H100", "8 X H100", "8 x -a"]),
    (q.boolean, ["yes", "True", "on", "1", ""]),
    (q.name, ["", "-a", ".a", "_a", "a b", "a/b", "é", "a" * 64, "a\n"]),
]
EACH = [(parse, text) for parse, texts in REFUSED for text in texts]


@pytest.mark.parametrize(("parse", "text"), EACH, ids=[f"{p.__name__} {t!r}" for p, t in EACH])
def test_refused(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(ValueError, match=r"must be|must name|is finer|cannot be"):
        parse(text)


@given(st.integers(0, 3650 * 24 * 3600))
def test_a_duration_is_read_as_it_is_written(seconds: int) -> None:
    assert seconds * SECOND_MS == durations.duration_ms(durations.duration_text(seconds * SECOND_MS))


@given(st.integers(0, q.GPUS_MAX * 1000))
def test_gpus_are_read_as_they_are_written(milli: int) -> None:
    assert milli == q.gpu_milli(q.decimal(Fraction(milli, 1000)))


def value_or_refusal(parse: Callable[[str], object], text: str) -> str:
    try:
        return str(parse(text))
    except ValueError as error:
        return str(error)


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in {parse for parse, _ in EACH}:
        assert "\n" not in value_or_refusal(parse, text)
