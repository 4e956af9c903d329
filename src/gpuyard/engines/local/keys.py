"""The keys of a cluster that is this machine, which stand in the cluster's own mapping in yard.yaml."""

from typing import Annotated

from gpuyard.engines.local.settings import LOG_LIMIT_MIB, Fence, LocalSettings
from gpuyard.keys.fields import MemoryMib, YamlMapping, choice, key

CardSettingsName = Annotated[str, *choice(["change", "leave"], "value", "values")]
FenceName = Annotated[str, *choice([each.value for each in Fence], "value", "values")]


class LocalKeys(YamlMapping):
    """The keys of a cluster that is this machine."""

    log_limit: MemoryMib | None = key(
        "Local engine only: how much output of an attempt is kept if the job names no file of its own; "
        "of a longer log the yard keeps the beginning and the end.",
        default="1G",
        example="200M",
    )
    card_settings: CardSettingsName | None = key(
        "Local engine only: whether the yard may change the MIG and persistence modes of real GPUs. "
        "With `leave` only existing slices are used.",
        default="change",
        example="leave",
    )
    fence: FenceName | None = key(
        "Local engine only: what holds a job to its own GPUs, memory, cores and files. `auto`: all that "
        "this machine can enforce, as `yard doctor` shows; `strict`: the same, and no shares of a GPU and no "
        "jobs of root; `off`: jobs know which GPUs are theirs, but nothing is enforced.",
        default=Fence.AUTO.value,
        example=Fence.STRICT.value,
    )


def settle_keys(keys: LocalKeys, _has_pools: bool) -> LocalSettings:
    """The values."""
    return LocalSettings(
        keys.log_limit or LOG_LIMIT_MIB, keys.card_settings == "leave", Fence(keys.fence or Fence.AUTO)
    )
