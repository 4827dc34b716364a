"""The notification configurations of buckets, which are kept in memory; nothing is published."""

import collections
import itertools
from typing import Any

from t5x_harness.google.storage.errors import Invalid, NoSuchResource
from t5x_harness.google.storage.values import Bucket
from t5x_harness.google.storage_http.answers import Answer, json_answer
from t5x_harness.google.storage_http.json_api import NotAllowed
from t5x_harness.google.storage_http.request import StorageRequest
from t5x_harness.google.storage_http.resources import text_of


class NotificationConfigs:
    """The configurations of all buckets; those of a removed bucket are not those of the next one with its name."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], dict[str, Any]] = collections.defaultdict(dict)
        self._numbers = itertools.count(1)

    async def answer(self, request: StorageRequest, bucket: Bucket, number: str = "") -> Answer:
        """Answers ``/storage/v1/b/BUCKET/notificationConfigs`` or one of the configurations below it.

        Raises Invalid for one without a topic, and NoSuchResource for one that does not exist.
        """
        kept = self._kept[bucket.name, bucket.created]
        match request.method:
            case "GET" if not number:
                return json_answer({"kind": "storage#notifications", **({"items": [*kept.values()]} if kept else {})})
            case "POST" if not number:
                return json_answer(self._create(request, bucket, await request.json()))
            case "GET" | "DELETE" if number not in kept:
                raise NoSuchResource(f"The bucket {bucket.name} has no notification configuration {number}")
            case "GET" if number:
                return json_answer(kept[number])
            case "DELETE":
                del kept[number]
                return Answer(204)
        raise NotAllowed(request)

    def _create(self, request: StorageRequest, bucket: Bucket, resource: dict[str, Any]) -> dict[str, Any]:
        if not text_of(resource, "topic"):
            raise Invalid("Required: topic", reason="required")
        number = str(next(self._numbers))
        created = {
            "payload_format": "JSON_API_V1",
            **resource,
            "kind": "storage#notification",
            "id": number,
            "selfLink": f"{request.origin}/storage/v1/b/{bucket.name}/notificationConfigs/{number}",
            "etag": number,
        }
        self._kept[bucket.name, bucket.created][number] = created
        return created
