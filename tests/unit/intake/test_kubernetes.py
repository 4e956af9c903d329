"""Pods and Jobs of Kubernetes: mapped, or refused with the reason and the line."""

from typing import Any

import pytest

from gpuyard.api.messages.schemas import JobRequest
from gpuyard.engines.node.containers import podman
from gpuyard.errors import BadInput
from gpuyard.intake import PROPOSED, Caller
from gpuyard.intake.kubernetes import read_kubernetes, resources
from gpuyard.intake.kubernetes.containers import expand

JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: finetune
  namespace: research
spec:
  backoffLimit: 2
  template:
    spec:
      restartPolicy: Never
      priorityClassName: high
      nodeSelector:
        nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB
      containers:
      - name: main
        image: pytorch:2.5
        command: [python, train.py]
        args: ["--seed", "$(SEED)"]
        workingDir: /data
        env:
        - {name: SEED, value: "7"}
        resources:
          requests: {cpu: 8, memory: 64Gi}
          limits: {nvidia.com/gpu: 2, memory: 64Gi}
"""


def pod(*spec: str, container: tuple[str, ...] = ()) -> str:
    """A Pod with these lines in its spec and in its container."""
    lines = ["apiVersion: v1", "kind: Pod", "metadata: {name: p}", "spec:", "  restartPolicy: Never"]
    lines += [f"  {line}" for line in spec]
    lines += ["  containers:", "  - image: i", "    command: [run]", *[f"    {line}" for line in container]]
    return "\n".join(lines) + "\n"


def required(term: str) -> str:
    """A Pod that only goes to nodes of one term."""
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    return pod(f"affinity: {{nodeAffinity: {{{key}: {{nodeSelectorTerms: [{{{term}}}]}}}}}}")


def job(*spec: str) -> str:
    """A Job with these lines in its spec."""
    lines = [
        "apiVersion: batch/v1",
        "kind: Job",
        "metadata: {name: j}",
        "spec:",
        *[f"  {line}" for line in spec],
    ]
    lines += ["  template:", "    spec:", "      restartPolicy: Never", "      containers:"]
    return "\n".join([*lines, "      - {image: i, command: [run]}", ""])


def test_a_job_is_mapped(kubernetes: Any) -> None:
    taken = kubernetes(JOB)

    assert {
        "name": "finetune",
        "tenant": "research",
        "class": "high",
        "command": ["python", "train.py", "--seed", "7"],
        "cwd": "/data",
        "env": {"SEED": "7"},
        "gpus": 2,
        "gpu_models": ["A100-80GB"],
        "cpus": 8,
        "memory_mib": 65536,
        "retries": 2,
    } == taken.job
    assert () == taken.warnings
    assert JobRequest.model_validate(taken.job).gpus == 2


def test_a_container_runs_in_its_image(kubernetes: Any) -> None:
    """`command` is the entrypoint there and `args` are its arguments, as in Kubernetes."""
    taken = kubernetes(JOB, host_process=False)
    of_process = kubernetes(JOB).job
    same = {key: value for key, value in of_process.items() if key not in ("command", "cwd")}

    assert taken.job == same | {
        "image": "pytorch:2.5",
        "entrypoint": ["python", "train.py"],
        "command": ["--seed", "7"],
        "workdir": "/data",
    }
    assert () == taken.warnings
    assert "pytorch:2.5" == JobRequest.model_validate(taken.job).new_job().recipe.containers[0].image


AI_JOB = """\
apiVersion: v1
kind: Pod
metadata:
  name: ai-job
spec:
  nodeSelector:
    accelerator: nvidia
  containers:
  - name: trainer
    image: myrepo/train:latest
    resources:
      limits:
        nvidia.com/gpu: 1
"""


def test_a_pod_that_names_only_its_image_runs_as_that_says(kubernetes: Any) -> None:
    taken = kubernetes(AI_JOB, host_process=False)

    expected = {"name": "ai-job", "image": "myrepo/train:latest", "gpus": 1, "select": ["accelerator=nvidia"]}
    assert expected == taken.job
    assert "restartPolicy Always is not served" in taken.warnings[0].text


SEVERAL = """\
apiVersion: v1
kind: Pod
metadata: {name: several}
spec:
  restartPolicy: Never
  volumes:
  - {name: swap, emptyDir: {}}
  - {name: data, hostPath: {path: /data/sets}}
  - {name: shm, emptyDir: {medium: Memory}}
  initContainers:
  - name: fetch
    image: busybox
    command: [wget]
    args: [-O, /swap/x, "http://x/$(WHAT)"]
    env: [{name: WHAT, value: y}]
    volumeMounts: [{name: swap, mountPath: /swap}]
    resources: {requests: {cpu: 4}, limits: {memory: 1Gi}}
  containers:
  - name: train
    image: train
    imagePullPolicy: Always
    volumeMounts:
    - {name: swap, mountPath: /swap/}
    - {name: data, mountPath: /data, readOnly: true, subPath: a}
    - {name: shm, mountPath: /dev/shm}
    resources: {requests: {cpu: 2}, limits: {nvidia.com/gpu: 2, memory: 3Gi}}
  - name: board
    image: board
    args: [--port, "80"]
    resources: {requests: {cpu: 1}, limits: {nvidia.com/gpu: 1, memory: 512Mi}}
"""


def test_init_steps_and_containers_of_a_pod_are_one_job(kubernetes: Any) -> None:
    taken = kubernetes(SEVERAL, host_process=False)

    assert {
        "name": "several",
        "image": "train",
        "pull": "always",
        "volumes": ["swap:/swap", "/data/sets/a:/data:ro"],
        "gpus": 3,
        "cpus": 4,
        "memory_mib": 3584,
        "containers": [
            {
                "name": "fetch",
                "init": True,
                "image": "busybox",
                "entrypoint": ["wget"],
                "command": ["-O", "/swap/x", "http://x/y"],
                "env": {"WHAT": "y"},
                "volumes": ["swap:/swap"],
            },
            {"name": "board", "image": "board", "command": ["--port", "80"]},
        ],
    } == taken.job
    assert () == taken.warnings
    assert 3 == len(JobRequest.model_validate(taken.job).new_job().recipe.containers)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (pod("volumes: [{name: s, secret: {secretName: x}}]", container=("volumeMounts: [{name: s, mountPath: /s}]",)),
         "mount them as a hostPath"),
        (pod(container=("volumeMounts: [{name: s, mountPath: /s}]",)), "names no volume"),
        (pod("volumes: [{name: s, emptyDir: {}}]", container=("volumeMounts: [{name: s, mountPath: s}]",)),
         "must be an absolute path"),
        (pod("initContainers: [{image: i, restartPolicy: Always}]"), "list it under containers"),
        (pod(container=("imagePullPolicy: Often",)), "must be Always, IfNotPresent or Never"),
        (pod().replace("image: i", "name: i"), "image is missing"),
    ],
)  # fmt: skip
def test_what_no_container_could_have_is_refused(kubernetes: Any, text: str, says: str) -> None:
    with pytest.raises(BadInput) as refused:
        kubernetes(text, host_process=False)

    assert says in refused.value.message


def test_the_index_of_a_task_is_left_to_the_engine_in_an_image(kubernetes: Any) -> None:
    path = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    env = f'env: [{{name: I, valueFrom: {{fieldRef: {{fieldPath: "{path}"}}}}}}]'
    own = f'{{image: i, command: [run, "$(JOB_COMPLETION_INDEX)"], {env}}}'
    text = job("completions: 2").replace("{image: i, command: [run]}", own)
    found = kubernetes(text, host_process=False).job

    assert (["run", "$(JOB_COMPLETION_INDEX)"], {"I": "$(JOB_COMPLETION_INDEX)"}) == (
        found["entrypoint"],
        found["env"],
    )
    assert ["run", "1"] == podman.fill_index(found["entrypoint"], {"JOB_COMPLETION_INDEX": "1"})


@pytest.mark.parametrize(
    ("lines", "fields"),
    [
        (["resources: {limits: {nvidia.com/gpu: 1}}"], {"gpus": 1}),
        (['resources: {limits: {nvidia.com/gpu: "4"}, requests: {nvidia.com/gpu: 4}}'], {"gpus": 4}),
        (["resources: {limits: {nvidia.com/mig-1g.10gb: 2}}"], {"gpus": 2, "mig": "1g.10gb"}),
        (["resources: {limits: {nvidia.com/gpu: 0}}"], {}),
        (["resources: {limits: {cpu: 500m, memory: 1G}}"], {"cpus": 0.5, "memory_mib": 954}),
        (["resources: {requests: {cpu: 2, memory: 512Mi}}"], {"cpus": 2, "memory_mib": 512}),
        (["resources: {requests: {cpu: 0}}"], {"cpus": 0}),
        (
            ["resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 2, memory: 2Gi}}"],
            {"cpus": 1, "memory_mib": 2048},
        ),
        (["args: [a, b]"], {"command": ["run", "a", "b"]}),
        (["workingDir: /x"], {"cwd": "/x"}),
        (
            ["env: [{name: A, value: x}, {name: B, value: $(A)y}, {name: C}]"],
            {"env": {"A": "x", "B": "xy", "C": ""}},
        ),
    ],
)
def test_a_container_is_mapped(kubernetes: Any, lines: list[str], fields: dict[str, Any]) -> None:
    assert {"name": "p", "command": ["run"], **fields} == kubernetes(pod(container=tuple(lines))).job


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("priorityClassName: high", {"class": "high"}),
        ("activeDeadlineSeconds: 60", {"time_limit_s": 60}),
        ("nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}", {"gpu_models": ["H100"]}),
        ("nodeSelector: {cloud.google.com/gke-accelerator: nvidia-tesla-t4}", {"gpu_models": ["T4"]}),
        ("nodeSelector: {kubernetes.io/hostname: n1}", {"on_nodes": ["n1"]}),
        ("nodeSelector: {gpuyard/pool: big}", {"pools": ["big"]}),
        ("nodeSelector: {kubernetes.io/os: linux}", {}),
        ("nodeSelector: {disk: ssd, zone: a}", {"select": ["disk=ssd", "zone=a"]}),
        ("tolerations: [{operator: Exists}]", {"tolerate": ["*"]}),
        (
            "tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}, {key: a, value: b}]",
            {"tolerate": ["nvidia.com/gpu:NoSchedule", "a=b"]},
        ),
        (
            "tolerations: [{key: gone, operator: Exists, effect: NoExecute, tolerationSeconds: 300}]",
            {"tolerate": ["gone:NoExecute for 5m"]},
        ),
        (
            "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: ["
            "{matchExpressions: [{key: zone, operator: In, values: [a, b]}, {key: old, operator: DoesNotExist}]}, "
            "{matchExpressions: [{key: disks, operator: Gt, values: ['4']}], "
            "matchFields: [{key: metadata.name, operator: NotIn, values: [n1]}]}]}}}",
            {"select": ["zone in (a, b), !old | disks>4, kubernetes.io/hostname!=n1"]},
        ),
        (
            "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: ["
            "{matchExpressions: [{key: nvidia.com/gpu.product, operator: In, values: [NVIDIA-H100-80GB-HBM3]}, "
            "{key: kubernetes.io/os, operator: In, values: [linux]}]}]}}}",
            {"select": ["nvidia.com/gpu.product=H100"]},
        ),
        (
            "affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: ["
            "{weight: 80, preference: {matchExpressions: [{key: zone, operator: NotIn, values: [a]}]}}]}}",
            {"prefer": ["80: zone!=a"]},
        ),
        ("hostNetwork: true", {}),
    ],
)
def test_a_pod_is_mapped(kubernetes: Any, line: str, fields: dict[str, Any]) -> None:
    assert {"name": "p", "command": ["run"], **fields} == kubernetes(pod(line)).job


@pytest.mark.parametrize(
    ("lines", "fields"),
    [
        ([], {"retries": 6}),
        (["backoffLimit: 0"], {}),
        (["backoffLimit: 1000"], {"retries": 100}),
        (["completions: 1"], {"retries": 6}),
        (["completions: 5", "parallelism: 2"], {"retries": 6, "array": "0-4", "array_limit": 2}),
        (["completions: 5", "parallelism: 5", "completionMode: Indexed"], {"retries": 6, "array": "0-4"}),
        (["completions: 5"], {"retries": 6, "array": "0-4", "array_limit": 1}),
        (["parallelism: 3"], {"retries": 6, "array": "0-2"}),
        (["parallelism: 0"], {"retries": 6, "hold": True}),
        (["suspend: true"], {"retries": 6, "hold": True}),
        (["suspend: false"], {"retries": 6}),
        (["activeDeadlineSeconds: 3600"], {"retries": 6, "time_limit_s": 3600}),
    ],
)
def test_the_spec_of_a_job_is_mapped(kubernetes: Any, lines: list[str], fields: dict[str, Any]) -> None:
    assert {"name": "j", "command": ["run"], **fields} == kubernetes(job(*lines)).job


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (pod("serviceAccountName: x"), "no service accounts"),
        (pod("terminationGracePeriodSeconds: 5"), "that of its class"),
        (pod("colour: blue"), "spec.colour is not served and left out"),
        (
            pod("affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: []}}"),
            "soft constraints",
        ),
        (pod(container=("ports: [{containerPort: 80}]",)), "ports is not served"),
        (pod(container=("resources: {limits: {ephemeral-storage: 1Gi}}",)), "disk space is not counted"),
        (pod(container=("resources: {limits: {hugepages-2Mi: 1Gi}}",)), "huge pages"),
        (pod(container=("resources: {requests: {cpu: 1}, limits: {cpu: 2}}",)), "the request of 1 cores"),
        (
            pod(container=("resources: {requests: {memory: 1Gi}, limits: {memory: 2Gi}}",)),
            "the limit of 2048 MiB",
        ),
        (job("ttlSecondsAfterFinished: 9"), "stay in the history"),
        (job("podFailurePolicy: {}"), "every failure counts alike"),
        (job("activeDeadlineSeconds: 9"), "holds for each attempt"),
        (job("parallelism: 3"), "read as 3 tasks"),
        (job("suspend: true"), "`yard release` lets the job start"),
        (pod().replace("Never", "Always"), "ends when its command ends"),
        (pod().replace("Never", "OnFailure"), "100 times"),
        (
            pod().replace("{name: p}", "{name: p, labels: {a: ''}}"),
            "metadata.labels 'a' is left out: a value has",
        ),
        (
            pod(
                "volumes: [{name: shm, emptyDir: {}}]",
                container=("volumeMounts: [{name: shm, mountPath: /dev/shm}]",),
            ),
            "not an empty folder",
        ),
    ],
)
def test_what_is_not_served_is_named(kubernetes: Any, text: str, says: str) -> None:
    warnings = [warning.text for warning in kubernetes(text).warnings]

    assert 1 == len(warnings), warnings
    assert says in warnings[0]


def test_labels_and_annotations_are_labels_and_those_of_kubernetes_itself_are_not(kubernetes: Any) -> None:
    own = "annotations: {project: speech, note: two runs, kubectl.kubernetes.io/last-applied: x}"
    text = pod().replace(
        "{name: p}", "{name: p, labels: {project: vision, app.kubernetes.io/name: web}, " + own + "}"
    )

    found = kubernetes(text)

    assert {"project": "vision", "app.kubernetes.io/name": "web", "note": "two runs"} == found.job["labels"]
    assert () == found.warnings


def test_labels_of_the_template_go_before_those_of_its_job(kubernetes: Any) -> None:
    pods = "metadata: {labels: {project: vision, run: a}, annotations: {note: of pods}, name: p}"
    text = job().replace("  template:\n", f"  template:\n    {pods}\n")
    text = text.replace("{name: j}", "{name: j, labels: {project: speech, team: x}, annotations: {run: a}}")

    found = kubernetes(text)

    assert {"project": "vision", "run": "a", "note": "of pods", "team": "x"} == found.job["labels"]
    assert ["'project' is 'vision', as here: the Job has 'speech'"] == [
        each.text.partition("labels ")[2] for each in found.warnings
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            pod(container=("resources: {requests: {nvidia.com/gpu: 1}, limits: {nvidia.com/gpu: 2}}",)),
            "must equal its limit",
        ),
        (pod(container=("resources: {requests: {nvidia.com/gpu: 1}}",)), "the same number in limits"),
        (pod(container=("resources: {limits: {nvidia.com/gpu: 1500m}}",)), "whole number of devices"),
        (
            pod(container=("resources: {limits: {nvidia.com/gpu: 1, nvidia.com/mig-1g.5gb: 1}}",)),
            "one kind of device",
        ),
        (pod(container=("resources: {limits: {amd.com/gpu: 1}}",)), "a yard has no 'amd.com/gpu'"),
        (
            pod(container=("resources: {requests: {cpu: 4}, limits: {cpu: 2}}",)),
            "less than or equal to the limit",
        ),
        (pod(container=("resources: {limits: {memory: lots}}",)), "must be a quantity"),
        (pod(container=("resources: {limits: {memory: -1}}",)), "must not be negative"),
        (pod(container=("resources: {claims: [{name: x}]}",)), "ask for devices as"),
        (pod(container=("envFrom: [{secretRef: {name: x}}]",)), "or write its variables as env"),
        (pod(container=("env: [{name: A, valueFrom: {fieldRef: {fieldPath: x}}}]",)), "write a value"),
        (pod(container=("env: [{name: 1A, value: x}]",)), "cannot be a variable"),
        (pod(container=("workingDir: data",)), "must be an absolute path"),
        (pod(container=("volumeMounts: [{name: x, mountPath: /x}]",)), "names no volume"),
        (pod("initContainers: [{image: i}]"), "leave out --host-process"),
        (pod("nodeName: n1"), "the yard chooses the node"),
        (pod("nodeSelector: {-disk: ssd}"), "names a label by letters"),
        (
            pod("affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {}}}"),
            "nodeSelectorTerms is missing: no node would do",
        ),
        (required("matchExpressions: []"), "no node would do"),
        (required("matchExpressions: [{key: a, operator: Near}]"), "must be one of In, NotIn"),
        (required("matchExpressions: [{key: a, operator: In}]"), "needs values"),
        (required("matchExpressions: [{key: a, operator: Gt, values: [many]}]"), "one whole number"),
        (pod("tolerations: [{key: a, operator: Exists, value: b}]"), "Exists takes any value"),
        (pod("tolerations: [{value: b}]"), "only operator Exists takes any key"),
        (pod("tolerations: [{key: a, effect: Never}]"), "must be one of NoSchedule"),
        (pod("tolerations: [{key: a, tolerationSeconds: 9}]"), "is for effect NoExecute"),
        (
            pod("affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: []}}"),
            "where other jobs are",
        ),
        (pod("priorityClassName: a/b"), "cannot be a class"),
        (pod("activeDeadlineSeconds: soon"), "must be a whole number"),
        (pod().replace("Never", "Sometimes"), "must be Always, OnFailure or Never"),
        (pod().replace("{name: p}", "{}"), "is missing"),
        (pod().replace("    command: [run]\n", ""), "it needs the entrypoint of its image 'i'"),
        (pod().replace("[run]", '[""]'), "must begin with a program"),
        (
            pod().replace("  - image: i\n    command: [run]\n", "  - {image: a, command: [b]}\n" * 2),
            "must be one, not 2",
        ),
        (pod().replace("kind: Pod", "kind: Deployment"), "write its template as the template of a Job"),
        (pod().replace("apiVersion: v1", "apiVersion: v2"), "of a Pod is v1"),
        (job().replace("      restartPolicy: Never\n", ""), "must be Never or OnFailure"),
        (job("completions: 0"), "must be a whole number"),
        (job("completions: 99999"), "must be a whole number"),
        (job("completionMode: Indexed"), "needs completions"),
        (job("suspend: maybe"), "must be true or false"),
        (
            pod(
                "volumes: [{name: d, persistentVolumeClaim: {claimName: c}}]",
                container=("volumeMounts: [{name: d, mountPath: /d}]",),
            ),
            "persistentVolumeClaim",
        ),
        (
            pod(
                "volumes: [{name: d, hostPath: {path: /a}}]",
                container=("volumeMounts: [{name: d, mountPath: /b}]",),
            ),
            "must be /a itself",
        ),
    ],
)
def test_what_cannot_be_served_is_refused_with_its_place(kubernetes: Any, text: str, says: str) -> None:
    with pytest.raises(BadInput) as refused:
        kubernetes(text)

    lines = refused.value.message.splitlines()
    assert all(line.startswith("job.yaml:") and line.split(":")[1].isdecimal() for line in lines)
    assert says in refused.value.message


def test_a_folder_of_the_node_that_keeps_its_name_needs_no_word(kubernetes: Any) -> None:
    text = pod(
        "volumes: [{name: d, hostPath: {path: /d}}]", container=("volumeMounts: [{name: d, mountPath: /d/}]",)
    )

    assert () == kubernetes(text).warnings


def test_a_file_may_hold_many(now: Any) -> None:
    text = f"{pod()}---\n{job()}---\n"
    found = read_kubernetes(text, "f", Caller(now=now, host_process=True))

    assert [("p", 1), ("j", 10)] == [(each.job["name"], each.line) for each in found]


def test_nothing_of_the_submitter_goes_along(kubernetes: Any) -> None:
    assert {"SEED": "7"} == kubernetes(JOB).environment({"HOME": "/root", "SLURM_CONF": "x"})


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("$(A)", "x"),
        ("$$(A)", "$(A)"),
        ("$(B)", "$(B)"),
        ("$A", "$A"),
        ("a$(A)b$(A)", "axbx"),
        ("$$", "$"),
        ("$(", "$("),
    ],
)
def test_references(text: str, meant: str) -> None:
    assert meant == expand(text, {"A": "x"}, str)


@pytest.mark.parametrize(
    ("text", "cores", "mib"),
    [
        ("1", 1, 1),
        ("500m", 0.5, 1),
        ("0.1", 0.1, 1),
        ("1e3", 1000, 1),
        ("64Gi", None, 65536),
        ("1G", None, 954),
        ("1E", None, None),
    ],
)
def test_quantities(text: str, cores: float | None, mib: int | None) -> None:
    for function, meant in ((resources.cores, cores), (resources.memory_mib, mib)):
        if meant is None:
            with pytest.raises(ValueError, match="at most"):
                function(text)
        else:
            assert meant == function(text)


def test_the_wire_takes_what_is_mapped(kubernetes: Any) -> None:
    for text in (JOB, pod(), job("completions: 3")):
        accepted = {key: value for key, value in kubernetes(text).job.items() if key not in PROPOSED}
        assert JobRequest.model_validate(accepted)


def annotated(key: str, value: str, *spec: str) -> str:
    """An indexed Job of four pods with an annotation of its template."""
    lines = ["completionMode: Indexed", "completions: 4", "parallelism: 4", *spec]
    return job(*lines).replace(
        "  template:\n", f'  template:\n    metadata: {{annotations: {{{key}: "{value}"}}}}\n'
    )


KUEUE, JOBSET = "kueue.x-k8s.io/podset-{}-topology", "alpha.jobset.sigs.k8s.io/exclusive-topology"


@pytest.mark.parametrize(
    ("key", "label", "fields"),
    [
        ("required", "cloud.provider.com/topology-rack", {"topology": {"level": "rack", "required": True}}),
        (
            "required",
            "cloud.provider.com/topology-block",
            {"topology": {"level": "fabric", "required": True}},
        ),
        (
            "required",
            "cloud.google.com/gce-topology-subblock",
            {"topology": {"level": "rack", "required": True}},
        ),
        ("preferred", "example.com/leaf-switch", {"topology": {"level": "switch", "required": False}}),
        ("required", "kubernetes.io/hostname", {"nodes_max": 1}),
        ("preferred", "kubernetes.io/hostname", {}),
        (JOBSET, "cloud.google.com/gke-nodepool-zone", {"topology": {"level": "fabric", "required": True}}),
    ],
)
def test_pods_that_are_to_be_near_are_one_gang(
    kubernetes: Any, key: str, label: str, fields: dict[str, Any]
) -> None:
    found = kubernetes(annotated(KUEUE.format(key) if len(key) < 10 else key, label), False)

    assert 4 == found.job["tasks"]
    assert "array" not in found.job
    assert fields == {name: found.job[name] for name in ("topology", "nodes_max") if name in found.job}
    assert any("RANK" in each.text for each in found.warnings)


def test_an_annotation_for_one_pod_changes_nothing(kubernetes: Any) -> None:
    text = job().replace(
        "  template:\n",
        f"  template:\n    metadata: {{annotations: {{{KUEUE.format('required')}: x.io/rack}}}}\n",
    )
    found = kubernetes(text, False)

    assert not {"tasks", "topology", "array", "labels"} & found.job.keys()


def test_a_level_that_no_yard_knows_is_refused(kubernetes: Any) -> None:
    with pytest.raises(BadInput, match="names no level that a yard knows"):
        kubernetes(annotated(KUEUE.format("required"), "x.io/row"), False)
