"""Where modules have been imported from."""

from pathlib import Path
from typing import Any


def places_of(module: Any) -> list[Path]:
    """Returns the file of a module, and the folders of a package; none for what is no module from a file."""
    found = (getattr(module, "__file__", None), *list(getattr(module, "__path__", None) or ()))
    return [Path(place) for place in found if place is not None]
