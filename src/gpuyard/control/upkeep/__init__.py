"""Work beside the loop: what is measured enters the log, logs are sent on, a long log is read ahead."""
