"""Tables that are made from events: *bound* ones in the event's own transaction, *following* ones behind the log."""
