"""A missing bucket is reported once, with the command that creates it, or is created on first use."""

import os
import shutil
from pathlib import Path

import pytest

pytest.importorskip("httptools", reason="the extra google is not installed")

from serving_storage import ask

from t5x_harness.google.server.launch import launch
from t5x_harness.google.server.settings import ServerSettings
from t5x_harness.google.session import EmulatedCloud
from t5x_harness.google.storage_http.json_api import MissingBuckets

LISTING, UPLOAD = "/storage/v1/b/{}/o", "/upload/storage/v1/b/{}/o?uploadType=media&name=x"


@pytest.mark.parametrize("gcloud", [True, False])
def test_the_third_request_for_it_says_so_and_how_to_make_it(
    gcloud: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if gcloud else None)
    missing = MissingBuckets(tmp_path)
    for _ in range(2):
        missing.note("acme-nlp")
        missing.note("other")
    assert capsys.readouterr().err == ""
    for _ in range(9):
        missing.note("acme-nlp")
    command = "gcloud storage buckets create gs://acme-nlp" if gcloud else f"mkdir {tmp_path}/acme-nlp"
    assert capsys.readouterr().err == (
        "t5x-harness: there is no bucket 'acme-nlp', which was asked for 3 times; some programs ask again for ever. "
        f"Make it: {command}, or have all buckets made: --create-buckets of exec and serve\n"
    )


def test_a_session_keeps_what_its_server_said_of_it() -> None:
    with EmulatedCloud() as session:
        assert session.said() == ("", 0)
        for path in ("/storage/v1/b/acme-nlp", LISTING.format("acme-nlp"), "/acme-nlp/object"):
            assert ask(session, "GET", path)[0] == 404
        said, end = session.said()
        assert said.startswith("t5x-harness: there is no bucket 'acme-nlp', which was asked for 3 times")
        assert session.said(end) == ("", end)


def test_buckets_are_made_when_they_are_first_used_if_that_is_wanted(tmp_path: Path) -> None:
    with (tmp_path / "output").open("w+b") as output:
        launched = launch(ServerSettings(tmp_path / "root", owner=os.getpid(), create_buckets=True), output)
        try:
            session = EmulatedCloud()
            session._launched = launched
            used = {"one": ("POST", UPLOAD), "two": ("GET", LISTING), "three": ("GET", "/storage/v1/b/{}")}
            for bucket, (method, path) in {**used, "four": ("PUT", "/{}/x")}.items():
                assert ask(session, method, path.format(bucket), b"x" if method != "GET" else b"")[0] == 200, path
                assert (tmp_path / "root" / "buckets" / bucket).is_dir()
            assert ask(session, "GET", LISTING.format("no_Bucket"))[0] in (400, 404)
            assert len(list((tmp_path / "root" / "buckets").iterdir())) == 4
        finally:
            launched.end()
