"""The JSON API of a project: its service account, and HMAC keys, which are kept in memory and sign nothing."""

import base64
import secrets
import time
from typing import Any

from t5x_harness.google.identity import project_number
from t5x_harness.google.storage.errors import Invalid, NoSuchResource, PreconditionFailed
from t5x_harness.google.storage_http.answers import Answer, json_answer
from t5x_harness.google.storage_http.json_api import NotAllowed
from t5x_harness.google.storage_http.request import StorageRequest
from t5x_harness.google.storage_http.resources import rfc3339

_SETTABLE = ("ACTIVE", "INACTIVE")


def answer_service_account(request: StorageRequest, project: str) -> Answer:
    """Answers ``/storage/v1/projects/PROJECT/serviceAccount``."""
    if request.method != "GET":
        raise NotAllowed(request)
    address = f"service-{project_number(project)}@gs-project-accounts.iam.gserviceaccount.com"
    return json_answer({"kind": "storage#serviceAccount", "email_address": address})


class HmacKeys:
    """The HMAC keys of all projects. A deleted one is gone, while Google still shows it for a while."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], dict[str, Any]] = {}

    def answer(self, request: StorageRequest, project: str, access_id: str = "", *, resource: dict[str, Any]) -> Answer:
        """Answers ``/storage/v1/projects/PROJECT/hmacKeys`` or a key below it.

        Raises:
          Invalid: a key without an account, an unknown state, or the deletion of an active key.
          NoSuchResource: there is no such key.
          PreconditionFailed: the key was changed since the client read it.
        """
        if not access_id:
            return self._collection(request, project)
        key = self._kept.get((project, access_id))
        if key is None:
            raise NoSuchResource(f"The project {project} has no HMAC key {access_id}")
        match request.method:
            case "GET":
                pass
            case "PUT":
                if resource.get("state") not in _SETTABLE:
                    raise Invalid(f"The state of an HMAC key is {' or '.join(_SETTABLE)}")
                if resource.get("etag", key["etag"]) != key["etag"]:
                    raise PreconditionFailed("The key was changed since it was read: its etag is another.")
                key |= {"state": resource["state"], **_changed()}
            case "DELETE":
                if key["state"] == "ACTIVE":
                    raise Invalid("Cannot delete keys in 'ACTIVE' state: set the key to INACTIVE first")
                del self._kept[project, access_id]
                return Answer(204)
            case _:
                raise NotAllowed(request)
        return json_answer(key)

    def _collection(self, request: StorageRequest, project: str) -> Answer:
        account = request.parameters.get("serviceAccountEmail")
        if request.method == "GET":
            items = [
                key
                for (of, _), key in self._kept.items()
                if of == project and account in (None, key["serviceAccountEmail"])
            ]
            return json_answer({"kind": "storage#hmacKeysMetadata", **({"items": items} if items else {})})
        if request.method != "POST":
            raise NotAllowed(request)
        if not account:
            raise Invalid("Required: serviceAccountEmail", reason="required")
        access_id = f"GOOG1E{secrets.token_hex(28).upper()}"[:61]
        changed = _changed()
        key = {
            "kind": "storage#hmacKeyMetadata",
            "id": f"{project}/{access_id}",
            "selfLink": f"{request.origin}/storage/v1/projects/{project}/hmacKeys/{access_id}",
            "accessId": access_id,
            "projectId": project,
            "serviceAccountEmail": account,
            "state": "ACTIVE",
            "timeCreated": changed["updated"],
            **changed,
        }
        self._kept[project, access_id] = key
        secret = base64.b64encode(secrets.token_bytes(30)).decode()
        return json_answer({"kind": "storage#hmacKey", "metadata": key, "secret": secret})


def _changed() -> dict[str, str]:
    return {"updated": rfc3339(time.time_ns() // 1000), "etag": secrets.token_urlsafe(6)}
