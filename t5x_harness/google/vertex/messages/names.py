"""Names of resources: kinds and collections, project numbers, parents and locations."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from google.protobuf.message import Message

from t5x_harness.google.identity import PROJECT_NUMBER, project_number
from t5x_harness.google.vertex.messages.paths import is_repeated, snake_case
from t5x_harness.google.vertex.state import StateStore
from t5x_harness.google.vertex.wire.rpc_table import Rpc, message_class

_RESOURCE = re.compile(r"projects/[^/\s\"]+/locations/[^/\s\"]+(?:/[A-Za-z]+/[^/\s\"]+)*(?:/[A-Za-z]+)?")
_PROJECT = re.compile(r"projects/([^/\s\"]+)(?=/locations/)")
_NUMBERS = "project-number/"
_LOCATION = re.compile(r"projects/[^/]+/locations/([^/]+)")
# In these messages and fields, a text that looks like a resource's name is the user's own.
_USERS_OWN = frozenset(("ContainerSpec", "PythonPackageSpec", "EnvVar"))
_USERS_FIELDS = frozenset(("display_name", "description", "uri", "value"))


class ProjectNames:
    """Maps the session's own project, and used ones, which the state remembers, to their numbers and back."""

    def __init__(self, state: StateStore, project: str) -> None:
        self._state = state
        self._project = project

    def number(self, project: str) -> str:
        """Returns a project's number, the same everywhere. A number is returned unchanged."""
        if project.isdigit() or project == "-":
            return project
        number = project_number(project)
        if project == self._project:
            return number
        self._state.create(f"{_NUMBERS}{number}", project.encode())
        return number

    def identifier(self, number: str) -> str:
        """Returns the id of the project with a number, or the number itself if no such project was used."""
        if number == PROJECT_NUMBER:
            return self._project
        found = self._state.get(f"{_NUMBERS}{number}")
        return found.decode() if found else number

    def identifiers(self) -> list[str]:
        """Returns the ids of the session's own project and of all projects that were used."""
        others = self._state.get_all(self._state.keys(_NUMBERS))
        return [self._project, *sorted(found.decode() for found in others if found)]

    def with_number(self, text: str) -> str:
        """Replaces the projects in a text's resource names with their numbers."""
        return _PROJECT.sub(lambda found: f"projects/{self.number(found[1])}", text)

    def normalize(self, request: Any) -> None:
        """Replaces projects with their numbers in all names in a request, and in its filter."""
        map_names(request, self.with_number)
        if getattr(request, "filter", ""):
            request.filter = self.with_number(request.filter)


def map_names(message: Any, change: Callable[[str], str]) -> None:
    """Applies ``change`` to each resource name in a message.

    Users' own texts are not changed: commands, variables, descriptions, metadata.
    """
    for field, value in message.ListFields():
        if (kind := field.message_type) is not None:
            is_theirs = kind.GetOptions().map_entry or kind.full_name.startswith("google.protobuf.")
            if not is_theirs and kind.name not in _USERS_OWN:
                for inner in value if is_repeated(field) else [value]:
                    map_names(inner, change)
        elif field.type == field.TYPE_STRING and field.name not in _USERS_FIELDS:
            if is_repeated(field):
                value[:] = [change(text) if _RESOURCE.fullmatch(text) else text for text in value]
            elif _RESOURCE.fullmatch(value):
                setattr(message, field.name, change(value))


def parent_of(name: str) -> str:
    """Returns ``projects/1/locations/l`` for ``projects/1/locations/l/customJobs/2``."""
    return name.rsplit("/", 2)[0]


def root_of(name: str) -> str:
    """Returns the metadata store or the Tensorboard that contains a resource, or that is the resource itself."""
    return "/".join(name.split("/")[:6])


def is_resource(parent: str) -> bool:
    """Returns whether a parent is a resource. Otherwise it is a project or a location, which always exists."""
    return len(parent.split("/")) > 4


def collection_of(name: str) -> str:
    """Returns ``customJobs`` for ``projects/1/locations/l/customJobs/2``."""
    return name.split("/")[-2]


def location_of(name: str) -> str:
    """Returns the location in a resource's name, such as ``us-central1``, or an empty string."""
    found = _LOCATION.match(name)
    return found[1] if found else ""


@dataclasses.dataclass(frozen=True)
class ResourceKind:
    """One kind of resource.

    Attributes:
      service: the service with its methods.
      name: the name of its message, such as ``CustomJob``.
      newest_first: whether lists put the newest first by default.
      page: the default size of a page.
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


# The page sizes are from the documentation of the requests.
_KINDS = (
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

KINDS: Mapping[str, ResourceKind] = MappingProxyType({kind.name: kind for kind in _KINDS})
"""The kinds by the names of their messages."""


_STANDARD = {
    f"{kind.service}.{verb}{kind.plural if verb == 'List' else kind.name}": (verb, kind)
    for kind in _KINDS
    for verb in ("Create", "Get", "List", "Update", "Delete")
}


def verb_of(rpc: Rpc) -> tuple[str, ResourceKind] | None:
    """Returns the verb and the kind of a standard method, or None for any other method."""
    return _STANDARD.get(rpc.name)
