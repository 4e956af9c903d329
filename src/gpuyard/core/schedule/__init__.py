"""The decision: one pass over the queue, promises and the fleet over time, and room by force."""
