"""GPU models by the names other systems give them: Slurm's `a100`, the driver's `NVIDIA-A100-SXM4-80GB`.

A name that says less than ours stands for all models it fits: a job that asked for any A100 gets any A100.
"""

import re

from gpuyard.model import CATALOGUE

_BRANDS = ("nvidia", "tesla", "geforce", "quadro", "rtx")
_BOARDS = ("sxm2", "sxm3", "sxm4", "sxm5", "sxm", "pcie", "nvl", "hbm3", "hbm2e", "hbm2")
_MIG = re.compile(r"(?:^|[_.-])([0-9]+g\.[0-9]+gb(?:\.me|\+me)?)$", re.IGNORECASE)
_PARTS = re.compile(r"[a-z]+[0-9]+[a-z]*|[0-9]+gb?|[a-z]+[0-9]*")


def mig_profile(name: str) -> str:
    """The MIG profile that a type names, as in `1g.10gb` or `a100_1g.10gb`; empty if it names none."""
    match = _MIG.search(name)
    return match[1].lower().replace(".me", "+me") if match else ""


def models_called(name: str) -> list[str]:
    """Models of the catalogue that this name fits; the name itself if there is none."""
    wanted = _words(_MIG.sub("", name))
    exact = [model for model in CATALOGUE if model.lower() == name.lower()]
    if exact or not wanted:
        return exact or [name]
    fitting = [model for model in CATALOGUE if _fits(wanted, _words(model), CATALOGUE[model].memory_mib)]
    return fitting or [name]


def _words(name: str) -> list[str]:
    """The words of a name that tell models apart: `NVIDIA-A100-SXM4-80GB` is `a100` and `80`."""
    found = [word for word in _PARTS.findall(name.lower()) if word not in (*_BRANDS, *_BOARDS)]
    return [re.sub(r"^([0-9]+)gb?$", r"\1", word) for word in found]


def _fits(wanted: list[str], model: list[str], memory_mib: int) -> bool:
    if wanted[0] != model[0]:
        return False
    # The memory stands in the name of some models only; for the others the name may say what they have anyway.
    sizes = [int(word) for word in wanted[1:] if word.isdecimal()]
    others = [word for word in wanted[1:] if not word.isdecimal()]
    named = [int(word) for word in model[1:] if word.isdecimal()]
    own = named or [memory_mib // 1024, round(memory_mib * 1.048576 / 1000)]
    return not others and all(size in own for size in sizes)
