"""`best-fit`: the node with the least left over, so that large gaps stay for large jobs."""

from gpuyard.core.fleet.placing import placer, share_best_fit, whole_best_fit

NAME = "best-fit"
place = placer(whole_best_fit, share_best_fit)
