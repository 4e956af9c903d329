"""Bodies of very many values are refused before they are read; those that a request has use for are not."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from gpuyard.api.messages import bodies
from gpuyard.api.messages.bodies import KEYS_MAX, parse_object
from gpuyard.api.messages.problems import Problem
from gpuyard.api.messages.schemas import JobRequest, ManyRequest, check_value

MANY = {
    "keys": b"{" + b",".join([b'"k%d":0' % n for n in range(28_000)]) + b"}",
    "lists": b'{"x":[' + b",".join([b"[]"] * 600_000) + b"]}",
    "numbers": b'{"x":[' + b",".join([b"1"] * 900_000) + b"]}",
    "words": b'{"x":[' + b",".join([b'""'] * 600_000) + b"]}",
    "odd words": b'{"x":[' + b",".join([rb'"\"\\\\"'] * 200_000) + b"]}",
}


@pytest.mark.parametrize("body", MANY.values(), ids=MANY)
def test_a_body_of_very_many_values_is_not_even_read(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies.json, "loads", _not_read)
    with pytest.raises(Problem, match="more than 12000 keys, or more than 60000 parts"):
        parse_object(body)


def _not_read(*_args: Any, **_named: Any) -> None:
    raise AssertionError("it was read")


def test_objects_without_keys_count_too() -> None:
    with pytest.raises(Problem, match=f"more than {KEYS_MAX} keys"):
        parse_object(b'{"x":[' + b",".join([b"{}"] * 20_000) + b"]}")


def test_what_a_request_has_use_for_is_read() -> None:
    largest = {
        "command": ["word"] * 10_000,
        "env": {f"V{n}": ":a,b" for n in range(10_000)},
        "on_nodes": ["n"] * 10_000,
        "not_nodes": ["m"] * 10_000,
    }
    assert 10_000 == len(check_value(JobRequest, parse_object(json.dumps(largest).encode())).env)
    marks = "#!/bin/sh\n" + 100_000 * '{"[\\,":'
    assert marks == check_value(JobRequest, parse_object(json.dumps({"script": marks}).encode())).script
    ids = [f"{n}_0" for n in range(1, 20_001)]
    assert ids == check_value(ManyRequest, parse_object(json.dumps({"ids": ids}).encode())).ids


@pytest.mark.parametrize("field", [{"name": "\udcff"}, {"command": ["\udcff"]}])
def test_a_byte_that_is_no_text_is_refused_in_our_words(field: dict[str, object]) -> None:
    with pytest.raises(Problem) as refused:
        check_value(JobRequest, field)
    (error,) = refused.value.errors or []
    assert "it holds a byte that is not text in UTF-8" == error["detail"]


def test_a_refusal_takes_a_fraction_of_the_time_that_parsing_takes() -> None:
    """A body is looked at in the event loop: nobody else is served meanwhile."""

    def took_s(work: Callable[[bytes], object]) -> float:
        began_s = time.thread_time()
        with suppress(Problem):
            work(MANY["keys"])
        return time.thread_time() - began_s

    refused_s, parsed_s = [min([took_s(work) for _ in range(9)]) for work in (parse_object, json.loads)]
    assert refused_s < parsed_s / 5
