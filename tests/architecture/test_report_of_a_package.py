"""A report of an installed package, one file long: it answers everywhere, and nothing in `src` knows of it."""

import csv
import importlib.util
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from e2e.conftest import Box
from gpuyard.api.client import Client, Refused
from gpuyard.errors import YardError
from gpuyard.reports import installed_reports, registry
from rigs.described import DescribedClient, Description

REPORT = '''"""Users by the GPUs that their jobs ask for."""

from collections import Counter
from typing import TypedDict

from gpuyard.reports.report import Report
from gpuyard.reports.table import Column, Table, number
from gpuyard.wire.endpoints import Action
from gpuyard.wire.endpoints import TENANT, Endpoint, query


class Asker(TypedDict):
    """A user, and the GPUs that their jobs ask for."""

    user: str
    jobs: int
    gpus: float


class Askers(TypedDict):
    """Users, the one that asks for most first."""

    at_ms: int
    rows: list[Asker]


def build(readings, values, sight):
    """Live jobs that you may see, by user."""
    model, jobs, gpus = readings.model, Counter(), Counter()
    for _place, row in model.line():
        spec = row.job.spec
        if sight.sees(spec.tenant) and f"{spec.tenant}/".startswith(values["tenant"]):
            jobs[spec.user] += 1
            gpus[spec.user] += row.record.shape.gpu_milli
    rows = [{"user": user, "jobs": jobs[user], "gpus": gpus[user] / 1000} for user in sorted(jobs)]
    rows = [row for row in rows if row["gpus"] >= (values["at_least"] or 0)]
    return Table(sorted(rows, key=lambda row: (-row["gpus"], row["user"])), {"at_ms": readings.now_ms})


REPORT: Report[Askers] = Report(
    "askers",
    Endpoint("GET", "/askers", Action.SEE_QUEUE, Askers, "Users by the GPUs that they ask for", tag="mine", parameters=(
        TENANT, query("at_least", "Only users that ask for so many GPUs.", "integer", minimum=1, maximum=1000))),
    build,
    [
        Column("USER", lambda row: row["user"]),
        Column("JOBS", lambda row: str(row["jobs"]), right=True),
        Column("GPUS", lambda row: number(row["gpus"]), right=True),
    ],
    help="Show which users ask for most GPUs.",
)
'''


def install(site: Path, where: str = "mine:REPORT") -> None:
    info = site / "mine-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[console_scripts]\nx = y:z\n\n[gpuyard.reports]\naskers = {where}\n"
    )
    (site / "mine.py").write_text(REPORT)


class Installed(Box):
    """A yard whose Python has the package."""

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | {"PYTHONPATH": str(self.data.parent / "site")}

    def client(self) -> Client:
        """One that reads the description of this yard, which has one endpoint more than others."""

        class Described(DescribedClient):
            _description: ClassVar[list[Description]] = []

        return Described(data=self.data)


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    folder = tmp_path_factory.mktemp("package")
    install(folder / "site")
    box = Installed(folder / "yard")
    box.up()
    for gpus in (2, 4):
        box.submit("--hold", "-g", gpus, "--tenant", "research", "--", "true")
    yield box
    assert 0 == box("down", "--jobs").code


def test_it_is_a_command_in_every_form(box: Installed) -> None:
    table = box("askers")
    assert (0, "") == (table.code, table.err)
    heads, (user, jobs, gpus) = (line.split() for line in table.out.splitlines())
    assert (["USER", "JOBS", "GPUS"], "2", "6") == (heads, jobs, gpus)

    asked = {"user": user, "jobs": 2, "gpus": 6.0}
    assert [asked] == json.loads(box("askers", "-o", "json").out)
    assert [{name: str(value) for name, value in asked.items()}] == list(
        csv.DictReader(io.StringIO(box("askers", "-o", "csv").out))
    )
    assert f"- user: {user}\n  jobs: 2\n  gpus: 6.0\n" == box("askers", "-o", "yaml").out
    assert "GPUS\n   6\n" == box("askers", "--columns", "gpus", "-o", "wide").out
    assert "user,jobs,gpus\n" == box("askers", "--at-least", 7, "-o", "csv").out
    assert "user,jobs,gpus\n" == box("askers", "--tenant", "product", "-o", "csv").out


def test_its_command_has_help_and_refuses_what_is_wrong(box: Installed) -> None:
    said = box("askers", "--help").out
    assert "Show which users ask for most GPUs." in said
    for option in ("--tenant TENANT", "--at-least N", "-o, --output FORM", "--columns NAMES", "-w, --watch"):
        assert option in said
    assert "askers" in box("--help").out
    assert ["askers"] == box("_complete", "bash", 1, "yard", "aske").out.split()
    assert ["--at-least"] == box("_complete", "bash", 2, "yard", "askers", "--at").out.split()
    assert "did you mean 'audit'" in box("audti").err.lower()
    wrong = box("askers", "--at-least", 0)
    assert 2 == wrong.code
    assert "--at-least" in wrong.err
    watched = box("askers", "--watch")
    assert (2, True) == (watched.code, "--watch draws on a terminal" in watched.err)


def test_it_is_a_route_a_call_of_the_client_and_described(box: Installed) -> None:
    spec = importlib.util.spec_from_file_location("mine_here", box.data.parent / "site" / "mine.py")
    assert spec is not None
    assert spec.loader is not None
    mine = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mine)
    # The client of the tests holds every answer to the description.
    with box.client() as yard:
        reply = yard.report(mine.REPORT, tenant="research")
        assert [(2, 6)] == [(row["jobs"], row["gpus"]) for row in reply["rows"]]
        assert reply["at_ms"] > 0
        with pytest.raises(Refused, match="'at_least' must be a whole number from 1 to 1000"):
            yard.report(mine.REPORT, at_least=0)
        described = yard.ask_for(mine.Endpoint("GET", "/openapi.json", mine.Action.ANYBODY, "", "", tag="x"))
    operation = described["paths"]["/api/v1/askers"]["get"]
    assert "Users by the GPUs that they ask for" == operation["summary"]
    assert ["tenant", "at_least"] == [each["name"] for each in operation["parameters"]]
    row = described["components"]["schemas"]["Asker"]["properties"]
    assert {"user": "string", "jobs": "integer", "gpus": "number"} == {k: v["type"] for k, v in row.items()}


def test_one_that_cannot_be_loaded_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "nothing_there:REPORT")
    monkeypatch.syspath_prepend(tmp_path)
    assert {"askers": "nothing_there:REPORT"} == installed_reports.find_installed()
    with pytest.raises(YardError, match=r"the report askers \(nothing_there:REPORT\) cannot be loaded"):
        registry.load_outside_reports()
