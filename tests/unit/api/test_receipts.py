"""Receipts: what the writing thread tells comes to the event loop, all that comes together with one wake."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from gpuyard.api.edge.pulse import LoopReceipt, Receipts
from gpuyard.control.refusals import Impossible


def in_a_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts how often other threads wake it."""

    wakes = 0

    def call_soon_threadsafe(self, *args: Any, **kwargs: Any) -> asyncio.Handle:
        self.wakes += 1
        return super().call_soon_threadsafe(*args, **kwargs)


def test_what_is_told_together_wakes_the_loop_once() -> None:
    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        runner.run(told_together())


async def told_together() -> None:
    receipts, loop = Receipts(), asyncio.get_running_loop()
    assert isinstance(loop, CountingLoop)
    expected = [receipts.expect() for _ in range(50)]

    def tell() -> None:
        for number, receipt in enumerate(expected):
            receipt.set_result(number)

    in_a_thread(tell)
    assert list(range(50)) == await asyncio.gather(*[receipt.future for receipt in expected])
    assert 1 == loop.wakes
    # What comes after the loop has looked wakes it again.
    late = receipts.expect()
    in_a_thread(lambda: late.set_result("late"))
    assert "late" == await late.future
    assert 2 == loop.wakes


def test_a_refusal_comes_to_the_one_it_is_for() -> None:
    asyncio.run(refused())


async def refused() -> None:
    receipts = Receipts()
    good, bad, gone = receipts.expect(), receipts.expect(), receipts.expect()
    gone.future.cancel()

    def tell() -> None:
        for receipt in (gone, good):
            receipt.set_result("taken")
        bad.set_exception(Impossible("no"))

    in_a_thread(tell)
    assert "taken" == await good.future
    with pytest.raises(Impossible):
        await bad.future
    assert [True, True, True] == [receipt.done() for receipt in (good, bad, gone)]


def test_a_loop_that_has_ended_keeps_the_writing_thread_from_nothing() -> None:
    receipts = Receipts()

    async def expect() -> LoopReceipt:
        return receipts.expect()

    receipt = asyncio.run(expect())
    receipt.set_result("written")
    assert receipt.done()
