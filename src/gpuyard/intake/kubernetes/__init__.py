"""Manifests of Kubernetes: Pods and Jobs."""

from gpuyard.intake.kubernetes.taking import read_kubernetes

__all__ = ["read_kubernetes"]
