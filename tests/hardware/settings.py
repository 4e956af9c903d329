"""The settings of this machine's GPUs: whether its owner lets them be changed, and what they are."""

import os
import subprocess

VARIABLE, WORD = "GPU_SETTINGS", "change"
REASON = f"changes settings of a GPU (MIG, persistence mode): {VARIABLE}={WORD} lets it"


def may_change() -> bool:
    """Whether the owner of the machine has said so."""
    return os.environ.get(VARIABLE) == WORD


def read() -> list[str]:
    """MIG mode, persistence mode, compute mode and slices of every GPU, as NVIDIA's own tool says."""
    query = "--query-gpu=uuid,mig.mode.current,mig.mode.pending,persistence_mode,compute_mode"
    told: list[str] = []
    for words in ([query, "--format=csv,noheader"], ["-L"]):
        done = subprocess.run(["nvidia-smi", *words], capture_output=True, text=True, check=True)
        told += done.stdout.splitlines()
    return told
