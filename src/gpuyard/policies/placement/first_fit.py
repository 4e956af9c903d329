"""`first-fit`: the lowest-numbered node that holds the task."""

from gpuyard.core.fleet.placing import placer, share_first_fit, whole_first_fit

NAME = "first-fit"
place = placer(whole_first_fit, share_first_fit)
