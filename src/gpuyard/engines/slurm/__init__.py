"""Jobs on a Slurm cluster."""

from gpuyard.model import Capability

UNABLE = frozenset({Capability.SHARES, Capability.SLICES})
"""What a driven Slurm cannot do, for any user: it gives whole GPUs."""
