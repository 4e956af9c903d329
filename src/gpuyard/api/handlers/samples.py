"""What collectors of other machines hand in, over HTTP."""

from collections.abc import Collection

from fastapi import Request, Response

from gpuyard.api.edge.peers import get_asker
from gpuyard.api.edge.routes import Handlers, answer
from gpuyard.api.edge.throttle import run_in_thread
from gpuyard.api.messages.node_bodies import SamplesRequest
from gpuyard.api.messages.schemas import read_body
from gpuyard.control.access.rights import Role
from gpuyard.control.refusals import Forbidden
from gpuyard.control.replica.labels import current_key, find_node, find_nodes, node_key, parse_attempt_key
from gpuyard.control.serve import Yard
from gpuyard.control.upkeep.handed_in_samples import Batch
from gpuyard.telemetry.samples import KernelLine
from gpuyard.telemetry.signals import parse_attempt
from gpuyard.telemetry.sources import GpuCard
from gpuyard.wire import endpoints
from gpuyard.wire.endpoints import Action
from gpuyard.wire.replies.fleet import SamplesReply


def handlers(yard: Yard) -> Handlers:
    """`/nodes/{name}/samples`."""

    def node_of(name: str, told: Collection[str]) -> tuple[str, str, set[str]]:
        """The node, the name of its series, and those of the attempts told of that run on other nodes and not on it."""
        with yard.replica.lock:
            state = yard.replica.state
            if not find_nodes(state, name):
                # Collectors come often, and nodes seldom: the log is read on for a node that is not known.
                yard.replica.catch_up()
            number = find_node(state, name)
            here = state.nodes.attempts_on[number]
            elsewhere = set()
            for key in told:
                job_id, _attempt = parse_attempt_key(yard.store.yard, key) or (0, 0)
                record = state.running.get(job_id)
                if record is not None and job_id not in here and current_key(yard.store.yard, record) == key:
                    elsewhere.add(key)
            node = state.nodes.node[number]
            return node.name, node_key(node.cluster, node.name), elsewhere

    async def take(request: Request, name: str) -> Response:
        """A sample that is sent twice counts once. Impossible values are dropped, and counted in `/metrics`."""
        person = get_asker(request.scope)
        if not person.may(Action.WRITE_SAMPLES, "", owner=name):
            collects = any(right.role is Role.COLLECTOR for right in person.rights)
            raise Forbidden(
                f"this token sends samples of {person.name}, and not of {name}"
                if collects
                else f"{person.name} is not a collector, and may not send samples",
                f"An admin makes one for it: yard token create --role collector --user {name}.",
            )
        asked = await read_body(SamplesRequest, request, required=True)
        batch = Batch(
            asked.sent_ms,
            asked.steady_ms,
            asked.at_ms,
            asked.series,
            asked.faults,
            {each.gpu: GpuCard(each.uuid, each.model, each.pci, each.driver) for each in asked.cards},
            [KernelLine(each.at_ms, each.text, tuple(each.attempts)) for each in asked.lines],
        )

        def taken() -> tuple[str, int]:
            node, key, elsewhere = node_of(name, {parse_attempt(each) for each in asked.series})
            return node, yard.watch.take(key, batch, elsewhere)

        node, off_ms = await run_in_thread(taken)
        told: SamplesReply = {"node": node, "taken": len(asked.at_ms), "clock_off_ms": off_ms}
        return answer(told)

    return {endpoints.SAMPLES: take}
