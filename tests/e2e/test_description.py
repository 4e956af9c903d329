"""The API against its own description: whatever is sent, no 5xx, and every answer is one that the description has."""

import json
import os
import urllib.request
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from harness.patience import patient
from rigs.described import closed
from rigs.teams import CONFIG

from .conftest import Box

CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
)
REQUESTS_EACH = int(os.environ.get("YARD_REQUESTS_EACH", "8"))
"""For every operation, as many that fit its description and as many that do not."""


class Opened(Box):
    """A yard with `--auth` on the loopback."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args, CONFIG)

    def up(self) -> Any:
        done = self("up", "-d", "--port", 0, "--config", self.config, "--auth")
        assert 0 == done.code, done.err
        return done


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    made = Opened(tmp_path_factory.mktemp("described") / "yard")
    made.up()
    for words in (["--hold"], ["--hold", "--array", "0-3"], []):
        made.submit("--tenant", "research/x", *words, "--", "true")
    made.wait(7, "COMPLETED")
    yield made
    assert 0 == made("down", "--jobs").code


def operations(url: str) -> list[Any]:
    with urllib.request.urlopen(url, timeout=patient(20)) as answer:
        description = json.load(answer)
    # An answer has the fields that are described and no others; what is sent may have any.
    schema = schemathesis.openapi.from_dict(closed(description))
    schema.config.update(base_url=url.removesuffix("/api/v1/openapi.json"))
    # The log and the changes have no end; what they say, and to whom, is held in test_secrets.
    endless = ["/api/v1/events", "/api/v1/changes"]
    found = [each.ok() for each in schema.exclude(path=endless).get_all_operations()]
    assert len(found) > 30
    return found


@pytest.mark.rig
def test_whatever_is_sent_gets_an_answer_that_is_described(yard: Opened) -> None:
    token = yard("token", "create", "--user", "adam").out.strip()
    head = {"Authorization": f"Bearer {token}"}
    wrong: list[str] = []
    sent: dict[str, int] = {}

    found = operations(f"http://127.0.0.1:{yard.note()['port']}/api/v1/openapi.json")
    for operation, mode in product(found, GenerationMode):

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=REQUESTS_EACH, deadline=None, derandomize=True, database=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        def ask(case: schemathesis.Case) -> None:
            if case.path.endswith("/logs") and case.query:
                case.query.pop("follow", None)
            sent[case.operation.label] = sent.get(case.operation.label, 0) + 1
            case.call_and_validate(checks=list(CHECKS), headers=head, timeout=patient(20))

        try:
            ask()
        except Unsatisfiable:
            # Nothing about it can be wrong.
            assert mode is GenerationMode.NEGATIVE, operation.label
        except Exception as error:
            wrong.append(f"{operation.label} ({mode.value}): {error}")

    assert [] == wrong, "\n\n".join(wrong)
    assert min(sent.values()) > 0


def test_every_operation_is_described_to_the_end(yard: Opened) -> None:
    """No dangling reference, an answer for success, and problem+json wherever somebody has to be known."""
    port = yard.note()["port"]
    with urllib.request.urlopen(
        f"http://127.0.0.1:{port}/api/v1/openapi.json", timeout=patient(20)
    ) as answer:
        description = json.load(answer)
    text = json.dumps(description)
    parts = description["components"]["schemas"]
    named = {piece.split('"')[0] for piece in text.split('"#/components/schemas/')[1:]}
    assert set() == named - parts.keys()
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            replies = operation["responses"]
            # A terminal is a WebSocket: the answer is another protocol.
            good = [reply for code, reply in replies.items() if code.startswith("2")]
            assert good or "101" in replies, (method, path)
            assert all(reply.get("content") for reply in good), (method, path)
            if operation.get("security"):
                assert {"401", "403", "429"} <= replies.keys(), (method, path)
                assert ["application/problem+json"] == list(replies["401"]["content"])
