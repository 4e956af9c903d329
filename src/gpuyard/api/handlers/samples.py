"""What collectors of other machines hand in, over HTTP."""

from collections.abc import Collection

from fastapi import Request, Response

from gpuyard.api.edge.peers import asker
from gpuyard.api.edge.routes import Handlers, answer
from gpuyard.api.edge.throttle import in_thread
from gpuyard.api.messages.schemas import SamplesRequest, sent
from gpuyard.control.access.rights import Role
from gpuyard.control.refusals import Forbidden
from gpuyard.control.replica.labels import attempt_of, key_of, node_key, number_of, numbers_named
from gpuyard.control.serve import Yard
from gpuyard.control.upkeep.handed_in import Batch
from gpuyard.telemetry.samples import KernelLine
from gpuyard.telemetry.signals import attempt_told
from gpuyard.telemetry.sources import GpuCard
from gpuyard.wire import endpoints
from gpuyard.wire.endpoints import Action


def handlers(yard: Yard) -> Handlers:
    """`/nodes/{name}/samples`."""

    def node_of(name: str, told: Collection[str]) -> tuple[str, str, set[str]]:
        """The node, the name of its series, and those of the attempts told of that run on other nodes and not on it."""
        with yard.replica.lock:
            state = yard.replica.state
            if not numbers_named(state, name):
                # Collectors come often, and nodes seldom: the log is read on for a node that is not known.
                yard.replica.catch_up()
            number = number_of(state, name)
            here = state.nodes.attempts_on[number]
            elsewhere = set()
            for key in told:
                job_id, _attempt = attempt_of(yard.store.yard, key) or (0, 0)
                record = state.running.get(job_id)
                if record is not None and job_id not in here and key_of(yard.store.yard, record) == key:
                    elsewhere.add(key)
            node = state.nodes.node[number]
            return node.name, node_key(node.cluster, node.name), elsewhere

    async def take(request: Request, name: str) -> Response:
        """A sample that is sent twice counts once. Impossible values are dropped, and counted in `/metrics`."""
        person = asker(request.scope)
        if not person.may(Action.WRITE_SAMPLES, "", owner=name):
            collects = any(right.role is Role.COLLECTOR for right in person.rights)
            raise Forbidden(
                f"this token sends samples of {person.name}, and not of {name}"
                if collects
                else f"{person.name} is not a collector, and may not send samples",
                f"An admin makes one for it: yard token create --role collector --user {name}.",
            )
        asked = await sent(SamplesRequest, request, required=True)
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
            node, key, elsewhere = node_of(name, {attempt_told(each) for each in asked.series})
            return node, yard.watch.take(key, batch, elsewhere)

        node, off_ms = await in_thread(taken)
        return answer({"node": node, "taken": len(asked.at_ms), "clock_off_ms": off_ms})

    return {endpoints.SAMPLES: take}
