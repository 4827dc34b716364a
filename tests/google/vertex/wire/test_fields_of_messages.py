"""Fields of messages with every release of protobuf that the SDK accepts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from google.cloud.aiplatform_v1 import types

from t5x_harness.google.vertex.messages.paths import is_repeated

FIELDS = types.CustomJobSpec.pb().DESCRIPTOR.fields_by_name


@pytest.mark.parametrize(
    ("field", "repeated"),
    [
        pytest.param(FIELDS["worker_pool_specs"], True, id="list"),
        pytest.param(types.CustomJob.pb().DESCRIPTOR.fields_by_name["labels"], True, id="map"),
        pytest.param(FIELDS["scheduling"], False, id="message"),
        pytest.param(FIELDS["network"], False, id="text"),
        # Protobuf 5 and 7 have only one of the two. The labels' numbers are from descriptor.proto.
        pytest.param(SimpleNamespace(label=3), True, id="protobuf-5-list"),
        pytest.param(SimpleNamespace(label=1), False, id="protobuf-5-text"),
        pytest.param(SimpleNamespace(is_repeated=True), True, id="protobuf-7-list"),
        pytest.param(SimpleNamespace(is_repeated=False), False, id="protobuf-7-text"),
    ],
)
def test_whether_a_field_is_repeated(field: Any, repeated: bool) -> None:
    assert is_repeated(field) is repeated
