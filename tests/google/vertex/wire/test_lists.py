"""Lists: filters by the rules of AIP-160, orders, pages and read masks."""

import contextlib
from base64 import b64encode
from typing import Any

import pytest
from api_calls import PARENT, Call
from google.cloud.aiplatform_v1 import types
from hypothesis import given, settings
from hypothesis import strategies as st

from t5x_harness.google.vertex.messages.filters import (
    And,
    Expression,
    Function,
    Not,
    Or,
    Restriction,
    matcher,
    parse_filter,
)
from t5x_harness.google.vertex.messages.lists import in_order, page_of
from t5x_harness.google.vertex.wire.errors import ApiError, StatusCode
from t5x_harness.google.vertex.wire.rpc_table import rpc_table


def _r(path: str, operator: Any, value: str) -> Restriction:
    return Restriction(tuple(path.split(".")), operator, value)


A, B, C = _r("a", "=", "1"), _r("b", "=", "2"), _r("c", "=", "3")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", A),
        ("a='1'", A),
        ("a=1 AND b=2", And((A, B))),
        ("a=1 b=2", And((A, B))),
        ("a=1 OR b=2", Or((A, B))),
        ("a=1 AND b=2 OR c=3", And((A, Or((B, C))))),  # OR binds tighter
        ("NOT a=1", Not(A)),
        ("-a=1", Not(A)),
        ("a=1 AND NOT b=2", And((A, Not(B)))),
        ("labels.team=my-team", _r("labels.team", "=", "my-team")),
        ("create_time>=2021-05-18T00:00:00.5+02:00", _r("create_time", ">=", "2021-05-18T00:00:00.5+02:00")),
        ("metadata.loss.number_value <= -0.5", _r("metadata.loss.number_value", "<=", "-0.5")),
        ('metadata."eval:loss".number_value<1e-3', Restriction(("metadata", "eval:loss", "number_value"), "<", "1e-3")),
        ("schema_title=system.Run AND a=1", And((_r("schema_title", "=", "system.Run"), A))),
        ('f("a", b)', Function("f", ("a", "b"))),
        (
            'schema_title="system.Experiment" AND in_context("c") OR parent_contexts:"p"',
            And(
                (
                    _r("schema_title", "=", "system.Experiment"),
                    Or((Function("in_context", ("c",)), _r("parent_contexts", ":", "p"))),
                )
            ),
        ),
    ],
)
def test_what_a_filter_means(text: str, expected: Expression) -> None:
    assert parse_filter(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", "Invalid filter 'a': an operator (=, !=, <, <=, >, >= or :) has to come after a field, at its end"),
        ("a=", "Invalid filter 'a=': a value is expected, at its end"),
        ("=1", "Invalid filter '=1': a field is expected, at '=1'"),
        ("a=1 AND", "Invalid filter 'a=1 AND': a field is expected, at its end"),
        ("AND a=1", "Invalid filter 'AND a=1': AND is not expected here, at 'AND a=1'"),
        ("a=1 OR OR b=2", "Invalid filter 'a=1 OR OR b=2': OR is not expected here, at 'OR b=2'"),
        ("(a=1", "Invalid filter '(a=1': ) is expected, at its end"),
        ("a=1)", "Invalid filter 'a=1)': the end is expected, at ')'"),
        ('a="1', "Invalid filter 'a=\"1': it cannot be parsed, at '\"1'"),
        (
            "a=1 & b=2",
            "Invalid filter 'a=1 & b=2': an operator (=, !=, <, <=, >, >= or :) has to come after a field, at 'b=2'",
        ),
        ("f(a", "Invalid filter 'f(a': , is expected, at its end"),
        ("   ", "Invalid filter '   ': a field is expected, at its end"),
    ],
)
def test_what_is_no_filter(text: str, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_filter(text)
    assert (caught.value.code, caught.value.message) == (StatusCode.INVALID_ARGUMENT, message)


def test_parentheses_without_end_are_refused() -> None:
    with pytest.raises(ApiError, match="more than 50 levels of parentheses"):
        parse_filter("(" * 100_000)


_FIELDS = st.lists(st.from_regex(r"[a-z][a-z0-9_]{0,6}", fullmatch=True), min_size=1, max_size=3).map(tuple)
_SIMPLE = st.one_of(
    st.builds(Restriction, _FIELDS, st.sampled_from("= != < <= > >= :".split()), st.text(max_size=6)),
    st.builds(
        Function, st.from_regex(r"[a-z_]{1,6}", fullmatch=True), st.lists(st.text(max_size=4), max_size=2).map(tuple)
    ),
)


def _joined(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(st.builds(Not, inner), st.builds(And, several), st.builds(Or, several))


def _written(expression: Expression) -> str:
    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    match expression:
        case Restriction(path, operator, value):
            return f"{'.'.join(path)} {operator} {quoted(value)}"
        case Function(name, arguments):
            return f"{name}({', '.join(map(quoted, arguments))})"
        case Not(operand):
            return f"NOT ({_written(operand)})"
        case And(operands):
            return " AND ".join(f"({_written(operand)})" for operand in operands)
        case Or(operands):
            return " OR ".join(f"({_written(operand)})" for operand in operands)


@given(st.recursive(_SIMPLE, _joined, max_leaves=8))
@settings(max_examples=200, deadline=None, database=None, derandomize=True)
def test_what_is_written_is_read_again(expression: Expression) -> None:
    assert parse_filter(_written(expression)) == expression


@given(st.text(alphabet="ab=<>:!()\"'\\., -*AND OR NOT 12é\n", max_size=30))
@settings(max_examples=300, deadline=None, database=None, derandomize=True)
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    with contextlib.suppress(ApiError):
        parse_filter(text)


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
