"""Turns manifests of Pods and Jobs into jobs in native fields, or refuses them with the reason."""

from collections.abc import Mapping
from typing import Any

from gpuyard.errors import BadInput, quote, suggest
from gpuyard.intake.documents import Document, parse_documents
from gpuyard.intake.kubernetes.pods import pod_fields
from gpuyard.intake.kubernetes.quota_fields import VERSIONS
from gpuyard.intake.kubernetes.sources import CONFIG_MAP, SECRET, Sources
from gpuyard.intake.kubernetes.topology import ANNOTATIONS, topology_fields
from gpuyard.intake.kubernetes.tree import Findings, Part, parse_boolean, whole
from gpuyard.intake.names import is_tenant, mend_job_name
from gpuyard.intake.values import Caller, Form, Intake, SubmitOptions
from gpuyard.wire.job_fields import ARRAY_TASKS_MAX, JOB_FIELDS, LABELS_MAX, LIMIT_S_MAX, label_fault

_KINDS = {"Pod": "v1", "Job": "batch/v1"}
_BESIDE = (
    "ConfigMap",
    "Secret",
    "Namespace",
    "ServiceAccount",
    "Role",
    "RoleBinding",
    "PersistentVolumeClaim",
)
"""Kinds of documents beside a job that run nothing."""
_GANG = (
    "write its container as native YAML, with `tasks` for its replicas and `gpus` for each: every task then finds "
    "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (docs/how-to/intake.md)"
)
_SERVICE = (
    "it keeps a service running, and a yard runs jobs that end; write its template as the template of a Job"
)
_INSTEAD = {
    "CronJob": "write its jobTemplate as a Job, and let cron call `yard submit`",
    "DaemonSet": _SERVICE,
    "Deployment": _SERVICE,
    "ReplicaSet": _SERVICE,
    "StatefulSet": _SERVICE,
    "Service": "jobs are processes of the node and have its name; take it out",
    "JobSet": "submit its jobs one by one",
    "MPIJob": _GANG,
    "PyTorchJob": _GANG,
    "RayJob": "write the command that starts Ray as a Job",
    "RayCluster": _SERVICE,
    "TFJob": _GANG,
    "Workflow": "submit its steps as Jobs, each after the one before: yard submit --after",
    **dict.fromkeys(
        [kind for kind in VERSIONS if kind not in _BESIDE],
        "it changes what tenants may use, which an administrator does: yard apply -f FILE",
    ),
}
"""What to do about other kinds that users have."""
_QUEUE = "kueue.x-k8s.io/queue-name"
_RETRIES_MAX = JOB_FIELDS["retries"].most or 0
_BACKOFF_LIMIT = 6
"""The default in Kubernetes."""
_JOB_LEFT_OUT = {
    "backoffLimitPerIndex": "every task is tried again as often as backoffLimit says",
    "manualSelector": "there are no pods to select",
    "maxFailedIndexes": "tasks that failed do not stop the others",
    "podFailurePolicy": "every failure counts alike",
    "podReplacementPolicy": "an attempt is over before the next begins",
    "selector": "there are no pods to select",
    "successPolicy": "every task has to end well",
    "ttlSecondsAfterFinished": "jobs that ended stay in the history",
}
_METADATA_LEFT_OUT = {
    "ownerReferences": "it belongs to the user who submits it",
    "finalizers": "they are not kept",
}


def read_kubernetes(text: str, file: str, caller: Caller) -> list[Intake]:
    """Every job of a file of manifests; `ConfigError` with every problem and its place otherwise."""
    findings = Findings(file)
    found = []
    everything = parse_documents(text, file)
    sources = Sources.of(everything, findings)
    for each in everything:
        findings.problems += each.problems
        root = Part(each.root, "", findings)
        kind = root.text("kind")
        if kind in _BESIDE:
            if kind not in (CONFIG_MAP, SECRET):
                root.warn("kind", f"{quote(kind)} is not served and left out: a yard has none")
            continue
        job = _job(each, findings, caller, sources)
        warnings = tuple(sorted(dict.fromkeys(findings.warnings)))
        # Warnings about documents between two jobs go with the second job.
        findings.warnings.clear()
        options = SubmitOptions(export_all=False)
        line = each.root.place.line
        found.append(
            Intake(form=Form.KUBERNETES, file=file, line=line, job=job, warnings=warnings, options=options)
        )
    findings.raise_if_any()
    if not found:
        raise BadInput(f"{file}: there is no job in it", "A yard takes Pods and Jobs.")
    return found


def _job(document: Document, findings: Findings, caller: Caller, sources: Sources) -> dict[str, Any]:
    with Part(document.root, "", findings) as root:
        kind, version = root.text("kind"), root.text("apiVersion")
        root.accept("status")
        if kind not in _KINDS:
            instead = _INSTEAD.get(kind) or f"a yard takes Pods and Jobs; {suggest(kind, _KINDS, 'kinds')}"
            root.problem("kind", f"{quote(kind)} cannot be served: {instead}")
            root.accept(*root.names())
            return {}
        if version != _KINDS[kind]:
            root.problem("apiVersion", f"of a {kind} is {_KINDS[kind]}, not {quote(version)}")
        job, queued = _metadata(root)
        sources.namespace = job.get("tenant", "")
        with root.part("spec") as spec:
            if kind == "Job":
                found = _of_job(spec, caller, sources, queued=queued, own=job.get("labels", {}))
            else:
                found = _of_pod(spec, caller, sources)
        return {**job, **found}


def _metadata(root: Part) -> tuple[dict[str, Any], bool]:
    """Fields of a job, and whether a queue of Kueue would let it start."""
    found: dict[str, Any] = {}
    with root.part("metadata") as metadata:
        name = metadata.text("name") or metadata.text("generateName").rstrip("-")
        if name:
            found["name"] = mend_job_name(name)
        else:
            metadata.problem("name", "is missing: give 'name' or 'generateName'")
        metadata.accept(
            "generateName", "creationTimestamp", "resourceVersion", "uid", "managedFields", "generation"
        )
        tenant = metadata.text("namespace")
        if tenant and tenant != "default":
            found["tenant"] = tenant
            if not is_tenant(tenant):
                metadata.problem("namespace", f"cannot be a tenant: {quote(tenant)}")
        queue = Part(metadata.part("labels").node, "", root.findings).text(_QUEUE)
        if queue:
            metadata.warn(
                "labels",
                f"name the queue {quote(queue)}, which is not used: the yard queues by tenant and class",
            )
        if labels := _labels(metadata):
            found["labels"] = labels
        metadata.left_out(_METADATA_LEFT_OUT)
    return found, bool(queue)


def _labels(metadata: Part) -> dict[str, str]:
    """Labels of the job: its labels in Kubernetes, then its annotations, as far as they can be labels here."""
    found: dict[str, str] = {}
    for kind in ("labels", "annotations"):
        part = metadata.part(kind)
        for key in sorted(part.names()):
            if (
                key == _QUEUE
                or key in ANNOTATIONS
                or ("kubernetes.io/" in key and not key.startswith("app."))
            ):
                # What the parts of Kubernetes tell each other.
                continue
            value = part.text(key)
            fault = label_fault(key, value)
            if fault:
                metadata.warn(kind, f"{quote(key)} is left out: {fault}")
            elif len(found) >= LABELS_MAX:
                metadata.warn(kind, f"{quote(key)} is left out: a job has up to {LABELS_MAX} labels")
            else:
                found.setdefault(key, value)
    return found


def _joined(own: Mapping[str, str], metadata: Part) -> dict[str, str]:
    """The labels of a Job and of its template: of two for a key the template's, whose pods are what runs and costs."""
    found = _labels(metadata)
    for key, value in own.items():
        if found.setdefault(key, value) != value:
            metadata.warn(
                "labels", f"{quote(key)} is {quote(found[key])}, as here: the Job has {quote(value)}"
            )
    for key in list(found)[LABELS_MAX:]:
        del found[key]
        metadata.warn("labels", f"{quote(key)} of the Job is left out: a job has up to {LABELS_MAX} labels")
    return found


def _of_pod(spec: Part, caller: Caller, sources: Sources) -> dict[str, Any]:
    found = pod_fields(spec, sources, host_process=caller.host_process)
    policy = spec.text("restartPolicy", "Always")
    if policy == "Always":
        spec.warn("restartPolicy", "Always is not served: a job ends when its command ends")
    elif policy == "OnFailure":
        found["retries"] = _RETRIES_MAX
        spec.warn("restartPolicy", f"OnFailure has no end; it is tried again {_RETRIES_MAX} times here")
    elif policy != "Never":
        spec.problem("restartPolicy", f"must be Always, OnFailure or Never, not {quote(policy)}")
    return found


def _of_job(
    spec: Part, caller: Caller, sources: Sources, *, queued: bool, own: Mapping[str, str]
) -> dict[str, Any]:
    """Fields of a job by its spec. `own`: the labels of the Job itself."""
    tasks = _tasks(spec)
    with spec.part("template") as template:
        with template.part("metadata") as metadata:
            metadata.accept(*metadata.names())
            labels = _joined(own, metadata)
            near = topology_fields(metadata, tasks)
        with template.part("spec") as below:
            found = pod_fields(below, sources, host_process=caller.host_process)
            policy = below.text("restartPolicy", "Always")
            if policy not in ("Never", "OnFailure"):
                below.problem("restartPolicy", f"of a Job must be Never or OnFailure, not {quote(policy)}")
    if labels:
        found["labels"] = labels
    backoff = spec.get("backoffLimit", whole(0, 2**31 - 1), _BACKOFF_LIMIT)
    if backoff > _RETRIES_MAX:
        spec.warn("backoffLimit", f"is cut to {_RETRIES_MAX}, the most that a yard tries")
    if backoff:
        found["retries"] = min(backoff, _RETRIES_MAX)
    if spec.has("activeDeadlineSeconds"):
        limit = spec.get("activeDeadlineSeconds", whole(1, LIMIT_S_MAX), 1)
        found["time_limit_s"] = min(limit, found.get("time_limit_s", limit))
        spec.warn("activeDeadlineSeconds", "holds for each attempt here, not for all of them together")
    if spec.get("suspend", parse_boolean, False):
        if queued:
            spec.warn("suspend", "is lifted: Kueue would let it start in its turn, and so does the yard")
        else:
            found["hold"] = True
            spec.warn("suspend", "is read as a hold: `yard release` lets the job start")
    spec.left_out(_JOB_LEFT_OUT)
    found |= tasks | near
    if found.get("array") is None:
        found.pop("array", None)
    return found


def _tasks(spec: Part) -> dict[str, Any]:
    """Completions as an array, with at most `parallelism` tasks at a time."""
    mode = spec.text("completionMode", "NonIndexed")
    if mode not in ("NonIndexed", "Indexed"):
        spec.problem("completionMode", f"must be NonIndexed or Indexed, not {quote(mode)}")
    parallel = spec.get("parallelism", whole(0, ARRAY_TASKS_MAX), 1)
    completions = spec.get("completions", whole(1, ARRAY_TASKS_MAX), 0)
    found: dict[str, Any] = {}
    if parallel == 0:
        found["hold"] = True
        spec.warn("parallelism", "0 is read as a hold: release the job to start it")
    if not completions and parallel > 1:
        spec.warn(
            "parallelism", f"without completions is read as {parallel} tasks, each of which ends by itself"
        )
        completions = parallel
    if completions > 1 or mode == "Indexed":
        found["array"] = f"0-{completions - 1}" if completions > 1 else "0"
        if 0 < parallel < completions:
            found["array_limit"] = parallel
    if mode == "Indexed" and not spec.has("completions"):
        spec.problem("completionMode", "Indexed needs completions: the number of tasks")
    return found
