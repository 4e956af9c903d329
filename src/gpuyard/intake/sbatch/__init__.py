"""Batch scripts of Slurm, read as sbatch 22.05 reads them."""

from gpuyard.engines.patterns import expand as expand_pattern
from gpuyard.intake.sbatch.taking import read_sbatch, split_command

__all__ = ["expand_pattern", "read_sbatch", "split_command"]
