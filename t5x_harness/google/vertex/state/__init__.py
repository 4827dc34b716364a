"""Where an emulated Vertex AI keeps its resources: in this process, or in Redis for several."""

from t5x_harness.google.vertex.state.store import StateError, StateStore
from t5x_harness.google.vertex.state.urls import open_store

__all__ = ["StateError", "StateStore", "open_store"]
