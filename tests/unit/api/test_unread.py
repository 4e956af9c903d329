"""What answers take that are being made or not all read: room before they are made, memory until they are taken."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from starlette.responses import Response

from gpuyard.api.edge.throttle import Throttle, wait_for_room
from gpuyard.api.edge.unread import (
    ALL_MAX,
    SMALL_BYTES,
    UNREAD_MAX,
    UNSENT,
    AllAnswers,
    UserAnswers,
    make_room,
    measure,
)
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
    answers, (there, calls) = UserAnswers(), left(1, 1, 1, 1, 0)
    assert [None] * 5 == [hold(answers, call, 3 * MIB) for call in calls]
    assert 4 * 3 * MIB == answers.unread_bytes()
    refused = hold(answers, lambda: 1, 5 * MIB)
    detail = (
        "12.0 MiB of answers to you are not read yet, and this one takes 5.0 of the 16 MiB that a user has"
    )
    assert refused is not None
    assert (429, detail) == (refused.status, refused.detail)
    # Of this one nobody said how long it is.
    answer = answers.begin(lambda: 1)
    answer.hold({"type": "http.response.start", "headers": []})
    answer.hold({"type": "http.response.body", "body": b"x" * 5 * MIB})
    refusal = answers.refusal()
    assert refusal is not None
    assert (429, "16 MiB of answers to you are not read yet") == (refusal.status, refusal.detail)
    answer.end()
    answers = UserAnswers()
    there[:] = [1, 0, 0, 0, 0]
    assert [None] * 5 == [hold(answers, call, 4 * MIB) for call in calls]
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
            await other.make_room(MIB)
        hangs.end()
        await other.make_room(MIB)

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


def hold(answers: UserAnswers, unsent: Callable[[], int], size: int) -> Problem | None:
    """An answer that is made and not taken, or why there was none."""
    answer = answers.begin(unsent)
    refusal = answer.hold(start(size))
    answer.let_go()
    answer.end()
    return refusal


def test_all_users_together_hold_no_more_than_the_server_has_room_for_and_one_more_finds_some() -> None:
    """Each of forty could take 16 MiB of it."""
    every, (there, calls) = AllAnswers(), left(*[1] * 40)
    users = [UserAnswers(every) for _ in calls]
    refused = 0
    for _ in range(16):
        for answers, call in zip(users, calls, strict=True):
            refusal = hold(answers, call, MIB)
            refused += refusal is not None
            assert refusal is None or (503, "2") == (refusal.status, refusal.headers["Retry-After"])
    taken = [answers.unread_bytes() for answers in users]
    assert 3 * MIB <= min(taken) <= max(taken) <= ALL_MAX - sum(taken), "as much as they leave free"
    assert 40 * 16 * MIB == sum(taken) + refused * MIB

    new = UserAnswers(every)
    assert None is hold(new, lambda: 1, MIB), "somebody who comes later"
    assert None is hold(users[0], calls[0], SMALL_BYTES), "health, a submission"
    there[10:] = [0] * 30
    assert None is hold(users[0], calls[0], 4 * MIB)


def test_an_answer_waits_for_room_that_others_have_set_aside_and_not_for_what_they_do_not_read() -> None:
    async def main() -> None:
        every = AllAnswers(most=8 * MIB)
        ana, eve, bob = [UserAnswers(every).begin(lambda: 1) for _ in range(3)]
        await eve.make_room(2 * MIB)
        waits = asyncio.create_task(ana.make_room(3 * MIB + MIB // 2))
        await asyncio.sleep(0)
        assert not waits.done()
        assert None is eve.hold(start(MIB))
        await asyncio.wait_for(waits, 5)
        assert None is ana.hold(start(3 * MIB + MIB // 2))
        with pytest.raises(Problem, match=r"may take 2\.0 MiB, which the server has no room for") as crowded:
            await bob.make_room(2 * MIB)
        assert 503 == crowded.value.status
        await bob.make_room(SMALL_BYTES)

    asyncio.run(main())


@pytest.mark.parametrize("measured", [False, True])
def test_an_answer_that_was_estimated_too_low_is_dropped_where_it_has_no_room(measured: bool) -> None:
    """Eight answers of 12 MiB were 96 MiB: each was taken for one of 2."""

    async def main() -> None:
        throttle, said, made = Throttle(), list[Any](), list[int]()

        async def large(scope: Any, receive: Any, send: Any) -> None:
            await make_room(2 * MIB)
            await asyncio.sleep(0)
            size = 0
            try:
                for _ in range(12):
                    size += MIB
                    if measured:
                        measure(size)
            except Problem as problem:
                await problem.response()(scope, receive, send)
            else:
                made.append(size)
                await Response(b"x" * size)(scope, receive, send)

        async def send(message: Any) -> None:
            said.append(message)

        async def ask() -> None:
            scope = {"method": "GET", "type": "http", UNSENT: lambda: 1}
            await throttle.user("eve", large, scope, None, send)

        await asyncio.gather(*[ask() for _ in range(8)])
        starts = [each["status"] for each in said if "status" in each]
        assert [200] + [429] * 7 == sorted(starts)
        assert 12 * MIB == sum([len(each["body"]) for each in said if len(each.get("body", b"")) > MIB])
        assert len(made) == (1 if measured else 8)

    asyncio.run(main())


def test_a_stream_waits_for_room_for_its_next_piece() -> None:
    async def main() -> None:
        throttle, said, (there, (call,)) = Throttle(), list[int](), left(1)

        async def stream(_scope: Any, _receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "headers": []})
            await wait_for_room(MIB)
            await send({"type": "http.response.body", "body": b"x" * MIB, "more_body": True})

        async def whole(scope: Any, receive: Any, send: Any) -> None:
            await Response(b"x" * UNREAD_MAX)(scope, receive, send)

        async def send(message: Any) -> None:
            said.append(len(message.get("body", b"")))

        scope = {"method": "GET", "type": "http"}
        await throttle.user("eve", whole, {**scope, UNSENT: call}, None, send)
        following = asyncio.create_task(
            throttle.user("eve", stream, {**scope, UNSENT: lambda: 0}, None, send)
        )
        await asyncio.sleep(0.2)
        assert MIB not in said
        there[0] = 0
        await asyncio.wait_for(following, 10)
        assert MIB == said[-1]

    asyncio.run(main())


def test_a_piece_that_is_larger_than_all_room_of_its_user_comes_when_they_have_read_the_rest() -> None:
    """A wide list of jobs with many dependencies each: it never went on."""
    answers, (there, (call,)) = UserAnswers(), left(1)
    assert None is hold(answers, call, MIB)
    stream = answers.begin(lambda: 0)
    assert not stream.take_room(2 * UNREAD_MAX)
    there[0] = 0
    assert stream.take_room(2 * UNREAD_MAX)
