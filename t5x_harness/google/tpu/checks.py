"""Checks of requests about TPU VMs: accelerator types, runtime versions and zones, and the types of all fields."""

import re
import zlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from t5x_harness.google.product import PRODUCT
from t5x_harness.google.vertex.validation.machine_types import may_have_tpu, tpu_regions
from t5x_harness.google.vertex.wire.errors import ApiError, invalid_argument
from t5x_harness.slices.slice import GENERATIONS, Slice, SliceError, get_slice

_ZONE = re.compile(r"[a-z]+-[a-z]+[0-9]+-[a-z]")
_TYPES: Mapping[str, str] = MappingProxyType(
    {"V2": "v2", "V3": "v3", "V4": "v4", "V5LITE_POD": "v5e", "V5P": "v5p", "V6E": "v6e"}
)

RUNTIME_VERSIONS = (
    "tpu-ubuntu2204-base tpu-vm-base v2-alpha v2-alpha-pod tpu-vm-v4-base v2-alpha-tpuv4 v2-alpha-tpuv4-pod "
    "v2-tpuv5-litepod v2-alpha-tpuv5-lite v2-alpha-tpuv5 v2-alpha-tpuv6e"
).split()
"""The runtime versions on https://cloud.google.com/tpu/docs/runtimes, and older ones from public recipes.

Those for TensorFlow and PyTorch are not among them.
"""

# The form of releases (alpha or nightly), with the generation, and -pod for several hosts. Whether the service refuses
# -pod for one host, or its absence for several, is not documented; the service's own examples have both.
_RELEASES = re.compile(r"v2-(?:alpha|nightly[0-9]*)(?:-tpu(?P<generation>v4|v5-lite|v5|v6e))?(?:-pod)?")
_OF_RELEASES: Mapping[str | None, tuple[str, ...]] = MappingProxyType(
    {None: ("v2", "v3"), "v4": ("v4",), "v5-lite": ("v5e",), "v5": ("v5p",), "v6e": ("v6e",)}
)
_BASES = re.compile(r"tpu-(?:vm|ubuntu[0-9]{4})(?:-v4)?-base(?:-[a-z0-9]+)*")
_FRAMEWORKS = re.compile(r"tpu-vm-(?:tf|pt|v4-pt)-[0-9]+\.[0-9]+(?:\.[0-9]+)?(?:-[a-z0-9]+)*")


def accelerator_types() -> list[str]:
    """Returns the accelerator types in the service's spelling."""
    return [f"{_spelled(g.name)}-{size}" for g in GENERATIONS for size, _ in g.sizes]


def check_zone(zone: str) -> None:
    """Raises ApiError for a location that is not a zone."""
    if not _ZONE.fullmatch(zone):
        raise invalid_argument(f"Location {zone} is not a zone, such as us-central1-a")


def slice_of(node: Mapping[str, object], zone: str) -> Slice:
    """Returns the slice for a node's ``acceleratorType`` or ``acceleratorConfig``.

    Raises:
      ApiError: the slice does not exist, or not in this zone.
    """
    config = node.get("acceleratorConfig")
    if isinstance(config, Mapping):
        generation, topology = str(config.get("type", "")), str(config.get("topology", ""))
        asked, name = f"{generation} {topology}", f"{_TYPES.get(generation, generation)}:{topology}"
    else:
        asked = str(node.get("acceleratorType") or "v2-8")
        name = asked.replace("v5litepod", "v5e") if asked in accelerator_types() else ""
    try:
        found = get_slice(name or asked)
    except SliceError:
        raise _not_found(asked, zone, _nearest(asked)) from None
    if not name:
        raise _not_found(asked, zone, f"write {type_of(found)}")
    regions, region = tpu_regions(found.generation.name), zone.rpartition("-")[0]
    if regions and region not in regions and not may_have_tpu(region, found.generation.name):
        raise _not_found(asked, zone, f"{found.generation.name} is in {', '.join(regions)}")
    return found


def type_of(slice_: Slice) -> str:
    """Returns the service's name for a slice's accelerator type, even if the slice is given by its topology."""
    generation = slice_.generation
    return f"{_spelled(generation.name)}-{slice_.num_chips * generation.cores_per_name}"


def config_of(slice_: Slice) -> dict[str, str]:
    """Returns a slice as ``acceleratorConfig``."""
    kind = next(kind for kind, name in _TYPES.items() if name == slice_.generation.name)
    return {"type": kind, "topology": "x".join(str(n) for n in slice_.topology[: slice_.generation.dimensions])}


def check_runtime(version: str, slice_: Slice) -> None:
    """Raises ApiError for a runtime version that does not exist, or that is for other generations."""
    generation = slice_.generation.name
    fits = [name for name in RUNTIME_VERSIONS if generation in (_generations_of(name) or (generation,))]
    if not version:
        raise invalid_argument(f"Runtime version must be specified, such as {fits[0]}")
    of = _generations_of(version)
    if of is None:
        raise invalid_argument(f"Runtime version {version} was not found; those for {generation} are {', '.join(fits)}")
    if of and generation not in of:
        message = f"Runtime version {version} is for {' and '.join(of)}, not for {type_of(slice_)}; "
        raise invalid_argument(f"{message}those for {generation} are {', '.join(fits)}")


def _generations_of(version: str) -> tuple[str, ...] | None:
    """Returns the generations of a runtime version: empty for all, None if the version does not exist."""
    if version == "v2-tpuv5-litepod":
        return ("v5e",)
    if found := _RELEASES.fullmatch(version):
        return _OF_RELEASES[found["generation"]]
    if _BASES.fullmatch(version) or _FRAMEWORKS.fullmatch(version):
        return ("v4",) if "v4" in version.split("-") else ()
    return None


def _nearest(asked: str) -> str:
    known = accelerator_types()
    of_generation = [name for name in known if name.partition("-")[0] == asked.partition("-")[0].lower()]
    if of_generation:
        return f"there are {', '.join(of_generation)}"
    return f"there are types of {', '.join(dict.fromkeys(name.partition('-')[0] for name in known))}, such as v3-8"


def _spelled(generation: str) -> str:
    return "v5litepod" if generation == "v5e" else generation


def _not_found(asked: str, zone: str, why: str) -> ApiError:
    code = zlib.crc32(f"{asked} {zone}".encode())
    message = f"Cloud TPU received a bad request. the accelerator {asked} was not found in zone {zone}"
    return invalid_argument(f"{message} [EID: {code:#x}] ({PRODUCT}: {why})")


Json = dict[str, Any]

_MOST_NODES = 256
_FIELDS: Mapping[str, type] = MappingProxyType(
    {
        **dict.fromkeys(("acceleratorType", "description", "runtimeVersion", "cidrBlock"), str),
        **dict.fromkeys(("acceleratorConfig", "networkConfig", "serviceAccount", "schedulingConfig", "labels"), dict),
        **dict.fromkeys(("metadata", "shieldedInstanceConfig", "bootDiskConfig"), dict),
        **dict.fromkeys(("networkConfigs", "tags", "dataDisks"), list),
        "autocheckpointEnabled": bool,
    }
)


def check_node(given: Json) -> None:
    """Raises ApiError for a field that a new node cannot have, or that has the wrong type."""
    if unknown := sorted(set(given) - set(_FIELDS)):
        raise invalid_argument(f"Invalid JSON payload received. Unknown name \"{unknown[0]}\" at 'node'")
    check_types(given)


def check_types(given: Json) -> None:
    """Raises ApiError for a field of a node that has the wrong type."""
    for name, value in given.items():
        if value is not None and not isinstance(value, _FIELDS.get(name, object)):
            raise _of_another_type(name, value)


def nodes_of(spec: Json, queued_id: str) -> Iterator[tuple[str, Json]]:
    """Yields the ids and nodes of one specification in a queued resource.

    Raises:
      ApiError: the specification is not valid, or is for too many nodes.
    """
    several = object_at(spec, "multisliceParams") or object_at(spec, "multiNodeParams")
    node = object_at(spec, "node")
    if not several:
        yield str(spec.get("nodeId", "")), node
        return
    prefix, count = several.get("nodeIdPrefix") or queued_id, several.get("nodeCount", 0)
    if isinstance(count, str) and count.isdecimal():  # allowed by protobuf's JSON
        count = int(count)
    if not isinstance(count, int) or not 0 < count <= _MOST_NODES:
        raise invalid_argument(f"node_count {count!r} is not from 1 to {_MOST_NODES}, the most here")
    for number in range(count):
        yield f"{prefix}-{number}", node


def object_at(given: Json, name: str) -> Json:
    """Returns an object in a request, or an empty one; raises ApiError for any other value."""
    value = given.get(name) or {}
    if not isinstance(value, dict):
        raise _of_another_type(name, value)
    return value


def objects_at(given: Json, name: str) -> list[Json]:
    """Returns a list of objects in a request, or an empty one; raises ApiError for any other value."""
    value = given.get(name) or []
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise _of_another_type(name, value)
    return value


def _of_another_type(name: str, value: object) -> ApiError:
    return invalid_argument(f"Invalid JSON payload received. Invalid value at '{name}': {value!r:.100}")
