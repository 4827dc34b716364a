"""Names of the default store, in the forms of clients and of the service."""

from __future__ import annotations

LOCATION = "projects/t5x-harness/locations/us-central1"
STORE = f"{LOCATION}/metadataStores/default"
NUMBERED = "projects/100000000000/locations/us-central1/metadataStores/default"
