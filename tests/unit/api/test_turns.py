"""Requests that take long: one at a time for each person, few in all, and too many are told so at once."""

import asyncio

import pytest

from gpuyard.api.edge.throttle import ALL_WAITING_MAX, WAITING_MAX, Turns
from gpuyard.api.messages.problems import Problem
from gpuyard.control.access.people import Person


def person(number: int) -> Person:
    return Person(number, number, f"user{number}", False)


async def crowd(turns: Turns, people: list[Person]) -> tuple[list[int], list[int], list[Problem]]:
    """Let all ask at once; how many were served at a time: of one person, and in all; and who was refused."""
    under_way: list[int] = []
    own_most, most, refused = [0], [0], []

    async def one(who: Person) -> None:
        try:
            async with turns.of(who):
                under_way.append(who.uid)
                own_most[0] = max(own_most[0], under_way.count(who.uid))
                most[0] = max(most[0], len(under_way))
                await asyncio.sleep(0)
                under_way.remove(who.uid)
        except Problem as problem:
            refused.append(problem)

    await asyncio.gather(*[one(who) for who in people])
    return own_most, most, refused


def test_one_person_is_served_once_at_a_time_and_told_when_too_many_wait() -> None:
    turns = Turns("questions", at_once=2)
    one, most, refused = asyncio.run(crowd(turns, [person(1)] * (WAITING_MAX + 4)))
    assert ([1], [1], 3) == (one, most, len(refused))
    assert (429, "2", f"user1 has {WAITING_MAX} questions waiting already") == (
        refused[0].status,
        refused[0].headers["Retry-After"],
        refused[0].detail,
    )


def test_few_are_served_at_a_time_in_all() -> None:
    turns = Turns("questions", at_once=2)
    people = [person(number) for number in range(ALL_WAITING_MAX + 3)]
    one, most, refused = asyncio.run(crowd(turns, people))
    assert ([1], [2], 1) == (one, most, len(refused))
    assert f"{ALL_WAITING_MAX} questions wait already" == refused[0].detail


def test_a_turn_ends_however_it_ends() -> None:
    async def go() -> int:
        turns = Turns("questions", at_once=1)
        with pytest.raises(ZeroDivisionError):
            async with turns.of(person(1)):
                raise ZeroDivisionError
        return len((await crowd(turns, [person(1), person(2)]))[2])

    assert 0 == asyncio.run(go())
