"""`yard cost opencost`: OpenCost's answer beside real books; each difference has its reason, bad input its place."""

import io
import json
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from gpuyard.cli import run as run_yard
from gpuyard.control.access.rights import ALL, Sight
from gpuyard.control.duties.projections import Filler
from gpuyard.control.projections.ledger import Ledger
from gpuyard.errors import BadInput
from gpuyard.ledger.bills import Sums
from gpuyard.ledger.opencost import BooksTime, OpencostRow, compare_rows
from gpuyard.ledger.units import read_day
from gpuyard.model import (
    AttemptConfirmed,
    AttemptEnded,
    AttemptStarted,
    ConfigSet,
    Event,
    Grant,
    Job,
    JobSpec,
    JobSubmitted,
    NodeAdded,
    Outcome,
    Settings,
    Ticked,
)
from gpuyard.model.units import DAY_MS, HOUR_MS
from gpuyard.reports import cost
from gpuyard.store import Submission, open_store
from gpuyard.testing.values import ask as gpus
from gpuyard.testing.values import node

DAY = read_day("2026-11-12")
FIRST = datetime(2026, 11, 12, tzinfo=UTC)
JOBS = (
    # Tenant, project, GPUs as a mask, thousandths of each, from which hour and for how long.
    ("org/research/vision/ann", "vision", 0b11, 1000, 0, 10),
    ("org/research/nlp/bob", "", 0b100, 250, 0, 8),
    ("org/product/eve", "shop", 0b1000, 1000, 14, 20),
)
Answer = dict[str, Any]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Eight GPUs at $2 an hour for two days, on which three tenants had jobs."""

    def submitted(first_id: int) -> list[Event]:
        return [
            JobSubmitted(DAY * DAY_MS, Job(first_id + place, spec, DAY * DAY_MS))
            for place, (tenant, project, *_rest) in enumerate(JOBS)
            for spec in [JobSpec(tenant, gpus(1), labels=(("project", project),) if project else ())]
        ]

    with open_store(Path(tmp_path_factory.mktemp("books")) / "yard.db") as store:
        lease = store.elect("test")
        assert lease is not None
        at_ms = DAY * DAY_MS
        store.append([ConfigSet(at_ms, Settings(prices={"H100": 2_000_000})), NodeAdded(at_ms, node("h"))])
        store.submit([Submission(submitted, len(JOBS))], at_ms)
        moments: list[tuple[int, list[Event]]] = []
        for number, (_tenant, _project, mask, milli, hour, hours) in enumerate(JOBS, start=1):
            begin, end = at_ms + hour * HOUR_MS, at_ms + (hour + hours) * HOUR_MS
            grant = Grant(0, mask, milli, 0, 0, 1)
            moments.append(
                (begin, [AttemptStarted(begin, number, 1, (grant,)), AttemptConfirmed(begin, number, 1)])
            )
            moments.append((end, [AttemptEnded(end, number, 1, Outcome.COMPLETED)]))
        for _at, events in sorted(moments, key=lambda each: each[0]):
            store.append(events)
        store.append([Ticked(at_ms + 2 * DAY_MS)])
        filler = Filler(store, [Ledger()], lambda: at_ms)
        while filler.step(lease.epoch):
            pass
        yield store


@pytest.fixture
def ask(
    store: Any, answering_yard: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., Any]:
    """Run the command over these books and an answer; its exit code, what it prints and says beside that."""

    def run(answer: object, *words: object, sight: Sight = ALL, export: bool = False) -> tuple[int, str, str]:
        def report(wanted: dict[str, str]) -> dict[str, Any]:
            table = cost.build(SimpleNamespace(store=store, now_ms=(DAY + 2) * DAY_MS), asked | wanted, sight)
            return {"lines": table.rows, **table.head}

        asked = {each["name"]: "" for each in cost.REPORT.endpoint.parameters}
        answering_yard({cost.REPORT.endpoint: report})
        path = tmp_path / "answer.json"
        text = answer if isinstance(answer, str) else json.dumps(answer)
        path.write_text(text, encoding="utf-8")
        line = ["export", "kubecost"] if export else ["cost", "opencost", str(path)]
        code = run_yard([*line, *map(str, words)])
        assert text == path.read_text(encoding="utf-8")
        return code, *capsys.readouterr()

    return run


def at(hours: float) -> str:
    return (FIRST + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ")


def row(name: str, begin: float, end: float, hours: float, usd: float, **properties: object) -> Answer:
    """As OpenCost has it, a price of a node split over GPUs, cores and memory."""
    return {
        "name": name,
        "properties": {"cluster": "main", **properties},
        "window": {"start": at(begin), "end": at(end)},
        "start": at(begin),
        "end": at(end),
        "minutes": 60 * (end - begin),
        "gpuHours": hours,
        "gpuCost": round(0.9 * usd, 5),
        "gpuCostAdjustment": -0.5 if usd else 0,
        "cpuCost": round(0.06 * usd, 5),
        "ramCost": round(0.04 * usd, 5) + (0.5 if usd else 0),
        "pvCost": 0.25,
        "networkCost": 0,
        "cpuEfficiency": None,
        "totalCost": round(usd + 0.25, 5),
    }


def answer(change: Callable[[Answer, Answer], object] = lambda _one, _two: None) -> Answer:
    """What OpenCost should say of the two days, by namespace, with something changed."""
    names = [
        [("vision", 20, 40), ("org-research-nlp", 2, 4), ("product", 10, 20), ("__idle__", 0, 320)],
        [("product", 10, 20), ("__idle__", 0, 364)],
    ]
    days: list[Answer] = [
        {
            name: row(
                name, 24 * day, 24 * day + 24, hours, usd, **({} if "_" in name else {"namespace": name})
            )
            for name, hours, usd in sums
        }
        for day, sums in enumerate(names)
    ]
    days[0]["kube-system"] = row("kube-system", 0, 24, 0, 1.5, namespace="kube-system")
    days[0]["__unmounted__"] = {**row("__unmounted__", 0, 24, 0, 0), "pvCost": 3, "totalCost": 3}
    change(*days)
    return {"code": 200, "data": [*days, None]}


def by_label(change: Callable[[Answer], object] = lambda _one: None) -> Answer:
    """The same, over both days together, by a label."""
    sums = [("vision", 20, 40), ("__unallocated__", 2, 4), ("shop", 20, 40), ("__idle__", 0, 684)]
    both = {name: row(name, 0, 48, hours, usd) for name, hours, usd in sums}
    change(both)
    return {"code": 200, "data": [both]}


def test_an_answer_that_agrees_ends_with_0(ask: Callable[..., Any]) -> None:
    code, out, err = ask(answer())
    assert (0, 1) == (code, len(out.splitlines())), out + err
    assert "2026-11-12 to 2026-11-13, UTC: 7 rows of OpenCost; OpenCost and the books agree" in err
    assert "names without GPU time that the books do not have: 1, $1.50; not compared" in err
    assert "volumes, networks, shared and external costs: $4.75" in err


def test_by_project_and_label(ask: Callable[..., Any]) -> None:
    assert 0 == ask(by_label(), "--by", "project")[0]
    assert 0 == ask(by_label(), "--by", "label:project", "--name", "label:team")[0]


def test_steps_within_a_day_are_taken_together(ask: Callable[..., Any], monkeypatch: Any) -> None:
    said = by_label(lambda both: both.clear())
    for begin in range(0, 48, 6):
        share = {name: row(name, begin, begin + 6, 2.5, 5) for name in ("vision", "shop")}
        share["__unallocated__"] = row("__unallocated__", begin, begin + 6, 0.25, 0.5)
        said["data"].append({**share, "__idle__": row("__idle__", begin, begin + 6, 0, 85.5)})
    code, out, _err = ask(said, "--by", "project", "-o", "json")
    # By day the projects differ: they had all of their time on other hours than an even share.
    assert (1, {"2026-11-12", "2026-11-13"}) == (code, {each["from_day"] for each in json.loads(out)})
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(json.dumps(by_label()).encode())))
    assert 0 == run_yard(["cost", "opencost", "-", "--by", "project"])


@pytest.mark.parametrize(
    ("change", "names", "said"),
    [
        (
            lambda one, _two: one.update({"org-research-nlp": row("org-research-nlp", 0, 24, 8, 16)}),
            ("org-research-nlp", "org/research/nlp"),
            "4.0 times the GPU time of the books; where jobs share GPUs that is why: it counts a part of a GPU as a "
            "whole one (opencost#3828)",
        ),
        (
            lambda one, _two: one.update({"vision": row("vision", 0, 24, 20, 50)}),
            ("vision", "org/research/vision"),
            "another one: $2.50 a GPU-hour there, $2.00 in the books",
        ),
        (
            lambda one, _two: one.update({"__idle__": row("__idle__", 0, 24, 0, 0)}),
            ("__idle__", "__idle__"),
            "OpenCost shows idle time as $0.00; the books have $320.00 not charged",
        ),
        (
            lambda one, _two: one.pop("__idle__"),
            ("", "__idle__"),
            "has no __idle__: ask OpenCost with includeIdle=true",
        ),
        (
            lambda one, _two: one.update({"crypto": row("crypto", 0, 24, 3, 6)}),
            ("crypto", ""),
            "the books have no tenant of that name",
        ),
        (
            lambda _one, two: two.pop("product"),
            ("", "org/product"),
            "OpenCost has no name for it",
        ),
        (
            lambda one, _two: one.update({"product": row("product", 0, 24, 6, 12)}),
            ("product", "org/product"),
            "less GPU time than the books",
        ),
        (
            lambda one, _two: one.update({"product": row("product", 0, 24, 0, 12)}),
            ("product", "org/product"),
            "no GPU time for it: it sees the GPUs that pods ask Kubernetes for",
        ),
    ],
)
def test_a_planted_difference_is_named_with_its_reason(
    ask: Callable[..., Any], change: Any, names: tuple[str, str], said: str
) -> None:
    code, out, _err = ask(answer(change), "-o", "json")
    (found,) = json.loads(out)
    assert (1, names) == (code, (found["name"], found["of"]))
    assert said in found["said"]
    assert all(where.endswith(f"[{found['name']!r}]") for where in found["rows"])
    code, table, _err = ask(answer(change))
    assert (1, 2) == (code, len(table.splitlines()))


def test_a_difference_within_the_tolerance_is_none(ask: Callable[..., Any]) -> None:
    def change(one: Answer, _two: Answer) -> None:
        one["vision"] = row("vision", 0, 24, 20.1, 40.2)

    assert 0 == ask(answer(change))[0]
    assert 1 == ask(answer(change), "--tolerance", "0.1")[0]


def test_a_name_may_be_told_what_it_stands_for(ask: Callable[..., Any]) -> None:
    def change(one: Answer, _two: Answer) -> None:
        one["ml"] = {**one.pop("vision"), "name": "ml"}
        one["ml"]["properties"]["namespace"] = "ml"

    code, _out, err = ask(answer(change))
    assert (1, True) == (code, "--map NAME=WHAT may say what it stands for" in err)
    assert 0 == ask(answer(change), "--map", "ml=org/research/vision")[0]


def test_a_tenant_counts_with_all_below_it_but_those_that_have_a_name(ask: Callable[..., Any]) -> None:
    def change(one: Answer, _two: Answer) -> None:
        del one["org-research-nlp"]
        one["research"] = row("research", 0, 24, 2, 4)

    assert 0 == ask(answer(change))[0]


def test_pods_are_added_up_by_their_label(ask: Callable[..., Any]) -> None:
    """An answer that is not aggregated has a row for each container, and labels as Prometheus has them."""

    def change(both: Answer) -> None:
        for number in range(2):
            both[f"main/h/ml/train-{number}/c"] = row(
                f"main/h/ml/train-{number}/c",
                0,
                48,
                10,
                20,
                namespace="ml",
                labels={"acme_io_team": "vision"},
            )
        both["main/h/ml/other/c"] = {**both.pop("__unallocated__"), "name": "main/h/ml/other/c"}
        del both["vision"]

    assert 0 == ask(by_label(change), "--by", "project", "--name", "label:acme.io/team")[0]


def test_a_name_that_several_tenants_have_is_refused() -> None:
    rows = [OpencostRow("data[0]['x']", "x", (DAY, DAY + 1), HOUR_MS, 2_000_000)]
    books = [BooksTime(DAY, path, True, Sums(HOUR_MS, 2_000_000)) for path in ("a/x", "b/x")]

    with pytest.raises(BadInput, match="'x' may be the tenant a/x or b/x"):
        compare_rows(rows, books, "tenant", {}, 10)
    (left,) = compare_rows(rows, books, "tenant", {"x": "a/x"}, 10).differ
    assert ("", "b/x") == (left.name, left.of)


def test_the_books_must_have_the_days_and_the_cluster(ask: Callable[..., Any]) -> None:
    late = {"data": [{"vision": row("vision", 24 * 30, 24 * 31, 1, 2)}]}
    early = {"data": [{"vision": row("vision", -48, -24, 1, 2)}]}
    for said in (late, early):
        code, out, err = ask(said)
        assert (2, "") == (code, out)
        assert "the books have nothing from" in err or "2026-12-12 is still to come" in err
    code, _out, err = ask(answer(), "--cluster", "gke")
    assert (2, True) == (code, "the books have no cluster 'gke' in that time" in err)
    assert 0 == ask(answer(), "--cluster", "main")[0]


def test_it_takes_sight_of_the_whole_yard(ask: Callable[..., Any]) -> None:
    code, out, err = ask(answer(), sight=Sight(("org",)))
    assert (2, "") == (code, out)
    assert "OpenCost sees all namespaces, but you see only a part of the yard" in err


def with_field(field: str, value: str) -> str:
    """An answer in which a field of a row has this text."""
    text = json.dumps({"data": [{"vision": row("vision", 0, 24, 20, 40) | {field: "HERE"}}]})
    return text.replace('"HERE"', value)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        *[
            (with_field(field, value), f"data[0]['vision'], {field}: {told}")
            for field, value, told in (
                ("gpuHours", "NaN", "'NaN' is not a number"),
                ("gpuHours", "-Infinity", "'-Infinity' is not a number"),
                ("gpuHours", "-1", "'-1' is less than 0"),
                ("gpuHours", "1e400", "'1e400' is more than"),
                ("gpuHours", "1e999999999", "'1e999999999' is not a number"),
                ("gpuHours", "9" * 5000, "'99999"),
                ("gpuHours", '"20"', "'\"20\"' is not a number"),
                ("gpuHours", "null", "'null' is not a number"),
                ("gpuHours", "[" * 900 + "]" * 900, "a list is not a number"),
                ("gpuCost", "true", "'true' is not a number"),
                ("cpuCost", "-0.01", "'-0.01' is less than 0"),
                ("ramCostAdjustment", "{}", "an object is not a number"),
                ("currency", '"EUR"', "'EUR': the books are in USD"),
                ("window", "7", "it is not an object"),
                ("properties", '{"namespace": "a", "namespace": "b"}', "the field 'namespace' occurs twice"),
            )
        ],
        (
            with_field("window", '{"start": "yesterday", "end": "2026-11-13T00:00:00Z"}'),
            "data[0]['vision'], window.start: 'yesterday' is not a moment",
        ),
        (with_field("window", '{"start": "2026-11-13T00:00:00Z"}'), "window.end: it is empty"),
        (
            with_field("window", '{"start": "2026-11-12T00:00:00Z", "end": "2026-11-12T00:00:00Z"}'),
            "window: it is empty, or has more than 400 days",
        ),
        (
            with_field("window", '{"start": "2026-11-12T06:00:00Z", "end": "2026-11-13T00:00:00Z"}'),
            "data[0]['vision']: its window begins or ends within a day, and the books are kept by the UTC day",
        ),
        (
            with_field("window", '{"start": "2026-11-12T00:00:00Z", "end": "2026-11-12T23:00:00Z"}'),
            "its window begins or ends within a day",
        ),
        (with_field("properties", '{"namespace": [1]}'), "properties.namespace: a list is not a name"),
        ('{"data": [{"a": {}}]}', "data[0]['a'], window.start: it is empty"),
        ('{"data": [{"a": 1}]}', "data[0]['a']: it is not an object"),
        ('{"data": [{"a": {}, "a": {}}]}', "data[0]: the name 'a' occurs twice"),
        ('{"data": [1]}', "data[0]: it is not an object"),
        ('{"data": []}', "has no allocation in it"),
        ('{"data": 1}', "data: it is not a list"),
        ('{"data": {"sets": []}}', "is a summary without GPU-hours"),
        ('{"data": [], "data": []}', "the field 'data' occurs twice"),
        ('{"data": [], "currency": "EUR"}', "currency: 'EUR': the books are in USD"),
        ('{"code": 500, "message": "no metrics", "data": null}', "OpenCost refused with code 500: 'no metrics'"),
        ("[]", "has no field 'data': it is not an answer of /allocation"),
        ("", "line 1, column 1: it is no JSON"),
        ('{"data":\n [{]}', "line 2, column 4: it is no JSON"),
        ("[" * 100_000, "is nested too deeply"),
        ("Date,Namespace,GPUs\n", "is OpenCost's csv, which does not tell GPU-hours"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_told_with_its_place(ask: Callable[..., Any], said: str, told: str) -> None:
    code, out, err = ask(said)
    assert (2, "") == (code, out)
    assert told in err
    assert "Traceback" not in err


def test_two_windows_that_overlap_are_refused(ask: Callable[..., Any]) -> None:
    code, out, err = ask({"data": [{"a": row("a", 0, 48, 1, 2)}, {"b": row("b", 24, 48, 1, 2)}]})
    assert (2, "") == (code, out)
    assert "data[1]['b']: its window overlaps that of data[0]['a']" in err


def test_many_broken_rows_are_counted(ask: Callable[..., Any]) -> None:
    code, _out, err = ask({"data": [{f"n{number}": row("n", 0, 24, -1, 2) for number in range(30)}]})
    assert 2 == code
    assert "yard: 30 problems" in err
    assert 10 == err.count("is less than 0")
    assert "20 more rows cannot be read. Nothing was compared." in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--by", "user"), "--by 'user' is not known"),
        (("--by", "label:"), "--by 'label:' is not known"),
        (("--name", "pod"), "--name 'pod' is not known"),
        (("--map", "vision"), "--map 'vision' is not NAME=WHAT"),
        (("--tolerance", "nan"), "nan"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    ask: Callable[..., Any], words: tuple[str, ...], told: str
) -> None:
    code, _out, err = ask(answer(), *words)
    assert (2, True) == (code, told in err)


def test_values_for_the_charts_have_the_price_of_the_books(ask: Callable[..., Any]) -> None:
    code, out, err = ask("", export=True)
    assert (0, "") == (code, err)
    assert "as it cost in the books, 2026-11-01 to 2026-11-14, UTC" in out
    said = yaml.safe_load(out)
    found = said["kubecostProductConfigs"]
    assert ("main", "USD", "team") == (
        found["clusterName"], found["currencyCode"], found["labelMappingConfigs"]["team_label"],
    )  # fmt: skip
    assert ("2.00", "2.00", "0") == tuple(
        [found["defaultModelPricing"][name] for name in ("GPU", "spotGPU", "CPU")]
    )
    assert "main" == said["prometheus"]["server"]["global"]["external_labels"]["cluster_id"]
    said = yaml.safe_load(ask("", "--chart", "opencost", "--cluster", "main", export=True)[1])["opencost"]
    assert ("main", "2.00") == (
        said["exporter"]["defaultClusterId"], said["customPricing"]["costModel"]["GPU"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--chart", "x"), "no values for the chart 'x'"),
        (("--cluster", "gke"), "the books have no GPUs of a cluster 'gke' then"),
        (("--team-label", "a b"), "--team-label 'a b' is not a key of a label"),
        (("--from", "2026-10-01", "--to", "2026-10-02"), "which cluster is meant?"),
    ],
)
def test_values_that_cannot_be_written_are_refused(
    ask: Callable[..., Any], words: tuple[str, ...], told: str
) -> None:
    code, out, err = ask("", *words, export=True)
    assert (2, "", True) == (code, out, told in err)
    assert 2 == ask("", export=True, sight=Sight(("org",)))[0]
