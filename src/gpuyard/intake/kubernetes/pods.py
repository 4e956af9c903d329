"""The pod of a manifest: where it may run, how it is treated, and its containers, or the process in their place."""

from typing import Any

from gpuyard.errors import quote
from gpuyard.intake.kubernetes.containers import check_mounts, container_fields, process_fields, volumes_of
from gpuyard.intake.kubernetes.placement import placement_fields
from gpuyard.intake.kubernetes.resources import resource_fields
from gpuyard.intake.kubernetes.sources import Sources
from gpuyard.intake.kubernetes.tree import Part, whole
from gpuyard.intake.names import is_segment
from gpuyard.wire.job_fields import LIMIT_S_MAX

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
    found |= placement_fields(spec)
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
