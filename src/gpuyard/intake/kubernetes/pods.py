"""The pod of a manifest: where it may run, how it is treated, and the one container that becomes the job's process."""

from typing import Any

from gpuyard.errors import quoted
from gpuyard.intake.kubernetes.containers import mounts, process
from gpuyard.intake.kubernetes.resources import resources
from gpuyard.intake.kubernetes.sources import Sources
from gpuyard.intake.kubernetes.tree import Part, whole
from gpuyard.intake.names import is_segment
from gpuyard.model.gpu_names import models_called
from gpuyard.wire.job_fields import LIMIT_S_MAX

POOL_LABELS = (
    "gpuyard/pool",
    "yard/pool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "agentpool",
)
MODEL_LABELS = (
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-accelerator",
    "gpuyard/gpu-model",
    "gpu.nvidia.com/class",
)
_SO_ANYWAY = {"kubernetes.io/os": "linux", "beta.kubernetes.io/os": "linux", "nvidia.com/gpu.present": "true"}

_LEFT_OUT = {
    "automountServiceAccountToken": "there are no service accounts",
    "dnsConfig": "the node's own name service is used",
    "dnsPolicy": "the node's own name service is used",
    "enableServiceLinks": "there are no services",
    "hostname": "the process sees the node's own name",
    "imagePullSecrets": "no image is pulled",
    "priority": "order comes from fair share and class; name a class as priorityClassName",
    "runtimeClassName": "no container is started",
    "securityContext": "the process runs as you, with your rights",
    "serviceAccount": "there are no service accounts",
    "serviceAccountName": "there are no service accounts",
    "setHostnameAsFQDN": "the process sees the node's own name",
    "shareProcessNamespace": "the process sees the node's own processes",
    "subdomain": "the process sees the node's own name",
    "terminationGracePeriodSeconds": "the time between TERM and KILL is that of its class",
    "tolerations": "nodes have no taints; whatever tolerates them may run anyway",
    "topologySpreadConstraints": "tasks are packed onto as few nodes as will hold them",
}
_REFUSED = {
    "ephemeralContainers": "only one container becomes the job's process",
    "hostAliases": "the process uses the node's own name service",
    "initContainers": "only one container becomes the job's process; do its work at the start of the command",
    "nodeName": "the yard chooses the node; use nodeSelector kubernetes.io/hostname",
    "resourceClaims": "ask for devices as nvidia.com/gpu",
    "schedulingGates": "submit it with --hold and release it",
}


def pod(spec: Part, sources: Sources, *, host_process: bool) -> dict[str, Any]:
    """Fields of a job for the spec of a pod."""
    found: dict[str, Any] = {}
    containers = spec.parts("containers")
    if len(containers) != 1:
        spec.problem("containers", f"must be one, not {len(containers)}: it becomes the job's process")
    volumes = {part.text("name"): part for part in spec.parts("volumes")}
    for container in containers[:1]:
        with container:
            found |= process(container, sources, host_process=host_process)
            found |= resources(container)
            mounts(container, volumes)
            container.left_out({"resizePolicy": "a job keeps what it got"})
    klass = spec.text("priorityClassName")
    if klass:
        found["class"] = klass
        if not is_segment(klass):
            spec.problem("priorityClassName", f"cannot be a class: {quoted(klass)}")
    if spec.has("activeDeadlineSeconds"):
        found["time_limit_s"] = spec.get("activeDeadlineSeconds", whole(1, LIMIT_S_MAX), 1)
    with spec.part("nodeSelector") as selector:
        found |= _selected(selector)
    _affinity(spec)
    spec.left_out(_LEFT_OUT)
    spec.refused(_REFUSED)
    spec.accept("hostNetwork", "hostPID", "hostIPC", "os", "restartPolicy", "schedulerName")
    return found


def _selected(selector: Part) -> dict[str, Any]:
    """Labels with a meaning in the yard; any other label is a condition that the yard cannot keep."""
    found: dict[str, Any] = {}
    for key in selector.names():
        value = selector.text(key)
        if key in MODEL_LABELS:
            found["gpu_models"] = list(models_called(value))
        elif key in POOL_LABELS:
            found["pools"] = [value]
        elif key == "kubernetes.io/hostname":
            found["on_nodes"] = [value]
        elif _SO_ANYWAY.get(key) != value:
            selector.problem(
                key,
                f"cannot be kept: nodes have no label {key}; take it out, or name a pool as {POOL_LABELS[0]}",
            )
    return found


def _affinity(spec: Part) -> None:
    with spec.part("affinity") as affinity:
        for kind in affinity.names():
            with affinity.part(kind) as part:
                for key in part.names():
                    if key.startswith("preferred"):
                        part.left_out({key: "there are no soft constraints; any node that fits may be taken"})
                    else:
                        part.refused({key: "use nodeSelector with a label that a yard knows"})
