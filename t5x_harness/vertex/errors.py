"""What Vertex AI says when it refuses, in words that begin with what was asked for."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from t5x_harness.buckets.bucket_folder import WITHOUT_CREDENTIALS

_FOUND = re.compile(r"\t\d+\.")


class VertexError(Exception):
    """Vertex AI refused, or cannot be reached; the message has the service's own reason and what can be done.

    Attributes:
      passing: whether the same may well be answered in a while: the service, or the way there, is disturbed.
    """

    def __init__(self, message: str, *, passing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing


@contextlib.contextmanager
def as_vertex_error(what: str, project: str) -> Iterator[None]:
    """Turns the errors of Google's libraries into one, for the caller.

    Args:
      what: was asked for, such as ``the job cannot be created``.
      project: that was asked.

    Raises:
      VertexError: the block raised an error of Google's, or of the SDK's own.
    """
    from google.api_core import exceptions
    from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, TransportError

    try:
        yield
    except exceptions.RetryError as error:
        raise VertexError(f"{what}: Vertex AI does not answer: {error.cause or error}", passing=True) from None
    except (exceptions.ServerError, exceptions.Aborted) as error:
        raise VertexError(f"{what}: {error.message or error}", passing=True) from None
    except (exceptions.Forbidden, exceptions.Unauthorized) as error:
        raise VertexError(
            f"{what}: {error.code}, {error.message}. This account needs roles/aiplatform.user in the project "
            f"{project}, where the API has to be enabled: gcloud services enable aiplatform.googleapis.com"
        ) from None
    except exceptions.ResourceExhausted as error:
        raise VertexError(
            f"{what}: {error.message}. Ask for more quota, or take another region or a smaller slice"
        ) from None
    except exceptions.GoogleAPICallError as error:
        raise VertexError(f"{what}: {_listed(error.message or str(error))}") from None
    except DefaultCredentialsError as error:
        raise VertexError(f"{what}: no Google credentials here: {error}. {WITHOUT_CREDENTIALS}") from None
    except TransportError as error:
        raise VertexError(f"{what}: no credentials can be had now: {error}", passing=True) from None
    except GoogleAuthError as error:
        raise VertexError(f"{what}: no valid credentials: {error}") from None
    except (ValueError, RuntimeError) as error:  # what the SDK itself refuses
        raise VertexError(f"{what}: {error}") from None
    except OSError as error:  # requests' connection errors are
        raise VertexError(f"{what}: Vertex AI cannot be reached: {error}", passing=True) from None


def _listed(message: str) -> str:
    """Returns the violations of a spec, which come on one line with tabs between, on a line each."""
    return _FOUND.sub("\n  ", message).replace("\t", " ")
