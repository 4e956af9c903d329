"""Files for other programs: what Prometheus, Grafana and Fluent Bit read to see a yard. Pure."""
