"""`yard cost tco` over books that were planted: where its prices come from, and what it says."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuyard.control.access.rights import ALL, Sight
from gpuyard.control.duties.projections import Filler
from gpuyard.control.projections.ledger import Ledger
from gpuyard.errors import BadInput
from gpuyard.model import (
    AttemptConfirmed,
    AttemptEnded,
    AttemptMeasured,
    AttemptStarted,
    ConfigSet,
    Event,
    Grant,
    Job,
    JobSpec,
    JobSubmitted,
    Node,
    NodeAdded,
    Outcome,
    OwnedHardware,
    Price,
    Settings,
)
from gpuyard.model.units import DAY_MS, HOUR_MS
from gpuyard.reports.money.tco import REPORT
from gpuyard.store import Submission, open_store
from gpuyard.testing.values import ask, node

DAY = 20_769
"""2026-11-12."""
BEGIN_MS = DAY * DAY_MS
USD = 1_000_000


@pytest.fixture(scope="module")
def readings(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two GPUs for a day and one for half of the next, which drew 400 W; 8 owned H100 in the book, spot by its name."""
    bought = OwnedHardware(280_512 * USD, 4000, 0, 8, 0)  # 1 $ an hour and GPU
    prices = (
        Price(1 * USD, pool="h", micro_usd_kwh=300_000, owned=bought, pue_milli=1500),
        Price(2 * USD, "H100", market="spot"),
    )
    settings = Settings(prices={"H100": 4 * USD}, price_book=prices)
    with books(tmp_path_factory.mktemp("tco"), settings, node("n", gpus=8, pool="h")) as found:
        yield found


@contextmanager
def books(folder: Path, settings: Settings, here: Node) -> Iterator[Any]:
    """Those two jobs under other prices, or on another node."""

    def submitted(first_id: int) -> list[Event]:
        spec = JobSpec("org/research", ask(1), user="ann")
        return [JobSubmitted(BEGIN_MS, Job(first_id + i, spec, BEGIN_MS)) for i in range(2)]

    spans = ((BEGIN_MS, BEGIN_MS + DAY_MS),)
    with open_store(folder / "yard.db") as store:
        lease = store.elect("test")
        assert lease is not None
        store.append([ConfigSet(BEGIN_MS, settings), NodeAdded(BEGIN_MS, here)])
        store.submit([Submission(submitted, 2)], BEGIN_MS)
        held, energy_mj = 48 * HOUR_MS, 48 * 400 * 3_600_000
        two, one = (0b11, 0b1) if here.gpus else (0, 0)
        store.append(
            [
                AttemptStarted(BEGIN_MS, 1, 1, (Grant(0, two, 1000, 0, 0, 1),)),
                AttemptConfirmed(BEGIN_MS, 1, 1),
                AttemptMeasured(
                    BEGIN_MS + DAY_MS, 1, 1, *spans[0], held, held, held, spans=spans, energy_mj=energy_mj
                ),
                AttemptEnded(BEGIN_MS + DAY_MS, 1, 1, Outcome.COMPLETED),
                AttemptStarted(BEGIN_MS + DAY_MS, 2, 1, (Grant(0, one, 1000, 0, 0, 1),)),
                AttemptConfirmed(BEGIN_MS + DAY_MS, 2, 1),
                AttemptEnded(BEGIN_MS + DAY_MS + 12 * HOUR_MS, 2, 1, Outcome.COMPLETED),
            ]
        )
        filler = Filler(store, [Ledger()], lambda: BEGIN_MS)
        while filler.step(lease.epoch):
            pass
        assert {} == filler.errors
        yield SimpleNamespace(store=store, now_ms=BEGIN_MS + 2 * DAY_MS + HOUR_MS)


def tco(readings: Any, sight: Sight = ALL, **values: Any) -> dict[str, Any]:
    empty = {
        each["name"]: None if each["schema"]["type"] == "integer" else ""
        for each in REPORT.endpoint.parameters
    }
    table = REPORT.build(readings, {**empty, "from": "2026-11-12", **values}, sight)
    return {"lines": list(table.rows), **table.head}


def test_prices_come_from_the_book_the_watts_from_the_measurements(readings: Any) -> None:
    found = tco(readings)
    lines = {line["way"]: line for line in found["lines"]}
    assert (60, "2026-11-12", "2026-11-13") == (found["gpu_hours"], found["from_day"], found["to_day"])
    # 2 GPUs x 48 h x 1 $, and 60 h x 0.4 kW x 1.5 x 0.20 $.
    assert 96 * USD + 60 * 120_000 == lines["own"]["micro_usd"]
    assert (2, 62.5, True) == tuple(
        [lines["own"][key] for key in ("gpus", "utilisation_percent", "cheapest")]
    )
    # 1 $ / (4 $ - 0.12 $), and against spot 1 / 1.88.
    assert (25.77, 53.19) == (lines["own"]["break_even_percent"], lines["own"]["break_even_spot_percent"])
    assert (240 * USD, 120 * USD) == (lines["on demand"]["micro_usd"], lines["spot"]["micro_usd"])
    assert (None, "no price of reserved GPUs in price_book: give --reserved") == (
        lines["reserve"]["micro_usd"],
        lines["reserve"]["lacks"],
    )
    sources = {each["what"]: (each["value"], each["source"]) for each in found["inputs"]}
    assert ("400", "measured") == sources["watts"]
    assert ("$4.00", "list price") == sources["on_demand"]
    assert ("$35,064.00", "price_book") == sources["purchase"]
    assert ("1.5", "price_book") == sources["pue"]


def test_what_is_given_goes_before_the_book(readings: Any) -> None:
    found = tco(
        readings, gpus=1, purchase="70128", years="4", energy="0", reserved="1.5", on_demand="3", spot="1", spot_loss=50
    )  # fmt: skip
    lines = {line["way"]: line["micro_usd"] for line in found["lines"]}
    # One GPU has 24 h and 12 h of the load; 24 h are bought on demand.
    assert {"own": (48 * 2 + 24 * 3) * USD, "reserve": (48 * 3 // 2 + 24 * 3) * USD, "on demand": 180 * USD,
            "spot": 90 * USD} == lines  # fmt: skip
    (dearer,) = [case for case in found["cases"] if case["case"] == "prices +20 %"]
    assert (216 * USD, "spot") == (dearer["on_demand_micro_usd"], dearer["cheapest"])
    notes = REPORT.notes(found)
    assert "H100, 2026-11-12 to 2026-11-13, UTC: 60.00 GPU-hours of jobs" == notes[0]
    assert "spot_loss 50 (given)" in notes[1]
    cells = [[column.cell(line) for column in REPORT.columns(found)] for line in found["lines"]]
    assert ["spot", "-", "-", "$90.00", "$1.50", "-", "-", "cheapest"] == cells[3]


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ({"model": "A100-80GB"}, "no job had a GPU of the model 'A100-80GB' from 2026-11-12 to 2026-11-13"),
        ({"to": "2026-11-01"}, "the first day, 2026-11-12, is after the last one"),
        ({"from": "2027-01-01", "to": ""}, "2027-01-01 is still to come"),
        ({"reserved": "cheap"}, "--reserved .*'cheap'"),
        ({"pue": "0.5"}, "--pue "),
    ],
)
def test_bad_input_is_told(readings: Any, values: dict[str, Any], wrong: str) -> None:
    with pytest.raises(BadInput, match=wrong):
        tco(readings, **values)


def test_a_load_of_other_tenants_is_not_there(readings: Any) -> None:
    assert 60 == tco(readings, Sight(("org",)))["gpu_hours"]
    with pytest.raises(BadInput, match="no job had a GPU from 2026-11-12"):
        tco(readings, Sight(("org/product",)))


def test_without_a_price_of_any_market_it_says_what_to_give(tmp_path: Path) -> None:
    with books(tmp_path, Settings(), node("n", gpus=8, model="unheard-of")) as readings:
        bare = tco(readings)
        assert [None] * 4 == [line["micro_usd"] for line in bare["lines"]]
        assert {
            "own": "no owned hardware in price_book: give --purchase and --years",
            "reserve": "no price of reserved GPUs in price_book: give --reserved",
            "on demand": "no price on demand in price_book: give --on-demand",
            "spot": "no price of spot GPUs in price_book: give --spot",
        } == {line["way"]: line["lacks"] for line in bare["lines"]}
        assert {""} == {case["cheapest"] for case in bare["cases"]}
        assert not any([line["cheapest"] for line in bare["lines"]])
        assert REPORT.notes(bare)
        cells = [[column.cell(line) for column in REPORT.columns(bare)] for line in bare["lines"]]
        assert ["own", "2", "62.5 %", "-", "-", "-", "-"] == cells[0][:-1]

        # What is owned is told without any market, as long as it is enough; then what is beyond it lacks a price.
        owned = tco(readings, purchase="35064", years="4", watts=0)
        own, *others = owned["lines"]
        assert (96 * USD, None, True) == (own["micro_usd"], own["break_even_percent"], own["cheapest"])
        assert [None] * 3 == [line["micro_usd"] for line in others]
        own = tco(readings, purchase="35064", years="4", gpus=1)["lines"][0]
        assert (None, "no price on demand in price_book: give --on-demand") == (
            own["micro_usd"],
            own["lacks"],
        )


def test_of_a_yard_without_gpus_it_says_so(tmp_path: Path) -> None:
    with (
        books(tmp_path, Settings(), node("n", gpus=0)) as readings,
        pytest.raises(BadInput, match="no job had a GPU from 2026-11-12") as refused,
    ):
        tco(readings)
    assert "On nodes without GPUs" in refused.value.hint
