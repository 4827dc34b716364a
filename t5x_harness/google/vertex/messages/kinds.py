"""The kinds of resources that have all standard methods, and the properties of their lists and ids."""

from __future__ import annotations

import dataclasses
import re
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
      newest_first: whether lists put the newest first by default.
      page: the size of a page by default.
      largest_page: the largest size of a page.
      capitals: whether ids may have capital letters. The reference mentions only small letters, but the SDK's uploader
        names runs and their nodes after folders, and keeps the capitals.
    """

    service: str
    name: str
    newest_first: bool = False
    page: int = 100
    largest_page: int = 1000
    capitals: bool = False

    @property
    def plural(self) -> str:
        """The plural in the name of the List method, such as ``CustomJobs``."""
        return self.name if self.name.endswith("Series") else f"{self.name}s"

    @property
    def collection(self) -> str:
        """The collection in names, such as ``customJobs``, and ``runs`` for TensorboardRun."""
        plural = re.sub(r"^Tensorboard(?=[A-Z])", "", self.plural)
        return plural[0].lower() + plural[1:]

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
    ResourceKind("JobService", "CustomJob", newest_first=True),
    ResourceKind("JobService", "HyperparameterTuningJob", newest_first=True),
    ResourceKind("PipelineService", "TrainingPipeline", newest_first=True),
    ResourceKind("MetadataService", "MetadataStore"),
    ResourceKind("MetadataService", "MetadataSchema"),
    ResourceKind("MetadataService", "Artifact", capitals=True),
    ResourceKind("MetadataService", "Execution", capitals=True),
    ResourceKind("MetadataService", "Context", capitals=True),
    ResourceKind("TensorboardService", "Tensorboard", largest_page=100),
    ResourceKind("TensorboardService", "TensorboardExperiment", page=50),
    ResourceKind("TensorboardService", "TensorboardRun", page=50, capitals=True),
    ResourceKind("TensorboardService", "TensorboardTimeSeries", page=1000),
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
