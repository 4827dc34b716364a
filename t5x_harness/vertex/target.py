"""Where jobs go: the project, location, bucket and image that all jobs of a project share.

Each value is given with the job, in the environment (``T5X_HARNESS_VERTEX_PROJECT``, …) or in the project's file::

    [tool.t5x_harness.vertex]
    project = "my-project"
    location = "us-central1"
    bucket = "my-bucket"
    image = "us-docker.pkg.dev/my-project/t5x/t5x:1"
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from t5x_harness.system.texts import unfit
from t5x_harness.variables import VERTEX_PREFIX

_TABLE = "[tool.t5x_harness.vertex]"
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_FORMS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "project": (  # may begin with a domain, or be a number
            r"[a-z0-9][a-z0-9.:-]*",
            "is not a project's id: give it as in the console, such as my-project-123, and not its name",
        ),
        "location": (r"[a-z]+(?:-[a-z]+)+\d+", "is not a region: give one such as us-central1, not a zone"),
        "bucket": (
            r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]",
            "is not a bucket's name: give the name alone, as my-bucket of gs://my-bucket/folder",
        ),
        "image": (
            rf"(?:[\w.-]+(?::\d+)?/)?{_PART}(?:/{_PART})*(?::[\w][\w.-]*)?(?:@sha256:[0-9a-f]{{64}})?",
            "is not an image's URI: give one such as us-docker.pkg.dev/my-project/t5x/t5x:1",
        ),
        "service_account": (
            r"[^@\s]+@[^@\s]+\.[^@\s]+|\d{8,}",
            "is not an account: give its address, such as trainer@my-project.iam.gserviceaccount.com",
        ),
        "experiment": (  # the remaining characters are for the name of the run
            r"[a-z0-9][a-z0-9-]{0,97}",
            "is not a valid name: lowercase letters, digits and -, at most 98",
        ),
        "tensorboard": (
            r"(?:projects/[^/\s]+/locations/[^/\s]+/tensorboards/)?[\w-]+",
            "is not a TensorBoard: give its number, or projects/PROJECT/locations/LOCATION/tensorboards/NUMBER",
        ),
    }
)
"""The pattern of each field's values, and what to say of a value that it does not match."""

LONGEST_RUN = 121
"""The most characters that Google's SDK allows for the names of an experiment and one of its runs, joined by ``-``."""

DEFAULT_MAX_CHIP_HOURS = 16.0
"""The chip-hours that a job may use by default: four hours of a v3-8, or one hour of a v3-32."""


class VertexTargetError(ValueError):
    """No job can be sent with these values; the message names all missing values, or the one that is wrong.

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
      project: the id of the Google Cloud project that pays.
      location: the region whose machines are used, such as ``us-central1``.
      bucket: the name of a bucket in that region for staged files and results.
      image: the URI of the container image whose entry point is T5X's ``main.py``.
      service_account: the account that jobs act as; None for Vertex AI's own. TPU jobs cannot have another one.
      experiment: the Vertex AI experiment in which runs are tracked.
      tensorboard: the id or resource name of the Vertex AI TensorBoard that event files are uploaded to.
      image_python_path: the image's own PYTHONPATH, with ``:`` between folders. A job's variable replaces the image's
        own, so the path is repeated there.

    Raises:
      VertexTargetError: a value is invalid, or a required value is empty.
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
            names = ", ".join(missing)
            raise VertexTargetError(
                f"no Vertex AI target: {names} {'is' if len(missing) == 1 else 'are'} not set; "
                f"set {', '.join(map(variable_of, missing))}, or write {names} into {_TABLE} of pyproject.toml",
                missing,
            )
        for name in FIELDS:
            value = getattr(self, name)
            if value is not None and (fault := fault_of(name, value)):
                raise VertexTargetError(f"{name} {fault}")

    @property
    def where(self) -> dict[str, str]:
        """The project and the location as arguments of the SDK."""
        return {"project": self.project, "location": self.location}

    @property
    def parent(self) -> str:
        """``projects/PROJECT/locations/LOCATION``, the prefix of resource names."""
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
"""The defaults for jobs of the emulated Google Cloud."""


PLACEHOLDERS: Mapping[str, str] = MappingProxyType(
    {
        "project": "your-project",
        "location": "your-region1",
        "bucket": "your-bucket",
        "image": "us-docker.pkg.dev/your-project/t5x/t5x:your-tag",
    }
)
"""The values that a dry run uses for required values that are not given."""


def placeholders_in(target: VertexTarget, option_of: Callable[[str], str]) -> str:
    """Returns a line that names the placeholders in a dry run's target; empty if there are none.

    Args:
      target: the target of the dry run.
      option_of: returns the name of the option for a field.
    """
    named = [name for name, value in PLACEHOLDERS.items() if getattr(target, name) == value]
    if not named:
        return ""
    ways = ", ".join(f"{name} ({option_of(name)} or {variable_of(name)})" for name in named)
    return f"placeholders, to be given before it is sent: {ways}"


def fault_of(field: str, value: Any) -> str:
    """Returns what is wrong with the value of a field of a target, in words that follow its name; empty if nothing."""
    if not isinstance(value, str):
        return f"{value!r} is not a text"
    if not value.strip():
        return f"{value!r} is empty"
    if why := unfit(value):
        return f"{value!r} {why}"
    pattern, wrong = _FORMS.get(field, ("", ""))
    return f"{value!r} {wrong}" if pattern and not re.fullmatch(pattern, value, re.ASCII) else ""


def find_target(
    given: Mapping[str, str | None],
    environment: Mapping[str, str],
    project: Mapping[str, str],
    otherwise: Mapping[str, str] = MappingProxyType({}),
) -> VertexTarget:
    """Finds the target in all places that may configure a part of it.

    Args:
      given: values given with the job, by field; None and absent values are looked up elsewhere.
      environment: the environment variables of the process.
      project: the table of the project's file: ``ProjectConfig.vertex``.
      otherwise: the defaults, such as :data:`EMULATED`.

    Raises:
      VertexTargetError: values are missing, in which case the message names all of them; or one is wrong.
    """
    found: dict[str, Any] = {}
    for name in FIELDS:
        variable = variable_of(name)
        places = {
            name: given.get(name),
            variable: environment.get(variable),
            f"{name} of {_TABLE}": project.get(name),
            f"default {name}": otherwise.get(name),
        }
        place, found[name] = next(((place, value) for place, value in places.items() if value), ("", None))
        if place and (fault := fault_of(name, found[name])):
            raise VertexTargetError(f"{place} {fault}")
    found |= {name: found[name] or "" for name in REQUIRED}  # reported together with all other missing values
    return VertexTarget(**found)


def variable_of(field: str) -> str:
    """Returns the name of the variable for a field: ``T5X_HARNESS_VERTEX_PROJECT``."""
    return f"{VERTEX_PREFIX}{field.upper()}"
