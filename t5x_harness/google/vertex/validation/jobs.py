"""Checks of a job as a whole: its labels, its region, its pools, what surrounds them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping

from t5x_harness.google.vertex.validation.checks import check
from t5x_harness.google.vertex.validation.machine_types import may_have_tpu, tpu_regions, training_regions
from t5x_harness.google.vertex.validation.rules import Breach, SpecRule
from t5x_harness.google.vertex.validation.slices import generation_of
from t5x_harness.google.vertex.validation.subject import Pool, Subject

_LABEL = re.compile(r"[\w-]*")
_ZONE = re.compile(r"(.+\d)-[a-z]")
_MAX_LABELS, _LABEL_CHARACTERS, _LABEL_BYTES = 64, 64, 128


@check
def labels(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that number and form of the labels; the service names the resource in front of the field."""
    fix = _label_fault(subject.message.labels)
    if fix:
        resource = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", subject.message.DESCRIPTOR.name).lower()
        yield f"{resource}.labels", {"fix": fix}


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


@check
def region_known(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that the location is a region of custom training."""
    if subject.location and subject.location not in training_regions():
        zone = _ZONE.fullmatch(subject.location)
        near = [zone[1]] if zone else difflib.get_close_matches(subject.location, training_regions(), n=1)
        yield "location", {"value": subject.location, "fix": f": did you mean {near[0]}" if near else ""}


@check
def region_has_tpu(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that the region has TPUs of the generation that is asked for, as far as Google's list of them goes."""
    yield from _without_tpu(subject, in_doubt=False)


@check
def region_may_have_tpu(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that the region is known to have TPUs of the generation that is asked for."""
    yield from _without_tpu(subject, in_doubt=True)


def _without_tpu(subject: Subject, *, in_doubt: bool) -> Iterator[Breach]:
    for pool in _tpu_pools(subject):
        generation = generation_of(pool.machine)
        regions = tpu_regions(generation)
        known = subject.location in training_regions() and regions
        if known and subject.location not in regions and may_have_tpu(subject.location, generation) == in_doubt:
            values = {"region": subject.location, "generation": generation, "regions": ", ".join(regions)}
            yield f"{pool.path}.machine_spec", values


@check
def first_pool(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that there is a first pool, and it is not empty."""
    if not subject.pools or not subject.pools[0].message.ByteSize():
        yield f"{subject.spec_field}.worker_pool_specs", {}


@check
def task(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that each pool has something to run."""
    for pool in subject.pools:
        if pool.message.ByteSize() and pool.message.WhichOneof("task") is None:
            yield pool.path, {}


@check
def tpu_pools(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that a job with a TPU has one pool."""
    if list(_tpu_pools(subject)) and len(subject.pools) > 1:
        yield f"{subject.spec_field}.worker_pool_specs", {"value": subject.pools[1].index}


@check
def tpu_replicas(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that a pool with a TPU has one replica."""
    for pool in _tpu_pools(subject):
        if pool.message.replica_count > 1:
            if pool.machine.tpu_topology:
                fix = "a larger one is asked for with a larger tpu_topology"
            else:
                fix = "a larger one is asked for with a larger accelerator_count"
            yield f"{pool.path}.replica_count", {"value": pool.message.replica_count, "fix": fix}


@check
def primary_replicas(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that the first pool has one replica; that of a TPU is judged by a rule of its own."""
    for pool in subject.pools[:1]:
        if pool.message.replica_count > 1 and generation_of(pool.machine) is None:
            yield (
                f"{pool.path}.replica_count",
                {"value": pool.message.replica_count, "others": pool.message.replica_count - 1},
            )


@check
def tpu_service_account(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that a job with a TPU has no service account of its own."""
    if subject.spec.service_account and list(_tpu_pools(subject)):
        yield f"{subject.spec_field}.service_account", {}


@check
def tensorboard_service_account(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that a job with a TensorBoard has a service account."""
    if subject.spec.tensorboard and not subject.spec.service_account:
        yield f"{subject.spec_field}.service_account", {}


@check
def tensorboard_region(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that the TensorBoard is in the job's region."""
    match = re.search(r"/locations/([^/]+)/", subject.spec.tensorboard)
    if match and subject.location and match[1] != subject.location:
        yield f"{subject.spec_field}.tensorboard", {"theirs": match[1], "region": subject.location}


@check
def tensorboard_output(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that a job with a TensorBoard has a folder for its logs."""
    if subject.spec.tensorboard and not subject.spec.HasField("base_output_directory"):
        yield f"{subject.spec_field}.base_output_directory", {}


@check
def tensorboard_tpu(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that a job with a TPU has no TensorBoard of its own."""
    if subject.spec.tensorboard and list(_tpu_pools(subject)):
        yield f"{subject.spec_field}.tensorboard", {}


@check
def network_project(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that a network's project is a number."""
    match = re.fullmatch(r"projects/([^/]+)/global/networks/[^/]+", subject.spec.network)
    if match and not match[1].isdecimal():
        yield f"{subject.spec_field}.network", {"value": subject.spec.network}


@check
def ip_ranges_network(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that reserved ranges belong to a network."""
    if subject.spec.reserved_ip_ranges and not subject.spec.network:
        yield f"{subject.spec_field}.reserved_ip_ranges", {}


@check
def experiment_run_alone(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that a run belongs to an experiment."""
    if subject.spec.experiment_run and not subject.spec.experiment:
        yield f"{subject.spec_field}.experiment_run", {}


@check
def wait_without_flex_start(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that only one strategy uses how long a job waits for machines."""
    scheduling = subject.spec.scheduling
    strategy = scheduling.DESCRIPTOR.fields_by_name["strategy"].enum_type.values_by_number.get(scheduling.strategy)
    if scheduling.HasField("max_wait_duration") and (strategy is None or strategy.name != "FLEX_START"):
        given = "none" if strategy is None or not scheduling.strategy else strategy.name
        yield f"{subject.spec_field}.scheduling.max_wait_duration", {"strategy": given}


@check
def restart_without_retries(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that one of two fields overrides the other."""
    scheduling = subject.spec.scheduling
    if scheduling.restart_job_on_worker_restart and scheduling.disable_retries:
        yield f"{subject.spec_field}.scheduling.restart_job_on_worker_restart", {}


def _tpu_pools(subject: Subject) -> Iterator[Pool]:
    return (pool for pool in subject.pools if generation_of(pool.machine) is not None)
