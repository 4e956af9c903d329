"""The pod of a manifest: where it may run, how it is treated, and its containers, or the process in their place."""

from typing import Any

from gpuyard.errors import quote
from gpuyard.intake.kubernetes.containers import check_mounts, container_fields, process_fields, volumes_of
from gpuyard.intake.kubernetes.resources import resource_fields
from gpuyard.intake.kubernetes.sources import Sources
from gpuyard.intake.kubernetes.tree import Part, whole
from gpuyard.intake.names import is_segment
from gpuyard.model.gpu_names import find_models
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
_SO_ANYWAY = {
    "kubernetes.io/os": "linux",
    "beta.kubernetes.io/os": "linux",
    "nvidia.com/gpu.present": "true",
    "accelerator": "nvidia",
}

_LEFT_OUT = {
    "automountServiceAccountToken": "there are no service accounts",
    "dnsConfig": "the node's own name service is used",
    "dnsPolicy": "the node's own name service is used",
    "enableServiceLinks": "there are no services",
    "hostname": "the process sees the node's own name",
    "imagePullSecrets": "credentials for registries are your own: podman login on the node",
    "priority": "order comes from fair share and class; name a class as priorityClassName",
    "runtimeClassName": "podman starts containers, with GPUs where they are asked for",
    "securityContext": "the job runs as you, with your rights",
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
    "ephemeralContainers": "containers start with the job",
    "hostAliases": "the process uses the node's own name service",
    "nodeName": "the yard chooses the node; use nodeSelector kubernetes.io/hostname",
    "resourceClaims": "ask for devices as nvidia.com/gpu",
    "schedulingGates": "submit it with --hold and release it",
}

_NOT_RESIZED = {"resizePolicy": "a job keeps what it got"}


def pod_fields(spec: Part, sources: Sources, *, host_process: bool) -> dict[str, Any]:
    """Fields of a job for the spec of a pod."""
    found = _process(spec, sources) if host_process else _containers(spec, sources)
    klass = spec.text("priorityClassName")
    if klass:
        found["class"] = klass
        if not is_segment(klass):
            spec.problem("priorityClassName", f"cannot be a class: {quote(klass)}")
    if spec.has("activeDeadlineSeconds"):
        found["time_limit_s"] = spec.get("activeDeadlineSeconds", whole(1, LIMIT_S_MAX), 1)
    with spec.part("nodeSelector") as selector:
        found |= _selected(selector)
    _affinity(spec)
    spec.left_out(_LEFT_OUT)
    spec.refused(_REFUSED)
    spec.accept("hostNetwork", "hostPID", "hostIPC", "os", "restartPolicy", "schedulerName")
    return found


def _process(spec: Part, sources: Sources) -> dict[str, Any]:
    """Its one container as a process of the node."""
    found: dict[str, Any] = {}
    containers = spec.parts("containers")
    if len(containers) != 1:
        spec.problem("containers", f"must be one, not {len(containers)}: it becomes the job's process")
    spec.refused({"initContainers": "do their work at the start of the command, or leave out --host-process"})
    volumes = {part.text("name"): part for part in spec.parts("volumes")}
    for container in containers[:1]:
        with container:
            found |= process_fields(container, sources) | resource_fields(container)
            check_mounts(container, volumes)
            container.left_out(_NOT_RESIZED)
    return found


def _containers(spec: Part, sources: Sources) -> dict[str, Any]:
    """All its containers: the first is the job's own."""
    listed = spec.parts("containers")
    if not listed:
        spec.problem("containers", "is missing: there is nothing to run")
        return {}
    own, *others = listed
    volumes = {part.text("name"): part for part in spec.parts("volumes")}
    found, asked = _container(own, sources, volumes)
    further = []
    for each in others:
        beside, needs = _container(each, sources, volumes)
        if needs.get("mig", asked.get("mig")) != asked.get("mig", needs.get("mig")):
            each.problem("resources", "asks for slices of another size: the slices of one job are alike")
        asked |= {key: asked.get(key, 0) + needs[key] for key in needs.keys() - {"mig"}}
        asked |= {"mig": needs["mig"]} if "mig" in needs else {}
        further.append(_further(beside, each, init=False))
    steps = []
    for each in spec.parts("initContainers"):
        if each.text("restartPolicy") == "Always":
            each.problem(
                "restartPolicy", "Always is not served: list it under containers, and let it end with the job"
            )
        step, needs = _container(each, sources, volumes)
        # Init steps are over before the others begin.
        asked |= {key: max(needs[key], asked.get(key, 0)) for key in needs.keys() - {"mig"}}
        steps.append(_further(step, each, init=True))
    return found | asked | ({"containers": steps + further} if steps or further else {})


def _container(
    container: Part, sources: Sources, volumes: dict[str, Part]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a container runs, and what it asks for."""
    with container:
        found = container_fields(container, sources)
        seen = volumes_of(container, volumes)
        container.left_out(_NOT_RESIZED)
        container.accept("restartPolicy")
        return found | ({"volumes": seen} if seen else {}), resource_fields(container)


def _further(found: dict[str, Any], container: Part, *, init: bool) -> dict[str, Any]:
    """A container that is not the job's own; when it is pulled is said once for all of them."""
    name = container.text("name")
    return (
        ({"name": name} if name else {})
        | ({"init": True} if init else {})
        | {key: value for key, value in found.items() if key != "pull"}
    )


def _selected(selector: Part) -> dict[str, Any]:
    """Labels with a meaning in the yard; any other label is a condition that the yard cannot keep."""
    found: dict[str, Any] = {}
    for key in selector.names():
        value = selector.text(key)
        if key in MODEL_LABELS:
            found["gpu_models"] = list(find_models(value))
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
