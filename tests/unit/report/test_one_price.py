"""One price of an hour of a GPU, from the price book: for a dry run, a choice, a report, a bill and the simulator."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.cli.commands.foresight.fleet import settings_of_today
from gpuyard.config.reading import load
from gpuyard.control.readings import Readings
from gpuyard.model import Ask, JobSpec, Whole
from gpuyard.model.units import HOUR_MS
from gpuyard.policies.registry import build
from gpuyard.sim.simulate import Simulation
from gpuyard.sim.traces.builder import Builder
from rigs.teams import CONFIG, Team, team

OWNED = 250_000
"""Micro-dollars for an hour of an owned A100, which lists at more than an L4."""
PRICED = CONFIG.replace(
    "{gpus: 8 x A100-80GB, emulate: true, allow_root: true}",
    """
    allow_root: true
    pools:
      old: {nodes: 1, gpus: 4 x A100-80GB, emulate: true, price: 0.9}
      small: {nodes: 1, gpus: 4 x L4, emulate: true}
price_book:
  - {pool: old, from: 2026-01-01, until: 2026-01-02, price: 9}
  - {pool: old, from: 2026-01-02, price: 0.25}
""",
)
BIG = {"command": ["true"], "gpus": 1, "gpu_models": ["A100-80GB"], "time_limit_s": 3600}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    with team(tmp_path_factory.mktemp("priced"), PRICED, books=True) as found:
        yield found


def dry(made: Team, **fields: object) -> dict:
    answer = made.call("POST", "/api/v1/jobs/dry-run", made.tokens["ulla"], BIG | fields)
    assert 200 == answer.status, answer.body
    return answer.json


def test_a_dry_run_that_starts_now_and_one_that_waits(made: Team) -> None:
    for each in (dry(made), dry(made, hold=True)):
        assert (OWNED, OWNED, 1.0) == tuple(
            [each["cost"][name] for name in ("price_micro_usd_h", "at_most_micro_usd", "charged_gpus")]
        )


def test_a_dry_run_charges_for_cores_as_the_books_do(made: Team) -> None:
    node = made.call("GET", "/api/v1/nodes", made.tokens["adam"]).json["nodes"][0]
    cores = dry(made, gpus=0, cpus=node["cpus"], gpu_models=[], pools=["old"])

    assert (4.0, 4 * OWNED) == (cores["cost"]["charged_gpus"], cores["cost"]["at_most_micro_usd"])


def test_the_cheapest_is_the_cheapest_by_the_book(made: Team) -> None:
    new = made.submit("ulla", gpus=1, gpu_memory_mib=20_000, isolation="strict")
    view = made.call("GET", f"/api/v1/jobs/{new}", made.tokens["ulla"]).json

    assert ["A100-80GB"] == view["gpu_models"]


def test_reports_bills_and_maps_have_the_same_price(made: Team) -> None:
    job = made.submit("ulla", **BIG | {"hold": False, "command": ["sleep", "1.5"]})
    token, adam = made.tokens["ulla"], made.tokens["adam"]

    def view() -> dict:
        return made.call("GET", f"/api/v1/jobs/{job}", token).json

    made.until(lambda: "COMPLETED" == view()["state"] and view()["used"]["cost_usd"] is not None)
    shown = view()
    # What a GPU costs an hour, from what the job cost and how long it held one.
    by_show = shown["used"]["cost_usd"] / shown["used"]["gpu_hours"]
    month = time.strftime("%Y-%m", time.gmtime(shown["ended_ms"] / 1000))
    statement = made.call("GET", f"/api/v1/cost/statement?tenant=research&month={month}", adam).json
    cost = made.call("GET", "/api/v1/cost?by=model", adam).json
    total = next(line for line in statement["lines"] if "total" == line["part"])
    gpus = made.call("GET", "/api/v1/gpus", adam).json["gpus"]

    assert OWNED == pytest.approx(1_000_000 * by_show, rel=0.2)
    assert {OWNED} == {
        line["price_micro_usd_h"] for line in statement["lines"] if line["price_micro_usd_h"] is not None
    }
    assert OWNED == pytest.approx(total["charged_micro_usd"] / total["charged_gpu_hours"], rel=0.05)
    assert statement["charged_micro_usd"] == cost["charged_micro_usd"] > 0
    assert {OWNED} == {each["price_micro_usd_h"] for each in gpus if "A100-80GB" == each["gpu_model"]}
    assert OWNED == Readings(made.yard).price(shown), "what yard efficiency reckons savings with"


def test_the_simulator_has_the_prices_of_today(tmp_path: Path) -> None:
    path = tmp_path / "yard.yaml"
    path.write_text(PRICED)
    config, builder = load(path), Builder("one job")
    spec = JobSpec("research", Ask(Whole(1), models=("A100-80GB",)), "batch")
    builder.add(builder.index(spec), 0, HOUR_MS)
    settings = settings_of_today(config)
    result = Simulation(builder.finish("one job"), config.pools, settings, build(settings.policy)).run()

    assert OWNED == result.cost_micro_usd
