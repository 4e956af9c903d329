"""One map of GPU names, over the names that sites, drivers, Kubernetes and traces use."""

import pytest

from gpuyard.engines.slurm.fleet import node_of
from gpuyard.engines.slurm.site.gpu_types import GpuTypes
from gpuyard.engines.slurm.site.notes import Notes
from gpuyard.engines.slurm.site.pools import read_gpus
from gpuyard.engines.slurm.site.site import read
from gpuyard.engines.slurm.words.rows import read_nodes
from gpuyard.intake.sbatch.constraints import parse_constraint
from gpuyard.model import CATALOGUE
from gpuyard.model.gpu_names import (
    choose_model,
    choose_models,
    find_models,
    parse_mig_profile,
    recognise_model,
)

A100 = ("A100-40GB", "A100-80GB")
ANY = "any"
"""Stands for the name itself: no model of the catalogue."""

ON_CARDS = {
    "a100-pcie-80gb",
    "a100_pcie",
    "nvidia_a100_80gb_pcie",
    "h100_pcie",
    "nvidia_h100_nvl",
    "h200_nvl",
    "quadro_rtx_6000",
    "rtx6000",
    "rtx_6000",
    "rtx_a6000",
    "rtxa6000",
    "a6000",
    "nvidia_rtx_a6000",
}
"""Types of boards that a bridge links in twos or fours: no NVLink joins all of a node."""

SLURM = {
    "a100": A100,
    "A100": A100,
    "a100_80": "A100-80GB",
    "a100-80g": "A100-80GB",
    "a100-40gb": "A100-40GB",
    "a100-sxm4-80gb": "A100-80GB",
    "a100-sxm4-40gb": "A100-40GB",
    "a100sxm4": A100,
    "a100-pcie-80gb": "A100-80GB",
    "a100_pcie": A100,
    "nvidia_a100": A100,
    "nvidia_a100-sxm4-80gb": "A100-80GB",
    "nvidia_a100_80gb_pcie": "A100-80GB",
    "nvidia_a100_sxm4_40gb": "A100-40GB",
    "a100-sxm-64gb": ANY,
    "a100l": ANY,
    "a100x": ANY,
    "a10": "A10",
    "a10g": ANY,
    "a16": ANY,
    "a2": ANY,
    "a30": "A30",
    "a40": ANY,
    "a800": ANY,
    "b200": "B200",
    "nvidia_b200": "B200",
    "gb200": ANY,
    "gh200": ANY,
    "h20": ANY,
    "h100": "H100",
    "h100_80gb": "H100",
    "h100_pcie": "H100",
    "nvidia_h100_80gb_hbm3": "H100",
    "nvidia_h100_nvl": ANY,
    "h100-96gb": ANY,
    "h200": "H200",
    "nvidia_h200": "H200",
    "h200_nvl": "H200",
    "h800": ANY,
    "l4": "L4",
    "nvidia_l4": "L4",
    "l40": "L40",
    "l40s": "L40S",
    "nvidia_l40s": "L40S",
    "mi300x": ANY,
    "p100": ANY,
    "rtx_a6000": "RTX-A6000",
    "rtxa6000": "RTX-A6000",
    "a6000": "RTX-A6000",
    "nvidia_rtx_a6000": "RTX-A6000",
    "rtx_a5000": ANY,
    "rtx4090": ANY,
    "rtx_4500": ANY,
    "geforce_rtx_2080_ti": ANY,
    "quadro_rtx_6000": "RTX-6000",
    "rtx6000": "RTX-6000",
    "rtx_6000": "RTX-6000",
    "quadro_rtx_8000": ANY,
    "rtx6000ada": "RTX-6000-Ada",
    "rtx_6000_ada": "RTX-6000-Ada",
    "nvidia_rtx_6000_ada_generation": "RTX-6000-Ada",
    "l40_ada": ANY,
    "rtx_pro_6000": "RTX-PRO-6000",
    "rtxpro6000": "RTX-PRO-6000",
    "nvidia_rtx_pro_6000_blackwell_server_edition": "RTX-PRO-6000",
    "t4": "T4",
    "tesla_t4": "T4",
    "t4g": ANY,
    "t400": ANY,
    "t1000": ANY,
    "tesla": ANY,
    "v100": "V100",
    "v100-sxm2-16gb": "V100",
    "tesla_v100-sxm2-16gb": "V100",
    "v100-32gb": ANY,
    "v100l": ANY,
    "v100s": ANY,
    "gpu": ANY,
    "1g.10gb": ANY,
    "a100_3g.20gb": ANY,
    "nvidia_a100_80gb_pcie_1g.10gb": ANY,
    "a100_h100": ANY,
}
"""Types of `Gres=gpu:TYPE:8`; those with `nvidia_` are what Slurm's AutoDetect makes of the driver's names."""

KUBERNETES = {
    "NVIDIA-A100-SXM4-80GB": "A100-80GB",
    "NVIDIA-A100-SXM4-80GB-SHARED": "A100-80GB",
    "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb": ANY,
    "NVIDIA-A100-80GB-PCIe": "A100-80GB",
    "NVIDIA-A100-PCIE-40GB": "A100-40GB",
    "NVIDIA-H100-80GB-HBM3": "H100",
    "NVIDIA-H100-PCIe": "H100",
    "NVIDIA-H100-NVL": ANY,
    "NVIDIA-H200": "H200",
    "NVIDIA-B200": "B200",
    "NVIDIA-L4": "L4",
    "NVIDIA-L40": "L40",
    "NVIDIA-RTX-A6000": "RTX-A6000",
    "Quadro-RTX-6000": "RTX-6000",
    "NVIDIA-RTX-6000-Ada-Generation": "RTX-6000-Ada",
    "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition": "RTX-PRO-6000",
    "nvidia-rtx-pro-6000": "RTX-PRO-6000",
    "NVIDIA-L40S": "L40S",
    "NVIDIA-GeForce-RTX-4090": ANY,
    "NVIDIA-GH200-480GB": ANY,
    "Tesla-T4": "T4",
    "Tesla-V100-SXM2-16GB": "V100",
    "Tesla-V100-SXM2-32GB": ANY,
    "nvidia-tesla-t4": "T4",
    "nvidia-tesla-a100": A100,
    "nvidia-a100-80gb": "A100-80GB",
    "nvidia-h100-80gb": "H100",
    "nvidia-h100-mega-80gb": "H100",
    "nvidia-h200-141gb": "H200",
    "nvidia-tesla-p100": ANY,
}
"""Values of `nvidia.com/gpu.product` and `cloud.google.com/gke-accelerator`."""

TRACES = {"V100M16": "V100", "V100M32": ANY, "T4": "T4", "P100": ANY, "A10": "A10", "G1": ANY, "G2": ANY}

NVML = {
    ("NVIDIA A100-SXM4-80GB", 81_920): "A100-80GB",
    ("NVIDIA A100-SXM4-40GB", 40_960): "A100-40GB",
    ("NVIDIA A100-SXM-64GB", 65_536): "A100-64GB",
    ("A100-PG509-200", 40_536): "A100-40GB",
    ("NVIDIA A100 80GB PCIe", 81_920): "A100-80GB",
    ("NVIDIA H100 80GB HBM3", 81_559): "H100",
    ("NVIDIA H100 NVL", 95_830): "H100-94GB",
    ("NVIDIA H200", 143_771): "H200",
    ("NVIDIA GH200 480GB", 97_871): "GH200-480GB",
    ("NVIDIA L40", 46_068): "L40",
    ("NVIDIA L40S", 46_068): "L40S",
    ("Quadro RTX 6000", 24_576): "RTX-6000",
    ("NVIDIA RTX A6000", 49_140): "RTX-A6000",
    ("NVIDIA RTX 6000 Ada Generation", 49_140): "RTX-6000-Ada",
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97_887): "RTX-PRO-6000",
    ("NVIDIA RTX PRO 4500 Blackwell", 32_623): "RTX-PRO-4500",
    ("NVIDIA GeForce RTX 4090", 24_564): "GeForce-RTX-4090",
    ("NVIDIA T400 4GB", 4_096): "T400-4GB",
    ("NVIDIA A10G", 23_028): "A10G",
    ("Tesla V100-SXM2-32GB", 32_768): "V100-32GB",
    ("Tesla V100-DGXS-16GB", 16_384): "V100",
}


def wanted(name: str, models: str | tuple[str, ...]) -> tuple[str, ...]:
    return (name,) if models == ANY else (models,) if isinstance(models, str) else models


@pytest.mark.parametrize(("name", "models"), [*SLURM.items(), *KUBERNETES.items(), *TRACES.items()])
def test_what_a_name_may_mean(name: str, models: str | tuple[str, ...]) -> None:
    assert wanted(name, models) == find_models(name)


@pytest.mark.parametrize(("name", "memory_mib"), NVML)
def test_a_gpu_whose_memory_is_known(name: str, memory_mib: int) -> None:
    assert NVML[name, memory_mib] == recognise_model(name, memory_mib)


@pytest.mark.parametrize("model", CATALOGUE)
def test_a_model_of_the_catalogue_is_called_by_its_own_name(model: str) -> None:
    assert (model,) == find_models(model) == find_models(model.lower())


@pytest.mark.parametrize("name", [name for name in SLURM if not parse_mig_profile(name)])
def test_a_driven_an_observed_and_an_imported_node_have_the_same_model(name: str) -> None:
    if parse_mig_profile(name):
        pytest.skip(
            "an observed yard leaves slices out, a driven one counts them under the name of the slice"
        )
    line = (
        f"NodeName=n1 CPUTot=64 RealMemory=512000 Gres=gpu:{name}:8 State=IDLE Partitions=main "
        "ActiveFeatures=(null) NodeAddr=n1"
    )
    (drive,) = read_nodes(line)
    (observe,) = read({"nodes.txt": line}, {}).nodes
    driven = node_of(drive, "c", "main", {})
    models = wanted(name, SLURM[name])

    nvlink = models[-1] in CATALOGUE and CATALOGUE[models[-1]].nvlink and name not in ON_CARDS
    group = 8 if nvlink else 0
    assert (8, models[-1], group) == (driven.gpus, driven.gpu_model, driven.nvlink_group_size)
    assert (8, models[-1], group) == read_gpus(observe, GpuTypes(), Notes())
    # A script that names the type gets such a node.
    asked = parse_constraint(name, with_gpus=True).models
    assert not asked or driven.gpu_model in asked


def test_what_is_told_goes_before_what_a_name_says() -> None:
    assert "A100-40GB" == choose_model("a100", {"a100": "A100-40GB"})
    assert "T4" == choose_model("", {"gpu": "T4"})
    assert "gpu" == choose_model("", {})


@pytest.mark.parametrize(
    ("name", "there", "means"),
    [
        ("A100", ["A100-80GB"], A100),
        ("a100", ["A100-64GB", "T4"], (*A100, "A100-64GB")),
        ("A100-80GB", ["A100-40GB"], ("A100-80GB",)),
        ("h100", ["H100", "H100-94GB"], ("H100",)),
        ("H100", ["H100-94GB"], ("H100", "H100-94GB")),
        ("A10", ["A100-80GB"], ("A10",)),
        ("A100", ["A100"], ("A100",)),
        ("MI300X", ["T4"], ("MI300X",)),
        ("rtx6000", ["RTX-6000-Ada"], ("RTX-6000", "RTX-6000-Ada")),
        ("rtx_6000_ada", ["RTX-6000"], ("RTX-6000-Ada",)),
    ],
)
def test_a_family_asks_for_all_of_its_sizes(name: str, there: list[str], means: tuple[str, ...]) -> None:
    assert means == choose_models(name, there)
