"""`GET /metrics` of a yard with jobs on emulated GPUs: what it says, to whom, and what promtool says of it."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.telemetry.signals import SIGNALS
from harness.patience import patient
from rigs.components import Missing, install, skip_or_fail
from rigs.teams import CONFIG, Team, team

LOADS = {"ulla": "95% 40GiB", "erik": "20% 10GiB"}


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Team, dict[str, int]]]:
    """A yard with one running job of each of two tenants."""
    with team(tmp_path_factory.mktemp("metrics")) as made:
        # Looks are taken by hand.
        made.yard.duties["watch"].stop(patient(60))
        ids = {
            user: made.submit(
                user,
                hold=False,
                gpus=1,
                name=f"of {user}",
                command=["sleep", "120"],
                env={"YARD_EMULATED_LOAD": load},
            )
            for user, load in LOADS.items()
        }
        engine = made.yard.watch._eyes[0]._engine
        made.until(lambda: len(engine.whereabouts()) == 2)
        made.yard.watch._look()
        yield made, ids


def text(team: Team, user: str) -> str:
    answer = team.call("GET", "/metrics", team.tokens[user])
    assert 200 == answer.status
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return answer.body.decode()


def test_a_prometheus_that_asks_for_open_metrics_gets_it(yard: tuple[Team, dict[str, int]]) -> None:
    made, _ids = yard
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    answer = made.call("GET", "/metrics", made.tokens["adam"], headers={"Accept": accept})

    assert "application/openmetrics-text; version=1.0.0; charset=utf-8" == answer.headers["content-type"]
    assert answer.body.endswith(b"\n# EOF\n")
    assert b"# TYPE gpuyard_events counter" in answer.body


def test_emulated_gpus_do_what_their_jobs_say(yard: tuple[Team, dict[str, int]]) -> None:
    made, ids = yard
    found = text(made, "adam")

    busy = dict(re.findall(r'gpuyard_attempt_gpu_busy_ratio\{node="[^"]+",job_id="(\d+)"\} (\S+)', found))
    assert {str(ids["ulla"]): "0.95", str(ids["erik"]): "0.2"} == busy
    used = sorted(map(int, re.findall(r"^DCGM_FI_DEV_FB_USED\{.*\} (\d+)$", found, re.MULTILINE)))
    assert [0] * 6 + [10240, 40960] == used
    assert re.search(
        r'^DCGM_FI_DEV_GPU_UTIL\{gpu="\d",UUID="[^"]+",.*Hostname="[^"]+".*\} 95$', found, re.MULTILINE
    )
    cpu = re.findall(
        r'^gpuyard_attempt_cpu_seconds_total\{node="[^"]+",job_id="(\d+)"\}', found, re.MULTILINE
    )
    assert {str(each) for each in ids.values()} == set(cpu)
    assert 'gpuyard_jobs{state="running"} 2' in found
    assert re.search(r"^gpuyard_gpus_free\{.*\} 6$", found, re.MULTILINE)
    assert "gpuyard_leader 1" in found


def test_jobs_of_other_tenants_are_left_out(yard: tuple[Team, dict[str, int]]) -> None:
    made, ids = yard
    for user, other in (("vera", "erik"), ("erik", "ulla")):
        found = text(made, user)
        assert f'job_id="{ids[other]}"' not in found
        assert f'user="{other}"' not in found
    assert 'tenant="product"' not in text(made, "vera")
    assert f'job_id="{ids["ulla"]}"' in text(made, "vera")
    assert 401 == made.call("GET", "/metrics").status


def test_curves_of_a_job_are_kept_when_it_has_ended(yard: tuple[Team, dict[str, int]]) -> None:
    made, _ids = yard
    number = made.submit(
        "ulla", hold=False, gpus=1, command=["sleep", "60"], env={"YARD_EMULATED_LOAD": "50% 1GiB"}
    )
    watch, engine = made.yard.watch, made.yard.watch._eyes[0]._engine
    made.until(lambda: len(engine.whereabouts()) == 3)
    (key,) = [each.key for each in engine.whereabouts() if f"-{number}-" in each.key]
    watch._look()
    nodes = [watch._eyes[0].key(node) for node in engine.gpus()]
    running = watch.curves(key, nodes, made.yard.now_ms() - 60_000, made.yard.now_ms() + 1)
    made.call("POST", f"/api/v1/jobs/{number}/cancel", made.tokens["ulla"])
    made.until(lambda: len(engine.whereabouts()) == 2)
    watch._look()
    kept = watch.curves(key, [], 0, 0)

    assert [500] == running["gpu_busy"].values
    assert ([500], [1024]) == (kept["gpu_busy"].values, kept["gpu_memory"].values)
    assert "gpu_busy_estimated" not in kept


@pytest.mark.rig
def test_promtool_finds_nothing_wrong(yard: tuple[Team, dict[str, int]]) -> None:
    if not shutil.which("promtool"):
        try:
            install("prometheus")
        except Missing as refusal:
            skip_or_fail(str(refusal))
    made, _ids = yard
    found = text(made, "adam")
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=found, capture_output=True, text=True, check=False
    )

    # dcgm-exporter has a label `modelName`, and dashboards want it under that very name.
    ours = re.compile(r"(DCGM_FI|dcgm)_\S+ label names should be written in 'snake_case' not 'camelCase'")
    assert [] == [line for line in (done.stderr + done.stdout).splitlines() if not ours.fullmatch(line)]
    assert done.returncode in (0, 3), "3: it can be read, and names could be nicer"
    names = set(re.findall(r"^# TYPE (DCGM\S+) gauge$", found, re.MULTILINE))
    assert names <= {signal.dcgm for signal in SIGNALS.values()}


def test_the_curves_of_a_job_are_for_those_who_see_it(yard: tuple[Team, dict[str, int]]) -> None:
    made, ids = yard
    address = f"/api/v1/jobs/{ids['ulla']}/curves"
    found = made.call("GET", address, made.tokens["ulla"]).json

    by_name = {each["signal"]: each for each in found["curves"]}
    busy, memory = by_name["gpu_busy"], by_name["gpu_memory"]
    assert ({950}, 1000, False) == (set(busy["values"]), busy["full"], busy["estimated"])
    assert ({40_960}, 81_920) == (set(memory["values"]), memory["full"])
    assert "cpu" in by_name
    assert 404 == made.call("GET", address, made.tokens["erik"]).status


def test_the_scheduler_tells_of_itself(yard: tuple[Team, dict[str, int]]) -> None:
    made, _ids = yard
    failed = made.submit("erik", hold=False, command=["false"])
    made.submit("erik", hold=False, gpus=8)
    made.submit("ulla")
    made.until(
        lambda: "FAILED" == made.call("GET", f"/api/v1/jobs/{failed}", made.tokens["erik"]).json["state"]
    )
    made.until(lambda: 'reason="room"' in text(made, "adam"))
    found = text(made, "adam")

    for row in (
        'gpuyard_queue_jobs{tenant="product/erik",class="batch",reason="room"} 1',
        'gpuyard_queue_jobs{tenant="research/ulla",class="batch",reason="held"} 1',
        'gpuyard_jobs_ended_total{tenant="product/erik",state="failed"} 1',
        'gpuyard_preemptions_total{cause="class"} 0',
        'gpuyard_engine_up{cluster="box"} 1',
        'gpuyard_projection_stuck{projection="gpu-time"} 0',
    ):
        assert row in found.splitlines()
    assert re.search(r"^gpuyard_gpus_stranded\{.*\} 6$", found, re.MULTILINE), "a job of eight GPUs waits"
    assert re.search(r'^gpuyard_nodes_open\{.*gpus_free="6"\} 1$', found, re.MULTILINE)
    assert re.search(r'^gpuyard_wait_seconds_bucket\{class="batch",le="\+Inf"\} [3-9]$', found, re.MULTILINE)
    assert re.search(r"^gpuyard_decision_seconds_count [1-9]\d*$", found, re.MULTILINE)
    assert re.search(r'^gpuyard_attempts_ended_total\{outcome="failed"\} [1-9]', found, re.MULTILINE)
    assert re.search(r'^gpuyard_engine_report_age_seconds\{cluster="box"\} \d', found, re.MULTILINE)
    assert re.search(r'^gpuyard_node_info\{node="[^"]+",model="A100-80GB",cluster="box"', found, re.MULTILINE)
    assert 'tenant="product"' not in text(made, "vera")


def test_emulated_nodes_without_a_job_have_rows_too(tmp_path: Path) -> None:
    pools = "box: {allow_root: true, pools: {main: {nodes: 2, gpus: 2 x L4, emulate: true}}}"
    config = CONFIG.replace("box: {gpus: 8 x A100-80GB, emulate: true, allow_root: true}", pools)
    with team(tmp_path, config) as made:
        # Looks are taken by hand.
        made.yard.duties["watch"].stop(patient(60))
        load = {"YARD_EMULATED_LOAD": LOADS["ulla"]}
        job = made.submit("ulla", hold=False, gpus=2, command=["sleep", "120"], env=load)
        engine = made.yard.watch._eyes[0]._engine
        made.until(lambda: len(engine.whereabouts()) == 1)
        made.yard.watch._look()
        for _ in range(2):
            rows = re.findall(
                r'^gpuyard_gpu_memory_free_bytes\{node="([^"]+)",gpu="(\d)"', text(made, "adam"), re.M
            )
            assert [(f"main-000{node}", gpu) for node in (1, 2) for gpu in "01"] == sorted(rows)
            # Its node has a fresh sample of the job, and tells something by itself now.
            made.call("POST", f"/api/v1/jobs/{job}/cancel", made.tokens["ulla"])
            made.until(lambda: not engine.whereabouts())
            made.yard.watch._look()


def test_an_emulated_node_with_a_collector_of_its_own_is_left_to_that_one(tmp_path: Path) -> None:
    pools = "box: {allow_root: true, pools: {main: {nodes: 2, gpus: 2 x L4, emulate: true}}}"
    config = CONFIG.replace("box: {gpus: 8 x A100-80GB, emulate: true, allow_root: true}", pools)
    with team(tmp_path, config) as made:
        text(made, "adam")
        now_ms = made.yard.watch.now_ms()
        told = {
            "sent_ms": now_ms,
            "steady_ms": 5,
            "at_ms": [now_ms],
            "series": {"gpu/0/memory_temperature": [61]},
        }
        card = {"gpu": 0, "uuid": "GPU-x", "model": "NVIDIA L4", "pci": "00:1B", "driver": "580"}
        token = made.token("main-0002", role="collector")
        said = made.call("POST", "/api/v1/nodes/main-0002/samples", token, {**told, "cards": [card]})
        assert 200 == said.status, said.body

        found = re.findall(r"^gpuyard_gpu_memory_temperature_celsius(.*)$", text(made, "adam"), re.M)
        assert ['{node="main-0002",gpu="0",uuid="GPU-x"} 61'] == found
