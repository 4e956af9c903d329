"""Money that cannot be meant: what a yard says about it, and that nothing is rewritten. Bills: tests/unit/intake."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.config import ConfigError
from gpuyard.config.reading import loads
from gpuyard.control.commands.configs import Configurations, StartFile, put_start
from gpuyard.control.duties.projections import Filler
from gpuyard.control.fleet import choose_fleet
from gpuyard.control.projections.ledger import Ledger
from gpuyard.control.refusals import Impossible
from gpuyard.control.views.accounts import read_accounts
from gpuyard.ledger.units import day_text, month_days
from gpuyard.model.units import DAY_MS, HOUR_MS
from rigs.request_service import ROOT, Rig, rig

FLEET = "version: 1\nclusters: {box: {gpus: 8 x H100, emulate: true}}\n"
PRICED = FLEET + "price_book:\n- {model: H100, price: 2}\n"
OCTOBER, NOVEMBER = month_days("2026-10"), month_days("2026-11")


class Yard:
    """A yard of eight H100 in November 2026, at $2 an hour since ever."""

    def __init__(self, service: Rig) -> None:
        self.service = service
        service.time_ms = OCTOBER[0] * DAY_MS
        fleet = choose_fleet(loads(PRICED), "")
        self.configs = Configurations(
            service.replica, service.committer, fleet, "", service.now_ms, service.people
        )
        start = StartFile(loads(PRICED).settings, PRICED, "yard.yaml")
        service.replica.commit(
            None, lambda draft: put_start(draft, service.replica.store, start, "root", service.now_ms())
        )
        service.time_ms = (NOVEMBER[0] + 5) * DAY_MS
        lease = service.replica.store.elect("test")
        assert lease is not None
        self._epoch = lease.epoch

    def filled(self) -> None:
        filler = Filler(self.service.replica.store, [Ledger()], self.service.now_ms)
        while filler.step(self._epoch):
            pass
        assert {} == filler.errors

    def notes(self, text: str) -> list[str]:
        found: list[str] = self.configs.difference(self.configs.proposal(text, "new.yaml"))["notes"]
        return found

    def apply(self, text: str) -> None:
        self.configs.apply(ROOT, self.configs.proposal(text, "new.yaml"), None).result(10)

    def rewritten(self) -> tuple[int, int]:
        """What changes if anything is written."""
        version = self.service.replica.store.configs.version()
        return self.service.replica.store.head(), version.version if version else 0

    def october(self) -> tuple[Any, ...]:
        """What the month cost, day by day."""
        self.filled()
        return tuple(
            read_accounts(self.service.replica.store, *OCTOBER, self.service.now_ms()).lines(["day"])
        )


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with rig(tmp_path) as service:
        yield Yard(service)


@pytest.mark.parametrize(
    ("book", "said"),
    [
        (
            "- {model: H100}",
            "4:3: this entry has no price; give 'price', or 'owned' with 'purchase' and 'years'",
        ),
        (
            "- {model: H100, until: 2026-12-01, price: 2}\n- {model: H100, from: 2026-11-15, price: 3}",
            "two prices of model H100 overlap from 2026-11-15 on; end the earlier one with 'until: 2026-11-15'",
        ),
        ("- {model: H100, price: -1}", "'price'"),
        ("- {model: H100, price: 2}\ncurrency: EUR", "convert the prices to USD"),
        ("- {model: H100, from: 2026-11-09, until: 2026-11-01, price: 2}", "before it begins"),
        ("- {model: H100, from: soon, price: 2}", "is a day such as 2026-11-01, not 'soon'"),
    ],
)
def test_a_price_that_cannot_be_meant_is_refused_with_its_line(yard: Yard, book: str, said: str) -> None:
    before = yard.rewritten()
    with pytest.raises(ConfigError) as refused:
        yard.apply(f"{FLEET}price_book:\n{book}\n")
    message = str(refused.value)
    assert said in message, message
    assert "new.yaml:" in message
    assert before == yard.rewritten()


def test_a_budget_below_what_is_spent_is_told_and_what_runs_goes_on(yard: Yard) -> None:
    budget = PRICED + "budgets: {lab: {gpu_hours: 1000, window: month, action: hard}}\n"
    yard.apply(budget)
    job_id = yard.service.submit(gpus=8, limit_ms=40 * HOUR_MS)
    yard.service.start(job_id)
    yard.service.time_ms += 10 * HOUR_MS
    (note,) = [each for each in yard.notes(budget.replace("1000", "50")) if "budget" in each]
    assert note.startswith("budget lab is 50 GPU-hours, below what this window has: ")
    assert note.endswith("what runs goes on, no job that it counts starts until it renews")
    yard.apply(budget.replace("1000", "50"))
    assert job_id in yard.service.replica.state.jobs


def test_prices_of_a_closed_month_stay_as_they_are(yard: Yard) -> None:
    before = yard.october()
    assert 31 * 24 * 8 * 2 == sum([line.fleet for line in before]) // 1_000_000
    dearer = PRICED.replace("price: 2", "price: 3")
    assert [] == [each for each in yard.notes(dearer) if "closed" in each]
    yard.service.requests.close_month(ROOT, "2026-10").result(10)
    yard.filled()
    (note,) = [each for each in yard.notes(dearer) if "closed" in each]
    assert note.startswith(
        f"the books are closed up to {day_text(OCTOBER[1] - 1)}: the prices of these days stay"
    )
    later = PRICED + "- {model: H100, from: 2026-11-03, price: 3}\n"
    assert [] == [each for each in yard.notes(later) if "closed" in each]
    yard.apply(dearer)
    assert before == yard.october()
    november = read_accounts(yard.service.replica.store, NOVEMBER[0], NOVEMBER[0] + 1, yard.service.now_ms())
    assert 3_000_000 == november.prices.price(next(iter(november.places.values())), NOVEMBER[0])


def test_a_closed_month_is_not_closed_again(yard: Yard) -> None:
    yard.service.requests.close_month(ROOT, "2026-10").result(10)
    yard.filled()
    before = yard.rewritten()
    with pytest.raises(Impossible, match="2026-10 is closed already, and stays as it is") as refused:
        yard.service.requests.close_month(ROOT, "2026-10").result(10)
    assert "What is learned about it now is a correction in the open month" in refused.value.hint
    assert before == yard.rewritten()
