"""Quotas and queues of Kubernetes and Kueue as a change of a configuration."""

from pathlib import Path

import pytest

from gpuyard.cli.commands.config.changes import read_change
from gpuyard.config.compare import Change, compare
from gpuyard.config.reading import loads
from gpuyard.intake.kubernetes.quota_fields import FIELDS, Fate
from gpuyard.intake.kubernetes.quotas import is_manifest, patch_configuration
from gpuyard.keys.problems import ConfigError

LIVE = """\
# the yard of the lab
version: 1
clusters:
  main: {pools: {h100: {nodes: 4, gpus: 8 x H100, cpus: 96, memory: 1T}}}   # rack 7
# teams
tenants:
  research: {weight: 3, max_gpus_per_job: 4}
  team-a: {limit: 6}

# what it costs
prices: {H100: 2.50}
"""
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "quotas.md"


def manifest(kind: str, spec: str, name: str = "x", namespace: str = "", version: str = "v1") -> str:
    place = f", namespace: {namespace}" if namespace else ""
    return f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: {name}{place}}}\n{spec}\n"


def quota(namespace: str, hard: str) -> str:
    return manifest("ResourceQuota", f"spec: {{hard: {{{hard}}}}}", namespace=namespace)


def kueue(kind: str, spec: str, name: str = "x", namespace: str = "") -> str:
    return manifest(kind, spec, name, namespace, "kueue.x-k8s.io/v1beta1")


def changes(*manifests: str) -> list[Change]:
    patch = patch_configuration(LIVE, "---\n".join(manifests), "m.yaml")
    return compare(loads(LIVE).settings, loads(patch.text).settings)


def refusals(*manifests: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        patch_configuration(LIVE, "---\n".join(manifests), "m.yaml")
    return str(caught.value).splitlines()


def test_the_quota_of_mlops_team() -> None:
    """Document 003: 40 CPU, 200Gi and 8 GPUs."""
    found = changes(
        quota("mlops-team", "requests.cpu: '40', requests.memory: 200Gi, requests.nvidia.com/gpu: '8'")
    )

    assert [
        Change("tenant", "mlops-team", "", "", "limit 8, on_limit refuse, max_cpus 40, max_memory 200G"),
    ] == found


def test_a_quota_of_ten_gpus_for_a_team_that_is_there() -> None:
    assert [
        Change("tenant", "team-a", "limit", "6", "10"),
        Change("tenant", "team-a", "on_limit", "wait", "refuse"),
    ] == changes(quota("team-a", "requests.nvidia.com/gpu: '10'"))


def test_a_limit_range_of_one_to_two_gpus() -> None:
    bounds = "max: {nvidia.com/gpu: 2}, min: {nvidia.com/gpu: 1}, default: {cpu: 500m}"
    limits = f"spec: {{limits: [{{type: Container, {bounds}}}]}}"

    assert [
        Change("tenant", "research", "max_gpus_per_job", "4", "2"),
        Change("tenant", "research", "per_job cpus", "anything", "default 0.5"),
        Change("tenant", "research", "per_job gpus", "anything", "min 1"),
    ] == changes(manifest("LimitRange", limits, namespace="research"))


def test_the_rest_of_the_file_stays_as_it_is_with_its_comments() -> None:
    patch = patch_configuration(LIVE, quota("b", "pods: 5"), "m.yaml")

    assert LIVE[: LIVE.index("tenants:")] == patch.text[: patch.text.index("tenants:")]
    assert patch.text.endswith("\n# what it costs\nprices: {H100: 2.50}\n")
    assert "  b:\n    max_jobs: 5\n    on_limit: refuse\n" in patch.text
    assert patch.text == patch_configuration(patch.text, quota("b", "pods: 5"), "m.yaml").text


@pytest.mark.parametrize(
    "live",
    [
        "{version: 1, clusters: {main: {engine: local}}, tenants: {a: {limit: 1}}}",
        "version: 1\nclusters:\n  main: {engine: local}\ntenants:\n  a: &a {limit: 1}\n  b: *a\n",
        "version: 1\nclusters:\n  main: {engine: local}\n",
    ],
)
def test_a_file_of_any_form_says_the_same_and_the_change(live: str) -> None:
    patch = patch_configuration(live, quota("c", "requests.nvidia.com/gpu: 3"), "m.yaml")
    found = compare(loads(live).settings, loads(patch.text).settings)

    assert [Change("tenant", "c", "", "", "limit 3, on_limit refuse")] == found


def test_teams_a_b_and_c_on_eight_gpus() -> None:
    """Document 003: three queues of one cohort; each has its own and borrows from the others."""

    def queue(name: str, nominal: int, more: str = "") -> str:
        resources = f"[{{name: nvidia.com/gpu, nominalQuota: {nominal}{more}}}]"
        groups = f"[{{coveredResources: [nvidia.com/gpu], flavors: [{{name: all, resources: {resources}}}]}}]"
        return kueue("ClusterQueue", f"spec: {{cohort: gpus, resourceGroups: {groups}}}", name)

    patch = patch_configuration(
        LIVE,
        "---\n".join(
            [queue("a", 4), queue("b", 2, ", borrowingLimit: 1"), queue("c", 2, ", lendingLimit: 0")]
        ),
        "m",
    )
    tenants = {tenant.path: tenant.quota for tenant in loads(patch.text).settings.tenants}

    assert {"total": 8000} == tenants["gpus"].guarantee == tenants["gpus"].limit
    assert [{"total": 4000}, {"total": 2000}, {"total": 2000}] == [
        tenants[f"gpus/{n}"].guarantee for n in "abc"
    ]
    assert ({"total": 1000}, {"total": 0}) == (tenants["gpus/b"].borrow, tenants["gpus/c"].lend)


def test_flavors_queues_and_classes() -> None:
    flavor = kueue(
        "ResourceFlavor", "spec: {nodeLabels: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}}", "big"
    )
    resources = "[{name: nvidia.com/gpu, nominalQuota: 6}, {name: cpu, nominalQuota: 64}]"
    groups = (
        f"[{{coveredResources: [nvidia.com/gpu, cpu], flavors: [{{name: big, resources: {resources}}}]}}]"
    )
    queue = kueue("ClusterQueue", f"spec: {{namespaceSelector: {{}}, resourceGroups: {groups}}}", "cq")
    local = kueue("LocalQueue", "spec: {clusterQueue: cq}", "user-queue", "team-a")
    klass = manifest(
        "PriorityClass", "value: 1000\nglobalDefault: true", "high", version="scheduling.k8s.io/v1"
    )
    patch = patch_configuration(LIVE, "---\n".join([local, queue, flavor, klass]), "m.yaml")
    settings = loads(patch.text).settings
    tenants = {tenant.path: tenant.quota for tenant in settings.tenants}

    assert {"H100": 6000} == tenants["cq"].limit
    assert (64_000, {"total": 6000}) == (tenants["cq"].max_cpu_milli, tenants["cq/team-a"].limit)
    assert {"user-queue": "cq/team-a"} == settings.accounts
    assert ("high", 1000) == (settings.default_class, {k.name: k.priority for k in settings.classes}["high"])
    assert any("namespaceSelector of a ClusterQueue is left out" in note for note in patch.notes)


def test_two_manifests_that_disagree() -> None:
    assert [
        "m.yaml:10:29: max_cpus of tenant 'team-a' is 60 here and 40 on line 4; keep one of them"
    ] == refusals(quota("team-a", "requests.cpu: 40"), "\n" + quota("team-a", "requests.cpu: 60"))


def test_a_limit_range_above_the_largest_node() -> None:
    limits = "spec: {limits: [{type: Container, min: {nvidia.com/gpu: 9}}]}"

    assert [
        "m.yaml:4:57: min of nvidia.com/gpu is 9, and the largest node has 8, so that no container could be that "
        "large; lower it"
    ] == refusals(manifest("LimitRange", limits, namespace="team-a"))


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        (
            quota("a", "requests.amd.com/gpu: 1"),
            "spec.hard.requests.amd.com/gpu of a ResourceQuota is not known here",
        ),
        (
            quota("a", "requests.cpu: much"),
            "requests.cpu must be a quantity such as 2, 500m or 64Gi, not 'much'",
        ),
        (quota("a", "requests.nvidia.com/gpu: 1500m"), "must be a whole number of GPUs, not '1500m'"),
        (quota("", "pods: 1"), "metadata.namespace is missing"),
        (
            manifest("ResourceQuota", "spec: {hard: {pods: 1}, scopes: [BestEffort]}", namespace="a"),
            "cannot be kept",
        ),
        (manifest("ResourceQuota", "spec: {hart: {pods: 1}}", namespace="a"), "did you mean 'hard'?"),
        (
            manifest("ResourceQuota", "spec: {}", namespace="a", version="v2"),
            "apiVersion of a ResourceQuota is v1",
        ),
        (manifest("Deployment", "spec: {}"), "kind 'Deployment' does not change a configuration"),
        (
            manifest("PriorityClass", "value: 2e9", version="scheduling.k8s.io/v1"),
            "must be a whole number from",
        ),
        (kueue("LocalQueue", "spec: {clusterQueue: gone}", namespace="a"), "there is no tenant 'gone'"),
        (kueue("ClusterQueue", "spec: {stopPolicy: Hold}"), "drain nodes (yard drain) or hold jobs"),
        (
            kueue("ResourceFlavor", "spec: {nodeLabels: {disk: ssd}}"),
            "a GPU model or of all GPUs, not of labelled",
        ),
    ],
)
def test_what_cannot_be_kept_is_refused_with_its_place(text: str, refusal: str) -> None:
    (line,) = refusals(text)
    assert refusal in line
    assert line.startswith("m.yaml:")


def test_yard_apply_sends_the_configuration_in_force_with_what_the_manifest_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Yard:
        def config(self) -> dict[str, object]:
            return {"version": 7, "yaml": LIVE}

    file = tmp_path / "quota.yaml"
    file.write_text(quota("team-a", "requests.nvidia.com/gpu: 10, secrets: 1"))
    wanted, read_at = read_change(Yard(), file)  # type: ignore[arg-type]

    assert 7 == read_at
    assert patch_configuration(LIVE, file.read_text(), str(file)).text == wanted["yaml"]
    assert "spec.hard.secrets of a ResourceQuota is left out: a yard has none" in capsys.readouterr().err

    file.write_text(quota("vision", "requests.nvidia.com/gpu: -1"))
    with pytest.raises(ConfigError, match="must not be negative"):
        read_change(Yard(), file)  # type: ignore[arg-type]


def test_a_job_and_a_configuration_are_no_such_manifest() -> None:
    assert not is_manifest(LIVE)
    assert is_manifest("# quotas\n" + quota("a", "pods: 1"))


def test_the_page_has_every_field() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for kind, rows in FIELDS.items():
        for row in rows:
            name = f"{row.above}.{row.key}" if row.above else row.key
            said = f"{row.fate.value}: {row.meaning}" if row.meaning else row.fate.value
            assert f"| `{name}` | {said} |" in page, f"{kind}: {name}"
            assert row.meaning or row.fate is Fate.KEPT
