"""The charges as FOCUS: what a row says, and every rule of the model that focus-validator carries."""

import csv
import json
import re
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuyard.control.access.rights import ALL, Sight
from gpuyard.control.duties.projections import Filler
from gpuyard.control.projections.ledger import Ledger
from gpuyard.errors import BadInput
from gpuyard.ledger.units import month_days
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
    MonthClosed,
    NodeAdded,
    Outcome,
    Settings,
    Ticked,
)
from gpuyard.model.units import DAY_MS, HOUR_MS
from gpuyard.reports.focus import REPORT, build, decimal
from gpuyard.store import Submission, open_store
from gpuyard.testing.values import ask, node
from harness.patience import patient
from unit.report.focus_rules import LACKS, OURS, OVER_ALL, SUPPORTED, Found, Rules

BEGIN_MS = month_days("2026-11")[0] * DAY_MS
CLOSED_MS = month_days("2026-12")[0] * DAY_MS
VALIDATOR = "focus-validator==2.2.1"


@pytest.fixture(scope="module")
def readings(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two tenants on two pools, one of them spot in a region; of one attempt the real end is told in December."""
    with open_store(Path(tmp_path_factory.mktemp("focus")) / "yard.db") as store:
        lease = store.elect("test")
        assert lease is not None
        settings = Settings(
            prices={"H100": 2_345_678}, markets={"main/spare": "spot"}, regions={"main/spare": "eu-west"}
        )
        store.append(
            [
                ConfigSet(BEGIN_MS, settings),
                NodeAdded(BEGIN_MS, node("h", gpus=4)),
                NodeAdded(BEGIN_MS, node("s", gpus=4, pool="spare")),
                NodeAdded(BEGIN_MS, node("c", gpus=0)),
            ]
        )

        def submitted(first_id: int) -> list[Event]:
            whose = (("org/research", "ann"), ("org/product", "bob"), ("org/product", "cid"))
            return [
                JobSubmitted(BEGIN_MS, Job(first_id + i, JobSpec(tenant, ask(1), user=user), BEGIN_MS))
                for i, (tenant, user) in enumerate(whose)
            ]

        store.submit([Submission(submitted, 3)], BEGIN_MS)
        grants = (Grant(0, 0b11, 1000, 0, 0, 1), Grant(1, 1, 333, 0, 0, 1), Grant(2, 0, 1000, 9_000, 0, 1))
        for job_id, grant in enumerate(grants, start=1):
            store.append(
                [AttemptStarted(BEGIN_MS, job_id, 1, (grant,)), AttemptConfirmed(BEGIN_MS, job_id, 1)]
            )
        store.append(
            [
                AttemptMeasured(BEGIN_MS + HOUR_MS, 1, 1, BEGIN_MS, BEGIN_MS + HOUR_MS, 2 * HOUR_MS),
                AttemptEnded(BEGIN_MS + 31 * HOUR_MS + 17, 1, 1, Outcome.COMPLETED),
                AttemptEnded(BEGIN_MS + 50 * HOUR_MS, 3, 1, Outcome.COMPLETED),
                MonthClosed(CLOSED_MS, "2026-11"),
                Ticked(CLOSED_MS + HOUR_MS),
                AttemptEnded(CLOSED_MS + HOUR_MS, 2, 1, Outcome.COMPLETED, ended_ms=CLOSED_MS - 3 * DAY_MS),
            ]
        )
        filler = Filler(store, [Ledger()], lambda: CLOSED_MS)
        while filler.step(lease.epoch):
            pass
        assert {} == filler.errors
        yield SimpleNamespace(store=store, now_ms=CLOSED_MS + 2 * HOUR_MS)


def focus(readings: Any, sight: Sight = ALL, **values: str) -> list[Found]:
    table = build(readings, {"month": "", "from": "", "to": "", "focus": "", **values}, sight)
    return [dict(row) for row in table.rows]


def everything(readings: Any) -> list[Found]:
    return focus(readings, month="2026-11") + focus(readings, month="2026-12")


def test_a_row_is_a_day_of_an_owner_at_a_price(readings: Any) -> None:
    rows = [row for row in focus(readings, month="2026-11") if row["SubAccountId"] == "org/research"]
    assert ["48", "14.000009444"] == [row["PricingQuantity"] for row in rows]
    assert ["112.592544", "32.839514152"] == [str(row["BilledCost"])[:12] for row in rows]
    assert {"gpuyard/user": "ann", "gpuyard/class": "batch"} == json.loads(rows[0]["Tags"] or "")
    assert "2026-11-01T00:00:00Z 2026-11-02T00:00:00Z" == " ".join(
        [str(rows[0][name]) for name in ("ChargePeriodStart", "ChargePeriodEnd")]
    )


def test_what_is_learned_later_is_a_correction_in_the_open_month(readings: Any) -> None:
    assert {None} == {row["ChargeClass"] for row in focus(readings, month="2026-11")}
    late = [row for row in focus(readings, month="2026-12") if row["ChargeClass"] == "Correction"]
    assert {"2026-12-01T00:00:00Z"} == {row["BillingPeriodStart"] for row in late}
    assert {f"2026-11-{day}T00:00:00Z" for day in (28, 29, 30)} == {row["ChargePeriodStart"] for row in late}
    assert all(str(row["BilledCost"]).startswith("-") for row in late)


def test_a_tenant_sees_its_own_charges_alone(readings: Any) -> None:
    rows = focus(readings, Sight(("org/product",)), month="2026-11")
    assert {"org/product"} == {row["SubAccountId"] for row in rows}


def test_version_1_3_says_how_it_was_allocated(readings: Any) -> None:
    (row, *_rest) = focus(readings, month="2026-11", focus="1.3")
    assert "dominant-resource" == row["AllocatedMethodId"]
    assert "1" == json.loads(row["AllocatedMethodDetails"] or "")["Elements"][0]["AllocatedRatio"]
    assert "AllocatedMethodId" not in focus(readings, month="2026-11")[0]


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ({"focus": "2.0"}, "is not a version of FOCUS"),
        ({"month": "2026-11", "from": "2026-11-01"}, "different things"),
        ({"from": "2026-11-09", "to": "2026-11-01"}, "after the last"),
    ],
)
def test_what_makes_no_sense_is_refused(readings: Any, values: dict[str, str], wrong: str) -> None:
    with pytest.raises(BadInput, match=wrong):
        focus(readings, **values)


def test_numbers_have_no_exponent_and_no_needless_zeros() -> None:
    assert ["0", "-1.5", "12", "0.000000001"] == [
        decimal(value, 9) for value in (0, -1_500_000_000, 12 * 10**9, 1)
    ]


# -- the rules of the model ------------------------------------------------------------------------------------------


def as_csv(rows: list[Found], path: Path) -> list[Found]:
    """The rows as a program reads them: an empty cell is null."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    with path.open(newline="") as file:
        return [{name: text or None for name, text in row.items()} for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The model of the package, which is fetched and not installed: it wants a newer Python."""
    folder = Path(tmp_path_factory.mktemp("validator"))
    fetch = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--python-version",
        "3.12",
        VALIDATOR,
    ]
    subprocess.run(fetch, cwd=folder, check=True, timeout=patient(300))
    (archive,) = folder.iterdir()
    with tarfile.open(archive) as files:
        (name,) = [each for each in files.getnames() if re.search(r"rules/model-1\.2[^/]*\.json$", each)]
        content = files.extractfile(name)
        assert content is not None
        found: dict[str, Any] = json.load(content)
    return found


@pytest.mark.rig
def test_every_rule_of_the_model_holds(readings: Any, model: dict[str, Any], tmp_path: Path) -> None:
    rules = Rules(model["ModelRules"], as_csv(everything(readings), tmp_path / "focus.csv"))
    broken = [name for name in rules.rules if not rules.holds(name)]
    assert [] == broken
    assert 621 == len(rules.rules)
    assert "" not in rules.skipped.values()
    # A check of ours for a rule that the model does not have, or checks itself, would be a check of nothing.
    without = {name for name, rule in rules.rules.items() if rule["Type"] == "Dynamic"}
    assert OURS.keys() | OVER_ALL.keys() <= without - rules.skipped.keys()
    assert (
        LACKS.keys()
        == {each for rule in rules.rules.values() for each in rule["ApplicabilityCriteria"]} - SUPPORTED
    )
    evaluated = len(rules.rules) - len(rules.skipped)
    print(f"{evaluated} rules evaluated; skipped: {Counter(rules.skipped.values())}")
    assert 374 == evaluated


@pytest.mark.rig
@pytest.mark.parametrize(
    ("column", "text", "rule"),
    [
        ("BilledCost", "", "BilledCost-C-003-M"),
        ("ChargeCategory", "Rent", "ChargeCategory-C-003-M"),
        ("ListCost", "1", "ListCost-C-009-C"),
        ("ChargePeriodStart", "2026-11-01", "ChargePeriodStart-C-002-M"),
        ("SkuId", "other", "SkuPriceId-C-008-M"),
        ("SkuId", "H100/spot", "SkuId-C-009-M"),
        ("Tags", '{"user": "ann"}', "Tags-C-012-M"),
        ("ListCost", "+1", "NumericFormat-A-010-M"),
        ("ChargeClass", "Correction", "ChargeClass-C-003-C"),
    ],
)
def test_a_broken_row_is_found(
    readings: Any, model: dict[str, Any], tmp_path: Path, column: str, text: str, rule: str
) -> None:
    rows = as_csv(everything(readings), tmp_path / "focus.csv")
    rows[0] = {**rows[0], column: text or None}
    assert not Rules(model["ModelRules"], rows).holds(rule)


def test_one_charge_is_told_as_one() -> None:
    reply = {"version": "1.2", "from_day": "2026-11-01", "to_day": "2026-11-30", "rows": [{}]}
    assert REPORT.notes is not None
    assert [f"FOCUS 1.2, 2026-11-01 to 2026-11-30, UTC: {count}" for count in ("1 charge", "2 charges")] == [
        *REPORT.notes(reply),
        *REPORT.notes(reply | {"rows": [{}, {}]}),
    ]
