"""`yard.yaml`: the one file that describes fleet, teams, shares, limits, prices and the policy.

`load` and `loads` turn it into a `Config` of `model` values or raise one `ConfigError` with every problem and
its place. YAML and pydantic take a moment to import and only these functions need them, so they are imported
when one of the functions is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpuyard.config.problems import ConfigError, Place, Problem
from gpuyard.config.values import Cluster, Config, Engine

if TYPE_CHECKING:
    from gpuyard.config.editors import json_schema
    from gpuyard.config.reading import load, loads, text_of

__all__ = [
    "Cluster",
    "Config",
    "ConfigError",
    "Engine",
    "Place",
    "Problem",
    "json_schema",
    "load",
    "loads",
    "text_of",
]

_LATE = {
    "json_schema": "gpuyard.config.editors",
    "load": "gpuyard.config.reading",
    "loads": "gpuyard.config.reading",
    "text_of": "gpuyard.config.reading",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATE[name]), name)
