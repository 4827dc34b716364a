"""What stops a controller of auxiliary jobs."""

from __future__ import annotations


class AuxiliaryError(Exception):
    """The controller cannot start or continue; the message says why and what to do."""
