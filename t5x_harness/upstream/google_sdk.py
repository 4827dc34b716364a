"""Private names of Google's SDK that concern how its transports make stubs and which experiment it logs to."""

from collections.abc import Mapping, Sequence
from typing import Any


def forget_settings(aiplatform: Any) -> None:
    """Resets ``google.cloud.aiplatform`` to its state at import: the values of ``init``, the experiment and the run."""
    for kept in (aiplatform.initializer.global_config, aiplatform.metadata.metadata._experiment_tracker):
        vars(kept).update(vars(type(kept)()))


def transport_on(kind: Any, channel: Any) -> Any:
    """Makes a gRPC transport on a channel without calling its constructor, which would ask for credentials.

    Args:
      kind: the class of the transport.
      channel: the channel that its stubs use.
    """
    transport = kind.__new__(kind)
    transport._grpc_channel = transport._logged_channel = channel
    transport._stubs = {}
    return transport


def http_options(rest_transport: Any, method: str) -> Sequence[Mapping[str, str]]:
    """Returns the verb, URI and body of each HTTP form of a method; empty if the transport does not have the method."""
    base: Any = getattr(rest_transport, f"_Base{method}", None)
    return base._get_http_options() if hasattr(base, "_get_http_options") else []
