"""The emulated Google Cloud for people who train with T5X: its jobs and TPU VMs know T5X's images and programs."""

from __future__ import annotations

import dataclasses
import os

from t5x_harness.google.server.settings import APP
from t5x_harness.google.session import EmulatedCloud
from t5x_harness.google.vertex.settings import VertexOptions

PROGRAMS = "t5x_harness.vertex.job_programs:PROGRAMS"
"""The import path of what the server has to know of T5X."""


def with_programs_of_t5x(options: VertexOptions) -> VertexOptions:
    """Returns options by which jobs run T5X's programs, unless they name other programs."""
    return options if options.programs else dataclasses.replace(options, programs=PROGRAMS)


class GoogleSession(EmulatedCloud):
    """A server, started by ``with``; it ends with the block, or with this process, however that ends.

    Any number may run at once, each with its own ports, buckets and certificates.

    Args:
      root: folder that keeps the buckets; by default a temporary one, which goes with the session.
      app: makes what answers for Cloud Storage, and is closed at the end: ``module:factory``, called with the root.
      vertex: options of its Vertex AI.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        *,
        app: str = APP,
        vertex: VertexOptions = VertexOptions(),  # noqa: B008 - a frozen value
    ) -> None:
        super().__init__(root, app=app, vertex=with_programs_of_t5x(vertex))
