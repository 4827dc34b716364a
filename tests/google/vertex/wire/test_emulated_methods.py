"""The table of methods has only methods of the library, and all standard methods of each kind."""

from __future__ import annotations

from typing import Any


def test_every_method_in_the_table_is_one_that_clients_can_call(api: Any) -> None:
    from t5x_harness.google.vertex.wire.rpc_table import rpc_table

    assert [name for name in api.services.methods if rpc_table().named(name) is None] == []


def test_a_kind_of_resources_that_is_emulated_has_all_of_its_methods(api: Any) -> None:
    from t5x_harness.google.vertex.messages.names import verb_of
    from t5x_harness.google.vertex.wire.rpc_table import rpc_table

    common = {rpc.name for rpc in rpc_table().values() if verb_of(rpc)}
    assert common - set(api.services.methods) == set()
