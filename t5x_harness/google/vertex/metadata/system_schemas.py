"""The schemas that every metadata store has from the beginning.

Vertex AI publishes them under the namespaces ``system`` and ``google``, all in version 0.0.1. Named here are those that
its documentation, its SDK and the artifact types of pipelines name; properties are those that the documentation lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from google.cloud.aiplatform_v1.types import metadata_schema

VERSION = "0.0.1"

_ARTIFACTS = (
    "system.Artifact",
    "system.ClassificationMetrics",
    "system.Dataset",
    "system.HTML",
    "system.Markdown",
    "system.Metrics",
    "system.Model",
    "system.SlicedClassificationMetrics",
    "google.BQMLModel",
    "google.BQTable",
    "google.ClassificationMetrics",
    "google.ExperimentModel",
    "google.ForecastingMetrics",
    "google.RegressionMetrics",
    "google.UnmanagedContainerModel",
    "google.VertexBatchPredictionJob",
    "google.VertexDataset",
    "google.VertexEndpoint",
    "google.VertexModel",
    "google.VertexTensorboardRun",
)
_EXECUTIONS = (
    "system.ContainerExecution",
    "system.CustomJobExecution",
    "system.DagExecution",
    "system.ImporterExecution",
    "system.ResolverExecution",
    "system.Run",
)
_CONTEXTS = ("system.Experiment", "system.ExperimentRun", "system.Pipeline", "system.PipelineRun")

_PROPERTIES = {
    "system.Dataset": {"container_format": "string", "payload_format": "string"},
    "system.Model": {"framework": "string", "framework_version": "string", "payload_format": "string"},
    "system.Metrics": {
        "accuracy": "number",
        "precision": "number",
        "recall": "number",
        "f1score": "number",
        "mean_absolute_error": "number",
        "mean_squared_error": "number",
    },
}

_BEFORE_A_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def system_schemas() -> Iterator[metadata_schema.MetadataSchema]:
    """Yields them, without names."""
    kinds = metadata_schema.MetadataSchema.MetadataSchemaType
    for kind, titles in (
        (kinds.ARTIFACT_TYPE, _ARTIFACTS),
        (kinds.EXECUTION_TYPE, _EXECUTIONS),
        (kinds.CONTEXT_TYPE, _CONTEXTS),
    ):
        for title in titles:
            yield metadata_schema.MetadataSchema(schema_version=VERSION, schema=_text(title), schema_type=kind)


def schema_id(title: str, version: str) -> str:
    """The id under which a store has a schema: ``google-vertex-model-v0-0-1``."""
    namespace, _, name = title.partition(".")
    words = _BEFORE_A_WORD.split(name)
    return "-".join([namespace, *words, "v" + version.replace(".", "-")]).lower().replace("_", "-")


def _text(title: str) -> str:
    lines = [f"title: {title}", "type: object"]
    if properties := _PROPERTIES.get(title):
        lines.append("properties:")
        for name, kind in properties.items():
            lines += [f"  {name}:", f"    type: {kind}"]
    return "\n".join(lines) + "\n"
