"""Logins are tried by strangers: what they send is small."""

from pathlib import Path

from rigs.teams import CONFIG, team

PROVIDER = """
  oidc: {issuer: "https://id.example", client_id: yard}
"""


def test_a_login_is_small(tmp_path: Path) -> None:
    with team(tmp_path, CONFIG.rstrip() + PROVIDER) as yard:
        body = {"id_token": "x" * 70_000, "nonce": "n" * 32}
        answer = yard.call("POST", "/api/v1/login/oidc", body=body)
        assert (413, "the request is larger than 64 KiB") == (answer.status, answer.json["detail"])
