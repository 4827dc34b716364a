"""MetadataService: stores, schemas, artifacts, executions, contexts and their lineage."""

from __future__ import annotations

from t5x_harness.google.vertex.api.handlers import Handlers, Part
from t5x_harness.google.vertex.api.service import Api
from t5x_harness.google.vertex.metadata import contexts, filtering, lineage, nodes, purging, registering, stores

__all__ = ["part"]

_HANDLERS = Handlers(
    stores.HANDLERS, registering.HANDLERS, nodes.HANDLERS, contexts.HANDLERS, lineage.HANDLERS, purging.HANDLERS
)


def part(api: Api) -> Part:
    """What the service adds to an API."""
    return Part(_HANDLERS, filters=filtering.FILTERS)
