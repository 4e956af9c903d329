"""Files for Prometheus, Grafana and Fluent Bit: what they say."""

import yaml

from gpuyard.config.reading import loads
from gpuyard.telemetry.exports.fluent_bit import fluent_bit_file
from gpuyard.telemetry.exports.panels import DASHBOARDS
from gpuyard.telemetry.exports.prometheus import Target, scrape_file


def test_variables_of_queries_are_those_that_can_be_chosen() -> None:
    for board in DASHBOARDS.values():
        names = {each.name for each in board.variables}
        used = {name for name in ("node", "tenant") for panel in board.panels if f"${name}" in panel.query}
        assert used == names, board.name


def test_the_scrape_file_has_every_server_with_its_scheme() -> None:
    text = scrape_file(
        [Target("a:7447", True), Target("[::1]:7447"), Target("b:443", True)], "/t: x", "/ca.pem"
    )
    secure, plain = yaml.safe_load(text)["scrape_configs"]

    assert ("https", ["a:7447", "b:443"]) == (secure["scheme"], secure["static_configs"][0]["targets"])
    assert ("http", ["[::1]:7447"]) == (plain["scheme"], plain["static_configs"][0]["targets"])
    assert {"credentials_file": "/t: x"} == secure["authorization"] == plain["authorization"]
    assert ({"ca_file": "/ca.pem"}, False) == (secure["tls_config"], "tls_config" in plain)
    assert ({"15s"}, 2) == (
        {each["scrape_interval"] for each in (secure, plain)},
        len({secure["job_name"], plain["job_name"]}),
    )


def test_fluent_bit_listens_where_the_yard_is_told_to_send() -> None:
    text = fluent_bit_file("10.0.0.5", 4319)
    (takes,) = yaml.safe_load(text)["pipeline"]["inputs"]
    (gives,) = yaml.safe_load(text)["pipeline"]["outputs"]
    told = [line[2:] for line in text.splitlines() if line.startswith("#   ")]
    config = loads(
        "version: 1\nclusters: {main: {gpus: 8 x A100-80GB, emulate: true}}\n"
        + "\n".join(each[2:] for each in told)
    )

    assert ("10.0.0.5", 4319, "gpuyard.jobs") == (takes["listen"], takes["port"], takes["tag"])
    assert takes["tag"] == gives["match"]
    assert ["http://10.0.0.5:4319"] == [sink.url for sink in config.sinks]
