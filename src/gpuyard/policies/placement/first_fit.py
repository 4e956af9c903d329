"""`first-fit`: the lowest-numbered node that holds the task."""

from gpuyard.core.fleet.placing import place_first_fit, placer, share_first_fit

NAME = "first-fit"
place = placer(place_first_fit, share_first_fit)
