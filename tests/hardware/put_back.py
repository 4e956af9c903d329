"""Ends a yard and leaves the GPUs as they were: no daemons, none of its slices, MIG and persistence mode as found.

python tests/hardware/put_back.py DATA MODEL
"""

import os
import subprocess
import sys
from pathlib import Path

from gpuyard.engines.local.gpus import persistence
from gpuyard.engines.local.gpus.mig import Slices
from gpuyard.engines.local.gpus.mig_nvml import NvmlCutter
from gpuyard.engines.local.gpus.mps import Mps
from gpuyard.model.mig import MIG_MODELS

DOWN_S = 120


def put_back(data: Path, model: str) -> None:
    """By the hand itself: the yard may be unable to."""
    root = str(data / "engine")
    Mps(root).stop_unused(set())
    if Path(root).is_dir():
        Slices(root, NvmlCutter(MIG_MODELS[model])).sweep({})
        persistence.put_back(root, ())


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    try:
        subprocess.run(
            [sys.executable, "-m", "gpuyard.cli", "down", "--jobs"],
            env=os.environ | {"YARD_DATA": str(folder)}, timeout=DOWN_S, check=False,
        )  # fmt: skip
    finally:
        put_back(folder, sys.argv[2])
