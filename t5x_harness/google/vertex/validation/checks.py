"""The checks of rules, by name. The checks of machines are in ``machines``.

A check of values is given one value of the rule's field, a check of pools one worker pool, and a check of jobs the
whole job, each with the rule. It returns the values for the rule's message if the rule is broken, and None otherwise.
"""

import difflib
import functools
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from t5x_harness.google.vertex.validation.machine_types import (
    generation_of,
    may_have_tpu,
    tpu_regions,
    training_regions,
)
from t5x_harness.google.vertex.validation.rules import Breach, Check, PoolSpec, SpecRule, Subject

Values: TypeAlias = Mapping[str, Any]
Broken: TypeAlias = Callable[[Any, SpecRule], Values | None]
Places: TypeAlias = Callable[[Subject, SpecRule], Iterable[tuple[str, Any]]]

CHECKS: dict[str, Check] = {}
"""All checks by their names in ``rules.toml``; filled while this package's modules are imported."""

_LABEL = re.compile(r"[\w-]*")
_ZONE = re.compile(r"(.+\d)-[a-z]")
_NETWORK = re.compile(r"projects/([^/]+)/global/networks/[^/]+")
_MAX_LABELS, _LABEL_CHARACTERS, _LABEL_BYTES = 64, 64, 128
_RANGES = ("double_value_spec", "integer_value_spec")
_GCS_URI = re.compile(r"gs://[a-z0-9][a-z0-9._-]*(/\S*)?")


def checking(places: Places, broken: Broken) -> Check:
    """Makes a check from a function that examines each of the values that ``places`` finds."""

    @functools.wraps(broken)
    def check(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
        for at, value in places(subject, rule):
            if (values := broken(value, rule)) is not None:
                yield at, values

    return check


def enter(check: Check) -> Check:
    """Registers a check under its name."""
    CHECKS[check.__name__] = check
    return check


def values_of(subject: Subject, rule: SpecRule) -> Iterator[tuple[str, Any]]:
    """Yields each value of the rule's field."""
    return subject.resolve(rule.field)


def _pools_of(subject: Subject, rule: SpecRule) -> Iterator[tuple[str, PoolSpec]]:
    """Yields each worker pool, for a rule about a field of each."""
    below = rule.field.partition("]")[2]
    return ((f"{pool.path}{below}", pool) for pool in subject.pools)


def _job_of(subject: Subject, rule: SpecRule) -> list[tuple[str, Subject]]:
    """Returns the job as a whole."""
    return [(re.sub(r"^spec\b", subject.spec_field, rule.field), subject)]


def _entered(places: Places, broken: Broken) -> Check:
    return enter(checking(places, broken))


value_check, pool_check, job_check = (functools.partial(_entered, each) for each in (values_of, _pools_of, _job_of))

_OF_VALUES: Mapping[str, Broken] = {
    # The field has a value.
    "required": lambda value, _: None if value else {},
    # The field has no value.
    "must_be_unset": lambda value, _: {"value": value} if value else None,
    # The text has at most ``limit`` characters, or the list at most ``limit`` elements.
    "max_length": lambda value, rule: {"value": len(value)} if len(value) > rule.parameters["limit"] else None,
    # The texts have at most ``limit`` characters together.
    "total_length": lambda texts, rule: (
        {"value": total} if (total := sum(map(len, texts))) > rule.parameters["limit"] else None
    ),
    # The number is between ``low`` and ``high``; 0 stands for the default.
    "between": lambda value, rule: (
        {"value": value} if value and not rule.parameters["low"] <= value <= rule.parameters["high"] else None
    ),
    # The parameter specifies the values that it may have.
    "parameter_values": lambda parameter, _: {} if parameter.WhichOneof("parameter_value_spec") is None else None,
    # The number is at least ``low``.
    "at_least": lambda value, rule: {"value": value} if value < rule.parameters["low"] else None,
}
_OF_JOBS: Mapping[str, Broken] = {
    # The field is set if the field ``other`` is.
    "required_with": lambda job, rule: {} if job.has(rule.parameters["other"]) and not job.has(rule.field) else None,
    # The field is set only if the field ``other`` is.
    "only_with": lambda job, rule: {} if job.has(rule.field) and not job.has(rule.parameters["other"]) else None,
    # The field is not set if the field ``other`` is.
    "not_with": lambda job, rule: {} if job.has(rule.field) and job.has(rule.parameters["other"]) else None,
    # A job with a TPU does not set the field.
    "not_on_tpu": lambda job, rule: {} if job.has(rule.field) and _has_tpu(job) else None,
    # There is a first pool, and it is not empty.
    "first_pool": lambda job, _: None if job.pools and job.pools[0].message.ByteSize() else {},
    # A job with a TPU has one pool.
    "tpu_pools": lambda job, _: {"value": job.pools[1].index} if _has_tpu(job) and len(job.pools) > 1 else None,
}
CHECKS |= {name: checking(values_of, broken) for name, broken in _OF_VALUES.items()}
CHECKS |= {name: checking(_job_of, broken) for name, broken in _OF_JOBS.items()}


@value_check
def pattern(value: str, rule: SpecRule) -> Values | None:
    """Checks that the text matches the rule's pattern; an empty text is checked only with ``empty``."""
    is_checked = value or rule.parameters.get("empty")
    return {"value": value} if is_checked and not re.fullmatch(rule.parameters["pattern"], value) else None


@value_check
def one_of(value: str, rule: SpecRule) -> Values | None:
    """Checks that the text, if any, is one of ``values``."""
    choices = rule.parameters["values"]
    return {"value": value, "choices": ", ".join(choices)} if value and value not in choices else None


@value_check
def not_negative(value: Any, _rule: SpecRule) -> Values | None:
    """Checks that the number or duration is not negative."""
    if isinstance(value, int):
        return {"value": value} if value < 0 else None
    seconds = value.seconds + value.nanos / 1e9
    return {"value": f"{seconds:g} seconds"} if seconds < 0 else None


@value_check
def increasing(values: Any, _rule: SpecRule) -> Values | None:
    """Checks that each number is greater than the one before it, by at least 1e-10."""
    for before, value in itertools.pairwise(values):
        if value - before < 1e-10:
            return {"value": f"{value:g}", "before": f"{before:g}"}
    return None


@value_check
def gcs_uri(value: str, _rule: SpecRule) -> Values | None:
    """Checks that the text is an address in Cloud Storage."""
    if _GCS_URI.fullmatch(value):
        return None
    mounted = value.removeprefix("/gcs/")
    return {"value": value, "fix": f": write gs://{mounted}" if mounted != value else ""}


@enter
def unique(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that no two elements have the same attribute ``by``."""
    for at, elements in subject.resolve(rule.field):
        for name, times in Counter(getattr(element, rule.parameters["by"]) for element in elements).items():
            if name and times > 1:
                yield at, {"value": name}


@enter
def labels(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks the number and the form of the labels; the service names the resource in front of the field."""
    if fix := _label_fault(subject.message.labels):
        resource = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", subject.message.DESCRIPTOR.name).lower()
        yield f"{resource}.{rule.field}", {"fix": fix}


def _label_fault(given: Mapping[str, str]) -> str:
    if len(given) > _MAX_LABELS:
        return f"there are {len(given)}"
    for key, value in sorted(given.items()):
        if not key or not key[0].isalnum():
            return f"key {key!r} does not start with a letter or number"
        for what, text in ((f"key {key!r}", key), (f"value {value!r} of {key!r}", value)):
            if text != text.lower():
                return f"{what} has capital letters: write {text.lower()!r}"
            if not _LABEL.fullmatch(text):
                fixed = re.sub(r"[^\w-]", "-", text)
                return f"{what} has a character that is not allowed: write {fixed!r}"
            if len(text) >= _LABEL_CHARACTERS or len(text.encode()) >= _LABEL_BYTES:
                return f"{what} is too long"
    return ""


@job_check
def region_known(subject: Subject, _rule: SpecRule) -> Values | None:
    """Checks that the location is a region of custom training."""
    if not subject.location or subject.location in training_regions():
        return None
    zone = _ZONE.fullmatch(subject.location)
    near = [zone[1]] if zone else difflib.get_close_matches(subject.location, training_regions(), n=1)
    return {"value": subject.location, "fix": f": did you mean {near[0]}" if near else ""}


@pool_check
def region_has_tpu(pool: PoolSpec, rule: SpecRule) -> Values | None:
    """Checks that the region has TPUs of the requested generation.

    With ``in_doubt``, it may have them although Google's list of regions does not name it.
    """
    generation, location = generation_of(pool.machine), pool.job.location
    regions = tpu_regions(generation)
    is_known = generation is not None and location in training_regions() and regions
    if is_known and location not in regions and may_have_tpu(location, generation) == rule.parameters["in_doubt"]:
        return {"region": location, "generation": generation, "regions": ", ".join(regions)}
    return None


@pool_check
def task(pool: PoolSpec, _rule: SpecRule) -> Values | None:
    """Checks that each pool has something to run."""
    return {} if pool.message.ByteSize() and pool.message.WhichOneof("task") is None else None


@pool_check
def tpu_replicas(pool: PoolSpec, _rule: SpecRule) -> Values | None:
    """Checks that a pool with a TPU has one replica."""
    if generation_of(pool.machine) is None or pool.message.replica_count <= 1:
        return None
    larger = "tpu_topology" if pool.machine.tpu_topology else "accelerator_count"
    return {"value": pool.message.replica_count, "fix": f"a larger one is asked for with a larger {larger}"}


@pool_check
def primary_replicas(pool: PoolSpec, _rule: SpecRule) -> Values | None:
    """Checks that the first pool has one replica; a separate rule covers pools with a TPU."""
    count = pool.message.replica_count
    if pool.index or count <= 1 or generation_of(pool.machine) is not None:
        return None
    return {"value": count, "others": count - 1}


@job_check
def tensorboard_region(subject: Subject, _rule: SpecRule) -> Values | None:
    """Checks that the TensorBoard is in the job's region."""
    match = re.search(r"/locations/([^/]+)/", subject.spec.tensorboard)
    if not match or subject.location in ("", match[1]):
        return None
    return {"theirs": match[1], "region": subject.location}


@value_check
def network_project(value: str, _rule: SpecRule) -> Values | None:
    """Checks that a network's project is a number."""
    match = _NETWORK.fullmatch(value)
    return {"value": value} if match and not match[1].isdecimal() else None


@job_check
def wait_without_flex_start(subject: Subject, rule: SpecRule) -> Values | None:
    """Checks that the time that a job waits for machines is set only with the one strategy that uses it."""
    strategy = _enum_name(subject.spec.scheduling, "strategy")
    if not subject.has(rule.field) or strategy == "FLEX_START":
        return None
    return {"strategy": strategy if subject.spec.scheduling.strategy and strategy else "none"}


@job_check
def more_parallel(subject: Subject, _rule: SpecRule) -> Values | None:
    """Checks that the number of parallel trials does not exceed the total number."""
    if subject.tunes and 0 < subject.message.max_trial_count < subject.message.parallel_trial_count:
        return {"value": subject.message.parallel_trial_count, "trials": subject.message.max_trial_count}
    return None


@enter
def parameter_range(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that the bounds of a range are not reversed."""
    for at, parameter in subject.resolve(rule.field):
        kind = parameter.WhichOneof("parameter_value_spec")
        values = getattr(parameter, kind) if kind in _RANGES else None
        if values is not None and values.min_value > values.max_value:
            yield f"{at}.{kind}", {"low": f"{values.min_value:g}", "high": f"{values.max_value:g}"}


@enter
def scale_of_categories(subject: Subject, _rule: SpecRule) -> Iterator[Breach]:
    """Checks that categories are not scaled."""
    for at, parameter in subject.resolve("study_spec.parameters[]"):
        if parameter.scale_type and parameter.WhichOneof("parameter_value_spec") == "categorical_value_spec":
            yield f"{at}.scale_type", {}


@enter
def scale_positive(subject: Subject, _rule: SpecRule) -> Iterator[Breach]:
    """Checks that a logarithmic scale has only values above 0."""
    for at, parameter in subject.resolve("study_spec.parameters[]"):
        scale, kind = _enum_name(parameter, "scale_type"), parameter.WhichOneof("parameter_value_spec")
        values = getattr(parameter, kind).values if kind == "discrete_value_spec" else ()
        smallest = getattr(parameter, kind).min_value if kind in _RANGES else min(values, default=1)
        if "LOG" in scale and smallest <= 0:
            yield f"{at}.scale_type", {"scale": scale, "value": f"{smallest:g}"}


@enter
def grid_of_doubles(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that a grid has only parameters whose values can be enumerated."""
    if subject.tunes and _enum_name(subject.message.study_spec, "algorithm") == "GRID_SEARCH":
        for _, parameter in subject.resolve("study_spec.parameters[]"):
            if parameter.WhichOneof("parameter_value_spec") == "double_value_spec":
                yield rule.field, {"value": parameter.parameter_id}


def _has_tpu(subject: Subject) -> bool:
    return any(generation_of(pool.machine) is not None for pool in subject.pools)


def _enum_name(message: Any, field: str) -> str:
    known = message.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number
    number = getattr(message, field)
    return str(known[number].name) if number in known else ""
