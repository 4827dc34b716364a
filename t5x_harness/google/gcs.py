"""A test's handle on an emulated Cloud Storage: its buckets, faults and requests."""

import dataclasses
import json
import urllib.error
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from t5x_harness.google.faults import Fault, GcsFaultKind, RecordedRequest, UnmetFault
from t5x_harness.google.identity import PRIVATE, UNRECORDED
from t5x_harness.google.product import PRODUCT
from t5x_harness.google.session import EmulatedCloud, ask_server, pages_of

APP = f"{__package__}.storage_http.faulting:make_app"
"""The application that a session has to run for this handle."""


class FakeGcs:
    """Buckets, faults and requests of a session that runs :data:`APP`.

    All of ``fail``, ``stall``, ``reset``, ``lose``, ``truncate`` and ``slow`` take ``on`` (an operation), ``match`` (a
    glob for the object's name), ``times`` (None for always), ``after`` (number of requests that pass first) and
    ``optional`` (fewer requests may hit it). They raise ValueError for values that :class:`Fault` refuses.
    """

    def __init__(self, session: EmulatedCloud) -> None:
        self._session = session

    @property
    def endpoint(self) -> str:
        """``http://127.0.0.1:PORT``."""
        return self._session.endpoints.url

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that redirect a process to this session, if it is started with them."""
        return self._session.environment()

    def fail(self, status: int, **which: Any) -> None:
        """Answers requests with an error of this HTTP status."""
        self._arm("fail", status, which)

    def stall(self, seconds: float, **which: Any) -> None:
        """Delays requests by a number of seconds."""
        self._arm("stall", seconds, which)

    def reset(self, *, bytes: int = 0, **which: Any) -> None:
        """Resets connections (TCP RST) after a number of bytes of a longer request's body; immediately for 0."""
        self._arm("reset", bytes, which)

    def lose(self, **which: Any) -> None:
        """Carries requests out, and resets their connections instead of answering."""
        self._arm("lose", 0, which)

    def truncate(self, *, bytes: int, **which: Any) -> None:
        """Ends connections after a number of bytes of a longer answer's body."""
        self._arm("truncate", bytes, which)

    def slow(self, *, bytes_per_second: float, **which: Any) -> None:
        """Slows bodies down to this average rate, in both directions."""
        self._arm("slow", bytes_per_second, which)

    @property
    def requests(self) -> list[RecordedRequest]:
        """The last 100000 requests of clients, in the order in which they ended."""
        return [RecordedRequest(**value) for value in self._ask("GET", f"{PRIVATE}/faults")["requests"]]

    def clear(self) -> None:
        """Removes all faults and recorded requests."""
        self._ask("DELETE", f"{PRIVATE}/faults")

    def unmet(self) -> list[UnmetFault[Fault]]:
        """Returns the faults that too few requests have hit, except optional ones."""
        record = self._ask("GET", f"{PRIVATE}/faults")
        operations = tuple(request["operation"] for request in record["requests"])
        faults = ((Fault(**each["fault"]), each["met"]) for each in record["faults"])
        return [UnmetFault(fault, met, operations) for fault, met in faults if fault.is_unmet(met)]

    def bucket(self, name: str) -> str:
        """Creates a bucket and returns its name."""
        self._ask("POST", "/storage/v1/b", json.dumps({"name": name}).encode())
        return name

    def put(self, bucket: str, tree: Mapping[str, str | bytes] | Path) -> None:
        """Creates objects from a mapping of names to bodies, or from a folder's files."""
        if isinstance(tree, Path):
            tree = {p.relative_to(tree).as_posix(): p.read_bytes() for p in sorted(tree.rglob("*")) if p.is_file()}
        for name, body in tree.items():
            path = f"/upload/storage/v1/b/{quote(bucket, safe='')}/o?uploadType=media&name={quote(name, safe='')}"
            self._ask("POST", path, body.encode() if isinstance(body, str) else body)

    def buckets(self) -> list[str]:
        """Returns the names of all buckets."""
        return [str(bucket["name"]) for bucket in self._items(f"/storage/v1/b?project={PRODUCT}")]

    def remove_buckets(self) -> None:
        """Removes all buckets and their objects."""
        for bucket in self.buckets():
            path = f"/storage/v1/b/{bucket}"
            for item in self._items(f"{path}/o?versions=true"):
                self._ask("DELETE", f"{path}/o/{quote(item['name'], safe='')}?generation={item['generation']}")
            self._ask("DELETE", path)

    def _items(self, path: str) -> list[dict[str, Any]]:
        pages = pages_of(
            lambda token: self._ask("GET", path + (f"&pageToken={quote(token, safe='')}" if token else ""))
        )
        return [item for page in pages for item in page.get("items", ())]

    def _arm(self, kind: GcsFaultKind, value: float, which: Mapping[str, Any]) -> None:
        fault = Fault(kind, value, **which)
        self._ask("POST", f"{PRIVATE}/faults", json.dumps(dataclasses.asdict(fault)).encode())

    def _ask(self, method: str, path: str, body: bytes | None = None) -> Any:
        headers = {} if path.startswith(PRIVATE) else {UNRECORDED: "1"}
        try:
            return ask_server(self._session.endpoints, method, path, body, headers)
        except urllib.error.HTTPError as error:
            raise ValueError(f"{method} {path}: {error.code} {error.read().decode(errors='replace')}") from None
