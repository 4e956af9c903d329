"""A small valid file to spoil, and what a spoilt one is refused with."""

from collections.abc import Callable

import pytest

from gpuyard import config
from gpuyard.config.reading import loads

FLEET = """\
version: 1
clusters:
  main:
    pools:
      h100: {nodes: 4, gpus: 8 x H100, cpus: 96, memory: 1T}
"""
"""Five lines, 32 GPUs; what a test adds begins on line 6."""


@pytest.fixture
def fleet() -> str:
    return FLEET


@pytest.fixture
def refusals() -> Callable[[str], list[str]]:
    """The lines a text is refused with; a text that is accepted fails the test."""

    def check(text: str) -> list[str]:
        with pytest.raises(config.ConfigError) as caught:
            loads(text, "yard.yaml")
        assert 2 == caught.value.exit_code
        return str(caught.value).splitlines()

    return check
