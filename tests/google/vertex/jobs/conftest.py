"""Fixtures for services whose jobs are small programs. Each service ends with its test, and leaves nothing behind."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def make_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Yields a function that makes services with options of :class:`VertexOptions`, each in its own folder."""
    from job_service import Service, processes_of

    from t5x_harness.google.vertex.jobs import driver

    monkeypatch.setattr(driver, "WARNED_SECONDS", 2.0)
    monkeypatch.setattr(driver, "ENDED_SECONDS", 0.5)

    made: list[Any] = []

    def make(state: Any = None, **options: Any) -> Any:
        made.append(Service(tmp_path / f"server-{len(made)}", state, **options))
        return made[-1]

    yield make
    for service in made:
        service.api.close()
    threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("vertex-")]
    assert not threads
    assert not processes_of(tmp_path)


@pytest.fixture
def service(make_service: Callable[..., Any]) -> Any:
    """Returns a service whose jobs do not wait for anything."""
    return make_service()


@pytest.fixture
def bucket(service: Any) -> Path:
    """Returns the folder that jobs of the service see at ``/gcs/b``."""
    folder: Path = service.api.services.settings.root / "buckets" / "b"
    folder.mkdir(parents=True)
    return folder
