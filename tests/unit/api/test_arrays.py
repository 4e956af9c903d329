"""Large arrays of one person are accepted one by one, each when the one before it is in everybody's lists."""

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from fastapi import Request, Response

from gpuyard.api.edge.peers import PERSON
from gpuyard.api.edge.pulse import LoopReceipt
from gpuyard.api.edge.throttle import ARRAY_IDS, OneEach, Throttle, Turns, others_ask
from gpuyard.api.handlers.jobs import Jobs
from gpuyard.control.access.people import Person
from gpuyard.store import Accepted

ANA, BEN = Person(1, 1, "ana", False), Person(2, 2, "ben", False)


class Desk:
    """Takes in jobs and answers when it is told to; notes who has how many in front of it."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Person, int, LoopReceipt]] = []
        self.read_up = 0
        self.most: dict[str, int] = {}
        self.requests = SimpleNamespace(submit=self._submit, read_up=lambda: None)

    def _submit(self, person: Person, new: Any, receipt: LoopReceipt, _key: Any) -> LoopReceipt:
        self.waiting.append((person, new.wanted.ids, receipt))
        arrays = sum([who is person and ids > ARRAY_IDS for who, ids, _receipt in self.waiting])
        self.most[person.name] = max(self.most.get(person.name, 0), arrays)
        return receipt

    def answer(self) -> None:
        for _person, ids, receipt in self.waiting:
            receipt.set_result(Accepted(1, ids, (1,), {"id": 1}))
        self.waiting.clear()


def asked(jobs: Jobs, person: Person, array: str) -> "asyncio.Task[Response]":
    body = json.dumps({"command": ["true"], **({"array": array} if array else {})}).encode()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers, PERSON: person}
    return asyncio.ensure_future(jobs.submit(Request(scope, receive)))


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.001)


def test_of_one_persons_arrays_one_is_on_its_way_and_nobody_else_waits_for_it() -> None:
    async def run() -> None:
        desk = Desk()

        def read_up() -> None:
            desk.read_up += 1

        state = SimpleNamespace(nodes=SimpleNamespace(node=["one"]))
        replica = SimpleNamespace(state=state)
        yard: Any = SimpleNamespace(requests=desk.requests, read_up=read_up, replica=replica)
        jobs = Jobs(yard, Turns("questions", at_once=1))
        arrays = [asked(jobs, ANA, f"0-{ARRAY_IDS}") for _ in range(8)]
        others = [asked(jobs, ANA, ""), asked(jobs, BEN, f"0-{ARRAY_IDS}"), asked(jobs, BEN, "")]
        await until(lambda: len(desk.waiting) == 1 + len(others))
        for done in range(1, 9):
            desk.answer()
            await until(lambda done=done: sum([each.done() for each in arrays]) == done)
            await until(lambda done=done: len(desk.waiting) == (done < 8))
        assert {201} == {(await each).status_code for each in [*arrays, *others]}
        assert ({"ana": 1, "ben": 1}, 9) == (desk.most, desk.read_up)

    asyncio.run(run())


def test_a_turn_ends_also_where_it_fails_and_nobody_is_remembered() -> None:
    async def run() -> None:
        one = OneEach()

        async def fails() -> None:
            async with one.of(ANA):
                raise ValueError

        found = await asyncio.gather(fails(), fails(), return_exceptions=True)
        assert [ValueError, ValueError] == [type(each) for each in found]
        assert {} == one._lines

    asyncio.run(run())


def test_an_administrator_knows_whether_others_ask() -> None:
    async def run() -> None:
        now_s, seen = [100.0], []
        throttle = Throttle(lambda: now_s[0])

        async def app(_scope: Any, _receive: Any, _send: Any) -> None:
            seen.append(others_ask())

        nothing: Any = ({"method": "GET"}, None, None)
        await throttle.administrator(app, *nothing)
        await throttle.user("ben", app, *nothing)
        await throttle.administrator(app, *nothing)
        now_s[0] += 10
        await throttle.administrator(app, *nothing)
        assert [False, True, True, False] == seen

    asyncio.run(run())
