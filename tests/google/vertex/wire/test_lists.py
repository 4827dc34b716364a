"""Lists: filters, orders, pages and read masks."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from api_calls import PARENT, Call
from google.cloud.aiplatform_v1 import types
from hypothesis import given, settings
from hypothesis import strategies as st

from t5x_harness.google.vertex.messages.filters import matcher
from t5x_harness.google.vertex.messages.lists import in_order, page_of
from t5x_harness.google.vertex.wire.errors import ApiError, StatusCode
from t5x_harness.google.vertex.wire.rpc_table import rpc_table


def _job(**fields: Any) -> Any:
    job = types.CustomJob.pb()(name=f"{PARENT}/customJobs/1", display_name="train-t5", state=4, **fields)
    job.create_time.FromJsonString("2026-03-01T12:00:00Z")
    job.labels.update({"team": "text", "tier": "a"})
    job.job_spec.service_account = "me@example.org"
    job.job_spec.scheduling.timeout.seconds = 3600
    return job


def _context() -> Any:
    context = types.Context.pb()(name="c", schema_title="system.Run", parent_contexts=["p/1", "p/2"])
    context.metadata.update({"loss": 0.5, "name": "x", "ok": True, "eval:loss": 2.0, "deep": {"step": 7}})
    return context


HOLD = [
    'display_name="train-t5"',
    "displayName=train-t5",
    'display_name:"train-*"',
    'display_name="*t5"',
    'display_name!="other"',
    "state=JOB_STATE_SUCCEEDED",
    "state=4",
    "state!=JOB_STATE_FAILED",
    "state:JOB_STATE_*",
    "labels.team=text",
    "labels.team:*",
    "labels:team",
    "labels.absent!=x",
    "NOT labels.absent:*",
    'create_time>"2026-02-01T00:00:00Z"',
    'create_time>="2026-03-01T13:00:00+01:00"',
    "create_time=2026-03-01T12:00:00Z",
    'NOT start_time>"2020-01-01T00:00:00Z"',
    "job_spec.service_account=me@example.org",
    'job_spec.scheduling.timeout="3600s"',
    "job_spec.enable_web_access=false",
    'display_name="train-t5" AND (state=JOB_STATE_FAILED OR labels.tier=a)',
]
FAIL = [
    'display_name="train"',
    'display_name:"train"',
    "state=JOB_STATE_RUNNING",
    "labels.team=other",
    "labels.absent=x",
    "labels:absent",
    'create_time<"2026-03-01T12:00:00Z"',
    'end_time:"*"',
]


@pytest.mark.parametrize(("text", "holds"), [*((text, True) for text in HOLD), *((text, False) for text in FAIL)])
def test_filters_on_a_job(api: Any, text: str, holds: bool) -> None:
    assert matcher(text, api.services)(_job()) is holds


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("metadata.loss.number_value=0.5", True),
        ("metadata.loss.number_value<0.5", False),
        ("metadata.loss=0.5", True),
        ('metadata.name.string_value="x"', True),
        ("metadata.name.number_value=1", False),
        ("metadata.ok.bool_value=true", True),
        ('metadata."eval:loss".number_value>1', True),
        ("metadata.deep.struct_value.step.number_value=7", True),
        ("metadata.deep.step=7", True),
        ("metadata.absent.number_value>0", False),
        ("metadata:loss", True),
        ("metadata.loss:*", True),
        ("metadata.absent:*", False),
        ('parent_contexts:"p/2"', True),
        ('parent_contexts:"p/3"', False),
        ("parent_contexts:*", True),
    ],
)
def test_filters_on_metadata(api: Any, text: str, holds: bool) -> None:
    assert matcher(text, api.services)(_context()) is holds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("display_nam=x", "Invalid filter: there is no field display_nam"),
        ("state=SUCCEEDED", "Invalid filter: 'SUCCEEDED' is not one of JOB_STATE_UNSPECIFIED, JOB_STATE_QUEUED, "),
        ("create_time>yesterday", "Invalid filter: create_time cannot be compared with 'yesterday'"),
        ("job_spec=x", "Invalid filter: job_spec cannot be compared with a value"),
        ("in_space(x)", "Invalid filter: there is no function in_space"),
        ("display_name=train-t5 OR nowhere=1", "Invalid filter: there is no field nowhere"),
        (
            'parent_contexts="p/1"',
            "Invalid filter: parent_contexts has several values; it can be compared only with `:`",
        ),
    ],
)
def test_filters_that_mean_nothing(api: Any, text: str, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        matcher(text, api.services)(_context() if "parent" in text else _job())
    assert caught.value.code is StatusCode.INVALID_ARGUMENT
    assert caught.value.message.startswith(message)


def _named(jobs: list[Any]) -> list[str]:
    return [job.name for job in jobs]


def test_orders() -> None:
    jobs = [_job() for _ in range(4)]
    for number, job in enumerate(jobs):
        job.name = str(number)
        job.display_name = "ba"[number % 2]
        job.create_time.seconds += number
    assert _named(in_order(jobs, "", newest_first=True)) == ["3", "2", "1", "0"]
    assert _named(in_order(jobs, "", newest_first=False)) == ["0", "1", "2", "3"]
    assert _named(in_order(jobs, "display_name", newest_first=True)) == ["1", "3", "0", "2"]
    assert _named(in_order(jobs, "display_name desc, create_time desc", newest_first=False)) == ["2", "0", "3", "1"]
    assert _named(in_order(jobs, "displayName, createTime desc", newest_first=False)) == ["3", "1", "2", "0"]
    assert _named(in_order(jobs, "job_spec.scheduling.timeout desc", newest_first=False)) == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ("colour", "'colour': there is no field 'colour'"),
        ("display_name down", "'display_name down': 'display_name down' is not a field, or field and desc"),
        ("display_name,,name", "'display_name,,name': '' is not a field, or field and desc"),
        ("job_spec", "'job_spec': job_spec has no order"),
        ("labels", "'labels': labels has no order"),
        (
            "job_spec.worker_pool_specs.replica_count",
            "'job_spec.worker_pool_specs.replica_count': worker_pool_specs has no order",
        ),
        ("state.x", "'state.x': there is no field 'state.x'"),
    ],
)
def test_what_is_no_order(order: str, message: str) -> None:
    with pytest.raises(ApiError, match="Field: order_by; Message: ") as caught:
        in_order([_job()], order, newest_first=False)
    assert caught.value.violations[0].message == message


def test_an_order_on_metadata() -> None:
    contexts = [_context() for _ in range(3)]
    for number, context in enumerate(contexts):
        context.name = str(number)
        context.metadata["loss"] = [3.0, 1.0, 2.0][number]
    assert _named(in_order(contexts, "metadata.loss.number_value", newest_first=False)) == ["1", "2", "0"]
    assert _named(in_order(contexts, "metadata.loss desc", newest_first=False)) == ["0", "2", "1"]
    contexts[0].metadata["loss"] = "none"
    del contexts[2].metadata["loss"]
    assert _named(in_order(contexts, "metadata.loss", newest_first=False)) == ["2", "1", "0"]


@given(st.lists(st.text(max_size=5), max_size=12), st.integers(1, 5))
@settings(max_examples=50, deadline=None, database=None, derandomize=True)
def test_pages_are_the_list(names: list[str], size: int) -> None:
    """For any page size, the pages of a list together are exactly the list."""
    listed = [f"{number}/{name}" for number, name in enumerate(names)]
    request = rpc_table()["JobService.ListCustomJobs"].request(parent=PARENT)
    told: list[str] = []
    while True:
        page, request.page_token = page_of(listed, request, size, name=str)
        told += page
        if not request.page_token:
            break
    assert told == listed


@pytest.fixture
def tensorboards(call: Call) -> list[str]:
    """Creates five Tensorboards, and returns their display names, oldest first."""
    names = [f"board-{number}" for number in range(5)]
    for name in names:
        call("TensorboardService.CreateTensorboard", parent=PARENT, tensorboard={"display_name": name})
    return names


def _list(call: Call, **fields: Any) -> Any:
    return call("TensorboardService.ListTensorboards", **{"parent": PARENT, **fields})


@pytest.mark.usefixtures("tensorboards")
def test_a_list_goes_on_where_it_was_although_others_come_and_go(call: Call) -> None:
    first = _list(call, page_size=2, order_by="display_name desc")
    call("TensorboardService.CreateTensorboard", parent=PARENT, tensorboard={"display_name": "zoo"})
    second = _list(call, page_size=2, order_by="display_name desc", page_token=first.next_page_token)
    assert [t.display_name for t in second.tensorboards] == ["board-2", "board-1"]
    call("TensorboardService.DeleteTensorboard", name=first.tensorboards[1].name)
    again = _list(call, page_size=9, order_by="display_name desc", page_token=first.next_page_token)
    assert {t.display_name for t in again.tensorboards} >= {"board-1", "board-0"}


@pytest.mark.usefixtures("tensorboards")
@pytest.mark.parametrize(
    "change", [{"filter": 'display_name="x"'}, {"order_by": "display_name"}, {"parent": PARENT + "9"}]
)
def test_a_page_token_is_good_for_its_own_list(call: Call, change: dict[str, str]) -> None:
    token = _list(call, page_size=2).next_page_token
    with pytest.raises(ApiError, match="Invalid page_token: it is not from a page of this list"):
        _list(call, page_token=token, **change)


@pytest.mark.usefixtures("tensorboards")
def test_sizes_of_pages(call: Call) -> None:
    assert len(_list(call).tensorboards) == 5
    assert len(_list(call, page_size=1_000_000).tensorboards) == 5
    with pytest.raises(ApiError, match="Field: page_size; Message: -1 is negative"):
        _list(call, page_size=-1)


def test_a_mask_of_what_is_told(call: Call, tensorboards: list[str]) -> None:
    told = _list(call, read_mask={"paths": ["display_name"]}).tensorboards
    assert [t.display_name for t in told] == tensorboards
    assert not any(t.name or t.etag or t.HasField("create_time") for t in told)
    assert _list(call, read_mask={"paths": ["*"]}).tensorboards[0].name
    with pytest.raises(ApiError, match="Field: read_mask; Message: `color` is not a field of Tensorboard"):
        _list(call, read_mask={"paths": ["color"]})


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        *(({"page_token": each}, "Invalid page_token") for each in ("x", "é", "AAAA", b64encode(b"\0" * 40).decode())),
        ({"filter": "colour=red"}, "Invalid filter: there is no field colour"),
        ({"order_by": "colour"}, "there is no field 'colour'"),
        ({"read_mask": {"paths": ["colour"]}}, "`colour` is not a field of Tensorboard"),
    ],
)
def test_what_cannot_be_asked_is_refused_where_there_is_nothing(call: Call, asked: Any, message: str) -> None:
    with pytest.raises(ApiError, match=message) as caught:
        _list(call, **asked)
    assert caught.value.code is StatusCode.INVALID_ARGUMENT


def test_what_is_below_a_parent_that_is_not_there(refused: Call) -> None:
    parent = f"{PARENT}/tensorboards/1"
    assert refused("TensorboardService.ListTensorboardExperiments", parent=parent)[0] == "NOT_FOUND"


def test_a_wildcard_is_for_every_parent(call: Call) -> None:
    for location in ("us-central1", "europe-west4"):
        parent = f"projects/t5x-harness/locations/{location}"
        made = call("TensorboardService.CreateTensorboard", parent=parent, tensorboard={"display_name": location})
        board = made.name.partition("/operations/")[0]
        call(
            "TensorboardService.CreateTensorboardExperiment",
            parent=board,
            tensorboard_experiment={"display_name": "e"},
            tensorboard_experiment_id=f"e-{location}",
        )
    everywhere = _list(call, parent="projects/t5x-harness/locations/-").tensorboards
    assert [t.display_name for t in everywhere] == ["us-central1", "europe-west4"]
    below = call("TensorboardService.ListTensorboardExperiments", parent=f"{PARENT}/tensorboards/-")
    assert [e.name.rpartition("/")[2] for e in below.tensorboard_experiments] == ["e-us-central1"]
