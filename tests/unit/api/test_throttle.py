"""How much of the server's time one user gets while others ask."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gpuyard.api.edge.throttle import (
    ALONE_AT_ONCE,
    AT_ONCE,
    BURST_S,
    LONG_BURST_S,
    OTHERS_S,
    SHARE,
    STRANGERS_SHARE,
    App,
    Throttle,
    TimeAccount,
    charge,
    run_at_leisure,
    run_in_one_thread,
    run_in_thread,
    yield_to_others,
)
from gpuyard.control.reading.publisher import own_write_s


def burn(seconds: float) -> None:
    """Take so much time of a core, however much of it others have."""
    until_s = time.thread_time() + seconds
    while time.thread_time() < until_s:
        pass


def costly(seconds: float) -> App:
    """An application that takes so much and answers nothing."""

    async def app(_scope: Any, _receive: Any, _send: Any) -> None:
        burn(seconds)

    return app


def of(work: Callable[[], Awaitable[None]]) -> App:
    """An application that does this."""

    async def app(_scope: Any, _receive: Any, _send: Any) -> None:
        await work()

    return app


NOTHING = ({"method": "GET"}, None, None)


async def served_in_s(serve: Callable[[], Awaitable[None]], times: int) -> float:
    began_s = time.monotonic()
    for _ in range(times):
        await serve()
    return time.monotonic() - began_s


def test_a_list_knows_when_its_user_was_last_told_of_a_write() -> None:
    async def main() -> None:
        now_s, seen = 10.0, list[float]()
        throttle = Throttle(lambda: now_s)

        async def send(_message: Any) -> None:
            pass

        async def look(_scope: Any, _receive: Any, _send: Any) -> None:
            seen.append(await run_in_thread(own_write_s.get))

        async def answer(_scope: Any, _receive: Any, send: Any) -> None:
            await send({})

        async def die(_scope: Any, _receive: Any, _send: Any) -> None:
            raise ConnectionError

        await throttle.user("ann", look, {"method": "GET"}, None, send)
        for at_s, name, method, app in (
            (11.0, "ann", "POST", answer),
            (12.0, "ben", "POST", answer),
            (13.0, "ann", "GET", answer),
        ):
            now_s = at_s
            await throttle.user(name, app, {"method": method}, None, send)
        await throttle.user("ann", look, {"method": "GET"}, None, send)
        now_s = 14.0
        with pytest.raises(ConnectionError):
            await throttle.user("ann", die, {"method": "DELETE"}, None, send)
        await throttle.user("ann", look, {"method": "GET"}, None, send)

        assert [10.0, 11.0, 14.0] == seen

    asyncio.run(main())


def account(throttle: Throttle, name: str) -> TimeAccount:
    return throttle._accounts[name]


def test_a_user_does_not_pay_for_time_in_which_others_had_the_processor() -> None:
    """Under a flood a step in the event loop takes long by the clock; its user was made to wait for that."""

    async def main() -> float:
        throttle = Throttle()

        async def kept_waiting() -> None:
            time.sleep(0.2)  # As if another thread ran meanwhile.

        await throttle.user("ben", of(kept_waiting), *NOTHING)
        return account(throttle, "ben").debt_s

    assert 0.05 > asyncio.run(main())


def test_a_user_who_takes_much_waits_while_another_asks_and_that_one_does_not() -> None:
    async def main() -> tuple[float, float]:
        throttle = Throttle()
        await throttle.user("ben", costly(0), *NOTHING)
        took_s = await served_in_s(lambda: throttle.user("ana", costly(0.08), *NOTHING), 6)
        return took_s, await served_in_s(lambda: throttle.user("ben", costly(0), *NOTHING), 10)

    anas_s, bens_s = asyncio.run(main())

    # The first part was free, and what the last one took is not waited for.
    assert (0.4 - BURST_S) / SHARE < anas_s
    assert bens_s < anas_s


def test_a_user_alone_has_all_there_is() -> None:
    async def main() -> int:
        # On a clock that stands still nothing is ever paid off: a user who had to wait would wait for ever.
        throttle, served = Throttle(lambda: 0.0), []

        async def work() -> None:
            await costly(0.02)(*NOTHING)
            served.append(True)

        several = [throttle.user("ana", of(work), *NOTHING) for _ in range(30)]
        await asyncio.wait_for(asyncio.gather(*several), 60)
        return len(served)

    assert 30 == asyncio.run(main())


def test_strangers_wait_whoever_asks_besides() -> None:
    async def main() -> tuple[float, float]:
        throttle = Throttle()
        took_s = await served_in_s(lambda: throttle.stranger("10.0.0.1", costly(0.1), *NOTHING), 7)
        return took_s, await served_in_s(lambda: throttle.stranger("10.0.0.2", costly(0), *NOTHING), 6)

    one_s, other_s = asyncio.run(main())

    assert (0.55 - BURST_S) / STRANGERS_SHARE < one_s
    assert other_s < one_s


def test_work_in_threads_and_jobs_to_be_written_count() -> None:
    async def threaded() -> None:
        await run_in_thread(burn, 0.05)

    async def written() -> None:
        charge(0.07)

    async def main() -> tuple[float, float]:
        throttle = Throttle(lambda: 0.0)
        await throttle.user("ana", of(threaded), *NOTHING)
        await throttle.user("ben", of(written), *NOTHING)
        return account(throttle, "ana").debt_s, account(throttle, "ben").debt_s

    threads_s, jobs_s = asyncio.run(main())

    assert 0.05 <= threads_s < 1
    assert 0.07 <= jobs_s < 1


def test_what_goes_wrong_reaches_whoever_asked_and_is_paid_for() -> None:
    async def wrong() -> None:
        burn(0.01)
        await asyncio.sleep(0)
        raise ValueError("no")

    async def main() -> float:
        throttle = Throttle(lambda: 0.0)
        with pytest.raises(ValueError, match="no"):
            await throttle.user("ana", of(wrong), *NOTHING)
        return account(throttle, "ana").debt_s

    assert 0.01 <= asyncio.run(main())


def test_few_requests_are_under_way_at_once_until_they_are_answered() -> None:
    under_way, most, go_on = 0, 0, threading.Event()

    async def slow() -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await run_in_thread(go_on.wait)
        under_way -= 1

    async def stream(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start"})
        await run_in_thread(go_on.wait)

    async def main() -> None:
        throttle = Throttle()

        async def send(_message: Any) -> None:
            return

        await throttle.user("ben", costly(0), *NOTHING)
        # What is being answered, as a log that is followed, is not counted.
        several = [throttle.user("ana", stream, {"method": "GET"}, None, send) for _ in range(2 * AT_ONCE)]
        several += [throttle.user("ana", of(slow), *NOTHING) for _ in range(2 * AT_ONCE)]
        all_ = asyncio.gather(*several)
        for _ in range(10):
            await throttle.user("ben", costly(0), *NOTHING)
            await asyncio.sleep(0.02)
        assert AT_ONCE == under_way
        go_on.set()
        await asyncio.wait_for(all_, 120)

    asyncio.run(main())

    assert AT_ONCE == most


def test_requests_that_pile_up_do_not_stand_before_somebody_who_comes_later_or_waits_long() -> None:
    now_s, under_way = 0.0, 0
    anas, bens = asyncio.Semaphore(0), asyncio.Event()

    async def slow() -> None:
        nonlocal under_way
        under_way += 1
        await anas.acquire()
        under_way -= 1

    async def settled() -> int:
        await asyncio.sleep(0.05)
        return under_way

    async def main() -> None:
        nonlocal now_s
        throttle = Throttle(lambda: now_s)
        pile = asyncio.gather(*[throttle.user("ana", of(slow), *NOTHING) for _ in range(10 * ALONE_AT_ONCE)])
        assert ALONE_AT_ONCE == await settled(), "nobody else asks, and few are under way all the same"
        ben = asyncio.create_task(throttle.user("ben", of(bens.wait), *NOTHING))
        await settled()
        now_s += 10 * OTHERS_S
        for _ in range(ALONE_AT_ONCE):
            anas.release()
        assert AT_ONCE == await settled(), "ben asked long ago and has no answer yet"
        bens.set()
        await ben
        for _ in range(10 * ALONE_AT_ONCE):
            anas.release()
        await asyncio.wait_for(pile, 120)

    asyncio.run(main())


def test_a_long_answer_gives_way_while_others_ask() -> None:
    pieces, piece_s = 12, 0.02
    ended: list[float] = []

    async def main() -> tuple[float, float]:
        throttle = Throttle()

        async def work() -> None:
            for _ in range(pieces):
                await run_in_thread(burn, piece_s)
                await yield_to_others()
            ended.append(time.monotonic())

        throttle.heard("ben")
        took_s = await served_in_s(lambda: throttle.user("ana", of(work), *NOTHING), 1)
        return took_s, account(throttle, "ana").left_s()

    took_s, left_s = asyncio.run(main())
    # All of it but half of what may be taken at once is paid off before the answer is done; its last step is not.
    assert took_s >= (pieces * piece_s - BURST_S / 2) / SHARE
    since_s = time.monotonic() - ended[0]
    assert left_s <= -BURST_S / 2 + piece_s / 2 + SHARE * since_s


def test_a_long_list_holds_up_nothing_else_of_its_user() -> None:
    pieces, piece_s = 35, 0.02
    ended: list[float] = []

    async def main() -> tuple[float, float]:
        throttle = Throttle()

        async def work() -> None:
            for _ in range(pieces):
                await run_at_leisure(burn, piece_s)
            ended.append(time.monotonic())

        throttle.heard("ben")
        took_s = await served_in_s(lambda: throttle.user("ana", of(work), *NOTHING), 1)
        return took_s, account(throttle, "ana").left_s()

    took_s, left_s = asyncio.run(main())
    # What came before the last piece is paid off but for what may be taken at once.
    assert took_s >= ((pieces - 1) * piece_s - LONG_BURST_S) / SHARE
    assert left_s < -BURST_S / 2 + SHARE * (time.monotonic() - ended[0])


@pytest.mark.parametrize("others", [True, False])
def test_one_thread_computes_for_a_user_while_others_ask(others: bool) -> None:
    now, most, both = 0, 0, threading.Barrier(2)

    def compute() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        if not others:
            # Both are there at once, or this breaks.
            both.wait(120)
        now -= 1

    async def main() -> None:
        throttle = Throttle()

        async def work() -> None:
            await run_in_one_thread(compute)

        if others:
            throttle.heard("ben")
        await asyncio.gather(*[throttle.user("ana", of(work), *NOTHING) for _ in range(2)])

    asyncio.run(main())
    assert most == (1 if others else 2)
