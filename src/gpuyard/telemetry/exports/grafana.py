"""Dashboards as the JSON that Grafana imports, or finds in a folder; made from the table in `panels`."""

from typing import Any

from gpuyard.telemetry.exports.panels import CELLS, FIGURE, HEAT, LINES, STACKED, Dashboard, Panel, Variable

SCHEMA = 39
"""Of Grafana 11. Later releases bring older dashboards up to date when they load them."""
_SOURCE = {"type": "prometheus", "uid": "${source}"}
_WIDTH = 24


def dashboard_json(board: Dashboard) -> dict[str, Any]:
    """One dashboard."""
    return {
        "uid": f"gpuyard-{board.name}",
        "title": f"gpuyard: {board.title}",
        "description": board.about,
        "tags": ["gpuyard"],
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "schemaVersion": SCHEMA,
        "templating": {"list": [_source(), *[_variable(each) for each in board.variables]]},
        "links": [
            {
                "type": "dashboards",
                "title": "gpuyard",
                "tags": ["gpuyard"],
                "asDropdown": True,
                "keepTime": True,
                "includeVars": False,
                "targetBlank": False,
                "icon": "",
                "tooltip": "",
                "url": "",
            }
        ],
        "panels": _laid_out(board.panels),
    }


def _source() -> dict[str, Any]:
    """Which Prometheus: so that the dashboard loads wherever it is taken."""
    return {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _variable(each: Variable) -> dict[str, Any]:
    return {
        "name": each.name,
        "label": each.title,
        "type": "query",
        "datasource": _SOURCE,
        "query": f"label_values({each.metric}, {each.label})",
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _laid_out(panels: tuple[Panel, ...]) -> list[dict[str, Any]]:
    """From left to right, row by row."""
    found: list[dict[str, Any]] = []
    x = y = height = 0
    for number, panel in enumerate(panels, start=1):
        kind = panel.kind
        if x + kind.width > _WIDTH:
            x, y, height = 0, y + height, 0
        found.append(_panel(number, panel, {"x": x, "y": y, "w": kind.width, "h": kind.height}))
        x, height = x + kind.width, max(height, kind.height)
    return found


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "id": number,
        "type": panel.kind.type,
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": place,
        "targets": [
            {
                "refId": "A",
                "datasource": _SOURCE,
                "expr": panel.query,
                "legendFormat": panel.legend,
                "format": panel.kind.format,
                "range": True,
            }
        ],
        "fieldConfig": {"defaults": _field(panel), "overrides": []},
        "options": _options(panel),
    }
    if panel.help:
        made["description"] = panel.help
    return made


def _field(panel: Panel) -> dict[str, Any]:
    found: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.kind.type == LINES.type:
        stacked = panel.kind is STACKED
        found["custom"] = {
            "lineWidth": 1,
            "fillOpacity": 30 if stacked else 5,
            "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        }
    orange, red = panel.hot
    steps: list[dict[str, Any]] = [{"value": None, "color": "green"}]
    if red:
        steps += [{"value": orange, "color": "orange"}] if orange < red else []
        steps.append({"value": red, "color": "red"})
        if panel.kind.type != LINES.type:
            found["color"] = {"mode": "thresholds"}
    found["thresholds"] = {"mode": "absolute", "steps": steps}
    return found


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind is CELLS:
        return {"showValue": "auto", "rowHeight": 0.9}
    if panel.kind is HEAT:
        return {"calculate": False}
    if panel.kind is FIGURE:
        return {"reduceOptions": {"calcs": ["lastNotNull"], "values": False}, "colorMode": "value"}
    if panel.kind.type == LINES.type:
        return {
            "legend": {
                "displayMode": "table",
                "placement": "right",
                "calcs": ["mean", "max"],
                "showLegend": True,
            }
        }
    return {"reduceOptions": {"calcs": ["lastNotNull"], "values": False}, "orientation": "horizontal"}
