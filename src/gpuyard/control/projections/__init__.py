"""Tables that are made from events: *bound* ones in the event's own transaction, *following* ones behind the log.

For a projection of one's own: `Projection`, the `Rows` that it folds into, and `register`.
"""

from gpuyard.control.projections.following import Projection, Rows
from gpuyard.control.projections.registry import register

__all__ = ["Projection", "Rows", "register"]
