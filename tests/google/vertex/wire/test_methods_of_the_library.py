"""Every method is read from the installed library, with the right messages, for any release of protobuf."""

import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from google.cloud import aiplatform_v1, aiplatform_v1beta1
from google.cloud.aiplatform_v1 import types

from t5x_harness.google.vertex.messages.paths import is_repeated
from t5x_harness.google.vertex.wire.rpc_table import rpc_table

CLIENTS = ("JobService", "MetadataService", "TensorboardService", "PipelineService", "ModelService", "VizierService")


@pytest.mark.parametrize("library", [aiplatform_v1, aiplatform_v1beta1])
@pytest.mark.parametrize("service", CLIENTS)
def test_every_method_of_a_client_is_there(library, service: str) -> None:
    version = library.__name__.rpartition("_")[2]
    transport = getattr(library, f"{service}Client").get_transport_class("grpc")
    methods = {name.replace("_", "") for name, value in vars(transport).items() if isinstance(value, property)}
    known = {rpc.method.lower() for rpc in rpc_table(version).values()}
    assert methods - known <= {"operationsclient", "grpcchannel", "kind"}


def test_messages_are_the_librarys_own() -> None:
    rpc = rpc_table()["JobService.CreateCustomJob"]
    assert rpc.request is aiplatform_v1.CreateCustomJobRequest.pb()
    assert rpc.response is aiplatform_v1.CustomJob.pb()
    assert (rpc.name, rpc.streams) == ("JobService.CreateCustomJob", False)
    (binding,) = rpc.bindings
    assert (binding.verb, binding.template, binding.body) == (
        "POST",
        "/v1/{parent=projects/*/locations/*}/customJobs",
        "custom_job",
    )
    assert rpc_table()["TensorboardService.ReadTensorboardBlobData"].streams


def test_every_emulated_method_is_one_that_clients_can_call(api: Any) -> None:
    assert api.services.methods.keys() <= rpc_table().keys()


def test_nothing_is_loaded_before_it_is_asked_for() -> None:
    program = (
        "import sys, t5x_harness.google.session, t5x_harness.google.server.process, t5x_harness.google.vertex_admin\n"
        "print([name for name in ('grpc', 'google.cloud.aiplatform_v1', 'google.protobuf', 'redis', 'fakeredis')"
        " if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


DESCRIBED = """
def described(table):
    return sorted(
        [rpc.path, rpc.request.DESCRIPTOR.full_name, rpc.response.DESCRIPTOR.full_name, rpc.streams, str(rpc.bindings)]
        for rpc in table.values()
    )
"""
IN_A_SERVER = """
import json, sys
from t5x_harness.google.vertex.wire.rpc_table import import_messages_only
import_messages_only()
from t5x_harness.google.vertex.wire.rpc_table import rpc_table
clients = [name for name in sys.modules if name.startswith("google.cloud.") and name.endswith("client")]
print(json.dumps([described(rpc_table()), clients]))
"""


def test_a_server_reads_the_same_and_no_client() -> None:
    known: dict[str, Any] = {}
    exec(DESCRIBED, known)
    command = [sys.executable, "-c", DESCRIBED + IN_A_SERVER]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(done.stdout) == [known["described"](rpc_table()), []]


FIELDS = types.CustomJobSpec.pb().DESCRIPTOR.fields_by_name


@pytest.mark.parametrize(
    ("field", "repeated"),
    [
        pytest.param(FIELDS["worker_pool_specs"], True, id="list"),
        pytest.param(types.CustomJob.pb().DESCRIPTOR.fields_by_name["labels"], True, id="map"),
        pytest.param(FIELDS["scheduling"], False, id="message"),
        pytest.param(FIELDS["network"], False, id="text"),
        # Protobuf 5 has only label, and protobuf 7 only is_repeated. The labels' numbers are from descriptor.proto.
        pytest.param(SimpleNamespace(label=3), True, id="protobuf-5-list"),
        pytest.param(SimpleNamespace(label=1), False, id="protobuf-5-text"),
        pytest.param(SimpleNamespace(is_repeated=True), True, id="protobuf-7-list"),
        pytest.param(SimpleNamespace(is_repeated=False), False, id="protobuf-7-text"),
    ],
)
def test_whether_a_field_is_repeated(field: Any, repeated: bool) -> None:
    assert is_repeated(field) is repeated
