"""Errors of Vertex AI, with messages that begin with the request that failed."""

import contextlib
import re
from collections.abc import Iterator

from t5x_harness.buckets.folders import WITHOUT_CREDENTIALS

_FOUND = re.compile(r"\t\d+\.")


class VertexError(Exception):
    """Vertex AI refused a request or cannot be reached; the message has the service's own reason and the possible fix.

    Attributes:
      passing: whether the same request may succeed later, because the service or the network failed.
    """

    def __init__(self, message: str, *, passing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing


class JobNameError(VertexError):
    """A name that no job can have."""


@contextlib.contextmanager
def as_vertex_error(what: str, project: str) -> Iterator[None]:
    """Turns the errors of Google's libraries into VertexError.

    Args:
      what: the failure in words, such as ``the job cannot be created``.
      project: the project of the request.

    Raises:
      VertexError: the block raised an error of Google's services or of the SDK itself.
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
        fix = "Ask for more quota, or take another region or a smaller slice"
        raise VertexError(f"{what}: {error.message}. {fix}") from None
    except exceptions.GoogleAPICallError as error:
        # The violations of a spec are on one line, separated by tabs.
        listed = _FOUND.sub("\n  ", error.message or str(error)).replace("\t", " ")
        raise VertexError(f"{what}: {listed}") from None
    except DefaultCredentialsError as error:
        raise VertexError(f"{what}: no Google credentials here: {error}. {WITHOUT_CREDENTIALS}") from None
    except TransportError as error:
        raise VertexError(f"{what}: no credentials are available now: {error}", passing=True) from None
    except GoogleAuthError as error:
        raise VertexError(f"{what}: no valid credentials: {error}") from None
    except (ValueError, RuntimeError) as error:  # errors of the SDK itself
        raise VertexError(f"{what}: {error}") from None
    except OSError as error:  # such as connection errors from requests
        raise VertexError(f"{what}: Vertex AI cannot be reached: {error}", passing=True) from None
