"""Where jobs go: the project, location, bucket and image that every job of a project shares.

Each value is given with the job, else by the environment (``T5X_HARNESS_VERTEX_PROJECT``, …), else by the project's
file::

    [tool.t5x_harness.vertex]
    project = "my-project"
    location = "us-central1"
    bucket = "my-bucket"
    image = "us-docker.pkg.dev/my-project/t5x/t5x:1"
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from t5x_harness.variables import VERTEX_PREFIX

_TABLE = "[tool.t5x_harness.vertex]"
_PROJECT = re.compile(r"[a-z0-9][a-z0-9.:-]*")  # with the domain in front, or by its number, too
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
LONGEST_RUN = 121
"""Characters that Google's SDK allows for the names of an experiment and one of its runs, with ``-`` between them."""

_EXPERIMENT = re.compile(r"[a-z0-9][a-z0-9-]{0,97}")  # a run's own name needs the rest
_LOCATION = re.compile(r"[a-z]+(?:-[a-z]+)+\d+")


class VertexTargetError(ValueError):
    """No job can be sent with these values; the message names everything that is missing, or the one that is wrong.

    Attributes:
      missing: the fields that are not set.
    """

    def __init__(self, message: str, missing: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.missing = missing


@dataclasses.dataclass(frozen=True)
class VertexTarget:
    """Where jobs go.

    Attributes:
      project: id of the Google Cloud project that pays.
      location: the region whose machines are used, such as ``us-central1``.
      bucket: name of the bucket, in that region, that staged files and results are kept in.
      image: URI of the container image whose entry point is T5X's ``main.py``.
      service_account: the account that jobs act as; None for Vertex AI's own. TPU jobs cannot have another one.
      experiment: the Vertex AI experiment that runs are tracked in.
      tensorboard: id or resource name of the Vertex AI TensorBoard that event files are uploaded to.
      image_python_path: what the image's own PYTHONPATH holds, with ``:`` between folders. A job's variable replaces
        the image's, so it is repeated there.

    Raises:
      VertexTargetError: a value cannot be one; required ones may not be empty.
    """

    project: str
    location: str
    bucket: str
    image: str
    service_account: str | None = None
    experiment: str | None = None
    tensorboard: str | None = None
    image_python_path: str | None = None

    def __post_init__(self) -> None:
        if missing := tuple(name for name in REQUIRED if not getattr(self, name)):
            raise VertexTargetError(_not_set(missing), missing)
        if not _PROJECT.fullmatch(self.project):
            raise VertexTargetError(
                f"project {self.project!r} is not a project's id: give it as in the console, such as my-project-123, "
                "and not its name"
            )
        if self.bucket.startswith("gs://") or not _BUCKET.fullmatch(self.bucket):
            raise VertexTargetError(
                f"bucket {self.bucket!r} is not a bucket's name: give the name alone, as my-bucket of gs://my-bucket/folder"
            )
        if not _LOCATION.fullmatch(self.location):
            raise VertexTargetError(
                f"location {self.location!r} is not a region: give one such as us-central1, not a zone"
            )
        if self.experiment is not None and not _EXPERIMENT.fullmatch(self.experiment):
            raise VertexTargetError(
                f"experiment {self.experiment!r} is not a name of one: lowercase letters, digits and -, at most 98"
            )

    @property
    def parent(self) -> str:
        """``projects/PROJECT/locations/LOCATION``, which the resources' names begin with."""
        return f"projects/{self.project}/locations/{self.location}"


FIELDS = tuple(field.name for field in dataclasses.fields(VertexTarget))
REQUIRED = tuple(field.name for field in dataclasses.fields(VertexTarget) if field.default is dataclasses.MISSING)

EMULATED: Mapping[str, str] = MappingProxyType(
    {
        "project": "t5x-harness",
        "location": "us-central1",
        "bucket": "t5x-harness-jobs",
        "image": "us-docker.pkg.dev/t5x-harness/t5x/t5x:emulated",
    }
)
"""What stands for values that are not given where jobs go to the emulated Google Cloud."""


PLACEHOLDERS: Mapping[str, str] = MappingProxyType(
    {
        "project": "your-project",
        "location": "your-region1",
        "bucket": "your-bucket",
        "image": "us-docker.pkg.dev/your-project/t5x/t5x:your-tag",
    }
)
"""What stands in a dry run for required values that nobody gives."""


def placeholders_in(target: VertexTarget, option_of: Callable[[str], str]) -> str:
    """Returns which values of a dry run's target stand for some that nobody gave, as a line for people; empty for none.

    Args:
      target: its own.
      option_of: the name of the option for a field.
    """
    named = [name for name, value in PLACEHOLDERS.items() if getattr(target, name) == value]
    if not named:
        return ""
    ways = ", ".join(f"{name} ({option_of(name)} or {variable_of(name)})" for name in named)
    return f"placeholders, to be given before it is sent: {ways}"


def find_target(
    given: Mapping[str, str | None],
    environment: Mapping[str, str],
    project: Mapping[str, str],
    otherwise: Mapping[str, str] = MappingProxyType({}),
) -> VertexTarget:
    """Returns the target out of everything that may name a part of it.

    Args:
      given: values of the one who starts the job, by field; None and absent ones are looked for elsewhere.
      environment: variables of the process.
      project: the table of the project's file: ``ProjectConfig.vertex``.
      otherwise: what to take for values that nobody gives, such as :data:`EMULATED`.

    Raises:
      VertexTargetError: values are missing, all of which the message names, or one is wrong.
    """
    found: dict[str, Any] = {
        name: given.get(name) or environment.get(variable_of(name)) or project.get(name) or otherwise.get(name)
        for name in FIELDS
    }
    found |= {name: found[name] or "" for name in REQUIRED}  # refused with all others that are missing
    return VertexTarget(**found)


def variable_of(field: str) -> str:
    """Returns the variable that may hold a field: ``T5X_HARNESS_VERTEX_PROJECT``."""
    return f"{VERTEX_PREFIX}{field.upper()}"


def _not_set(names: Sequence[str]) -> str:
    variables = ", ".join(variable_of(name) for name in names)
    return (
        f"no Vertex AI target: {', '.join(names)} {'is' if len(names) == 1 else 'are'} not set; "
        f"set {variables}, or write {', '.join(names)} into {_TABLE} of pyproject.toml"
    )
