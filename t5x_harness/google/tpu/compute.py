"""The part of Compute Engine that gcloud uses: projects for ``ssh``, and zones and regions for ``gcloud init``."""

from __future__ import annotations

import re
from typing import Any

from t5x_harness.google.asgi import Scope, Send, answer_error, answer_json
from t5x_harness.google.identity import project_number
from t5x_harness.google.product import PRODUCT

HOST = "compute.googleapis.com"
ZONES = tuple(
    f"{region}-{letter}"
    for region, letters in (
        ("us-central1", "abcf"),
        ("us-central2", "b"),
        ("us-east1", "bcd"),
        ("us-east5", "abc"),
        ("us-south1", "abc"),
        ("us-west1", "abc"),
        ("us-west4", "abc"),
        ("europe-west4", "abc"),
        ("asia-east1", "abc"),
        ("asia-northeast1", "abc"),
        ("asia-southeast1", "abc"),
        ("southamerica-west1", "abc"),
    )
    for letter in letters
)
"""The zones of regions that have or have had TPUs."""

_PATH = re.compile(
    r"/compute/(?:v1|beta|alpha)/projects/(?P<project>[^/]+)(?:/(?P<kind>zones|regions)(?:/(?P<name>[^/]+))?)?"
)
_URL = "https://www.googleapis.com/compute/v1"


async def answer_compute(scope: Scope, send: Send) -> bool:
    """Answers requests for projects, zones and regions.

    Returns:
      Whether the request was one of these; otherwise nothing is sent.
    """
    found = _PATH.fullmatch(scope["path"])
    if found is None or scope["method"] != "GET":
        return False
    project, kind, name = found["project"], found["kind"], found["name"]
    if kind is None:
        await answer_json(send, 200, _project(project))
        return True
    places = {place: _place(project, kind, place) for place in (ZONES if kind == "zones" else map(_region, ZONES))}
    if name is None:
        await answer_json(send, 200, {"kind": f"compute#{kind[:-1]}List", "items": list(places.values())})
    elif name in places:
        await answer_json(send, 200, places[name])
    else:
        known = f"{PRODUCT} has {', '.join(places)}"
        await answer_error(send, 404, f"The resource 'projects/{project}/{kind}/{name}' was not found ({known})")
    return True


def _project(project: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"kind": "compute#metadata", "fingerprint": "AAAA", "items": []}
    number = project_number(project)
    return {"kind": "compute#project", "id": number, "name": project, "commonInstanceMetadata": metadata}


def _place(project: str, kind: str, name: str) -> dict[str, str]:
    url = f"{_URL}/projects/{project}"
    found = {"kind": f"compute#{kind[:-1]}", "name": name, "status": "UP", "selfLink": f"{url}/{kind}/{name}"}
    return {**found, "region": f"{url}/regions/{_region(name)}"} if kind == "zones" else found


def _region(zone: str) -> str:
    return zone.rpartition("-")[0]
