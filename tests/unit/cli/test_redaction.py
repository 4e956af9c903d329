"""Text without secrets: known ones wherever they stand, others by their names and forms; the rest as it was."""

import pytest

from gpuyard.cli.commands.yard.redaction import REMOVED, Redactor

TOKEN = "yard_abcdefghij_" + "0f" * 32
SIGNED = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbmEifQ.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    "line",
    [
        "connects to postgresql://yard:SECRET@db.example.org/yard",
        "connects to postgresql://yard:SE@CRET@db.example.org/yard",
        "postgresql:///yard?host=/run&password=SECRET",
        'connection to server failed: host=db password=SECRET user="yard"',
        "GET /x Authorization: Bearer SECRET-SECRET",
        "{'Authorization': 'Basic U0VDUkVUOlNFQ1JFVA=='}",
        f"came with {TOKEN} from afar",
        f"came with {SIGNED} from afar",
        '{"client_secret": "SECRET SECRET"}',
        "client_secret: 'SECRET'",
        "MY_API_KEY=SECRET python3 train.py",
        "-----BEGIN RSA PRIVATE KEY-----\nSECRET\nSECRET\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nSECRET, cut off",
    ],
)
def test_a_secret_is_told_by_its_name_or_its_form(line: str) -> None:
    found = Redactor().text(line)
    assert REMOVED in found
    for secret in ("SECRET", "CRET@", "U0VDUkVU", TOKEN, SIGNED):
        assert secret not in found


@pytest.mark.parametrize(
    "line",
    [
        "leads in epoch 1 from event 1 on",
        "the token of ana was revoked by adam",
        "token_file: /etc/gpuyard/logs.token",
        "token_lifetime: 30d",
        "http://127.0.0.1:7447/readyz?verbose=1",
        'gpuyard_jobs{state="running"} 3',
        "basic sums",
    ],
)
def test_what_is_no_secret_stays(line: str) -> None:
    assert line == Redactor().text(line)


def test_a_known_secret_goes_wherever_it_stands_and_however_a_url_spells_it() -> None:
    redactor = Redactor(["p&ss w0rd", "", "abc"])
    assert f"x{REMOVED}y {REMOVED} abc" == redactor.text("xp&ss w0rdy p%26ss%20w0rd abc")


def test_of_a_document_names_and_places_stay() -> None:
    given = {
        "logs": [{"url": "https://logs.example.org", "headers": {"X-Key": "SECRET"}, "token_file": "/etc/t"}],
        "auth": {"token_lifetime": "30d", "oidc": {"client_id": "yard", "client_secret": "SECRET"}},
        "other": {"password": 1234, "tokens": ["SECRET"], "none": None, "on": True},
    }
    assert {
        "logs": [{"url": "https://logs.example.org", "headers": {"X-Key": REMOVED}, "token_file": "/etc/t"}],
        "auth": {"token_lifetime": "30d", "oidc": {"client_id": "yard", "client_secret": REMOVED}},
        "other": {"password": REMOVED, "tokens": [REMOVED], "none": None, "on": True},
    } == Redactor().document(given)
