"""The JSON Schema of `yard.yaml`, so that an editor completes keys, explains them and marks mistakes."""

from typing import Any

from pydantic import BaseModel, create_model
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from gpuyard.config.schema import YardFile, make_cluster_model, models_beside
from gpuyard.keys.fields import Name
from gpuyard.policies import registry


def json_schema() -> dict[str, Any]:
    """The schema, for a line `# yaml-language-server: $schema=…` at the top of a file."""
    schema = _whole_file().model_json_schema(schema_generator=_Generator)
    for entry in schema["$defs"].values():
        # The name of our class means nothing to the reader of a file.
        entry.pop("title")
    cluster = schema["$defs"]["ClusterEntry"]["properties"]
    for model in models_beside():
        keys = schema["$defs"][model.__name__]["properties"]
        cluster |= {name: {**entry, "deprecated": True} for name, entry in keys.items()}
    registry.add_installed()
    policy = schema["$defs"]["PolicyEntry"]["properties"]
    policy["placement"]["enum"] = list(registry.PLACEMENTS)
    policy["backfill"]["enum"] = list(registry.BACKFILLS)
    policy["order"]["items"]["enum"] = list(registry.ORDERS)
    policy["preemption"]["items"]["enum"] = list(registry.PREEMPTIONS)
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        **schema,
        "title": "gpuyard configuration (yard.yaml)",
    }


def _whole_file() -> type[BaseModel]:
    """The schema of a file with the keys of engines."""
    cluster: Any = make_cluster_model()
    clusters = (dict[Name, cluster], YardFile.model_fields["clusters"])
    return create_model("YardFile", __base__=YardFile, __doc__=YardFile.__doc__, clusters=clusters)


class _Generator(GenerateJsonSchema):
    """JSON Schema as a person would write it for this file."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """A key's name says as much as a title made from it."""
        return False

    def nullable_schema(self, schema: core_schema.NullableSchema) -> dict[str, Any]:
        """`None` in the models means that the key is absent; in a file it is not a value."""
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> dict[str, Any]:
        """For the same reason `None` is no default; the real ones are given with the fields."""
        return self.generate_inner(schema["schema"])

    def dict_schema(self, schema: core_schema.DictSchema) -> dict[str, Any]:
        """A mapping with a pattern for its keys takes no others."""
        shown = super().dict_schema(schema)
        if "patternProperties" in shown:
            shown["additionalProperties"] = False
        return shown
