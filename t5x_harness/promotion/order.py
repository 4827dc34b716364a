"""A promoted test's order for a job: its machine, its limits and its sizes."""

import dataclasses

from t5x_harness.promotion.marker import ResourcesError, TpuResources
from t5x_harness.promotion.settings import PromotionSettings
from t5x_harness.spec import RunSpec
from t5x_harness.vertex.container import FOUR_HOURS, ContainerJob
from t5x_harness.vertex.machine import Machine, MachineError
from t5x_harness.vertex.target import VertexTarget, VertexTargetError

_EMULATED_SECONDS = 900


@dataclasses.dataclass(frozen=True)
class JobOrder(ContainerJob):
    """The properties of a job that do not depend on what it runs: everything except its command, arguments and output.

    Attributes:
      shrink: whether the config runs at the sizes of smoke.
      steps: the train steps; None for the config's steps, or for smoke's steps if the config is shrunk.
      standins: whether checkpoints that cannot be read here are generated even if the config is not shrunk.
    """

    shrink: bool = False
    steps: int | None = None
    standins: bool = False


def order_of(
    name: str, resources: TpuResources, settings: PromotionSettings, target: VertexTarget, slice_name: str
) -> JobOrder:
    """Makes the order for a test.

    Args:
      name: the name of the test.
      resources: the arguments of its marker.
      settings: the settings of the session.
      target: where jobs go; the marker's region and image override the target's own.
      slice_name: the slice that smoke emulates for the test, which is used if the marker names no machine.

    Raises:
      ResourcesError: the marker names no valid machine or region.
    """
    own = {
        "location": resources.region,
        "image": resources.image_uri,
        "service_account": resources.service_account,
    }
    try:
        target = dataclasses.replace(target, **{field: value for field, value in own.items() if value})
    except VertexTargetError as error:
        raise ResourcesError(f"region={resources.region!r}: {error}") from None
    return JobOrder(
        name=name,
        target=target,
        machine=machine_of(resources, slice_name),
        # Whole seconds, and never 0, which could mean no limit, although the chip-hours would be 0.
        timeout=max(1, int(resources.seconds or (_EMULATED_SECONDS if settings.emulated else FOUR_HOURS))),
        shrink=settings.emulated if resources.full_size is None else not resources.full_size,
        steps=resources.steps,
        standins=settings.emulated,
        env=resources.env or {},
        labels=resources.labels or {},
        options=resources.options,
    )


def machine_of(resources: TpuResources, slice_name: str) -> Machine:
    """Returns the machine that a test requests, or the slice's machine if its marker names none.

    Raises:
      ResourcesError: the marker names a machine incompletely, or names one that does not exist.
    """
    if not resources.names_machine and resources.accelerator_count:
        raise ResourcesError(
            f"accelerator_count={resources.accelerator_count} needs accelerator_type, whose cores these are: TPU_V2 or "
            "TPU_V3"
        )
    if not resources.names_machine:
        try:
            return Machine.of_slice(slice_name)
        except MachineError as error:
            raise ResourcesError(str(error)) from None
    if resources.accelerator_type and not resources.accelerator_count:
        raise ResourcesError(
            f"accelerator_type={resources.accelerator_type!r} needs accelerator_count, the number of its cores: 8 for "
            "a v3-8"
        )
    if resources.machine_type is None and resources.tpu_topology is not None:
        raise ResourcesError(f"tpu_topology={resources.tpu_topology!r} needs machine_type, such as ct5lp-hightpu-4t")
    return Machine(
        resources.machine_type or "cloud-tpu",
        resources.accelerator_type,
        resources.accelerator_count or 0,
        resources.tpu_topology,
    )


def planned(spec: RunSpec, resources: TpuResources) -> RunSpec:
    """Returns a run with the slice of its job, for planning.

    Raises:
      ResourcesError: see :func:`machine_of`.
    """
    found = machine_of(resources, spec.slice).slice
    if found is None or found.name == spec.slice:
        return spec
    return dataclasses.replace(spec.with_settings(plan_golden=None), slice=found.name)  # it is for another slice
