"""`gpuyard.testing` as people outside use it: the blocks of its page run, on public names alone."""

import ast
import re
from pathlib import Path

import pytest

from gpuyard.policies import registry

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "own-parts.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
assert BLOCKS, f"{PAGE} has no code"
PUBLIC = {
    "gpuyard.control.projections", "gpuyard.engines.contract", "gpuyard.engines.observer", "gpuyard.engines.registry",
    "gpuyard.model", "gpuyard.policies", "gpuyard.reports.report", "gpuyard.reports.table", "gpuyard.testing",
    "gpuyard.wire.endpoints", "random", "typing",
}  # fmt: skip


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_a_block_of_the_page_runs_on_public_names(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    imports = [node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.ImportFrom)]
    assert {node.module for node in imports} <= PUBLIC
    monkeypatch.setattr(registry, "ORDERS", dict(registry.ORDERS))
    exec(compile(block, str(PAGE), "exec"), {"__name__": "page"})
