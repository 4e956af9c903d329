"""Text without secrets: known ones wherever they stand, others by their names and forms; the rest as it was."""

import time

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
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\nSECRET\n-----END PGP PRIVATE KEY BLOCK-----",
        "Authorization: Splunk SECRET-AB",
        'Authorization: Digest username="x", response="SECRET"',
        "Cookie: theme=dark; session=SECRET",
        r'said "{\"token\": \"SECRET\"}"',
        r'{"token": "a\"SECRET"}',
        "password: 'it''s SECRET'",
        'password="a SECRET, cut off',
        "password=abc,SECRET",
        "password=ab)SECRET",
        '"tokens": ["SECRET", "b"]',
        "yard login --token SECRET",
        "curl -u ana:SECRET https://example.org",
        "postgresql://yard:it'sSECRET@db/yard is no URL",
        "postgresql://yard:a/SECRET@db/yard is no URL",
        "https://example.org/prices?sig=SECRET&x=1",
        "https://example.org/prices?key=SECRET&x=1",
        "AWS_ACCESS_KEY_ID=SECRET",
        "db_pass: SECRET",
        "pw=SECRET",
        "https://hooks.slack.com/services/T0/B0/SECRET",
        "came with hf_SECRETabcdefghijklmnop from afar",
        "password_file: SECRET",
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
        "tokenizer: fast",
        "bypass=1",
        '{"token": null, "gpus": 8}',
        "http://127.0.0.1:7447/jobs asked by ana@box",
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


def test_a_word_that_a_variable_of_any_name_may_hold_is_no_secret() -> None:
    assert '{"ready": true, "x": false}' == Redactor(["true", "False"]).text('{"ready": true, "x": false}')


def test_a_known_secret_that_is_a_part_of_a_form_hides_no_form() -> None:
    key = "-----BEGIN PRIVATE KEY-----\nGEHEIM\n-----END PRIVATE KEY-----"
    assert REMOVED == Redactor(["-----BEGIN"]).text(key)


def test_a_form_is_looked_for_in_time_that_grows_with_the_text() -> None:
    """The log that is read may hold anything, and is 2 MiB long."""

    def seconds(length: int) -> float:
        begun = time.process_time()
        Redactor().text("token." * length)
        return time.process_time() - begun

    assert seconds(80_000) < 40 * max(seconds(8_000), 0.001)


def test_of_a_document_names_and_places_stay() -> None:
    given = {
        "logs": [{"url": "https://logs.example.org", "headers": {"X-Key": "SECRET"}, "token_file": "/etc/t"}],
        "auth": {"token_lifetime": "30d", "oidc": {"client_id": "yard", "client_secret": "SECRET"}},
        "other": {"password": 1234, "tokens": ["SECRET"], "none": None, "on": True},
        "credentials": {"user": "ana", "value": "SECRET"},
    }
    assert {
        "logs": [{"url": "https://logs.example.org", "headers": {"X-Key": REMOVED}, "token_file": "/etc/t"}],
        "auth": {"token_lifetime": "30d", "oidc": {"client_id": "yard", "client_secret": REMOVED}},
        "other": {"password": REMOVED, "tokens": [REMOVED], "none": None, "on": True},
        "credentials": REMOVED,
    } == Redactor().document(given)
