"""TPU VMs and queued resources: their states, and refused requests."""

import contextlib
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from stepped_store import SteppedStore, interleave

from t5x_harness.google.tpu.vms import TpuVms
from t5x_harness.google.vertex.wire.errors import ApiError

ZONE = "projects/p/locations/us-central2-b"
NODE = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"}


class Ended:
    """Workers that only record the TPU VMs whose processes were ended."""

    def __init__(self) -> None:
        self.stopped: list[str] = []
        self.ended: list[str] = []

    def folder(self, uid: str) -> str:
        return f"/tpu/{uid}"

    def begin(self, folder: str) -> None:
        pass

    def stop(self, folder: str) -> None:
        self.stopped.append(folder)

    def end(self, folder: str) -> None:
        self.ended.append(folder)


@pytest.fixture
def now() -> list[float]:
    """Returns a list with the current time, which tests can change."""
    return [1000.0]


@pytest.fixture
def ended() -> Ended:
    return Ended()


@pytest.fixture
def state() -> SteppedStore:
    return SteppedStore()


@pytest.fixture
def vms(now: list[float], ended: Ended, state: SteppedStore) -> TpuVms:
    return TpuVms(10, 5, ended, state, clock=lambda: now[0])


@pytest.fixture
def other(now: list[float], ended: Ended, state: SteppedStore) -> TpuVms:
    """Returns the TPU VMs of another server with the same state."""
    return TpuVms(10, 5, ended, state, clock=lambda: now[0])


def refused(function: Any, *args: Any, **fields: Any) -> str:
    with pytest.raises(ApiError) as caught:
        function(*args, **fields)
    return str(caught.value)


def test_a_node_is_created_and_then_ready(vms: TpuVms, now: list[float]) -> None:
    operation = vms.create_node(ZONE, "t", {**NODE, "labels": {"team": "nlp"}})
    assert operation["done"] is False
    node = vms.get_node(f"{ZONE}/nodes/t")
    assert (node["state"], node["acceleratorConfig"]) == ("CREATING", {"type": "V4", "topology": "2x2x1"})
    now[0] += 10
    done = vms.get_operation(operation["name"])
    assert done["response"] == vms.get_node(node["name"]) == {**node, "state": "READY"}
    assert [each["labels"] for each in vms.list_nodes(ZONE)] == [{"team": "nlp"}]
    assert vms.list_nodes("projects/p/locations/-") == vms.list_nodes(ZONE)
    assert vms.list_nodes("projects/other/locations/-") == []


def test_a_slice_has_an_endpoint_for_each_host(vms: TpuVms, now: list[float]) -> None:
    config = {"type": "V5LITE_POD", "topology": "4x4"}
    given = {**NODE, "networkConfig": {"enableExternalIps": True}, "runtimeVersion": "v2-alpha-tpuv5-lite"}
    vms.create_node(
        "projects/p/locations/us-west4-a", "t", {**given, "acceleratorType": "", "acceleratorConfig": config}
    )
    now[0] += 10
    (node,) = vms.list_nodes("projects/p/locations/us-west4-a")
    assert node["acceleratorType"] == "v5litepod-16"
    addresses = [endpoint["accessConfig"]["externalIp"] for endpoint in node["networkEndpoints"]]
    workers = [vms.worker_at(address) for address in addresses]
    assert [(worker.index, worker.state) for worker in workers if worker] == [(n, "READY") for n in range(4)]
    assert len({worker.coordinator for worker in workers if worker}) == 1
    assert vms.worker_at("198.18.200.1") is None


def test_workers_meet_where_nobody_else_is(vms: TpuVms) -> None:
    """The kernel may assign ports of its own range to other programs before a program runs on the TPU VM."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    with contextlib.ExitStack() as stack:
        ports = []
        for number in range(3):
            name = vms.create_node(ZONE, f"t{number}", dict(NODE))["metadata"]["target"]
            (worker,) = vms.workers_of(name)
            host, _, port = worker.coordinator.partition(":")
            stack.enter_context(socket.create_server((host, int(port))))
            ports.append(int(port))
    assert len(set(ports)) == 3
    assert max(ports) < lowest


@pytest.mark.parametrize(
    ("asked", "zone", "why"),
    [
        ("v3-16", "us-central1-a", "there are v3-8, v3-32, v3-64, v3-128, v3-256"),
        ("v5e-8", "us-west4-a", "write v5litepod-8)"),
        ("a100", "us-west4-a", "there are types of v2, v3, v4, v5litepod, v5p, v6"),
        ("v3-8", "us-east1-b", "v3 is in europe-west4, us-central1)"),
    ],
)
def test_accelerators_that_the_service_does_not_have(vms: TpuVms, asked: str, zone: str, why: str) -> None:
    said = refused(vms.create_node, f"projects/p/locations/{zone}", "t", {**NODE, "acceleratorType": asked})
    assert f"Cloud TPU received a bad request. the accelerator {asked} was not found in zone {zone} [EID: " in said
    assert f"(t5x-harness: {why}" in said
    assert vms.list_nodes("projects/p/locations/-") == []


@pytest.mark.parametrize(
    ("version", "accelerator_type", "zone", "why"),
    [
        ("", "v4-8", "us-central2-b", "must be specified, such as tpu-ubuntu2204-base"),
        ("tpu-vm", "v4-8", "us-central2-b", "tpu-vm was not found; those for v4 are tpu-"),
        ("v2-alpha-tpuv5", "v4-8", "us-central2-b", "v2-alpha-tpuv5 is for v5p, not for v4-8; those for v4 are tpu-ub"),
        ("v2-alpha-pod", "v4-8", "us-central2-b", "v2-alpha-pod is for v2 and v3, not for v4-8; those for v4 are "),
        ("tpu-vm-tf-2.10.0-pod-v4", "v3-32", "europe-west4-a", "tpu-vm-tf-2.10.0-pod-v4 is for v4, not for v3-32; "),
    ],
)
def test_versions_that_the_service_does_not_have(
    vms: TpuVms, version: str, accelerator_type: str, zone: str, why: str
) -> None:
    given = {"runtimeVersion": version, "acceleratorType": accelerator_type}
    assert f"Runtime version {why}" in refused(vms.create_node, f"projects/p/locations/{zone}", "t", given)
    assert vms.list_nodes("projects/p/locations/-") == []


@pytest.mark.parametrize(
    ("version", "accelerator_type", "zone"),
    [
        ("v2-alpha-tpuv4-pod", "v4-32", "us-central2-b"),
        ("v2-alpha-tpuv4-pod", "v4-8", "us-central2-b"),
        ("v2-alpha-tpuv4", "v4-32", "us-central2-b"),
        ("v2-nightly-tpuv4", "v4-8", "us-central2-b"),
        ("v2-nightly20221128-tpuv4-pod", "v4-16", "us-central2-b"),
        ("v2-alpha-pod", "v3-32", "europe-west4-a"),
        ("v2-alpha", "v2-8", "us-central1-f"),
        ("v2-tpuv5-litepod", "v5litepod-8", "us-west4-a"),
        ("v2-alpha-tpuv5-lite", "v5litepod-16", "us-west4-a"),
        ("v2-alpha-tpuv5", "v5p-8", "us-east5-a"),
        ("v2-alpha-tpuv6e", "v6e-8", "us-east5-b"),
        ("tpu-vm-tf-2.12.0", "v4-8", "us-central2-b"),
        ("tpu-vm-tf-2.10.0-pod-v4", "v4-16", "us-central2-b"),
        ("tpu-vm-tf-2.15.0-pod-pjrt", "v5litepod-16", "us-west4-a"),
        ("tpu-vm-pt-2.0", "v4-8", "us-central2-b"),
        ("tpu-vm-base", "v4-8", "us-central2-b"),
        ("tpu-vm-base-gvnic", "v4-16", "us-central2-b"),
    ],
)
def test_versions_that_public_recipes_name_are_taken(
    vms: TpuVms, version: str, accelerator_type: str, zone: str
) -> None:
    given = {"runtimeVersion": version, "acceleratorType": accelerator_type}
    vms.create_node(f"projects/p/locations/{zone}", "t", given)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"networkConfig": "x"}, "Invalid value at 'networkConfig': 'x'"),
        ({"acceleratorType": ["v4-8"]}, "Invalid value at 'acceleratorType': ['v4-8']"),
        ({"labels": [1]}, "Invalid value at 'labels': [1]"),
    ],
)
def test_fields_of_another_type_are_refused(vms: TpuVms, fields: dict[str, Any], said: str) -> None:
    assert said in refused(vms.create_node, ZONE, "t", {**NODE, **fields})
    vms.create_node(ZONE, "t", NODE)
    assert said in refused(vms.update_node, f"{ZONE}/nodes/t", fields, "labels")


@pytest.mark.parametrize("name", ["machine", "_folder"])
def test_other_fields_and_regions_are_refused(vms: TpuVms, name: str) -> None:
    said = f"Invalid JSON payload received. Unknown name \"{name}\" at 'node'"
    assert said in refused(vms.create_node, ZONE, "t", {**NODE, name: "/etc"})
    said = "INVALID_ARGUMENT: Location us-central1 is not a zone, such as us-central1-a"
    assert said in refused(vms.create_node, "projects/p/locations/us-central1", "t", NODE)
    assert vms.list_nodes("projects/p/locations/-") == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tpu": "x"}, "Invalid value at 'tpu': 'x'"),
        ({"tpu": {"nodeSpec": "x"}}, "Invalid value at 'nodeSpec': 'x'"),
        ({"tpu": {"nodeSpec": [{"node": 1, "nodeId": "t"}]}}, "Invalid value at 'node': 1"),
        *(
            (
                {"tpu": {"nodeSpec": [{"multisliceParams": {"nodeCount": n}, "node": NODE}]}},
                f"node_count {n!r} is not from 1",
            )
            for n in (10**6, "two")
        ),
    ],
)
def test_queued_resources_of_another_form_are_refused(vms: TpuVms, given: dict[str, Any], said: str) -> None:
    assert said in refused(vms.create_queued, ZONE, "q", given)
    assert vms.list_queued(ZONE) == []


def test_no_two_workers_have_one_address_however_many_there_were(vms: TpuVms, state: SteppedStore) -> None:
    vms.create_node(ZONE, "first", NODE)

    def near_the_end(value: bytes) -> bytes:
        return json.dumps({**json.loads(value), "addresses": (1 << 16) - 2}).encode()

    state.update("tpu", near_the_end)
    vms.create_node(ZONE, "pod", {**NODE, "acceleratorType": "v4-32"})
    found = [endpoint["ipAddress"] for node in vms.list_nodes(ZONE) for endpoint in node["networkEndpoints"]]
    assert sorted(found) == ["198.19.0.0", "198.19.0.1", "198.19.0.2", "198.19.0.3", "198.19.255.255"]

    def full(value: bytes) -> bytes:
        kept = json.loads(value)
        kept["nodes"][f"{ZONE}/nodes/first"]["_addresses"] = list(range(1 << 16))
        return json.dumps(kept).encode()

    state.update("tpu", full)
    said = "RESOURCE_EXHAUSTED: t5x-harness has 65536 addresses for workers, and all are in use"
    assert refused(vms.create_node, ZONE, "more", NODE) == said


def test_names_are_checked_and_taken_once(vms: TpuVms) -> None:
    vms.create_node(ZONE, "t", NODE)
    assert refused(vms.create_node, ZONE, "t", NODE) == f"ALREADY_EXISTS: Resource '{ZONE}/nodes/t' already exists"
    assert "node_id 'T_1' does not match" in refused(vms.create_node, ZONE, "T_1", NODE)
    assert refused(vms.get_node, f"{ZONE}/nodes/u") == f"NOT_FOUND: Resource '{ZONE}/nodes/u' was not found"
    assert refused(vms.get_operation, f"{ZONE}/operations/o").startswith("NOT_FOUND: ")


def test_a_stopped_one_keeps_its_disk_and_a_deleted_one_does_not(vms: TpuVms, now: list[float], ended: Ended) -> None:
    name = f"{ZONE}/nodes/t"
    vms.create_node(ZONE, "t", NODE)
    assert refused(vms.start_or_stop, name, "stop").endswith(" is CREATING, not READY: it cannot be stopped")
    now[0] += 10
    vms.start_or_stop(name, "stop")
    assert vms.get_node(name)["state"] == "STOPPED"
    assert (len(ended.stopped), ended.ended) == (1, [])
    vms.start_or_stop(name, "start")
    assert vms.get_node(name)["state"] == "READY"
    assert vms.delete_node(name)["done"]
    assert ended.ended == ended.stopped
    assert vms.list_nodes(ZONE) == []
    vms.create_node(ZONE, "pod", {**NODE, "acceleratorType": "v4-16"})
    assert refused(vms.start_or_stop, f"{ZONE}/nodes/pod", "stop").endswith("has several hosts: it cannot be stopped")


def test_only_some_fields_can_be_changed(vms: TpuVms) -> None:
    name = f"{ZONE}/nodes/t"
    vms.create_node(ZONE, "t", NODE)
    vms.update_node(name, {"metadata": {"ssh-keys": "k"}}, "metadata")
    assert vms.get_node(name)["metadata"] == {"ssh-keys": "k"}
    said = refused(vms.update_node, name, {}, "runtime_version")
    assert said == (
        "INVALID_ARGUMENT: runtimeVersion cannot be changed; these can: dataDisks, description, labels, metadata, tags"
    )


def queued(**spec: Any) -> dict[str, Any]:
    return {"tpu": {"nodeSpec": [{"parent": ZONE, "node": NODE, **spec}]}}


def test_a_queued_resource_waits_and_has_its_nodes(vms: TpuVms, now: list[float], ended: Ended) -> None:
    name, node = f"{ZONE}/queuedResources/q", f"{ZONE}/nodes/t"
    assert vms.create_queued(ZONE, "q", queued(nodeId="t"))["done"]
    assert vms.get_queued(name)["state"] == {"state": "WAITING_FOR_RESOURCES"}
    assert refused(vms.get_node, node).startswith("NOT_FOUND")
    assert vms.list_nodes(ZONE) == []
    now[0] += 5
    assert vms.get_queued(name)["state"] == {"state": "PROVISIONING"}
    assert vms.get_node(node)["state"] == "CREATING"
    now[0] += 10
    assert [each["state"] for each in vms.list_queued(ZONE)] == [{"state": "ACTIVE"}]
    assert vms.get_node(node)["queuedResource"] == name
    assert f"belongs to the queued resource {name}: delete that one with force" in refused(vms.delete_node, node)
    said = refused(vms.delete_queued, name, force=False)
    assert said == f"FAILED_PRECONDITION: {name} is ACTIVE, and its TPU VMs would go with it: delete it with force"
    vms.delete_queued(name, force=True)
    assert (vms.list_queued(ZONE), vms.list_nodes(ZONE), len(ended.ended)) == ([], [], 1)


def test_a_queued_resource_of_several_slices(vms: TpuVms, now: list[float]) -> None:
    vms.create_queued(ZONE, "q", queued(multisliceParams={"nodeCount": 2}))
    now[0] += 15
    assert [node["name"].rpartition("/")[2] for node in vms.list_nodes(ZONE)] == ["q-0", "q-1"]
    said = refused(vms.create_queued, ZONE, "r", {"tpu": {"nodeSpec": []}})
    assert said == "INVALID_ARGUMENT: queued_resource.tpu.node_spec must be specified"
    assert "already exists" in refused(vms.create_queued, ZONE, "q", queued(nodeId="t"))


def test_two_servers_on_one_state_have_the_same(vms: TpuVms, other: TpuVms, now: list[float], ended: Ended) -> None:
    operation = vms.create_node(ZONE, "t", NODE)
    vms.create_queued(ZONE, "q", queued(nodeId="u"))
    now[0] += 15
    assert other.get_operation(operation["name"])["done"]
    assert other.list_nodes(ZONE) == vms.list_nodes(ZONE) != []
    assert other.get_queued(f"{ZONE}/queuedResources/q")["state"] == {"state": "ACTIVE"}
    (address,) = (endpoint["ipAddress"] for endpoint in other.get_node(f"{ZONE}/nodes/t")["networkEndpoints"])
    worker = other.worker_at(address)
    assert worker is not None
    other.delete_node(f"{ZONE}/nodes/t")
    assert ended.ended == [worker.folder]
    assert vms.worker_at(address) is None
    assert refused(vms.get_node, f"{ZONE}/nodes/t").startswith("NOT_FOUND")


@pytest.mark.parametrize("order", [[True], [False, True], [True, False, True], [False, False, True, True]])
def test_of_two_servers_that_make_the_same_one_does(
    vms: TpuVms, other: TpuVms, state: SteppedStore, order: list[bool]
) -> None:
    made = interleave(
        state,
        lambda: vms.create_queued(ZONE, "q", queued(nodeId="t")),
        lambda: other.create_node(ZONE, "t", NODE),
        order,
    )
    lost = [each for each in made if isinstance(each, ApiError)]
    assert [each.message for each in lost] == [f"Resource '{ZONE}/nodes/t' already exists"]
    assert bool(vms.list_queued(ZONE)) == isinstance(made[1], ApiError)


def test_a_server_that_is_killed_leaves_a_change_whole_or_not_at_all(
    vms: TpuVms, other: TpuVms, ended: Ended, state: SteppedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change is a single write to the state, after which processes are ended."""

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    vms.create_node(ZONE, "t", NODE)
    several = {"tpu": {"nodeSpec": [{"nodeId": "a", "node": NODE}, {"nodeId": "b", "node": NODE}]}}
    with monkeypatch.context() as patch:
        patch.setattr(state, "update", die)
        with pytest.raises(KeyboardInterrupt):
            vms.create_queued(ZONE, "q", several)
    assert (other.list_queued(ZONE), len(other.folders())) == ([], 1)
    with monkeypatch.context() as patch:
        patch.setattr(ended, "end", die)
        with pytest.raises(KeyboardInterrupt):
            vms.delete_node(f"{ZONE}/nodes/t")
    assert (other.list_nodes(ZONE), other.folders()) == ([], [])
    other.create_node(ZONE, "t", NODE)


def test_old_operations_are_forgotten(vms: TpuVms) -> None:
    vms.create_node(ZONE, "t", NODE)
    for _ in range(510):
        last = vms.update_node(f"{ZONE}/nodes/t", {"description": "x"}, "description")
    operations = vms.list_operations(ZONE)
    assert len(operations) == 500
    assert last["name"] in [each["name"] for each in operations]
