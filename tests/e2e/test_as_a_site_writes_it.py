"""What the people of a site write, typed in: labels, taints, quotas of namespaces, limits of a job, shares in percent.

Where a job ran is what the job itself wrote.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .conftest import Box, Done

CONFIG = """\
version: 1
clusters:
  main:
    engine: local
    allow_root: true
    pools:
      a100: {nodes: 2, gpus: 4 x A100-40GB, cpus: 64, memory: 1T, emulate: true}
tenants: {}
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {{name: ai-job, namespace: {namespace}}}
spec:
  restartPolicy: Never
{spec}  containers:
    - name: trainer
      image: myrepo/train:latest
      command: [sh, -c, 'echo $SLURMD_NODENAME; sleep {sleep}']
      resources:
        requests: {{nvidia.com/gpu: {gpus}}}
        limits: {{nvidia.com/gpu: {gpus}}}
"""
QUOTA = """\
apiVersion: v1
kind: ResourceQuota
metadata:
  name: {name}
  namespace: {namespace}
spec:
  hard:
{hard}"""
LIMIT_RANGE = """\
apiVersion: v1
kind: LimitRange
metadata: {name: gpu-limits, namespace: sandbox}
spec:
  limits:
    - type: Container
      min: {nvidia.com/gpu: 1}
      max: {nvidia.com/gpu: 2}
      default: {nvidia.com/gpu: 1}
"""
Typed = Callable[..., Done]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """A yard of two nodes with four GPUs each."""
    made = Box(tmp_path_factory.mktemp("site") / "yard", CONFIG)
    made.up()
    yield made
    done = made("down", "--jobs")
    assert 0 == done.code, done.err


@pytest.fixture
def box(site: Box) -> Iterator[Box]:
    """The same, and no job of an earlier test."""
    yield site
    site("cancel", "--all", "--yes")


@pytest.fixture
def apply(box: Box, tmp_path: Path) -> Typed:
    """Put a manifest into force."""

    def applied(text: str) -> Done:
        path = tmp_path / "manifest.yaml"
        path.write_text(text, encoding="utf-8")
        return box("apply", "-f", path, "--no-preview", "--yes")

    return applied


@pytest.fixture
def submit(box: Box, tmp_path: Path) -> Typed:
    """Submit a pod."""

    def submitted(gpus: int = 1, *, namespace: str = "team-a", spec: str = "", sleep: int = 0) -> Done:
        path = tmp_path / "pod.yaml"
        path.write_text(POD.format(gpus=gpus, namespace=namespace, spec=spec, sleep=sleep), encoding="utf-8")
        return box("submit", "--host-process", path)

    return submitted


def node_of(box: Box, done: Done) -> str:
    """Where a job ran, as it wrote."""
    assert 0 == done.code, done.err
    box.wait(done.out.strip(), "COMPLETED")
    return box("logs", done.out.strip()).out.strip()


def run(box: Box, *asked: object) -> str:
    """A job that runs."""
    done = box("submit", *asked, "--", "sleep", "600")
    assert 0 == done.code, done.err
    box.wait(done.out.strip(), "RUNNING")
    return done.out.strip()


def test_a_pod_goes_to_the_node_with_its_label(box: Box, apply: Typed, submit: Typed) -> None:
    apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: team-a}\n")
    chosen = "  nodeSelector: {accelerator: nvidia}\n"
    assert 0 == box("label", "a100-0002", "accelerator=nvidia").code
    assert "a100-0002" == node_of(box, submit(spec=chosen))
    assert 0 == box("label", "a100-0001", "team=mlops").code
    assert "a100-0001" == node_of(box, submit(spec="  nodeSelector: {team: mlops}\n"))
    assert 0 == box("label", "a100-0001", "a100-0002", "--reset").code


def test_a_tainted_node_takes_what_tolerates_it_alone(box: Box, apply: Typed, submit: Typed) -> None:
    """A team's own nodes: a taint keeps others out, a selector keeps the team in."""
    apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: team-b}\n")
    assert 0 == box("label", "a100-0001", "team=b").code
    assert 0 == box("taint", "a100-0001", "team=b:NoSchedule").code
    own = (
        "  nodeSelector: {team: b}\n"
        "  tolerations: [{key: team, operator: Equal, value: b, effect: NoSchedule}]\n"
    )
    assert "a100-0001" == node_of(box, submit(namespace="team-b", spec=own))
    assert "a100-0002" == node_of(box, submit(namespace="team-b"))
    refused = submit(namespace="team-b", spec="  nodeSelector: {team: b}\n")
    assert 0 != refused.code
    assert "team=b:NoSchedule" in refused.err
    assert 0 == box("label", "a100-0001", "--reset").code
    assert 0 == box("taint", "a100-0001", "--reset").code


def test_a_quota_of_ten_lets_four_in_and_denies_seven(box: Box, apply: Typed, submit: Typed) -> None:
    hard = '    requests.nvidia.com/gpu: "10"\n'
    assert 0 == apply(QUOTA.format(name="gpu-quota", namespace="team-a", hard=hard)).code
    assert 0 == submit(4, sleep=600).code
    # As pods of 3 and 4, since no node has seven GPUs.
    assert 0 == submit(3, sleep=600).code
    denied = submit(4)
    assert 0 != denied.code
    assert "team-a may have 10 GPUs, and jobs that wait or run ask for 7 GPUs" in denied.err


def test_a_team_has_forty_cores_and_two_hundred_gigabytes(box: Box, apply: Typed) -> None:
    hard = '    requests.cpu: "40"\n    requests.memory: "200Gi"\n    requests.nvidia.com/gpu: "8"\n'
    assert 0 == apply(QUOTA.format(name="compute-limits", namespace="mlops-team", hard=hard)).code
    first = box("submit", "--tenant", "mlops-team", "-g", 1, "-c", 30, "-m", "150G", "--", "sleep", "600")
    assert 0 == first.code, first.err
    for more, what in (("-c", 11), "cores"), (("-m", "51G"), "50"):
        denied = box("submit", "--tenant", "mlops-team", *more, "-g", 1, "--", "true")
        assert 0 != denied.code
        assert what in denied.err
    fits = box("submit", "--tenant", "mlops-team", "-g", 1, "-c", 10, "-m", "50G", "--", "true")
    assert 0 == fits.code, fits.err
    box.wait(fits.out.strip(), "COMPLETED")


def test_a_limit_range_gives_one_gpu_and_allows_two(box: Box, apply: Typed) -> None:
    assert 0 == apply(LIMIT_RANGE).code
    given = box("submit", "--tenant", "sandbox", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert 0 == given.code, given.err
    box.wait(given.out.strip(), "COMPLETED")
    assert 1 == len(box("logs", given.out.strip()).out.strip().split(","))
    assert 0 == box("submit", "--tenant", "sandbox", "-g", 2, "--", "true").code
    refused = box("submit", "--tenant", "sandbox", "-g", 3, "--", "true")
    assert 0 != refused.code
    assert "a job of sandbox may have 2" in refused.err


def test_three_teams_have_eight_four_and_two(box: Box, apply: Typed) -> None:
    limits = {"a": 8, "b": 4, "c": 2}
    quotas = [
        QUOTA.format(name="gpus", namespace=f"dept-{team}", hard=f'    requests.nvidia.com/gpu: "{count}"\n')
        for team, count in limits.items()
    ]
    assert 0 == apply("---\n".join(quotas)).code
    told = box("tenants").out
    for team, count in limits.items():
        (row,) = [line.split() for line in told.splitlines() if line.startswith(f"dept-{team} ")]
        assert str(count) in row
        refused = box("submit", "--tenant", f"dept-{team}", "--tasks", count + 1, "-g", 1, "--", "true")
        assert 0 != refused.code


def test_a_share_is_forty_percent_and_borrows_sixty(box: Box, tmp_path: Path) -> None:
    """Of eight GPUs three are a team's own, and all of them while nobody else asks."""
    path = tmp_path / "shares.yaml"
    shares = (
        "tenants:\n  nlp: {guarantee: 40%, borrow: 60%}\n  cv: {guarantee: 60%}\nfairness: {half_life: 7d}\n"
    )
    path.write_text(CONFIG.replace("tenants: {}\n", shares), encoding="utf-8")
    assert 0 == box("apply", "-f", path, "--no-preview", "--yes").code
    run(box, "--tenant", "nlp", "-g", 4, "--tasks", 2)
    assert "3 (40%)" in box("tenants").out
    waits = box("submit", "--tenant", "cv", "-g", 4, "--", "true")
    assert "stopped for it" in box("why", waits.out.strip()).out


def test_a_job_gets_an_hour_from_scontrol(box: Box, tmp_path: Path) -> None:
    path = tmp_path / "open.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    assert 0 == box("apply", "-f", path, "--no-preview", "--yes").code
    job = run(box, "-g", 1, "-t", "10m")
    done = box("slurm", "scontrol", "update", f"jobid={job}", "TimeLimit=01:00:00")
    assert 0 == done.code, done.err
    with box.client() as client:
        assert 3600 == client.job(job, explain=False)["time_limit_s"]
