"""Numbers of `yard share`: what a tenant has none of, and what it may have none of."""

import pytest

from gpuyard.cli.commands.people.share import _amounts


@pytest.mark.parametrize(
    ("total", "model", "shown"),
    [
        (None, None, "-"),
        (0, None, "0"),
        (8, None, "8"),
        (None, 0, "0 H100"),
        (None, 4, "4 H100"),
        (0, 4, "0"),
    ],
)
def test_a_limit_of_nothing_is_not_no_limit(total: float | None, model: float | None, shown: str) -> None:
    row = {"amounts": {"total": {"limit": total}, "H100": {"limit": model}}}

    assert shown == _amounts(row, "limit")


def test_nothing_used_is_a_dash() -> None:
    row = {"amounts": {"total": {"used": 0, "guarantee": 0}, "H100": {"used": 0, "guarantee": 2}}}

    assert ("-", "2 H100") == (_amounts(row, "used"), _amounts(row, "guarantee"))
