"""gpuyard: the control plane for shared GPUs.

The packages below are layers; imports go down only. See ARCHITECTURE.md for the picture.
"""

__version__ = "0.1.0"
