"""Jobs over HTTP: submit, show, act on."""

import asyncio
import hashlib
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import nullcontext
from typing import Any, TypeVar

from fastapi import Request, Response

from gpuyard.api.edge.peers import get_asker
from gpuyard.api.edge.pulse import Receipts
from gpuyard.api.edge.routes import (
    Handler,
    Handlers,
    answer,
    answer_list,
    encode_json,
    id_cursor,
    limit_of,
    read_cursor,
    read_filter,
)
from gpuyard.api.edge.throttle import (
    ARRAY_IDS,
    JOB_S,
    OneEach,
    Turns,
    charge,
    others_ask,
    run_in_one_thread,
    run_in_thread,
    yield_to_others,
)
from gpuyard.api.edge.unread import JOB_BYTES, make_room, measure
from gpuyard.api.messages.bodies import find_header, parse_object, read_bytes
from gpuyard.api.messages.problems import Problem, find_problem
from gpuyard.api.messages.schemas import (
    CheckpointRequest,
    JobRequest,
    ManyRequest,
    UpdateRequest,
    check_value,
    read_body,
)
from gpuyard.control.access.people import Person
from gpuyard.control.access.rights import MOVES
from gpuyard.control.admission.wanted import NewJob, Wanted
from gpuyard.control.commands.wishes import ALONE_BATCH, BATCH, FEW, Gone, Wish, WishedId
from gpuyard.control.reading.plain_views import add_taken, use_view
from gpuyard.control.refusals import Forbidden, Refusal, Unacceptable
from gpuyard.control.replica.labels import parse_label
from gpuyard.control.serve import Yard
from gpuyard.control.views.accounts import read_owed
from gpuyard.engines.contract import EngineError, HasDaemonLogs
from gpuyard.errors import YardError
from gpuyard.model import Verb
from gpuyard.store import Accepted, Idempotency
from gpuyard.wire import endpoints
from gpuyard.wire.endpoints import KEY_LENGTH_MAX, Action
from gpuyard.wire.replies.jobs import (
    AskedReply,
    CheckpointReply,
    CurvesReply,
    JobsReply,
    JobView,
    ListedJob,
    OneJob,
    OneOfMany,
    UsedReply,
)

_PATH = re.compile(r"(?<![^\s'\"(=:])/.*?(?=: |$)", re.DOTALL)
"""From a slash that begins a word up to the text about it. Paths may hold blanks: better to take too much."""


def without_paths(text: str) -> str:
    """A reason without the paths in it: `cannot enter folder (a path): No such file or directory`."""
    return _PATH.sub("(a path)", text) if "/" in text else text


def mask_jobs(person: Person, views: list[ListedJob]) -> list[ListedJob]:
    """Jobs as a person may see them in a list, where little is said of each."""
    for view in views:
        if "/" in view["reason"] and not person.may(Action.READ_JOB, view["tenant"], view["user"]):
            view["reason"] = without_paths(view["reason"])
    return views


def mask_job(person: Person, view: JobView) -> JobView:
    """A job, or an array, as a person may see it."""
    if person.may(Action.READ_JOB, view["tenant"], view["user"]):
        return view
    if "array" in view:
        for task in view["jobs"]:
            task["reason"] = without_paths(task["reason"])
        return view
    # What a job runs and where it writes is its owner's, like its output.
    view.pop("files", None)
    view["reason"] = without_paths(view["reason"])
    for each in view.get("tries", ()):
        each["why"] = without_paths(each["why"])
    return view


PAUSE_S_MIN, PAUSE_S_MAX = 0.005, 0.1
"""Pause between two batches of one request: as long as the batch took, within these."""
ALONE_S = 0.001
"""The same while no other user asks."""
TASK_BYTES = 128
"""What a task takes in its array, about."""
RESULT_BYTES = 256
"""What is said of one of many jobs, about."""
LOOKED_UP = 200
"""Ended jobs that one thread looks up before other requests have their turn."""
NODES_S_MAX = 10.0
"""How long a request that is judged by the nodes waits for the first look at them, right after a start."""
T = TypeVar("T")


async def wait_for_nodes(yard: Yard) -> None:
    """Until the yard knows of a node, or that takes long: what comes first after a start is not refused for it."""
    until_s = time.monotonic() + NODES_S_MAX
    while not yard.replica.state.nodes.node and time.monotonic() < until_s:
        await asyncio.sleep(0.05)


def handlers(yard: Yard, thought: Turns) -> Handlers:
    """Everything under /jobs."""
    api = Jobs(yard, thought)
    found: dict[endpoints.Endpoint, Handler] = {
        endpoints.SUBMIT: api.submit,
        endpoints.JOBS: api.page,
        endpoints.JOB: api.show,
        endpoints.RECIPE: api.recipe,
        endpoints.REQUEST: api.request,
        endpoints.CURVES: api.curves,
        endpoints.CANCEL: api.cancel,
        endpoints.CHECKPOINT: api.checkpoint,
        endpoints.UPDATE: api.update,
    }
    for verb in Verb:
        action = Action.MOVE_JOB if verb in MOVES else Action.ACT_ON_JOB
        found[endpoints.ASK_MANY.for_verb(verb.value, action)] = api.many(verb)
        found[endpoints.ASK.for_verb(verb.value, action)] = api.ask(verb)
    return found


class Jobs:
    """Handlers. Calls that wait for the replica or the disk do so in another thread or by a future."""

    def __init__(self, yard: Yard, thought: Turns) -> None:
        self._yard = yard
        self._thought = thought
        self._turns = Turns("requests about many jobs", at_once=2)
        self._arrays = OneEach()
        self._receipts = Receipts()

    async def submit(self, request: Request) -> Response:
        """Accept a job. Once this answers 201 the job is on disk and will not be lost."""
        person = get_asker(request.scope)
        body = await read_bytes(request)
        new = check_value(JobRequest, parse_object(body)).new_job()
        key = _key(request, person, body)
        if new.wanted.ids <= ARRAY_IDS:
            return await self._accepted(person, new, key)
        # Large arrays of one user go in one by one, each when the one before it is in everybody's lists: a submission
        # or a list of somebody else finds one of them in front of it, however many come at a time.
        async with self._arrays.of(person):
            await yield_to_others()
            await run_in_thread(self._yard.read_up)
            return await self._accepted(person, new, key)

    async def _accepted(self, person: Person, new: NewJob, key: Idempotency | None) -> Response:
        charge(JOB_S * new.wanted.ids)
        await wait_for_nodes(self._yard)
        if new.wanted.dependencies:
            await run_in_thread(self._yard.requests.read_up)
        receipt = self._yard.requests.submit(person, new, self._receipts.expect(), key)
        accepted: Accepted = await receipt.future
        replayed = {"Idempotency-Replayed": "true"} if accepted.replayed else {}
        location = f"/api/v1/jobs/{accepted.first_id}"
        return answer(accepted.reply, 201, {"Location": location, **replayed})

    async def show(self, request: Request, id: str) -> Response:
        """A job, live or ended; for a waiting job, everything that is in its way."""
        person = get_asker(request.scope)
        explain = request.query_params.get("explain", "true").lower() not in ("0", "false", "no")
        async with self._thought.of(person) if explain else nullcontext():
            view = await run_in_thread(
                self._yard.views.job, parse_label(id), explained=explain, sight=person.sight
            )
        if "array" in view:
            await make_room(len(view["jobs"]) * TASK_BYTES)
            return await answer_list(mask_job(person, view), "jobs")
        view["used"] = await run_in_thread(self._used, view)
        if explain and person.may(Action.READ_JOB, view["tenant"], view["user"]):
            if said := await run_in_thread(self._daemon_lines, view):
                view["scheduler_log"] = said
            if lines := await run_in_thread(self._yard.measures.kernel_lines, view):
                view["kernel_log"] = lines
        return answer(mask_job(person, view))

    def _used(self, view: OneJob) -> UsedReply:
        now_ms = self._yard.now_ms()
        used = use_view(view, now_ms, read_owed(self._yard.store, [view["id"]], now_ms)[view["id"]])
        add_taken(used, view, self._yard.measures.usage_of(view))
        return used

    def _daemon_lines(self, view: OneJob) -> list[str]:
        """What the daemons of a job's scheduler wrote about its last try, if its engine can read that."""
        try:
            engine, key = self._yard.attempts.at(view, max(1, view["attempts"]))
            lines = engine.daemon_lines(key, view["nodes"]) if isinstance(engine, HasDaemonLogs) else ()
        except (EngineError, Refusal):
            # Slurm does not answer, which is told elsewhere, or its cluster is gone: everything else is shown.
            return []
        return list(lines)

    async def recipe(self, request: Request, id: str) -> Response:
        """Only for its owner and administrators, since arguments and variables may hold secrets."""
        person = get_asker(request.scope)
        view, found = await run_in_thread(self._yard.views.recipe, parse_label(id), person.sight)
        _check_reads(person, view)
        return answer(found)

    async def request(self, request: Request, id: str) -> Response:
        """Only for its owner and administrators. Sent unchanged, it submits the same job again."""
        person = get_asker(request.scope)
        view, found = await run_in_thread(self._yard.views.request, parse_label(id), person.sight)
        _check_reads(person, view)
        return answer(found)

    async def curves(self, request: Request, id: str) -> Response:
        """This takes the right to see the job. An array has no curves: name a task."""
        yard, label, sight = self._yard, parse_label(id), get_asker(request.scope).sight

        def made() -> CurvesReply:
            return yard.measures.curves_of(yard.views.brief(label, sight))

        return answer(await run_in_thread(made))

    async def page(self, request: Request) -> Response:
        """A page of jobs. `state` may be given several times or as a list with commas."""
        query = request.query_params
        person = get_asker(request.scope)
        wanted, before, most = read_filter(query, person.sight), read_cursor(query), limit_of(query)
        await make_room(most * JOB_BYTES)
        found, more = await run_in_one_thread(self._yard.views.jobs, wanted, before, most)
        told: JobsReply = {"jobs": mask_jobs(person, found), "next_cursor": id_cursor(more)}
        return await answer_list(told, "jobs")

    async def cancel(self, request: Request, id: str) -> Response:
        """Cancel a job, or all live tasks of an array."""
        return await self._ask(request, Verb.CANCEL, id)

    async def checkpoint(self, request: Request, id: str) -> Response:
        """For jobs that save their work elsewhere than in the file named by YARD_CHECKPOINT_FILE."""
        said = await read_body(CheckpointRequest, request)
        asked = self._yard.requests.checkpoint(get_asker(request.scope), id, said.saved_at_ms)
        return answer(await self._or_ended(get_asker(request.scope), asked, id), 202)

    def ask(self, verb: Verb) -> Callable[..., Awaitable[Response]]:
        """The handler of one verb."""

        async def handler(request: Request, id: str) -> Response:
            return await self._ask(request, verb, id)

        return handler

    def many(self, verb: Verb) -> Callable[..., Awaitable[Response]]:
        """The handler of one verb for many jobs: an answer for each, in their order."""

        async def handler(request: Request) -> Response:
            wanted = check_value(ManyRequest, parse_object(await read_bytes(request)))
            person = get_asker(request.scope)
            await make_room(len(wanted.ids) * RESULT_BYTES)
            return await self._answers(person, self._yard.requests.wish(person, verb, wanted.ids))

        return handler

    async def update(self, request: Request) -> Response:
        """Change jobs: an answer for each, in their order. A job that asks for more goes to the end of its line."""
        wanted = check_value(UpdateRequest, parse_object(await read_bytes(request)))
        person = get_asker(request.scope)
        await make_room(len(wanted.ids) * RESULT_BYTES)
        change = wanted.change.change()
        return await self._answers(person, self._yard.requests.change(person, change, wanted.ids, revise))

    async def _answers(self, person: Person, wish: Wish) -> Response:
        """An answer for each of the ids of a wish."""
        asked = await self._wish(person, wish)
        pieces, size = list[bytes](), 0
        # Some at a time, and each is let go when its answer is written: twenty thousand take a while, and memory.
        asked.reverse()
        while asked:
            some = asked[: -LOOKED_UP - 1 : -1]
            del asked[-LOOKED_UP:]
            await self._tell_ended(person, some)
            pieces.append(encode_json([_result(each, wish.word) for each in some])[1:-1])
            size += len(pieces[-1])
            measure(size)
            await asyncio.sleep(0)
        return Response(b'{"results":[' + b",".join(pieces) + b"]}", media_type="application/json")

    async def _ask(self, request: Request, verb: Verb, text: str) -> Response:
        person = get_asker(request.scope)
        (asked,) = await self._wish(person, self._yard.requests.wish(person, verb, [text]))
        await self._tell_ended(person, [asked])
        if asked.error is not None:
            raise asked.error
        return answer(_done(asked, verb.value), 202)

    async def _wish(self, person: Person, wish: Wish) -> list[WishedId]:
        """Write a request batch by batch. Only a request about many jobs has to wait for its turn."""
        said = wish.asked
        if len(said) <= FEW:
            await self._write(wish)
        if not wish.finished:
            async with self._turns.of(person):
                if len(said) > FEW:
                    await self._look_up(wish)
                while not wish.finished:
                    began_s = time.monotonic()
                    wish.batch = BATCH if others_ask() else ALONE_BATCH
                    await self._write(wish)
                    # Others have their turn in the pause, where there are any.
                    took_s = time.monotonic() - began_s
                    await asyncio.sleep(
                        min(PAUSE_S_MAX, max(PAUSE_S_MIN, took_s)) if others_ask() else ALONE_S
                    )
        return wish.asked

    async def _look_up(self, wish: Wish) -> None:
        try:
            await run_in_thread(self._yard.requests.look_up, wish)
        except YardError as error:
            wish.give_up(error)

    async def _write(self, wish: Wish) -> None:
        try:
            wish.enter(await asyncio.wrap_future(self._yard.requests.grant(wish)))
        except YardError as error:
            wish.give_up(error)

    async def _tell_ended(self, person: Person, some: list[WishedId]) -> None:
        """Of jobs that have ended, or never were, the history knows."""
        gone = [each for each in some if isinstance(each.error, Gone)]
        labels = [each.label for each in gone if each.label is not None]
        if not labels:
            return
        found = await run_in_thread(self._yard.views.ends, labels, person.sight)
        for each in gone:
            assert each.label is not None
            each.error = found[each.label]

    async def _or_ended(self, person: Person, asked: "Future[CheckpointReply]", text: str) -> CheckpointReply:
        try:
            return await asyncio.wrap_future(asked)
        except Gone:
            label = parse_label(text)
            raise (await run_in_thread(self._yard.views.ends, [label], person.sight))[label] from None


def _done(asked: WishedId, verb: str) -> AskedReply:
    assert asked.label is not None
    return {"id": asked.label.id, "label": str(asked.label), "verb": verb, "jobs": asked.jobs}


def revise(fields: Mapping[str, Any]) -> Wanted:
    """The request made of the fields of a job that is there, some of them new."""
    try:
        return check_value(JobRequest, dict(fields)).new_job().wanted
    except Problem as problem:
        raise Unacceptable(problem.detail, problem.hint) from None


def _result(asked: WishedId, verb: str) -> OneOfMany:
    """One of many answers."""
    if asked.error is None:
        done = _done(asked, verb)
        told: OneOfMany = {
            "id": done["id"],
            "label": done["label"],
            "verb": done["verb"],
            "jobs": done["jobs"],
            "status": 202,
        }
        if asked.notes:
            told["notes"] = [*asked.notes]
        return told
    problem = find_problem(asked.error)
    if problem is None:
        raise asked.error
    partly = f" ({asked.jobs} of its tasks were done before)" if asked.jobs else ""
    return {
        "label": str(asked.said),
        "status": problem.status,
        "detail": problem.detail + partly,
        "hint": problem.hint,
    }


def _check_reads(person: Person, view: JobView) -> None:
    """What a job runs, and its variables, are for its owner and administrators."""
    if not person.may(Action.READ_JOB, view["tenant"], view["user"]):
        raise Forbidden(
            f"job {view['label']} is {view['user']}'s",
            "Only its owner, an admin of its tenant and root may see what it runs.",
        )


def _key(request: Request, person: Person, body: bytes) -> Idempotency | None:
    key = find_header(request.scope, b"idempotency-key")
    if key is None:
        return None
    if not key.strip() or len(key) > KEY_LENGTH_MAX or not key.isascii() or not key.isprintable():
        raise Problem(
            400,
            f"the Idempotency-Key must be 1 to {KEY_LENGTH_MAX} printable ASCII characters",
            "A random UUID is a good one.",
        )
    return Idempotency(person.key, key, hashlib.sha256(body).hexdigest())
