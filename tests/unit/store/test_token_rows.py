"""Tokens in the store: written with the event that names them or not at all, found by their id, ended for good."""

from dataclasses import replace

import pytest

from gpuyard.model import TokenMade, TokenRevoked
from gpuyard.store import Commit, Store, StoreError, TokenRow

ROW = TokenRow("aaaaaaaaaa", "f" * 64, "ana", "user", "research", "", "root", "", 5, 100)
MADE = TokenMade(5, ROW.id, "ana", "user", "research", 100, "root")


def put(store: Store, *rows: TokenRow) -> None:
    store.commit(None, 0, lambda _new: Commit([MADE], token_rows=rows))


def test_a_token_is_there_with_its_event(store: Store) -> None:
    put(store, ROW)

    assert ROW == store.tokens.find(ROW.id)
    assert None is store.tokens.find("b" * 10)
    assert [(1, MADE)] == store.read(0)
    assert [(1, MADE)] == store.read_back(["TokenMade"], None, 10)


def test_two_of_one_id_are_refused_and_nothing_is_written(store: Store) -> None:
    put(store, ROW)
    with pytest.raises(StoreError):
        put(store, replace(ROW, user="eve"))

    assert ROW == store.tokens.find(ROW.id)
    assert 1 == store.head()


def test_revoked_once_is_revoked_for_good(store: Store) -> None:
    put(store, ROW)
    for at_ms in (7, 9):
        event = TokenRevoked(at_ms, ROW.id, "ana", "root")
        store.commit(
            None, 0, lambda _new, e=event: Commit([e], token_rows=[replace(ROW, revoked_ms=e.at_ms)])
        )
    store.tokens.touch(ROW.id, 8)

    assert replace(ROW, revoked_ms=7, used_ms=8) == store.tokens.find(ROW.id)


def test_what_was_made_with_a_token_is_found_down_to_the_last(store: Store) -> None:
    rows = [replace(ROW, id=name * 10, made_with=by * 10) for name, by in ("ba", "ca", "db", "ed", "xy")]
    put(store, ROW, *rows)

    assert ["b" * 10, "c" * 10, "d" * 10, "e" * 10] == sorted(
        row.id for row in store.tokens.made_with(ROW.id)
    )
    assert 6 == len(store.tokens.all())


def test_the_log_is_read_backwards_by_kind_and_page_by_page(store: Store) -> None:
    for at_ms in range(1, 8):
        event = TokenRevoked(at_ms, "x", "ana", "root")
        store.commit(None, 0, lambda _new, e=event: Commit([e]))
    put(store, ROW)

    def page(before: int | None) -> list[int]:
        return [seq for seq, _ in store.read_back(["TokenRevoked"], before, 3)]

    assert [[7, 6, 5], [4, 3, 2], [1], []] == [page(None), page(5), page(2), page(1)]
