"""The kernel, compiled by numba or as plain Python: one source, two modules."""

import importlib.util
import sys
from functools import cache
from types import FunctionType
from typing import Any

from placing import kernel as interpreted


def numba_is_here() -> bool:
    """Whether the kernel can be compiled. Checks without importing numba."""
    return all(importlib.util.find_spec(name) is not None for name in ("numba", "numpy"))


@cache
def compiled() -> Any:
    """The kernel as a module of compiled functions."""
    from numba import njit  # noqa: PLC0415 (heavy)

    name = "placing.kernel_compiled"
    spec = importlib.util.spec_from_file_location(name, interpreted.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    for key, value in list(vars(module).items()):
        if isinstance(value, FunctionType) and value.__module__ == name:
            setattr(module, key, njit(cache=True)(value))
    return module
