"""What the methods of Vertex AI are written with: the state, and what stands on it.

``methods`` says which function answers which method, and ``wire.api`` brings requests to it.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import Message

from t5x_harness.google.identity import PROJECT
from t5x_harness.google.vertex.faults import VertexFaults
from t5x_harness.google.vertex.messages.names import ProjectNames
from t5x_harness.google.vertex.operations import Operations
from t5x_harness.google.vertex.resources import Clock, Resources
from t5x_harness.google.vertex.settings import VertexSettings
from t5x_harness.google.vertex.state import StateStore, open_store
from t5x_harness.google.vertex.wire.rpc_table import Rpc, rpc_table


class Services:
    """The ground of all parts of Vertex AI. Any thread may call it.

    Args:
      state: keeps everything; by default what ``settings.options.state`` names.

    Attributes:
      clock: for the times of resources.
      closing: set when the API ends, so that nobody waits any more.
      faults: to be injected, and the record of requests.
      methods: by name, once the parts are there.
      filters: functions in filters, by name, once the parts are there.

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
        self.operations = Operations(self.resources, self.closing)
        self.faults = VertexFaults()
        for fault in settings.options.faults:
            self.faults.arm(fault)
        self.methods: Mapping[str, Method] = {}
        self.filters: Mapping[str, FilterFunction] = {}

    def message(self, name: str) -> type[Message]:
        """Returns the class of a message of v1 by its short name, such as ``CustomJob``."""
        rpc_table()  # has the library define them
        found = descriptor_pool.Default().FindMessageTypeByName(f"google.cloud.aiplatform.v1.{name}")
        kind: type[Message] = message_factory.GetMessageClass(found)
        return kind

    def ask(self, method: str, **fields: Any) -> Any:
        """Answers a request that one method makes to another, such as ``JobService.GetCustomJob``."""
        rpc = rpc_table().named(method)
        assert rpc is not None
        return self.methods[method](ApiCall(rpc, rpc.request(**fields), self))


@dataclasses.dataclass(frozen=True)
class ApiCall:
    """One request to a method.

    Attributes:
      rpc: the method, of v1 whichever version was called.
      request: a message of the class ``rpc.request``, with projects by their numbers. The method may change it.
    """

    rpc: Rpc
    request: Any
    services: Services


Method = Callable[[ApiCall], Message | Iterator[Message]]
FilterFunction = Callable[[Services, Any, Sequence[str]], bool]
"""A function in filters: of the services, a resource's message and the arguments.

One that is called ``Context.child_contexts`` stands for a field that such messages do not have; its arguments are the
operator and the value that the field is compared with.
"""
