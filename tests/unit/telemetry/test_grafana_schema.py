"""Grafana's own schema knows every part of every dashboard."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard as Schema

from gpuyard.telemetry.exports.grafana import dashboard_json
from gpuyard.telemetry.exports.panels import DASHBOARDS, Dashboard

register_default_plugins()


def unknown(ours: Any, theirs: Any, at: str = "") -> Iterator[str]:
    """What Grafana's own models lose of a dashboard when they read it: they have no such thing."""
    if isinstance(ours, dict):
        for key, value in ours.items():
            if value is not None and (not isinstance(theirs, dict) or key not in theirs):
                yield f"{at}.{key}"
            elif value is not None:
                yield from unknown(value, theirs[key], f"{at}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for place, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from unknown(one, other, f"{at}[{place}]")
    elif ours != theirs:
        yield f"{at}: {ours!r}, and not {theirs!r}"


def read_by_grafana(plain: dict[str, Any]) -> Any:
    return json.loads(JSONEncoder().encode(Schema.from_json(plain)))


@pytest.mark.parametrize("board", DASHBOARDS.values(), ids=DASHBOARDS)
def test_grafanas_own_schema_knows_every_part_of_a_dashboard(board: Dashboard) -> None:
    plain = json.loads(json.dumps(dashboard_json(board)))

    assert [] == list(unknown(plain, read_by_grafana(plain)))
    panels = plain["panels"]
    assert list(range(1, len(panels) + 1)) == [each["id"] for each in panels]
    cells = [
        (x, y)
        for each in panels
        for x in range(each["gridPos"]["x"], each["gridPos"]["x"] + each["gridPos"]["w"])
        for y in range(each["gridPos"]["y"], each["gridPos"]["y"] + each["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells)), "no panel lies on another"
    assert max(cells)[0] < 24


def test_a_part_that_grafana_does_not_have_is_found() -> None:
    plain = dashboard_json(DASHBOARDS["queue"])
    plain["panels"][0]["options"]["colour"] = "blue"
    plain["panels"][0]["gridpos"] = {}

    assert [".panels[0].options.colour", ".panels[0].gridpos"] == list(unknown(plain, read_by_grafana(plain)))
