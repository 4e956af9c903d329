"""`yard.yaml`: the one file that describes fleet, teams, shares, limits, prices and the policy.

`config.reading` turns it into a `Config` of `model` values or raises one `ConfigError` with every problem and its
place. It is imported by itself where it is needed, because YAML and pydantic take a moment.
"""

from gpuyard.config.values import Cluster, Config
from gpuyard.keys.problems import ConfigError, Position, Problem

__all__ = [
    "Cluster",
    "Config",
    "ConfigError",
    "Position",
    "Problem",
]
