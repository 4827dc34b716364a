"""The kinds of resources that have all standard methods, and the properties of their lists and ids."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from google.protobuf.message import Message

from t5x_harness.google.vertex.messages.paths import snake_case
from t5x_harness.google.vertex.wire.rpc_table import Rpc, message_class

Verb = str
_VERBS: tuple[Verb, ...] = ("Create", "Get", "List", "Update", "Delete")


@dataclasses.dataclass(frozen=True)
class ResourceKind:
    """One kind of resource.

    Attributes:
      service: the service with its methods.
      name: the name of its message, such as ``CustomJob``.
      plural: the plural in ``ListCustomJobs``.
      collection: the collection in names, such as ``customJobs``.
      newest_first: whether lists put the newest first by default.
      page: the size of a page by default.
      largest_page: the largest size of a page.
      capitals: whether ids may have capital letters. The reference mentions only small letters, but the SDK's uploader
        names runs and their nodes after folders, and keeps the capitals.
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
        """The field of requests for one resource, such as ``custom_job``."""
        return snake_case(self.name)

    @property
    def message(self) -> type[Message]:
        """The class of its message."""
        return message_class(self.name)


# The sizes of pages are from the documentation of the requests.
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
"""The kinds by the names of their messages."""


def verb_of(rpc: Rpc) -> tuple[Verb, ResourceKind] | None:
    """Returns the verb and the kind of a standard method, or None for any other method."""
    for verb in _VERBS:
        if rpc.method.startswith(verb):
            rest = rpc.method.removeprefix(verb)
            for kind in _ALL:
                if kind.service == rpc.service and rest == (kind.plural if verb == "List" else kind.name):
                    return verb, kind
    return None
