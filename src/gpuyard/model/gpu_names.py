"""GPU models by the names that other systems give them: the one map.

Slurm's types (`a100`, `nvidia_a100-sxm4-80gb`), the driver's names (`NVIDIA A100-SXM4-80GB`), Kubernetes' labels
(`NVIDIA-A100-SXM4-80GB`) and traces (`V100M16`) are read alike. A name is split into words, and a word matches a model
of the catalogue only as a whole: `t400` is no T4, `a100` no A10. A name that says less than ours (`a100`) fits every
model that it may mean. A name with a word that the map does not know is unknown, and stays as it is written.
"""

import re
from collections.abc import Iterable, Mapping

from gpuyard.model.catalogue import CATALOGUE, GpuModel

UNTYPED = "gpu"
"""The model of GPUs without a type at a site."""

_DETAIL = re.compile(r"-(?:[0-9]+GB|Ada)$", re.IGNORECASE | re.ASCII)
"""What tells models of one family apart: the size of the memory, or the generation."""


def _family(model: str) -> str:
    """The family of a model of ours, as it is compared: `A100-40GB` is of `a100`, `RTX-6000-Ada` of `rtx6000`."""
    return _DETAIL.sub("", model).replace("-", "").lower()


_FAMILIES = {_family(name): _DETAIL.sub("", name) for name in CATALOGUE}
"""Families as they are compared and as they are written."""
_BOARD = r"sxm[2-6]?|pcie|nvl|hbm[23]e?"
_EDITION = "quadro|blackwell|generation|server|workstation|edition"
_PASSED_OVER = re.compile(rf"nvidia|tesla|gpu|hgx|dgx|dgxs|fhhl|mega|shared|{_EDITION}|{_BOARD}")
"""Words that do not distinguish models: makers, machines, boards, kinds of memory, time-slicing in Kubernetes."""
_RTX = re.compile(
    r"(?<![a-z0-9])rtx[\s_-]*(pro)?[\s_-]*(?:server)?[\s_-]*(a?[0-9]{4})(?:[\s_-]*(ada))?(?![a-z0-9])"
)
"""A card for workstations, whose words are written together or apart: `rtx_a6000`, `RTX 6000 Ada`."""
_GENERATION = "ada"
_SIZE = re.compile(r"(\d{1,4})(?:g|gb|gib)?")
_GLUED = re.compile(rf"({'|'.join(_FAMILIES)})(?:{_BOARD}|m(\d{{1,3}}))")
"""A suffix without a gap after a model's name: `a100sxm4`, or `v100m32` as one trace writes it."""
_SIZES_BY_BOARD = {("h100", "nvl"): 94}
"""GiB of boards with another memory size than the model usually has."""
_ON_CARDS = re.compile(r"pcie|nvl(?![a-z0-9])|rtx|a6000")
"""Boards that a bridge links in twos or fours at most, so that the GPUs of a node are not one NVLink group."""
_MIG = re.compile(r"(?:^|[_.-])(?:mig[_.-])?([0-9]+g\.[0-9]+gb(?:[.+]me)?)$", re.IGNORECASE | re.ASCII)


def parse_mig_profile(name: str) -> str:
    """The MIG profile at the end of a name, as `1g.10gb` or `a100_1g.10gb`; empty if there is none."""
    match = _MIG.search(name)
    return match[1].lower().replace(".me", "+me") if match else ""


def find_models(name: str) -> tuple[str, ...]:
    """The models of the catalogue that a name may mean, in the catalogue's order; the name itself if there is none.

    The name of a MIG slice matches no model and stays as it is.
    """
    written = name.strip()
    exact = [model for model in CATALOGUE if model.lower() == written.lower()]
    if exact or parse_mig_profile(written):
        return tuple(exact) or (written,)
    families, sizes, others = _words(written)
    later = _GENERATION in others
    if later:
        others.remove(_GENERATION)
    fitting = [
        model.name
        for model in CATALOGUE.values()
        if families == {_family(model.name)}
        and all([_has(model, size) for size in sizes])
        and later == model.name.lower().endswith(f"-{_GENERATION}")
    ]
    return tuple(fitting) if fitting and not others else (written,)


def choose_models(name: str, there: Iterable[str]) -> tuple[str, ...]:
    """The models that will do for a job that asks for `name`; the name itself if nobody knows it.

    The name of a model that is there means that model. Any other name asks for every model that it may mean, and a
    family (`A100`) also for those of its sizes that are there and not in the catalogue.
    """
    others = list(there)
    exact = [model for model in others if model.lower() == name.strip().lower()]
    if exact:
        return tuple(exact[:1])
    found = find_models(name)
    family = _family(found[0])
    sizes, words = _words(name)[1:]
    if sizes or words or family not in _FAMILIES:
        return found
    of_family = [model for model in others if _family(model) == family]
    return tuple(dict.fromkeys([*found, *of_family]))


def choose_model(gpu_type: str, told: Mapping[str, str]) -> str:
    """The one model that a GPU type counts as: from `told`, else the largest model that its name may mean."""
    name = gpu_type or UNTYPED
    return told.get(gpu_type) or told.get(name) or max(find_models(name), key=_memory_mib)


def is_linked(gpu_type: str, model: str) -> bool:
    """Whether GPUs of a type, taken for a model, are all linked with NVLink on a node, as far as names tell."""
    return model in CATALOGUE and CATALOGUE[model].nvlink and not _ON_CARDS.search(gpu_type.lower())


def recognise_model(name: str, memory_mib: int) -> str:
    """The model of a GPU by the driver's name and memory; a name made from the driver's if the model is unknown.

    One name can stand for several memory sizes (`A100`, `V100`): a size that is not in the catalogue is appended.
    """
    if name in CATALOGUE:
        return name
    families, _sizes, _others = _words(name)
    of_name = [model for model in CATALOGUE.values() if _family(model.name) in families]
    for model in of_name:
        # The driver keeps a few percent of the memory for itself.
        if abs(model.memory_mib - memory_mib) * 10 <= model.memory_mib:
            return model.name
    if of_name:
        return f"{_FAMILIES[_family(of_name[0].name)]}-{round(memory_mib / 1024)}GB"
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", re.sub(r"^(NVIDIA|Tesla)\s+", "", name)).strip("-")
    return plain or "unknown"


def _memory_mib(model: str) -> int:
    return CATALOGUE[model].memory_mib if model in CATALOGUE else 0


def _words(name: str) -> tuple[set[str], set[int], list[str]]:
    """What a name says: model families, memory sizes in GiB, and the words that are neither and not ignored."""
    families: set[str] = set()
    sizes: set[int] = set()
    others: list[str] = []
    plain = re.sub(r"(?<![a-z0-9])a6000(?![a-z0-9])", "rtxa6000", _RTX.sub(_join, name.lower()))
    words = [word for word in re.split(r"[^a-z0-9]+", plain) if word]
    for word in words:
        if word in _FAMILIES:
            families.add(word)
        elif match := _GLUED.fullmatch(word):
            families.add(match[1])
            sizes |= {int(match[2])} if match[2] else set()
        elif match := _SIZE.fullmatch(word):
            sizes.add(int(match[1]))
        elif not _PASSED_OVER.fullmatch(word):
            others.append(word)
    sizes |= {
        size for (family, board), size in _SIZES_BY_BOARD.items() if family in families and board in words
    }
    return families, sizes, others


def _join(match: re.Match[str]) -> str:
    """A card's name as one word, with the generation, if it is said, as another."""
    return f"rtx{match[1] or ''}{match[2]} {match[3] or ''}"


def _has(model: GpuModel, gib: int) -> bool:
    """Whether a model has this much memory, rounded as usual, or counted in thousands as makers do."""
    return abs(gib * 1024 - model.memory_mib) * 50 <= model.memory_mib or gib == round(
        model.memory_mib * 1.048576 / 1000
    )
