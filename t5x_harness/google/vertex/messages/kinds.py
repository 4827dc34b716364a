"""The kinds of resources that are complete here, and what their lists and ids are like."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from t5x_harness.google.vertex.messages.paths import snake_case
from t5x_harness.google.vertex.wire.rpc_table import Rpc

Verb = str
_VERBS: tuple[Verb, ...] = ("Create", "Get", "List", "Update", "Delete")


@dataclasses.dataclass(frozen=True)
class ResourceKind:
    """One kind of resource.

    Attributes:
      service: that has its methods.
      name: of its message, such as ``CustomJob``.
      plural: as in ``ListCustomJobs``.
      collection: in names, such as ``customJobs``.
      newest_first: whether lists begin with the newest where no order is asked for.
      page: how many a page has where no size is asked for.
      largest_page: how many a page has at most.
      capitals: whether ids may have capital letters. The reference speaks of small ones alone, but the SDK's uploader
        names runs and their nodes after folders, and leaves capitals as they are.
    """

    service: str
    name: str
    plural: str
    collection: str
    newest_first: bool = False
    page: int = 100
    largest_page: int = 1000
    capitals: bool = False

    @property
    def field(self) -> str:
        """Of requests that hold one: ``custom_job``."""
        return snake_case(self.name)


# Sizes of pages are those that the requests' own documentation tells.
_ALL = (
    ResourceKind("JobService", "CustomJob", "CustomJobs", "customJobs", newest_first=True),
    ResourceKind(
        "JobService",
        "HyperparameterTuningJob",
        "HyperparameterTuningJobs",
        "hyperparameterTuningJobs",
        newest_first=True,
    ),
    ResourceKind("PipelineService", "TrainingPipeline", "TrainingPipelines", "trainingPipelines", newest_first=True),
    ResourceKind("MetadataService", "MetadataStore", "MetadataStores", "metadataStores"),
    ResourceKind("MetadataService", "MetadataSchema", "MetadataSchemas", "metadataSchemas"),
    ResourceKind("MetadataService", "Artifact", "Artifacts", "artifacts", capitals=True),
    ResourceKind("MetadataService", "Execution", "Executions", "executions", capitals=True),
    ResourceKind("MetadataService", "Context", "Contexts", "contexts", capitals=True),
    ResourceKind("TensorboardService", "Tensorboard", "Tensorboards", "tensorboards", largest_page=100),
    ResourceKind("TensorboardService", "TensorboardExperiment", "TensorboardExperiments", "experiments", page=50),
    ResourceKind("TensorboardService", "TensorboardRun", "TensorboardRuns", "runs", page=50, capitals=True),
    ResourceKind("TensorboardService", "TensorboardTimeSeries", "TensorboardTimeSeries", "timeSeries", page=1000),
)

KINDS: Mapping[str, ResourceKind] = MappingProxyType({kind.name: kind for kind in _ALL})
"""By the name of their message."""


def verb_of(rpc: Rpc) -> tuple[Verb, ResourceKind] | None:
    """Returns what a method does to which kind; None if it is none of the five that every kind has."""
    for verb in _VERBS:
        if rpc.method.startswith(verb):
            rest = rpc.method.removeprefix(verb)
            for kind in _ALL:
                if kind.service == rpc.service and rest == (kind.plural if verb == "List" else kind.name):
                    return verb, kind
    return None
