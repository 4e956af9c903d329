"""The GPUs that a machine without any pretends to have, and the text that says so in yard.yaml.

Whatever asks for such a file shows this text: a refusal of the file, of a job, and a note of `yard up`.
"""

from collections.abc import Mapping

STAND_IN_GPUS, STAND_IN_MODEL = 8, "A100-80GB"

STAND_IN_CLUSTERS: Mapping[str, object] = {
    "box": {"engine": "local", "gpus": f"{STAND_IN_GPUS} x {STAND_IN_MODEL}", "emulate": True}
}


def value_text(value: object) -> str:
    """A value as yard.yaml may have it, on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join([f"{key}: {value_text(inner)}" for key, inner in value.items()]) + "}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def clusters_text(clusters: Mapping[str, object] = STAND_IN_CLUSTERS) -> str:
    """`clusters: {box: {engine: local, gpus: 8 x A100-80GB, emulate: true}}`."""
    return f"clusters: {value_text(clusters)}"
