"""`best-fit`: the node with the least left over, so that large gaps stay for large jobs."""

from gpuyard.core.fleet.placing import place_best_fit, placer, share_best_fit

NAME = "best-fit"
place = placer(place_best_fit, share_best_fit)
