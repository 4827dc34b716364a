"""Google's retry conformance: google-cloud-storage tries again where Google says so, and nowhere else."""

import itertools
import json
import time
from collections.abc import Iterator

import pytest

pytest.importorskip("httptools", reason="the extra google is not installed")
pytest.importorskip("google.cloud.storage", reason="google-cloud-storage is not installed")

from retry_scenarios import LARGE, SCENARIOS, Place, calls_of
from serving_storage import ask, client_of

from t5x_harness.google.session import EmulatedCloud


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedCloud]:
    with EmulatedCloud(tmp_path_factory.mktemp("root")) as running:
        yield running


_NUMBERS = itertools.count()


def place_for(session: EmulatedCloud, retry_test: str, *, conditional: bool, large: bool) -> Place:
    """Makes what a call works on, without the faults of the retry test."""
    client = client_of(session)
    bucket = client.create_bucket(f"bucket-{next(_NUMBERS)}")
    blob = bucket.blob("large")
    blob.upload_from_string(LARGE if large else b"small")
    notification = bucket.notification(topic_name="topic")
    notification.create()
    key, _ = client.create_hmac_key("someone@example.com")
    numbers = blob.generation, blob.metageneration, bucket.metageneration
    faulty = client_of(session, **{"x-retry-test-id": retry_test})
    return Place(
        faulty, faulty.bucket(bucket.name), conditional, numbers, notification.notification_id, str(key.access_id)
    )


# After 401, a client without an account does not get as far as another request.
ENDS = r"t5x-harness: gcs\.fail|[Rr]eset|aborted|Anonymous credentials cannot be refreshed"


@pytest.mark.parametrize(
    ("number", "method"),
    [(number, method) for number, scenario in SCENARIOS.items() for method in scenario.methods.split()],
)
def test_the_client_retries_what_it_should(
    session: EmulatedCloud, monkeypatch: pytest.MonkeyPatch, number: int, method: str
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # the client would wait for seconds before it tries again
    scenario = SCENARIOS[number]
    for case, call in itertools.product(scenario.cases, calls_of(number, method)):
        instructions = {f"storage.{method}": case.split()}
        status, _, body = ask(session, "POST", "/retry_test", json.dumps({"instructions": instructions}).encode())
        assert status == 200, body
        retry_test = json.loads(body)["id"]
        large = method == "objects.get"
        place = place_for(session, retry_test, conditional=scenario.conditional, large=large)
        if scenario.succeeds:
            call(place)
        else:
            with pytest.raises(Exception, match=ENDS):
                call(place)
        left = json.loads(ask(session, "GET", f"/retry_test/{retry_test}")[2])
        assert left["completed"], (case, left)
        assert ask(session, "DELETE", f"/retry_test/{retry_test}")[0] == 200
