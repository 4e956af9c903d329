"""Every field of the objects by which Kubernetes and Kueue share a cluster, and what becomes of it: one table.

A field is kept, left out with a warning, or refused; one that is not in the table is refused. The pages of the how-to
have the same rows, which a test compares.
"""

from enum import Enum
from typing import NamedTuple

GPU = "nvidia.com/gpu"


class Fate(Enum):
    """What becomes of a field."""

    KEPT = "kept"
    WARNED = "left out"
    REFUSED = "refused"
    SILENT = "accepted"
    """It asks for nothing, or for what is true anyway."""


class Field(NamedTuple):
    """One row. `key` is `*` for all keys of a mapping that have no row of their own."""

    above: str
    """The mapping that it stands in, by its path: `spec.limits[]`."""
    key: str
    fate: Fate
    meaning: str
    """What it becomes here; or why it does not."""


_KEPT, _WARNED, _REFUSED, _SILENT = Fate.KEPT, Fate.WARNED, Fate.REFUSED, Fate.SILENT

_METADATA = (
    Field("", "apiVersion", _KEPT, "the version of the kind"),
    Field("", "kind", _KEPT, "the kind"),
    Field("", "metadata", _KEPT, ""),
    Field("", "status", _SILENT, "what a cluster says of it"),
    Field("metadata", "labels", _WARNED, "a tenant or class has no labels"),
    Field("metadata", "annotations", _WARNED, "a tenant or class has no annotations"),
    Field("metadata", "creationTimestamp", _SILENT, "of the cluster"),
    Field("metadata", "resourceVersion", _SILENT, "of the cluster"),
    Field("metadata", "uid", _SILENT, "of the cluster"),
    Field("metadata", "generation", _SILENT, "of the cluster"),
    Field("metadata", "managedFields", _SILENT, "of the cluster"),
    Field("metadata", "finalizers", _WARNED, "they are not kept"),
    Field("metadata", "ownerReferences", _WARNED, "they are not kept"),
)
_NAMED = (*_METADATA, Field("metadata", "namespace", _SILENT, "the kind has none"))


def _spaced(name: str) -> tuple[Field, ...]:
    return (
        *_METADATA,
        Field("metadata", "name", _SILENT, name),
        Field(
            "metadata",
            "namespace",
            _KEPT,
            "the tenant; it is added if the configuration has none of that name",
        ),
        Field("", "spec", _KEPT, ""),
    )


_COVERED = "resources of the yard: GPUs, cores and memory"
_GROUPS = (
    Field("spec", "resourceGroups", _KEPT, ""),
    Field("spec.resourceGroups[]", "coveredResources", _SILENT, _COVERED),
    Field("spec.resourceGroups[]", "flavors", _KEPT, ""),
    Field("spec.resourceGroups[].flavors[]", "name", _KEPT, "a GPU model by its ResourceFlavor, or all GPUs"),
    Field("spec.resourceGroups[].flavors[]", "resources", _KEPT, ""),
    Field("spec.resourceGroups[].flavors[].resources[]", "name", _KEPT, f"{GPU}, cpu or memory"),
    Field(
        "spec.resourceGroups[].flavors[].resources[]", "nominalQuota", _KEPT,
        "`guarantee` of GPUs; `max_cpus` and `max_memory` without borrowing",
    ),
    Field("spec.resourceGroups[].flavors[].resources[]", "borrowingLimit", _KEPT, "`borrow` of GPUs"),
    Field("spec.resourceGroups[].flavors[].resources[]", "lendingLimit", _KEPT, "`lend` of GPUs"),
    Field("spec", "fairSharing", _KEPT, ""),
    Field("spec.fairSharing", "weight", _KEPT, "`weight`, a whole number"),
)  # fmt: skip

KUEUE = ("kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1alpha1")

VERSIONS: dict[str, tuple[str, ...]] = {
    "ResourceQuota": ("v1",),
    "LimitRange": ("v1",),
    "Namespace": ("v1",),
    "PriorityClass": ("scheduling.k8s.io/v1",),
    "ResourceFlavor": KUEUE,
    "ClusterQueue": KUEUE,
    "Cohort": KUEUE,
    "LocalQueue": KUEUE,
}
"""The kinds that change a configuration, with the versions that are read."""

FIELDS: dict[str, tuple[Field, ...]] = {
    "ResourceQuota": (
        *_spaced("a quota is its tenant's"),
        Field("spec", "hard", _KEPT, "what is refused beyond it: `on_limit: refuse`"),
        Field("spec", "scopes", _REFUSED, "a quota for some of the jobs; give the others a tenant of their own"),
        Field("spec", "scopeSelector", _REFUSED, "a quota for some of the jobs; give the others a tenant of their own"),
        Field("spec.hard", f"requests.{GPU}", _KEPT, "`limit`"),
        Field("spec.hard", f"limits.{GPU}", _KEPT, "`limit`"),
        Field("spec.hard", GPU, _KEPT, "`limit`"),
        *[Field("spec.hard", key, _KEPT, "`max_cpus`") for key in ("requests.cpu", "limits.cpu", "cpu")],
        *[Field("spec.hard", key, _KEPT, "`max_memory`") for key in ("requests.memory", "limits.memory", "memory")],
        *[Field("spec.hard", key, _KEPT, "`max_jobs`") for key in ("pods", "count/pods", "count/jobs.batch")],
        *[
            Field("spec.hard", key, _WARNED, "a yard has none")
            for key in (
                "configmaps", "secrets", "services", "services.loadbalancers", "services.nodeports",
                "persistentvolumeclaims", "requests.storage", "replicationcontrollers", "resourcequotas",
                "requests.ephemeral-storage", "limits.ephemeral-storage", "ephemeral-storage",
                "count/configmaps", "count/secrets", "count/services", "count/deployments.apps",
            )
        ],
    ),
    "LimitRange": (
        *_spaced("bounds are their tenant's"),
        Field("spec", "limits", _KEPT, ""),
        Field("spec.limits[]", "type", _KEPT, "Container or Pod: one job; others are left out"),
        *[
            field
            for bound, meaning in (("min", "`min`"), ("max", "`max`"), ("default", "`default`"))
            for field in (
                Field("spec.limits[]", bound, _KEPT, ""),
                Field(f"spec.limits[].{bound}", GPU, _KEPT, f"`per_job.gpus`, {meaning}"),
                Field(f"spec.limits[].{bound}", "cpu", _KEPT, f"`per_job.cpus`, {meaning}"),
                Field(f"spec.limits[].{bound}", "memory", _KEPT, f"`per_job.memory`, {meaning}"),
                Field(f"spec.limits[].{bound}", "ephemeral-storage", _WARNED, "disk is not counted"),
                Field(f"spec.limits[].{bound}", "storage", _WARNED, "disk is not counted"),
            )
        ],
        Field("spec.limits[]", "defaultRequest", _WARNED, "a job asks for one amount, that of `default`"),
        Field("spec.limits[]", "maxLimitRequestRatio", _WARNED, "a job asks for one amount, not for two"),
    ),
    "Namespace": (
        *_NAMED,
        Field("metadata", "name", _KEPT, "the tenant; it is added if the configuration has none of that name"),
        Field("", "spec", _SILENT, "finalizers"),
        Field("spec", "finalizers", _SILENT, "of the cluster"),
    ),
    "PriorityClass": (
        *_NAMED,
        Field("metadata", "name", _KEPT, "the class; it is added if the configuration has none of that name"),
        Field("", "value", _KEPT, "`priority`, from -1000000000 to 1000000000"),
        Field("", "globalDefault", _KEPT, "`default_class`"),
        Field("", "description", _WARNED, "a class has none"),
        Field("", "preemptionPolicy", _WARNED, "whom a class may stop is said by `policy`"),
    ),
    "ResourceFlavor": (
        *_NAMED,
        Field("metadata", "name", _KEPT, "the name by which queues mean a GPU model"),
        Field("", "spec", _KEPT, ""),
        Field("spec", "nodeLabels", _KEPT, ""),
        Field("spec.nodeLabels", "nvidia.com/gpu.product", _KEPT, "the GPU model"),
        Field("spec.nodeLabels", "*", _REFUSED, "a quota is of a GPU model or of all GPUs, not of labelled nodes"),
        Field("spec", "nodeTaints", _REFUSED, "taints are of nodes and pools"),
        Field("spec", "tolerations", _REFUSED, "jobs tolerate taints, quotas do not"),
        Field("spec", "topologyName", _WARNED, "where a gang may be is asked for by each job"),
    ),
    "ClusterQueue": (
        *_NAMED,
        Field("metadata", "name", _KEPT, "the tenant; it is added if the configuration has none of that name"),
        Field("", "spec", _KEPT, ""),
        *_GROUPS,
        Field("spec", "cohort", _KEPT, "`parent`, whose guarantee is at least the sum of its members'"),
        Field("spec", "cohortName", _KEPT, "`parent`, whose guarantee is at least the sum of its members'"),
        Field("spec", "namespaceSelector", _WARNED, "the people that may submit are in `auth`"),
        Field("spec", "queueingStrategy", _WARNED, "the order of jobs is said by `policy`"),
        Field("spec", "flavorFungibility", _WARNED, "where a job goes is said by `policy`"),
        Field("spec", "preemption", _WARNED, "what may be taken back is said by `policy`"),
        Field("spec", "stopPolicy", _KEPT, "None; others are refused, drain nodes or hold jobs instead"),
        Field("spec", "admissionChecks", _REFUSED, "a yard has no such checks"),
        Field("spec", "admissionChecksStrategy", _REFUSED, "a yard has no such checks"),
    ),
    "Cohort": (
        *_NAMED,
        Field("metadata", "name", _KEPT, "the tenant; it is added if the configuration has none of that name"),
        Field("", "spec", _KEPT, ""),
        *_GROUPS,
        Field("spec", "parent", _KEPT, "`parent`"),
        Field("spec", "parentName", _KEPT, "`parent`"),
    ),
    "LocalQueue": (
        *_METADATA,
        Field("metadata", "name", _KEPT, "a name for the tenant, in `accounts`"),
        Field("metadata", "namespace", _KEPT, "the tenant, below that of the ClusterQueue"),
        Field("", "spec", _KEPT, ""),
        Field("spec", "clusterQueue", _KEPT, "`parent` of the namespace's tenant"),
        Field("spec", "stopPolicy", _KEPT, "None; others are refused, drain nodes or hold jobs instead"),
        Field("spec", "fairSharing", _WARNED, "users share by their tenants' weights"),
    ),
}  # fmt: skip
