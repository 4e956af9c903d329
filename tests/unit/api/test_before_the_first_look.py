"""What is asked of a yard that has not looked at its nodes yet waits for them, and is then judged by them."""

import asyncio
from types import SimpleNamespace
from typing import Any

from gpuyard.api.handlers.jobs import wait_for_nodes


def test_a_request_waits_until_a_node_is_known() -> None:
    nodes = SimpleNamespace(node=[])
    yard: Any = SimpleNamespace(replica=SimpleNamespace(state=SimpleNamespace(nodes=nodes)))

    async def run() -> None:
        waits = asyncio.ensure_future(wait_for_nodes(yard))
        done, _ = await asyncio.wait([waits], timeout=0.2)
        assert not done
        nodes.node.append("one")
        await waits
        # Where one is known, nobody waits.
        await asyncio.wait_for(wait_for_nodes(yard), 1)

    asyncio.run(run())
