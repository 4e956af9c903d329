"""What nodes, GPUs and attempts do over time. Samples are no events: a yard that loses them loses no job."""
