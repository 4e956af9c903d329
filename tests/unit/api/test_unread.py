"""What answers take that are being made or not all read: room before they are made, memory until they are taken."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gpuyard.api.edge.throttle import Throttle
from gpuyard.api.edge.unread import UNREAD_MAX, UNSENT, UserAnswers
from gpuyard.api.messages.problems import Problem

MIB = 1 << 20


def start(size: int) -> dict[str, Any]:
    return {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]}


def left(*sizes: int) -> tuple[list[int], list[Callable[[], int]]]:
    """What connections have yet to take, and the calls that say so."""
    found = list(sizes)
    return found, [lambda n=n: found[n] for n in range(len(sizes))]  # type: ignore[misc]


def test_an_answer_that_is_not_all_read_counts_whole() -> None:
    """57 answers of 4 MiB were made for one user: of each, the system had taken nearly all."""
    answers, (there, calls) = UserAnswers(), left(1, 1, 1, 1, 1, 0)
    for call in calls:
        answer = answers.begin(call)
        answer.hold(start(4 * MIB))
        answer.let_go()
        answer.end()
    assert 5 * 4 * MIB == answers.unread_bytes()
    refusal = answers.refusal()
    assert refusal is not None
    assert (429, "16 MiB of answers to you are not read yet") == (refusal.status, refusal.detail)
    there[:] = [1, 0, 0, 0, 0, 0]
    assert 4 * MIB == answers.unread_bytes()
    assert None is answers.refusal()


def test_several_answers_of_one_connection_count_together_until_it_is_empty() -> None:
    answers, (there, (call,)) = UserAnswers(), left(1)
    for _ in range(3):
        answer = answers.begin(call)
        answer.hold(start(MIB))
        answer.let_go()
        answer.end()
    assert 3 * MIB == answers.unread_bytes()
    there[0] = 0
    assert 0 == answers.unread_bytes()
    assert not answers


def test_an_answer_that_waits_on_its_connection_counts_and_a_stream_with_what_is_not_taken() -> None:
    answers, (there, (first, second)) = UserAnswers(), left(0, 0)
    whole, stream = answers.begin(first), answers.begin(second)
    whole.hold(start(3 * MIB))
    assert 3 * MIB == answers.unread_bytes(), "it is made, and its head waits"
    whole.let_go()
    whole.end()
    assert 0 == answers.unread_bytes()

    stream.hold({"type": "http.response.start", "headers": []})
    stream.let_go()
    stream.hold({"type": "http.response.body", "body": b"x" * 100, "more_body": True})
    assert 100 == answers.unread_bytes()
    stream.let_go()
    assert 0 == answers.unread_bytes(), "it stands still, and all is taken"
    there[1] = 1
    assert 100 == answers.unread_bytes()


def test_an_answer_waits_for_room_until_others_are_made() -> None:
    async def main() -> None:
        answers, (there, (first, second, third)) = UserAnswers(), left(0, 0, 0)
        one, two, three = answers.begin(first), answers.begin(second), answers.begin(third)
        await one.make_room(10 * MIB)
        waits = asyncio.create_task(two.make_room(10 * MIB))
        await asyncio.sleep(0)
        assert not waits.done()
        one.hold(start(5 * MIB))
        await asyncio.wait_for(waits, 5)

        there[0] = 1
        one.let_go()
        one.end()
        with pytest.raises(Problem) as refused:
            await three.make_room(12 * MIB)
        detail = "5.0 MiB of answers to you are not read yet, and this one may take 12.0 of the 16 MiB that a user has"
        assert (429, detail) == (refused.value.status, refused.value.detail)
        two.end()
        there[0] = 0
        await three.make_room(100 * MIB)
        assert UNREAD_MAX == three.expected_bytes(), "one that is larger has all the room there is"

    asyncio.run(main())


def test_an_answer_does_not_wait_for_one_whose_reader_hangs() -> None:
    async def main() -> None:
        answers = UserAnswers(wait_s=0.01)
        hangs, other = answers.begin(lambda: 0), answers.begin(lambda: 0)
        await hangs.make_room(UNREAD_MAX)
        with pytest.raises(Problem, match="are being made"):
            await other.make_room(1)
        hangs.end()
        await other.make_room(1)

    asyncio.run(main())


def test_what_is_not_read_is_not_forgotten_among_many_users() -> None:
    async def main() -> None:
        throttle, said = Throttle(), list[int]()

        async def large(_scope: Any, _receive: Any, send: Any) -> None:
            await send(start(UNREAD_MAX + 1))

        async def send(message: Any) -> None:
            said.extend([message["status"]] if "status" in message else [])

        async def ask(name: str, unsent: int) -> None:
            await throttle.user(
                name, large, {"method": "GET", "type": "http", UNSENT: lambda: unsent}, None, send
            )

        await ask("eve", 1)
        for number in range(2_100):
            await ask(f"user{number}", 0)
        assert {200} == set(said)
        await ask("eve", 1)
        assert 429 == said[-1]

    asyncio.run(main())
