"""gpuyard: the control plane for shared GPUs.

The packages below are layers; imports go down only. See ARCHITECTURE.md for the picture.
"""

import os

__version__ = "0.2.0"


def compiled() -> bool:
    """Whether the core beside this file was compiled (`make compiled`). It decides the same either way."""
    state = os.path.join(os.path.dirname(__file__), "core", "state")
    return any(name.startswith("fold.") and name.endswith(".so") for name in os.listdir(state))
