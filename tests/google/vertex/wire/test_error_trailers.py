"""Errors fit into gRPC's trailers; otherwise a client would see only RESOURCE_EXHAUSTED."""

from __future__ import annotations

import base64
from urllib.parse import quote

import pytest

pytest.importorskip("google.cloud.aiplatform_v1", reason="needs the extra vertex")

from t5x_harness.google.vertex.wire.api import fit_for_trailer, to_status
from t5x_harness.google.vertex.wire.errors import ApiError, FieldViolation, StatusCode

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
