"""`yard cost reconcile`: a bill of the shape of AWS's beside real books, and what the command says and ends with."""

import csv
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuyard.cli import run as run_yard
from gpuyard.control.access.rights import ALL, Sight
from gpuyard.control.duties.projections import Filler
from gpuyard.control.projections.ledger import Ledger
from gpuyard.ledger.units import read_day
from gpuyard.model import ConfigSet, NodeAdded, Settings, Ticked
from gpuyard.model.units import DAY_MS
from gpuyard.reports import cost
from gpuyard.store import open_store
from gpuyard.testing.values import node

DAY = read_day("2026-11-01")
COLUMNS = (
    "lineItem/LineItemType", "lineItem/UsageStartDate", "lineItem/UsageEndDate", "lineItem/UsageType",
    "lineItem/ResourceId", "lineItem/UsageAmount", "lineItem/CurrencyCode", "lineItem/UnblendedCost",
    "product/instanceType", "product/regionCode",
)  # fmt: skip
Bill = list[dict[str, str]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two nodes of eight A100 for two days, at $21.95 an hour each."""
    with open_store(Path(tmp_path_factory.mktemp("books")) / "yard.db") as store:
        lease = store.elect("test")
        assert lease is not None
        settings = Settings(
            prices={"A100-40GB": 21_950_000 // 8},
            regions={"main/cloud": "eu-central-1"},
            markets={"main/cloud": "on-demand"},
        )
        here = [node(name, 8, "A100-40GB", pool="cloud") for name in ("a", "b")]
        at_ms = DAY * DAY_MS
        store.append([ConfigSet(at_ms, settings), *[NodeAdded(at_ms, each) for each in here]])
        store.append([Ticked(at_ms + 2 * DAY_MS)])
        filler = Filler(store, [Ledger()], lambda: at_ms)
        while filler.step(lease.epoch):
            pass
        yield store


@pytest.fixture
def ask(store: Any, answering_yard: Any, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run the command over these books; its exit code, what it prints and what it says beside that."""

    def run(*words: object, sight: Sight = ALL) -> tuple[int, str, str]:
        def report(wanted: dict[str, str]) -> dict[str, Any]:
            table = cost.build(SimpleNamespace(store=store, now_ms=(DAY + 2) * DAY_MS), asked | wanted, sight)
            return {"lines": table.rows, **table.head}

        asked = {each["name"]: "" for each in cost.REPORT.endpoint.parameters}
        answering_yard({cost.REPORT.endpoint: report})
        code = run_yard(["cost", "reconcile", *map(str, words)])
        return code, *capsys.readouterr()

    return run


def bill(path: Path, change: Callable[[Bill], object] = lambda _rows: None) -> Path:
    """A line for each machine and hour, with something changed."""
    first = datetime(2026, 11, 1, tzinfo=UTC)

    def at(hour: int) -> str:
        return (first + timedelta(hours=hour)).strftime("%Y-%m-%dT%H:%M:%SZ")

    rows = [
        dict(
            zip(
                COLUMNS,
                ("Usage", at(hour), at(hour + 1), "EUC1-BoxUsage:p4d.24xlarge", machine, "1", "USD", "21.95",
                 "p4d.24xlarge", "eu-central-1"),
                strict=True,
            )
        )
        for hour in range(48)
        for machine in ("i-0aaa", "i-0bbb")
    ]  # fmt: skip
    change(rows)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_a_bill_that_agrees_ends_with_0(ask: Callable[..., Any], tmp_path: Path) -> None:
    code, _out, err = ask(bill(tmp_path / "bill.csv"))
    assert 0 == code
    assert (
        "2026-11-01 to 2026-11-02, UTC: 96 lines of AWS CUR about machines with GPUs; the bill and the books agree"
        in err
    )


@pytest.mark.parametrize(
    ("change", "line", "said"),
    [
        (
            lambda rows: rows[10].update({"lineItem/UnblendedCost": "32.77"}),
            12,
            "$32.77 an hour of p4d.24xlarge",
        ),
        (lambda rows: rows.pop(10), 10, "i-0aaa has no line from 2026-11-01 05:00 to 2026-11-01 06:00"),
        (lambda rows: rows.append(rows[10]), 98, "i-0aaa is billed twice for this time: line 12 has it"),
    ],
)
def test_a_planted_difference_is_named_to_the_line(
    ask: Callable[..., Any], tmp_path: Path, change: Any, line: int, said: str
) -> None:
    code, out, _err = ask(bill(tmp_path / "bill.csv", change), "-o", "json")
    (found,) = json.loads(out)
    assert (1, [line], "2026-11-01", "A100-40GB") == (code, found["lines"], found["day"], found["model"])
    assert said in found["said"]
    _code, table, _err = ask(tmp_path / "bill.csv", "-o", "wide")
    assert said in table


def test_a_broken_row_ends_with_2_and_nothing_is_compared(ask: Callable[..., Any], tmp_path: Path) -> None:
    path = bill(tmp_path / "bill.csv", lambda rows: rows[3].update({"lineItem/UsageAmount": "one"}))
    before = path.read_bytes()
    code, out, err = ask(path)
    assert (2, "") == (code, out)
    assert "line 5, column lineItem/UsageAmount: 'one' is not a number; write it with a point, as 12.5" in err
    assert "Nothing was compared." in err
    assert "problems" not in err
    assert before == path.read_bytes()


def test_rows_are_counted_as_problems(ask: Callable[..., Any], tmp_path: Path) -> None:
    def spoil(rows: Bill) -> None:
        for row in rows[:30]:
            row |= {"lineItem/UsageAmount": "one", "lineItem/UnblendedCost": "1e400"}

    code, _out, err = ask(bill(tmp_path / "bill.csv", spoil))
    assert 2 == code
    assert "yard: 30 problems" in err
    assert "20 more rows cannot be read. Nothing was compared." in err
    assert 10 == err.count("column lineItem/UnblendedCost: '1e400' is more than")


def test_a_table_has_the_first_200_differences_and_json_all(ask: Callable[..., Any], tmp_path: Path) -> None:
    path = bill(tmp_path / "bill.csv", lambda rows: rows.extend(rows * 3))
    code, out, err = ask(path)
    assert (1, 201) == (code, len(out.splitlines()))
    assert "88 more differences are not shown; -o csv or -o json has all" in err
    assert "differences: 288" in err
    code, out, err = ask(path, "-o", "json")
    assert (1, 288) == (code, len(json.loads(out)))
    assert "not shown" not in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--instance", "p9"), "names no machine"),
        *[
            (("--instance", f"p5.48xlarge=H100:{count}"), "names no machine")
            for count in ("0", "1025", "1_0", "\u0668", "9" * 5000)
        ],
        (("--tolerance", "nan"), "nan"),
        (("--from", "2026-12-01", "--to", "2026-12-31"), "GPUs from 2026-12-01 to 2026-12-31"),
        (("--from", "2026-12-01"), "Its lines are from 2026-11-01 to 2026-11-02, UTC"),
        (("--to", "2026-10-31"), "has no line for a machine with GPUs"),
        (("--from", "2026-11-09", "--to", "2026-11-01"), "after the last one"),
        (("--from", "someday"), "--from 'someday' is not a time"),
    ],
)
def test_what_makes_no_sense_is_refused(
    ask: Callable[..., Any], tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    code, _out, err = ask(bill(tmp_path / "bill.csv"), *words)
    assert 2 == code
    assert said in err


def test_a_bill_is_about_the_whole_yard(ask: Callable[..., Any], tmp_path: Path) -> None:
    code, out, err = ask(bill(tmp_path / "bill.csv"), sight=Sight(("org",)))
    assert (2, "") == (code, out)
    assert "a bill covers the whole yard, but you see only a part of it" in err


def test_a_bill_without_gpus_is_refused(ask: Callable[..., Any], tmp_path: Path) -> None:
    path = bill(
        tmp_path / "bill.csv", lambda rows: [row.update({"product/instanceType": "p9.metal"}) for row in rows]
    )
    code, _out, err = ask(path)
    assert 2 == code
    assert "no line for a machine with GPUs; not known: p9.metal" in err
    assert 0 == ask(path, "--instance", "p9.metal=A100-40GB:8")[0]
