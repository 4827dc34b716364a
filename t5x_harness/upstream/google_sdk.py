"""What Google's SDK keeps to itself: how its transports make stubs, and the experiment that it logs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def forget_settings(aiplatform: Any) -> None:
    """Has ``google.cloud.aiplatform`` be as it was imported: what ``init`` sets, and its experiment and run."""
    for kept in (aiplatform.initializer.global_config, aiplatform.metadata.metadata._experiment_tracker):
        vars(kept).update(vars(type(kept)()))


def transport_on(kind: Any, channel: Any) -> Any:
    """Makes a gRPC transport whose properties make stubs on a channel; its constructor would ask for credentials.

    Args:
      kind: the class of the transport.
      channel: what stubs are made with.
    """
    transport = kind.__new__(kind)
    transport._grpc_channel = transport._logged_channel = channel
    transport._stubs = {}
    return transport


def http_options(rest_transport: Any, method: str) -> Sequence[Mapping[str, str]]:
    """Returns how a transport calls a method over HTTP: verb, URI and body of each way; none that it does not call."""
    base: Any = getattr(rest_transport, f"_Base{method}", None)
    found: Sequence[Mapping[str, str]] = base._get_http_options() if hasattr(base, "_get_http_options") else []
    return found
