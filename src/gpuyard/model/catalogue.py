"""GPU models: memory, NVLink, MIG and a list price.

The price is the on-demand price of one GPU in a public cloud (US, August 2026: the instance's price divided by its
GPUs). It serves as default price and as default weight of usage in the fair share, so that an hour of a B200 counts
for more than an hour of a T4. `yard.yaml` overrides both.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuModel:
    """One GPU model."""

    name: str
    memory_mib: int
    nvlink: bool
    mig: bool
    list_price_micro_usd_h: int


_ROWS = (
    # name, memory MiB, NVLink, MIG, micro-dollars an hour
    GpuModel("T4", 16_384, False, False, 526_000),
    GpuModel("V100", 16_384, True, False, 3_060_000),
    GpuModel("A10", 24_576, False, False, 1_006_000),
    # No cloud in our sources sells the A30 by the hour: priced like the A10, which it is closest to.
    GpuModel("A30", 24_576, True, True, 1_006_000),
    GpuModel("L4", 24_576, False, False, 805_000),
    # Nor the L40 and the RTX 6000 Ada: priced like the L40S, which has the same chip.
    GpuModel("L40", 49_152, False, False, 1_861_000),
    GpuModel("L40S", 49_152, False, False, 1_861_000),
    # A bridge links the first two in pairs.
    GpuModel("RTX-6000", 24_576, True, False, 690_000),
    GpuModel("RTX-A6000", 49_152, True, False, 1_090_000),
    GpuModel("RTX-6000-Ada", 49_152, False, False, 1_861_000),
    GpuModel("RTX-PRO-4500", 32_768, False, False, 2_520_000),
    GpuModel("RTX-PRO-6000", 98_304, False, False, 3_363_000),
    GpuModel("A100-40GB", 40_960, True, True, 2_745_000),
    GpuModel("A100-80GB", 81_920, True, True, 3_431_000),
    GpuModel("H100", 81_920, True, True, 6_880_000),
    GpuModel("H200", 144_384, True, True, 7_912_000),
    GpuModel("B200", 183_359, True, True, 14_242_000),
)

CATALOGUE: dict[str, GpuModel] = {row.name: row for row in _ROWS}
"""The models that gpuyard knows by itself; `gpu_models` in `yard.yaml` adds others."""
