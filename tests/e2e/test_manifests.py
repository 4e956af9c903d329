"""Manifests as people bring them: each runs as its writer means it, or is refused at once with what to do about it."""

from pathlib import Path
from typing import NamedTuple

import pytest

from harness.patience import until

from .conftest import Box

POD = """\
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  restartPolicy: Never
{pod}  containers:
  - name: main
    image: registry.example/{name}:1
{container}    resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}
"""
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {{{meta}}}
spec:
{job}  template:
    spec:
      restartPolicy: {restart}
{pod}      containers:
      - name: main
        image: registry.example/train:1
{container}        resources: {{limits: {{nvidia.com/gpu: 1, cpu: 250m, memory: 64Mi}}}}
"""


def lines(text: str, spaces: int) -> str:
    return "".join([f"{' ' * spaces}{line}\n" for line in text.splitlines()])


def pod(name: str, container: str, *, spec: str = "", gpus: int = 1) -> str:
    return POD.format(name=name, pod=lines(spec, 2), container=lines(container, 4), gpus=gpus)


def job(
    container: str, *, job: str = "", spec: str = "", meta: str = "name: train", restart: str = "Never"
) -> str:
    return JOB.format(
        job=lines(job, 2), pod=lines(spec, 6), container=lines(container, 8), meta=meta, restart=restart
    )


class Runs(NamedTuple):
    """A manifest that runs, and what its tasks write, in the order of their indices."""

    text: str
    writes: tuple[str, ...]
    note: str = ""
    """Said on standard error when it is submitted."""


RUNS = {
    "a pod with one GPU": Runs(
        pod("vector-add", "command: [sh, -c, 'echo $CUDA_VISIBLE_DEVICES | tr , \"\\n\" | wc -l']"), ("1",)
    ),
    "a pod with two GPUs": Runs(
        pod("two", "command: [sh, -c, 'echo $CUDA_VISIBLE_DEVICES | tr , \"\\n\" | wc -l']", gpus=2), ("2",)
    ),
    "arguments with references to variables": Runs(
        pod("args", 'command: [echo]\nargs: ["--lr=$(LR)", "$$(LR)", "$(GONE)"]\nenv: [{name: LR, value: "0.1"}]'),
        ("--lr=0.1 $(LR) $(GONE)",),
    ),
    "an Indexed Job": Runs(
        job(
            "command: [sh, -c, 'echo index $JOB_COMPLETION_INDEX']",
            job="completions: 3\nparallelism: 3\ncompletionMode: Indexed",
        ),
        ("index 0", "index 1", "index 2"),
    ),
    "an Indexed Job that passes its index as an argument": Runs(
        job(
            "command: [echo, 'a b']\nargs: [\"--shard=$(JOB_COMPLETION_INDEX)/2\", '']",
            job="completions: 2\ncompletionMode: Indexed\nparallelism: 2",
        ),
        ("a b --shard=0/2", "a b --shard=1/2"),
    ),
    "an Indexed Job that reads its index from the annotation": Runs(
        job(
            "command: [sh, -c, 'echo rank $RANK of $N']\n"
            "env:\n- {name: N, value: '2'}\n- name: RANK\n  valueFrom:\n    fieldRef:\n"
            "      fieldPath: metadata.annotations['batch.kubernetes.io/job-completion-index']",
            job="completions: 2\nparallelism: 2\ncompletionMode: Indexed",
        ),
        ("rank 0 of 2", "rank 1 of 2"),
    ),
    "completions without an index": Runs(
        job("command: [echo, worker]", job="completions: 2\nparallelism: 2"), ("worker", "worker")
    ),
    "a Job with generateName": Runs(job("command: [echo, generated]", meta="generateName: sweep-"), ("generated",)),
    "a ConfigMap and a Secret in the same file": Runs(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cfg}\ndata: {LR: '0.3', STEPS: '9'}\n---\n"
        "apiVersion: v1\nkind: Secret\nmetadata: {name: wandb}\nstringData: {key: s3cret}\n---\n"
        + pod(
            "configured",
            "command: [sh, -c, 'echo $LR $STEPS $KEY $GONE']\nenvFrom: [{configMapRef: {name: cfg}}]\n"
            "env:\n- {name: KEY, valueFrom: {secretKeyRef: {name: wandb, key: key}}}\n"
            "- {name: GONE, valueFrom: {configMapKeyRef: {name: other, key: x, optional: true}}}",
        ),
        ("0.3 9 s3cret",),
    ),
    "shared memory": Runs(
        pod(
            "shm", "command: [sh, -c, 'test -w /dev/shm && echo there']\n"
            "volumeMounts: [{name: dshm, mountPath: /dev/shm}]",
            spec="volumes: [{name: dshm, emptyDir: {medium: Memory, sizeLimit: 1Gi}}]",
        ),
        ("there",),
        "is the node's own /dev/shm",
    ),
    "a user of the image": Runs(
        pod("user", "command: [echo, ran]\nsecurityContext: {runAsUser: 1000}"), ("ran",), "it runs as you"
    ),
    "a GPU by its product": Runs(
        pod("product", "command: [echo, placed]", spec="nodeSelector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}"),
        ("placed",),
    ),
    "a Job of a Kueue queue, suspended until its turn": Runs(
        job(
            "command: [sleep]\nargs: ['0.1']", job="suspend: true",
            meta="name: queued, labels: {kueue.x-k8s.io/queue-name: user-queue}",
        ),
        ("",),
        "suspend is lifted",
    ),
    "tolerations, probes and ports": Runs(
        pod(
            "noise", "command: [echo, quiet]\nports: [{containerPort: 80}]\nlivenessProbe: {tcpSocket: {port: 80}}",
            spec="tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]",
        ),
        ("quiet",),
        "livenessProbe",
    ),
}  # fmt: skip

REFUSED = {
    "an image's own entrypoint": (
        pod("entry", "args: [--model, x]"), "it needs the entrypoint of its image", "before these args",
    ),
    "init containers": (
        job("command: [python3, train.py]", spec="initContainers: [{name: dl, image: busybox, command: [wget]}]"),
        "initContainers cannot be served", "do their work at the start of the command",
    ),
    "a volume claim": (
        job(
            "command: [ls]\nvolumeMounts: [{name: data, mountPath: /data}]",
            spec="volumes: [{name: data, persistentVolumeClaim: {claimName: c}}]",
        ),
        "(persistentVolumeClaim) is not there for a process", "put its files under /data",
    ),
    "a folder of the pod's own": (
        pod(
            "dir", "command: [ls]\nvolumeMounts: [{name: c, mountPath: /cache}]",
            spec="volumes: [{name: c, emptyDir: {}}]",
        ),
        "/cache would have to be made on the node", "use a folder below /tmp",
    ),
    "a Secret that is elsewhere": (
        pod("secret", "command: [env]\nenv: [{name: K, valueFrom: {secretKeyRef: {name: wandb, key: key}}}]"),
        "Secret 'wandb' is not in this file", "put it there, or write a value",
    ),
    "a ConfigMap that is elsewhere": (
        pod("cm", "command: [env]\nenvFrom: [{configMapRef: {name: cfg}}]"),
        "ConfigMap 'cfg' is not in this file", "write its variables as env",
    ),
    "the name of the pod": (
        pod("down", "command: [env]\nenv: [{name: P, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]"),
        "a yard does not know the pod's metadata.name", "read YARD_JOB_ID",
    ),
    "a zone": (
        pod("zone", "command: [ls]", spec="nodeSelector: {topology.kubernetes.io/zone: eu-1}"),
        "no node has a label 'topology.kubernetes.io/zone'", "yard label",
    ),
    "a class that is not there": (
        job("command: [ls]", spec="priorityClassName: high"), "unknown class 'high'", "classes",
    ),
    "a slice that the GPU has not": (
        pod("mig", "command: [ls]").replace("nvidia.com/gpu: 1", "nvidia.com/mig-1g.18gb: 1"),
        "no GPU here can be cut to '1g.18gb'", "A100-80GB has 1g.10gb",
    ),
    "a Deployment": (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: vllm}\nspec: {replicas: 2}\n",
        "a yard runs jobs that end", "write its template as the template of a Job",
    ),
    "a PyTorchJob": (
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: ddp}\nspec: {}\n",
        "'PyTorchJob' cannot be served", "with `tasks` for its replicas",
    ),
    "a ConfigMap alone": (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cfg}\ndata: {a: b}\n",
        "there is no job in it", "A yard takes Pods and Jobs",
    ),
    "GPUs as a request alone": (
        pod("req", "command: [ls]").replace("limits:", "requests:"),
        "needs the same number in limits", "devices cannot be overcommitted",
    ),
    "more GPUs than a node has": (
        pod("many", "command: [ls]", gpus=16), "it could never start", "What would change it",
    ),
    "Indexed without completions": (
        job("command: [ls]", job="completionMode: Indexed"), "Indexed needs completions", "the number of tasks",
    ),
}  # fmt: skip
"""A manifest, what is wrong, and what to do about it."""


@pytest.mark.rig
def test_each_manifest_runs_as_its_writer_means_it(box: Box, tmp_path: Path) -> None:
    """All are submitted first, so that they run beside each other; one is held, fails once and is tried again."""
    mark, path = tmp_path / "tries", tmp_path / "held.yaml"
    path.write_text(
        job(
            f"command: [sh, -c, 'echo try >>{mark}; test $(wc -l <{mark}) -ge 2']",
            job="suspend: true\nbackoffLimit: 4",
            restart="OnFailure",
        ),
        encoding="utf-8",
    )
    held = box("submit", "--host-process", path)
    assert "suspend is read as a hold: `yard release` lets the job start" in held.err
    assert "it is on hold" in box("why", held.out.strip()).out
    assert not mark.exists()
    assert 0 == box("release", held.out.strip()).code
    jobs: dict[str, int] = {}
    for number, (what, (text, _writes, note)) in enumerate(RUNS.items()):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text, encoding="utf-8")
        done = box("submit", "--host-process", path)
        assert 0 == done.code, (what, done.err)
        assert note in done.err, what
        jobs[what] = int(done.out)
    with box.client() as client:
        for what, (_text, writes, _note) in RUNS.items():
            array = len(writes) > 1
            labels = [f"{jobs[what]}_{index}" for index in range(len(writes))] if array else [str(jobs[what])]
            for label, expected in zip(labels, writes, strict=True):
                ended = until(
                    lambda label=label: (view := client.job(label, explain=False))["ended_ms"] and view
                )
                assert "COMPLETED" == ended["state"], (what, ended)
                assert expected.split() == box("logs", label).out.split(), what
    box.wait(held.out.strip(), "COMPLETED")
    assert 2 == len(mark.read_text().splitlines())


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_served_is_refused_with_what_to_do(box: Box, tmp_path: Path, what: str) -> None:
    text, wrong, remedy = REFUSED[what]
    path = tmp_path / "job.yaml"
    path.write_text(text, encoding="utf-8")
    done = box("submit", "--host-process", path)
    assert "" == done.out
    assert done.code in (2, 3), done
    assert wrong in done.err
    assert remedy in done.err


def test_no_more_tasks_run_at_a_time_than_parallelism_says(box: Box, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    note = f"{tmp_path}/$JOB_COMPLETION_INDEX"
    path.write_text(
        job(
            f"command: [sh, -c, 'date +%s%N >{note}; sleep 0.3; date +%s%N >>{note}']",
            job="completions: 4\nparallelism: 2\ncompletionMode: Indexed",
        ),
        encoding="utf-8",
    )
    done = box("submit", "--host-process", path)
    box.wait(f"{done.out.strip()}_3", "COMPLETED")
    box.wait(f"{done.out.strip()}_2", "COMPLETED")
    spans = [tuple(map(int, (tmp_path / str(index)).read_text().split())) for index in range(4)]
    for begin, _end in spans:
        assert 2 >= sum(1 for other in spans if other[0] <= begin < other[1])
