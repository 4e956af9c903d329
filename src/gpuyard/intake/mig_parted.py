"""Configuration files of NVIDIA mig-parted: named layouts of the GPUs of a node, read and written.

Read leniently: keys that say nothing about layouts are ignored, a ConfigMap around the file is removed, and filters for
GPUs that are not here do not matter. Whether a GPU can have a layout is checked elsewhere, where its model is known.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from gpuyard.config.syntax import syntax_problem
from gpuyard.core.fleet.mig_geometry import PlacedSlice, layout_text
from gpuyard.errors import BadInput, quote, suggest
from gpuyard.keys.problems import ConfigError
from gpuyard.model.mig import WHOLE, read_layout

BYTES_MAX = 1 << 20
ALL = "all"

_MODELS = {
    "A30": ("20B7",),
    "A100-40GB": ("20B0", "20B1", "20F1", "20F6"),
    "A100-80GB": ("20B2", "20B5", "20F3", "20F5"),
    "H100": ("2330", "2331", "2322", "2324"),
    "H200": ("2335", "233B"),
    "B200": ("2901",),
}
"""PCI device numbers by GPU model."""
_FILTER = re.compile(r"(?:0x)?([0-9a-f]{4})10de", re.IGNORECASE)


def list_layouts(text: str, file: str) -> list[str]:
    """The names of the layouts in a file."""
    return list(_configs(text, file))


def layout_for_node(text: str, file: str, name: str, model: str, gpus: int) -> dict[int, str]:
    """The layout of each GPU that a named layout gives for a node with `gpus` GPUs of a model."""
    configs = _configs(text, file)
    if name not in configs:
        raise BadInput(f"{file} has no layout {quote(name)}; {suggest(name, configs, 'layouts')}")
    found: dict[int, str] = {}
    entries = configs[name]
    if not isinstance(entries, list):
        raise BadInput(f"{file}: {name} must be a list of entries, each with its 'devices'")
    for place, entry in enumerate(entries, 1):
        where = f"{file}: entry {place} of {name}"
        if not isinstance(entry, dict):
            raise BadInput(f"{where} must hold 'devices', 'mig-enabled' and 'mig-devices'")
        if _concerns(entry.get("device-filter"), model, where):
            found.update(dict.fromkeys(_devices(entry.get("devices"), gpus, where), _layout(entry, where)))
    return dict(sorted(found.items()))


def layouts_text(nodes: Mapping[str, Mapping[int, Sequence[str]]]) -> str:
    """A file with one layout for each node: profiles by GPU, none for a whole GPU."""
    configs: dict[str, Any] = {}
    for node, by_gpu in nodes.items():
        alike: dict[tuple[str, ...], list[int]] = {}
        for gpu, profiles in sorted(by_gpu.items()):
            alike.setdefault(tuple(sorted(profiles)), []).append(gpu)
        configs[node] = [_entry(profiles, gpus) for profiles, gpus in alike.items()]
    return yaml.safe_dump({"version": "v1", "mig-configs": configs}, sort_keys=False)


def _entry(profiles: Sequence[str], gpus: list[int]) -> dict[str, Any]:
    if not profiles:
        return {"devices": gpus, "mig-enabled": False}
    counts = {name: profiles.count(name) for name in dict.fromkeys(profiles)}
    return {"devices": gpus, "mig-enabled": True, "mig-devices": counts}


def _configs(text: str, file: str) -> dict[str, Any]:
    if len(text) > BYTES_MAX:
        raise BadInput(f"{file}: larger than {BYTES_MAX >> 20} MiB, the limit; is it the right file?")
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(file, [syntax_problem(error, text)]) from None
    except RecursionError:
        raise BadInput(f"{file} is nested too deeply") from None
    if isinstance(found, dict) and found.get("kind") == "ConfigMap" and isinstance(found.get("data"), dict):
        inner = [each for each in found["data"].values() if isinstance(each, str) and "mig-configs" in each]
        if len(inner) == 1:
            return _configs(inner[0], file)
    configs = found.get("mig-configs") if isinstance(found, dict) else None
    if not isinstance(configs, dict) or not configs:
        raise BadInput(
            f"{file} is not a configuration file of mig-parted: it has no 'mig-configs'",
            "It begins with `version: v1`, and `mig-configs:` has the layouts by name.",
        )
    version = str(found.get("version", "v1"))
    if version != "v1":
        raise BadInput(f"{file} is of version {quote(version)}; this release reads v1")
    return {str(name): entries for name, entries in configs.items()}


def _concerns(wanted: Any, model: str, where: str) -> bool:
    """Whether an entry is about GPUs of this model."""
    if wanted in (None, "", []):
        return True
    filters = wanted if isinstance(wanted, list) else [wanted]
    numbers = []
    for each in filters:
        # Without quotes YAML reads 0x233510DE as a number.
        text = f"{each:08X}" if isinstance(each, int) else str(each)
        match = _FILTER.fullmatch(text.strip())
        if match is None:
            raise BadInput(f"{where}: 'device-filter' {quote(text)} is no PCI device such as 0x233510DE")
        numbers.append(match[1].upper())
    return any([number in numbers for number in _MODELS.get(model, ())])


def _devices(said: Any, gpus: int, where: str) -> list[int]:
    if said == ALL:
        return list(range(gpus))
    if not isinstance(said, list) or not all(type(each) is int and each >= 0 for each in said):
        raise BadInput(f"{where}: 'devices' is 'all' or a list of numbers, as [0, 1]")
    if strange := [each for each in said if each >= gpus]:
        raise BadInput(f"{where}: there is no GPU {strange[0]} on this node, which has {gpus}")
    return list(said)


def _layout(entry: Mapping[str, Any], where: str) -> str:
    enabled, devices = entry.get("mig-enabled"), entry.get("mig-devices")
    if not isinstance(enabled, bool):
        raise BadInput(f"{where}: 'mig-enabled' must be true or false")
    if not enabled:
        return WHOLE
    if not isinstance(devices, dict) or not devices:
        raise BadInput(
            f"{where} switches MIG on and makes no slice",
            "Leave it out: the yard switches MIG on itself when it makes a slice.",
        )
    profiles: list[str] = []
    for name, count in devices.items():
        if type(count) is not int or not 0 < count <= 16:
            raise BadInput(f"{where}: {name}: {count!r} is not a number of slices")
        try:
            profiles += read_layout(str(name)) * count
        except ValueError:
            raise BadInput(
                f"{where}: {quote(str(name))} is not a slice that the yard makes; it makes such as 1g.18gb"
            ) from None
    return layout_text([PlacedSlice(name, 0) for name in profiles])
