"""What the functions of Vertex AI's methods use: the state, and everything on top of it.

``methods`` has the function for each method, and ``wire.api`` calls it with requests.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from google.protobuf.message import Message

from t5x_harness.google.identity import PROJECT
from t5x_harness.google.vertex.faults import VertexFaults
from t5x_harness.google.vertex.messages.names import ProjectNames
from t5x_harness.google.vertex.resources import Clock, Resources
from t5x_harness.google.vertex.settings import VertexSettings
from t5x_harness.google.vertex.state import StateStore, open_store
from t5x_harness.google.vertex.wire.rpc_table import Rpc, rpc_table


class Services:
    """What all parts of Vertex AI share. Any thread may call it.

    Args:
      settings: the settings of Vertex AI.
      state: keeps everything; by default, the state that ``settings.options.state`` names.

    Attributes:
      clock: gives the times of resources.
      closing: set when the API ends, so that waiting ends.
      faults: the faults to inject, and the record of requests.
      methods: the methods by name; set once all parts exist.
      filters: the functions in filters by name; set once all parts exist.

    Raises:
      StateError: the state cannot be opened.
    """

    def __init__(self, settings: VertexSettings, state: StateStore | None = None) -> None:
        self.settings = settings
        self.state = open_store(settings.options.state) if state is None else state
        self.clock = Clock()
        self.projects = ProjectNames(self.state, PROJECT)
        self.resources = Resources(self.state, self.clock)
        self.closing = threading.Event()
        self.faults = VertexFaults()
        for fault in settings.options.faults:
            self.faults.arm(fault)
        self.methods: Mapping[str, Method] = {}
        self.filters: Mapping[str, FilterFunction] = {}

    def ask(self, method: str, **fields: Any) -> Any:
        """Calls a method, such as ``JobService.GetCustomJob``, for another method."""
        rpc = rpc_table().named(method)
        assert rpc is not None
        return self.methods[method](ApiCall(rpc, rpc.request(**fields), self))


@dataclasses.dataclass(frozen=True)
class ApiCall:
    """One request to a method.

    Attributes:
      rpc: the method of v1, whichever version was called.
      request: a message of the class ``rpc.request``, with project numbers. The method may change it.
      services: what the method uses.
    """

    rpc: Rpc
    request: Any
    services: Services


Method = Callable[[ApiCall], Message | Iterator[Message]]
FilterFunction = Callable[[Services, Any, Sequence[str]], bool]
"""A function in filters. It gets the services, a resource's message and the arguments.

A function named ``Context.child_contexts`` stands for a field that the message does not have. Its arguments are the
operator and the value that the field is compared with.
"""
