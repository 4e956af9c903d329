"""Jobs on a Slurm cluster."""

from gpuyard.model import Capability

UNABLE = frozenset({Capability.SHARES, Capability.SLICES})
"""What a Slurm that is driven never does, whoever runs the yard: it gives whole GPUs."""
