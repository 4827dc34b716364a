"""Errors of Google's libraries become VertexErrors, which name the request, the reason and the fix."""

import pytest

from t5x_harness.vertex.errors import VertexError, as_vertex_error

exceptions = pytest.importorskip("google.api_core.exceptions")
auth = pytest.importorskip("google.auth.exceptions")

FOUND = "List of found errors:\t1.Field: job_spec.a; Message: Wrong a.\t2.Field: job_spec.b; Message: Wrong b.\t"


@pytest.mark.parametrize(
    ("error", "message", "passing"),
    [
        (
            exceptions.InvalidArgument(FOUND),
            "List of found errors:\n  Field: job_spec.a; Message: Wrong a.\n  Field: job_spec.b; Message: Wrong b.",
            False,
        ),
        (exceptions.NotFound("no such job"), "it: no such job", False),
        (exceptions.PermissionDenied("no"), "account needs roles/aiplatform.user in the project my-project", False),
        (exceptions.ResourceExhausted("quota"), "it: quota. Ask for more quota, or take another region", False),
        (exceptions.ServiceUnavailable("busy"), "it: busy", True),
        (exceptions.RetryError("late", cause=OSError("gone")), "it: Vertex AI does not answer: gone", True),
        (
            auth.DefaultCredentialsError("none"),
            "it: no Google credentials here: none. Run gcloud auth application-default login; without a cloud: submit "
            "--vertex=emulated, pytest --t5x-vertex=emulated, or any command in a shell of t5x-harness serve",
            False,
        ),
        (auth.TransportError("down"), "it: no credentials are available now: down", True),
        (ConnectionError("refused"), "it: Vertex AI cannot be reached: refused", True),
        (ValueError("Resource X is not a valid resource id."), "it: Resource X is not a valid resource id.", False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_each_error_is_told(error: Exception, message: str, passing: bool) -> None:
    with pytest.raises(VertexError) as caught, as_vertex_error("it", "my-project"):
        raise error
    assert message in str(caught.value)
    assert caught.value.passing is passing
