"""The emulated Google Cloud for T5X users: its jobs and TPU VMs know T5X's images and programs."""

import dataclasses
import os

from t5x_harness.google.server.settings import APP
from t5x_harness.google.session import EmulatedCloud
from t5x_harness.google.vertex.settings import VertexOptions

PROGRAMS = "t5x_harness.vertex.job_programs:PROGRAMS"
"""The import path of the object from which the server learns about T5X."""


def with_programs_of_t5x(options: VertexOptions) -> VertexOptions:
    """Returns options with which jobs run T5X's programs, unless the options name other programs."""
    return options if options.programs else dataclasses.replace(options, programs=PROGRAMS)


class GoogleSession(EmulatedCloud):
    """A server that runs during a ``with`` block; it ends with the block, or with this process, however that ends.

    Any number of servers may run at once, each with its own ports, buckets and certificates.

    Args:
      root: the folder that keeps the buckets; by default a temporary one, which is removed with the session.
      app: the factory of the Cloud Storage application, ``module:factory``, which is called with the root; the
        application is closed at the end.
      vertex: the options of its Vertex AI.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        *,
        app: str = APP,
        vertex: VertexOptions = VertexOptions(),  # noqa: B008 - a frozen value
    ) -> None:
        super().__init__(root, app=app, vertex=with_programs_of_t5x(vertex))
