"""The Cloud TPU API over HTTP, and the part of Compute Engine that gcloud also uses."""

import asyncio
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import parse_qsl

from t5x_harness.google import asgi
from t5x_harness.google.asgi import Receive, Scope, Send, answer_error, answer_json
from t5x_harness.google.identity import PRIVATE, UNAUTHENTICATED, Authority, bearer, project_number
from t5x_harness.google.json_text import BadJson, read_json
from t5x_harness.google.product import PRODUCT
from t5x_harness.google.tpu import checks
from t5x_harness.google.tpu.checks import Json
from t5x_harness.google.tpu.vms import TpuVms, typed
from t5x_harness.google.tpu.workers import Workers, end_orphans
from t5x_harness.google.vertex.settings import VertexSettings
from t5x_harness.google.vertex.state import StateError, StateStore
from t5x_harness.google.vertex.wire.errors import ApiError, StatusCode, failed_precondition

COMPUTE_HOST = "compute.googleapis.com"
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
"""The zones of all regions that have TPUs or once had them."""

_COMPUTE_PATH = re.compile(
    r"/compute/(?:v1|beta|alpha)/projects/(?P<project>[^/]+)(?:/(?P<kind>zones|regions)(?:/(?P<name>[^/]+))?)?"
)
_URL = "https://www.googleapis.com/compute/v1"


async def answer_compute(scope: Scope, send: Send) -> bool:
    """Answers requests for projects, zones and regions.

    Returns:
      Whether this was such a request; otherwise nothing is sent.
    """
    found = _COMPUTE_PATH.fullmatch(scope["path"])
    if found is None or scope["method"] != "GET":
        return False
    project, kind, name = found["project"], found["kind"], found["name"]
    if kind is None:
        metadata: Json = {"kind": "compute#metadata", "fingerprint": "AAAA", "items": []}
        shown = {"kind": "compute#project", "id": project_number(project), "name": project}
        await answer_json(send, 200, {**shown, "commonInstanceMetadata": metadata})
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


def _place(project: str, kind: str, name: str) -> dict[str, str]:
    url = f"{_URL}/projects/{project}"
    found = {"kind": f"compute#{kind[:-1]}", "name": name, "status": "UP", "selfLink": f"{url}/{kind}/{name}"}
    return {**found, "region": f"{url}/regions/{_region(name)}"} if kind == "zones" else found


def _region(zone: str) -> str:
    return zone.rpartition("-")[0]


HOST = "tpu.googleapis.com"
OWN_PATH = f"{PRIVATE}/tpu/worker"
"""The path at which ``ssh`` and ``scp`` ask for the environment of a worker's processes."""

_PATH = re.compile(
    r"/(?P<version>v1|v2|v2alpha1)/(?P<parent>projects/[^/]+/locations/[^/]+)"
    r"(?:/(?P<collection>[a-zA-Z]+)(?:/(?P<id>[^/:]+))?(?::(?P<verb>[a-zA-Z]+))?)?"
)
_LOCATIONS = re.compile(r"/(?:v1|v2|v2alpha1)/(?P<project>projects/[^/]+)/locations")


class TpuService:
    """The API of a session's TPU VMs.

    Args:
      authority: decides which clients are admitted.
    """

    def __init__(self, authority: Authority) -> None:
        self._authority = authority
        self._vms: TpuVms | None = None

    def begin(self, folder: Path, programs: Path, settings: VertexSettings, state: StateStore) -> None:
        """Starts, once the server's ports are known.

        Args:
          folder: the folder for the workers' homes.
          programs: the folder of the session's ``ssh``, ``scp`` and ``gcloud``, which workers have first on PATH.
          settings: the settings of jobs, which workers share.
          state: the state, which stores TPU VMs and queued resources.
        """
        options = settings.options
        workers = Workers(folder, programs, settings)
        self._vms = TpuVms(options.pending_seconds, options.queued_seconds, workers, state)
        threading.Thread(target=end_orphans, name="tpu-orphans", daemon=True).start()
        if folder.is_dir():  # an earlier server left it
            workers.end_left(self._vms.folders())

    def reset(self) -> None:
        """Deletes all TPU VMs, and ends their processes."""
        if self._vms is not None:
            self._vms.reset()

    def close(self) -> None:
        """Ends the processes of all TPU VMs."""
        if self._vms is not None:
            self._vms.workers.close()

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers JSON over HTTP, at ``tpu.googleapis.com`` and at :data:`OWN_PATH`."""
        if not await asyncio.to_thread(self._authority.admits, bearer(asgi.header_of(scope, b"authorization"))):
            return await asgi.answer_error(send, 401, UNAUTHENTICATED)
        try:
            text = await asgi.body_of(receive)
            document = read_json(text) if text else {}
            if not isinstance(document, dict):
                raise BadJson("An object is expected.")
        except (BadJson, ValueError) as error:
            return await asgi.answer_error(send, 400, f"Invalid JSON payload received. {error}")
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        try:
            found = await asyncio.to_thread(self._answer, scope["method"], scope["path"], query, document)
        except StateError as error:
            return await _answer_error(send, ApiError(StatusCode.UNAVAILABLE, str(error)))
        except ApiError as error:
            return await _answer_error(send, error)
        if found is None:
            message = f"{PRODUCT} does not emulate {scope['method']} {HOST}{scope['path']}; {_EMULATED}"
            return await asgi.answer_json(send, asgi.NOT_EMULATED, asgi.not_emulated(message))
        return await asgi.answer_json(send, 200, found)

    def _answer(self, method: str, path: str, query: Mapping[str, str], body: Json) -> Json | None:
        """Returns the answer, or None for a request that is not emulated."""
        assert self._vms is not None, "no port is open before it begins"
        if path == OWN_PATH:
            return _worker(self._vms, body)
        if found := _LOCATIONS.fullmatch(path):
            return {"locations": [_location(f"{found['project']}/locations/{zone}") for zone in ZONES]}
        match = _PATH.fullmatch(path)
        if match is None:
            return None
        place = match["collection"] or ""
        place += "/*" if match["id"] else ""
        place += f":{match['verb']}" if match["verb"] else ""
        asked = f"{method} {place}".strip()
        if match["version"] == "v1" and asked not in _OF_VERSION_1:
            return None
        request = _Request(self._vms, match, query, body)
        if change := _CHANGES.get(asked):
            return typed(change(request), request.version)
        return _READS[asked](request) if asked in _READS else None


def _worker(vms: TpuVms, body: Json) -> Json:
    """Returns what ``ssh`` and ``scp`` need to start a process on a worker."""
    address, user, command = (str(body.get(name) or "") for name in ("address", "user", "command"))
    worker = vms.worker_at(address)
    if worker is None:
        raise ApiError(StatusCode.NOT_FOUND, f"{address}: no TPU VM of this session has a worker there any more")
    if worker.state != "READY":
        raise failed_precondition(f"{address}: the TPU VM {worker.node} is {worker.state}, not READY")
    environment = vms.workers.environment(worker, user, command)
    home, limit = str(vms.workers.home(worker)), vms.workers.limit(worker)
    return {"environment": environment, "home": home, "limit": limit}


_EMULATED = "of Cloud TPU it has nodes, queued resources, accelerator types, runtime versions and operations"


class _Request:
    """One request: the parts of its path, its query and its body."""

    def __init__(self, vms: TpuVms, match: re.Match[str], query: Mapping[str, str], body: Json) -> None:
        self.vms = vms
        self.version, self.parent, self.id = match["version"], match["parent"], match["id"] or ""
        self.name = f"{self.parent}/{match['collection']}/{self.id}"
        self.query, self.body = query, body

    def node(self, node: Json) -> Json:
        return {**node, "apiVersion": "V2" if self.version == "v2" else "V2_ALPHA1"}

    def named(self, field: str, name: str, known: Sequence[str]) -> Json:
        """Returns an accelerator type or a runtime version; raises ApiError if it is unknown."""
        if name not in known:
            raise ApiError(StatusCode.NOT_FOUND, f"Resource '{self.name}' was not found")
        return {"name": f"{self.name.rpartition('/')[0]}/{name}", field: name}


def _guest_attributes(asked: _Request) -> Json:
    """Returns the host names of workers, which gcloud needs for tunnels to them."""
    wanted = {str(each) for each in asked.body.get("workerIds", ()) if each != ""}
    shown = [worker for worker in asked.vms.workers_of(asked.name) if not wanted or str(worker.index) in wanted]
    names = [[{"namespace": "hostkeys", "key": "hostname", "value": worker.hostname}] for worker in shown]
    return {"guestAttributes": [{"queryPath": "hostkeys/", "queryValue": {"items": items}} for items in names]}


# In v1, nodes are of another kind, to which users cannot log in.
_OF_VERSION_1 = ("GET", "GET acceleratorTypes", "GET acceleratorTypes/*")
_READS: Mapping[str, Callable[[_Request], Json]] = {
    "GET": lambda asked: _location(asked.parent),
    "GET acceleratorTypes": lambda asked: {
        "acceleratorTypes": [asked.named("type", name, (name,)) for name in checks.accelerator_types()]
    },
    "GET acceleratorTypes/*": lambda asked: asked.named("type", asked.id, checks.accelerator_types()),
    "GET runtimeVersions": lambda asked: {
        "runtimeVersions": [asked.named("version", name, (name,)) for name in checks.RUNTIME_VERSIONS]
    },
    "GET runtimeVersions/*": lambda asked: asked.named("version", asked.id, checks.RUNTIME_VERSIONS),
    "GET nodes": lambda asked: {"nodes": [asked.node(node) for node in asked.vms.list_nodes(asked.parent)]},
    "GET nodes/*": lambda asked: asked.node(asked.vms.get_node(asked.name)),
    "POST nodes/*:getGuestAttributes": _guest_attributes,
    "GET queuedResources": lambda asked: {"queuedResources": asked.vms.list_queued(asked.parent)},
    "GET queuedResources/*": lambda asked: asked.vms.get_queued(asked.name),
    "GET operations": lambda asked: {
        "operations": [typed(each, asked.version) for each in asked.vms.list_operations(asked.parent)]
    },
}
_CHANGES: Mapping[str, Callable[[_Request], Json]] = {
    "POST nodes": lambda asked: asked.vms.create_node(asked.parent, asked.query.get("nodeId", ""), asked.body),
    "PATCH nodes/*": lambda asked: asked.vms.update_node(asked.name, asked.body, asked.query.get("updateMask", "")),
    "DELETE nodes/*": lambda asked: asked.vms.delete_node(asked.name),
    "POST nodes/*:start": lambda asked: asked.vms.start_or_stop(asked.name, "start"),
    "POST nodes/*:stop": lambda asked: asked.vms.start_or_stop(asked.name, "stop"),
    "POST queuedResources": lambda asked: asked.vms.create_queued(
        asked.parent, asked.query.get("queuedResourceId", ""), asked.body
    ),
    "DELETE queuedResources/*": lambda asked: asked.vms.delete_queued(
        asked.name, force=asked.query.get("force", "").lower() == "true"
    ),
    "GET operations/*": lambda asked: asked.vms.get_operation(asked.name),
}
"""The methods that answer with an operation, whose contents have the types of the requested version."""


def _location(name: str) -> Json:
    return {"name": name, "locationId": name.rpartition("/")[2]}


async def _answer_error(send: Send, error: ApiError) -> None:
    status = error.code.http_status
    await asgi.answer_json(send, status, {"error": {"code": status, "message": error.message, "status": error.code}})
