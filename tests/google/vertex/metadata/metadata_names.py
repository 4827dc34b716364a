"""The names of the default store, in the clients' form and in the service's form."""

from __future__ import annotations

LOCATION = "projects/t5x-harness/locations/us-central1"
STORE = f"{LOCATION}/metadataStores/default"
NUMBERED = "projects/100000000000/locations/us-central1/metadataStores/default"
