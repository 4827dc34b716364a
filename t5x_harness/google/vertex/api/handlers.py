"""How the methods of a service are written: functions by the name of the method, gathered into parts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from t5x_harness.google.vertex.api.rpc_table import Rpc
    from t5x_harness.google.vertex.api.service import Api

__all__ = ["Call", "FilterFunction", "Handler", "Handlers", "Part"]


@dataclasses.dataclass(frozen=True)
class Call:
    """One request to a method.

    Attributes:
      rpc: the method, of v1 whichever version was called.
      request: a message of the class ``rpc.request``, with projects by their numbers. A handler may change it.
      api: that it came to.
    """

    rpc: Rpc
    request: Any
    api: Api

    def standard(self) -> Message:
        """What the method does by the rules for all resources (create, get, list, update, delete).

        A handler that only adds something calls it, before or after.

        Raises:
          ApiError: as those rules have it.
        """
        return self.api.standard(self)


Handler = Callable[[Call], "Message | Iterator[Message]"]
FilterFunction = Callable[["Api", Any, Sequence[str]], bool]
"""A function in filters: of the API, a resource's message and the arguments.

One that is called ``Context.child_contexts`` stands for a field that such messages do not have; its arguments are the
operator and the value that the field is compared with.
"""

Written = TypeVar("Written", bound=Callable[[Call], Any])


class Handlers(Mapping[str, Handler]):
    """Handlers by the name of their method without a version.

    Use:
        HANDLERS = Handlers()

        @HANDLERS.on("JobService.CancelCustomJob")
        def cancel(call: Call) -> Message: ...
    """

    def __init__(self, *others: Mapping[str, Handler]) -> None:
        self._handlers: dict[str, Handler] = {}
        for other in others:
            for name, handler in other.items():
                self.on(name)(handler)

    def on(self, name: str) -> Callable[[Written], Written]:
        """Registers a function, or a method of an object, for a method such as ``JobService.CreateCustomJob``.

        Raises:
          ValueError: there is one for it already.
        """

        def register(handler: Written) -> Written:
            if name in self._handlers:
                raise ValueError(f"{name} has two handlers")
            self._handlers[name] = handler
            return handler

        return register

    def __getitem__(self, name: str) -> Handler:
        return self._handlers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._handlers)

    def __len__(self) -> int:
        return len(self._handlers)


def _nothing(*_: object) -> None:
    pass


@dataclasses.dataclass(frozen=True)
class Part:
    """What one package adds to the API; each has a function ``part(api: Api) -> Part``.

    Attributes:
      handlers: of methods.
      filters: functions in filters by name.
      admin: of the harness's own paths, ``/_t5x_harness/vertex/NAME``, by name: functions of JSON for JSON.
      deleting: called with a job that is about to be deleted, while it can still be read.
      reset: called between tests, before the state is cleared: ends what runs and waits for it.
      close: called when the server ends.
    """

    handlers: Mapping[str, Handler]
    filters: Mapping[str, FilterFunction] = dataclasses.field(default_factory=dict)
    admin: Mapping[str, Callable[[Any], Any]] = dataclasses.field(default_factory=dict)
    deleting: Callable[[Any], None] = _nothing
    reset: Callable[[], None] = _nothing
    close: Callable[[], None] = _nothing
