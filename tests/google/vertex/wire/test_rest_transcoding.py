"""JSON over HTTP is converted to and from messages; errors have Google's form, and fit into gRPC's trailers."""

import base64
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from api_calls import PARENT
from google.cloud.aiplatform_v1 import types

from t5x_harness.google.server.vertex_endpoint import _administer
from t5x_harness.google.vertex.messages.checks import check_times
from t5x_harness.google.vertex.wire.api import fit_for_trailer, to_status
from t5x_harness.google.vertex.wire.errors import ApiError, FieldViolation, StatusCode
from t5x_harness.google.vertex.wire.rest import answer_rest, error_answer, find_route

Answer = tuple[int, Any]


@pytest.fixture
def rest(api: Any) -> Callable[..., Answer]:
    """Returns ``rest("GET", path, ("name", "value"), …, body=…)``, which returns the status and the JSON."""

    def ask(verb: str, path: str, *query: tuple[str, str], body: Any = None) -> Answer:
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        try:
            return 200, json.loads(answer_rest(api, verb, path, query, data))
        except ApiError as error:
            status, answer = error_answer(error)
            return status, json.loads(answer)

    return ask


@pytest.fixture
def board(rest: Callable[..., Answer]) -> str:
    status, made = rest("POST", f"/v1/{PARENT}/tensorboards", body={"displayName": "b", "labels": {"a": "1"}})
    assert status == 200
    return str(made["response"]["name"])


@pytest.mark.parametrize(
    ("verb", "path", "method", "values"),
    [
        ("GET", f"/v1/{PARENT}/customJobs", "JobService.ListCustomJobs", {"parent": PARENT}),
        (
            "POST",
            f"/v1/{PARENT}/customJobs/1:cancel",
            "JobService.CancelCustomJob",
            {"name": f"{PARENT}/customJobs/1"},
        ),
        (
            "PATCH",
            f"/v1/{PARENT}/tensorboards/1",
            "TensorboardService.UpdateTensorboard",
            {"tensorboard.name": f"{PARENT}/tensorboards/1"},
        ),
        (
            "GET",
            f"/v1/{PARENT}/tensorboards/1/operations/2",
            "Operations.GetOperation",
            {"name": f"{PARENT}/tensorboards/1/operations/2"},
        ),
        ("GET", f"/v1/{PARENT}/operations/2", "Operations.GetOperation", {"name": f"{PARENT}/operations/2"}),
        ("GET", "/v3/projects/p", "Projects.GetProject", {"name": "projects/p"}),
    ],
)
def test_which_method_a_url_is_of(verb: str, path: str, method: str, values: dict[str, str]) -> None:
    found = find_route(verb, path)
    assert found is not None
    assert (found[0].name, found[2]) == (method, values)


@pytest.mark.parametrize(
    ("verb", "path"),
    [("GET", "/v1/"), ("PUT", f"/v1/{PARENT}/customJobs"), ("GET", f"/v1/{PARENT}/customJobs/1/2"), ("GET", "/v2/x")],
)
def test_urls_of_no_method(rest: Callable[..., Answer], verb: str, path: str) -> None:
    assert find_route(verb, path) is None
    status, answer = rest(verb, path)
    assert (status, answer["error"]["status"]) == (403, "PERMISSION_DENIED")
    assert answer["error"]["details"][0]["reason"] == "SERVICE_DISABLED"
    assert answer["error"]["message"] == f"t5x-harness does not emulate {verb} {path}: no method is bound to it"


@pytest.mark.parametrize("mask", ["displayName,labels.a", "display_name,labels.a"])
def test_a_resources_whole_life_with_masks_in_either_spelling(
    rest: Callable[..., Answer], board: str, mask: str
) -> None:
    assert rest("GET", f"/v1/{board}")[1]["displayName"] == "b"
    body = {"displayName": "c", "description": "no", "labels": {"a": "2"}}
    status, changed = rest("PATCH", f"/v1/{board}", ("updateMask", mask), body=body)
    assert (status, changed["done"]) == (200, True)
    now = rest("GET", f"/v1/{board}")[1]
    assert (now["displayName"], "description" in now, now["labels"]) == ("c", False, {"a": "2"})
    gone = rest("DELETE", f"/v1/{board}")[1]["response"]
    assert gone["@type"] == "type.googleapis.com/google.protobuf.Empty"
    status, answer = rest("GET", f"/v1/{board}")
    assert (status, answer["error"]["code"], answer["error"]["status"]) == (404, 404, "NOT_FOUND")


def test_parameters(rest: Callable[..., Answer], board: str) -> None:
    for query in (
        [("pageSize", "1"), ("filter", 'display_name="b"'), ("orderBy", "create_time desc")],
        [("page_size", "1"), ("order_by", "create_time desc")],
        [("readMask", "name"), ("alt", "json"), ("$prettyPrint", "false"), ("key", "x")],
    ):
        status, page = rest("GET", f"/v1/{PARENT}/tensorboards", *query)
        assert (status, [each["name"] for each in page["tensorboards"]]) == (200, [board])


def test_parameters_that_are_repeated(rest: Callable[..., Answer], board: str) -> None:
    experiment, run = f"{board}/experiments/e", f"{board}/experiments/e/runs/r"
    rest("POST", f"/v1/{board}/experiments", ("tensorboardExperimentId", "e"), body={})
    rest("POST", f"/v1/{experiment}/runs", ("tensorboardRunId", "r"), body={"displayName": "r"})
    series = [
        rest("POST", f"/v1/{run}/timeSeries", body={"displayName": name, "valueType": "SCALAR"})[1]["name"]
        for name in "xy"
    ]
    status, read = rest("GET", f"/v1/{board}:batchRead", *(("timeSeries", name) for name in series))
    assert status == 200
    ids = [each["tensorboardTimeSeriesId"] for each in read["timeSeriesData"]]
    assert ids == [name.rpartition("/")[2] for name in series]


def test_enums_as_names_and_as_numbers(rest: Callable[..., Answer], board: str) -> None:
    rest("POST", f"/v1/{board}/experiments", ("tensorboardExperimentId", "e"), body={})
    rest("POST", f"/v1/{board}/experiments/e/runs", ("tensorboardRunId", "r"), body={"displayName": "r"})
    path = f"/v1/{board}/experiments/e/runs/r/timeSeries"
    for value in ("SCALAR", 1):
        status, made = rest("POST", path, body={"displayName": str(value), "valueType": value})
        assert (status, made["valueType"]) == (200, "SCALAR")
        told = rest("GET", f"/v1/{made['name']}", ("$alt", "json;enum-encoding=int"))[1]
        assert told["valueType"] == 1


def test_the_body_that_is_the_whole_request(rest: Callable[..., Answer], board: str) -> None:
    rest("POST", f"/v1/{board}/experiments", ("tensorboardExperimentId", "e"), body={})
    body = {
        "requests": [
            {"parent": f"{board}/experiments/e", "tensorboardRun": {"displayName": "r"}, "tensorboardRunId": "r"}
        ]
    }
    status, made = rest("POST", f"/v1/{board}/experiments/e/runs:batchCreate", body=body)
    assert (status, [run["name"] for run in made["tensorboardRuns"]]) == (200, [f"{board}/experiments/e/runs/r"])


@pytest.mark.parametrize(
    ("query", "body", "message"),
    [
        (
            [("colour", "x")],
            {},
            "Unknown name \"colour\": Cannot bind query parameter. Field 'colour' could not be found",
        ),
        ([("tensorboard.colour", "x")], {}, 'Unknown name "tensorboard.colour": Cannot bind query parameter.'),
        ([("parent.x", "x")], {}, 'Unknown name "parent.x": Cannot bind query parameter.'),
        ([("tensorboard.isDefault", "maybe")], {}, "Invalid value at 'tensorboard.isDefault' (TYPE_BOOL), \"maybe\""),
        ([("tensorboard.runCount", "many")], {}, "Invalid value at 'tensorboard.runCount': "),
        ([], {"colour": "x"}, 'no field named "colour"'),
        ([], {"displayName": 1}, "displayName"),
        ([], [], 'Unknown name "": Root element must be a message.'),
        ([], b'{"labels":' * 50_000, "Invalid JSON payload received. "),
        ([], b"{", "Invalid JSON payload received. Failed to load JSON: "),
        ([], b"\xff", "Invalid JSON payload received. "),
    ],
)
def test_what_is_no_request(rest: Callable[..., Answer], query: list[tuple[str, str]], body: Any, message: str) -> None:
    status, answer = rest("POST", f"/v1/{PARENT}/tensorboards", *query, body=body)
    assert (status, answer["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert answer["error"]["message"].startswith("Invalid JSON payload received. ")
    assert message in answer["error"]["message"]
    (detail,) = answer["error"]["details"]
    assert detail["@type"] == "type.googleapis.com/google.rpc.BadRequest"


_PIPELINE = '{"displayName":"x","trainingTaskDefinition":"gs://google-cloud-aiplatform/schema/trainingjob/definition/'


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("customJobs", '{"labels":"\\ud800"}', "The text is not UTF-8: surrogates not allowed."),
        ("customJobs", '{"displayName":"\\ud800"}', "The text is not UTF-8: surrogates not allowed."),
        ("customJobs", b'{"displayName":"\xff"}', "The text is not UTF-8: invalid start byte."),
        ("customJobs", "[" * 100_000, "It is nested too deeply."),
        ("metadataStores/default/artifacts", '{"metadata":{"a":NaN}}', "Unexpected token: NaN is not a number."),
        ("metadataStores/default/artifacts", '{"metadata":{"a":-1e999}}', "Number -1e999 is out of range."),
        *(
            (
                "trainingPipelines",
                f'{_PIPELINE}custom_task_1.0.0.yaml"{inputs}}}',
                "training_task_inputs; Message: it must be an object with the fields of a CustomJobSpec, such as "
                "workerPoolSpecs",
            )
            for inputs in ("", ',"trainingTaskInputs":null', ',"trainingTaskInputs":true')
        ),
    ],
)
def test_what_no_answer_could_say_again_is_refused_before_it_is_stored(
    rest: Callable[..., Answer], api: Any, path: str, body: str | bytes, message: str
) -> None:
    before = api.services.state.keys("")
    status, answer = rest("POST", f"/v1/{PARENT}/{path}", body=body if isinstance(body, bytes) else body.encode())
    assert (status, answer["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert message in answer["error"]["message"]
    assert [key for key in api.services.state.keys("") if "metadataStores/default" not in key] == before


def test_a_url_that_is_not_utf8_is_refused(rest: Callable[..., Answer]) -> None:
    for verb, path, query in [
        ("GET", f"/v1/{PARENT}/customJobs/\ud800", []),
        ("DELETE", "/v1/projects/\ud800/locations/l/customJobs", []),
        ("GET", f"/v1/{PARENT}/customJobs", [("readMask", "\ud800")]),
    ]:
        status, answer = rest(verb, path, *query)
        what = "query" if query else "path"
        assert (status, answer["error"]["message"]) == (400, f"The {what} of the request is not UTF-8.")


def test_what_json_cannot_say_is_an_error_that_says_so(rest: Callable[..., Answer], call: Callable[..., Any]) -> None:
    store = f"{PARENT}/metadataStores/default"
    call("MetadataService.CreateArtifact", parent=store, artifact={"metadata": {"a": float("nan")}})
    status, answer = rest("GET", f"/v1/{store}/artifacts")
    assert (status, answer["error"]["status"]) == (500, "INTERNAL")
    assert answer["error"]["message"].startswith("The answer cannot be JSON: Failed to serialize metadata field:")
    assert answer["error"]["message"].endswith(" Use gRPC instead.")


@pytest.mark.parametrize("body", [b"true", b"5", b"[" * 100_000, b'{"pageSize":1e999}', b'{"filter":"\\ud800"}'])
def test_log_entries_are_not_listed_for_what_is_no_request(api: Any, body: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        _administer(api, "entries", body)
    assert refused.value.code is StatusCode.INVALID_ARGUMENT


def test_errors_have_their_details(rest: Callable[..., Answer]) -> None:
    status, answer = rest("GET", f"/v1/{PARENT}/tensorboards", ("pageSize", "-1"))
    assert status == 400
    assert answer["error"] == {
        "code": 400,
        "message": "List of found errors:\t1.Field: page_size; Message: -1 is negative\t",
        "status": "INVALID_ARGUMENT",
        "details": [
            {
                "@type": "type.googleapis.com/google.rpc.BadRequest",
                "fieldViolations": [{"field": "page_size", "description": "-1 is negative"}],
            }
        ],
    }


@pytest.mark.parametrize(
    ("timeout", "message"),
    [
        ({"seconds": 9 * 10**15}, "must be in range [-315576000000, 315576000000]"),
        ({"seconds": 1, "nanos": -5}, "Sign mismatch"),
        ({"nanos": 2_000_000_000}, "Nanos 2000000000 must be in range"),
    ],
)
def test_a_job_with_a_duration_that_is_none(call: Callable[..., Any], timeout: Any, message: str) -> None:
    job = {"display_name": "a", "job_spec": {"scheduling": {"timeout": timeout}}}
    with pytest.raises(ApiError) as refused:
        call("JobService.CreateCustomJob", parent=PARENT, custom_job=job)
    assert refused.value.code is StatusCode.INVALID_ARGUMENT
    assert refused.value.violations[0].field == "custom_job.job_spec.scheduling.timeout"
    assert message in refused.value.message
    assert not call("JobService.ListCustomJobs", parent=PARENT).custom_jobs


def test_all_times_of_a_request_are_looked_at() -> None:
    late = {"wall_time": {"seconds": 10**15}, "scalar": {"value": 1.0}}
    request = types.WriteTensorboardRunDataRequest(
        time_series_data=[{"values": [{"wall_time": {"seconds": 5}}, late]}, {"values": [late]}]
    )
    with pytest.raises(ApiError) as refused:
        check_times(types.WriteTensorboardRunDataRequest.pb(request))
    assert [each.field for each in refused.value.violations] == [
        "time_series_data[0].values[1].wall_time",
        "time_series_data[1].values[0].wall_time",
    ]


def test_times_that_are_right_and_messages_that_hold_themselves_pass() -> None:
    job = types.CustomJob(
        display_name="a", labels={"a": "b"}, job_spec={"scheduling": {"timeout": {"seconds": 315_576_000_000}}}
    )
    check_times(types.CustomJob.pb(job))
    check_times(types.Artifact.pb(types.Artifact(metadata={"a": {"b": [{"c": 1}]}}, create_time={"seconds": 1})))


CLIENTS_LIMIT = 8192
LONG = [
    ApiError(StatusCode.NOT_FOUND, "x" * 100_000),
    ApiError(StatusCode.INVALID_ARGUMENT, "☃" * 100_000),
    ApiError.of_violations([FieldViolation("labels", "é" * 5000)]),
    ApiError.of_violations(
        [FieldViolation(f"env[{number}].name", f"the name {number} is wrong") for number in range(500)]
    ),
    ApiError.of_violations([FieldViolation("f" * 9000, "🙂" * 9000)] * 50),
]


@pytest.mark.parametrize("error", LONG, ids=range(len(LONG)))
def test_a_long_error_fits(error: ApiError) -> None:
    fitting = fit_for_trailer(error)
    details = base64.b64encode(to_status(fitting).SerializeToString())
    assert len(quote(fitting.message)) + len(details) < CLIENTS_LIMIT
    assert fitting.code is error.code
    assert "characters left out" in fitting.message or "more, which REST lists" in fitting.message
    assert fitting.message.encode()


def test_what_is_left_out_is_counted() -> None:
    violations = fit_for_trailer(LONG[3]).violations
    assert violations[0] == LONG[3].violations[0]
    assert violations[-1].message == f"{500 - (len(violations) - 1)} more, which REST lists: gRPC has no room for them"


def test_an_error_that_fits_stays_as_it_is() -> None:
    error = ApiError.of_violations([FieldViolation("display_name", "display_name is required.")])
    assert fit_for_trailer(error) is error
