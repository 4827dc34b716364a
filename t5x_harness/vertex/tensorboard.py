"""A run's event files in Vertex AI TensorBoard.

Vertex AI does not upload those of TPU jobs, whatever their spec says: the SDK's uploader does, from the bucket.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from t5x_harness.buckets.addresses import bucket_of, object_address
from t5x_harness.vertex.errors import VertexError, as_vertex_error
from t5x_harness.vertex.target import VertexTarget

_LAST_LOOK = 3.0
"""Seconds in which the uploader, which looks once a second, finds what was written last."""


def create_tensorboard(display_name: str, target: VertexTarget) -> str:
    """Creates a TensorBoard, and returns its resource name.

    Raises:
      VertexError: the service refuses.
    """
    from google.cloud import aiplatform

    with as_vertex_error(f"the TensorBoard {display_name} cannot be created", target.project):
        made = aiplatform.Tensorboard.create(
            display_name=display_name, project=target.project, location=target.location
        )
        return str(made.resource_name)


def upload_events(model_dir: str, run: str, tensorboard: str, target: VertexTarget) -> None:
    """Uploads the event files of a run that exist now.

    Args:
      model_dir: the ``gs://…`` folder; each folder below it with event files becomes a run in the TensorBoard.
      run: the name of the TensorBoard's experiment.
      tensorboard: the number or resource name of the TensorBoard.
      target: the project and region.

    Raises:
      VertexError: the folder's address has no bucket, the service refuses, or the uploader's libraries are not
        installed.
    """
    if object_address(model_dir) is not None and not bucket_of(model_dir):
        raise VertexError(
            f"the event files of {run} cannot be uploaded: {model_dir!r} names no bucket: give a folder of one, as "
            "gs://BUCKET/FOLDER"
        )
    from google.cloud import aiplatform

    with _as_upload_error(run, target):
        aiplatform.upload_tb_log(
            tensorboard_id=_number(tensorboard),
            tensorboard_experiment_name=run,
            logdir=model_dir,
            project=target.project,
            location=target.location,
            verbosity=0,
        )


@contextlib.contextmanager
def uploading(model_dir: str, run: str, tensorboard: str, target: VertexTarget) -> Iterator[None]:
    """Uploads a run's event files as they grow while a block lasts, and once more when it ends.

    Raises:
      VertexError: the service refuses, or the uploader's libraries are not installed.
    """
    from google.cloud import aiplatform

    with _as_upload_error(run, target):
        aiplatform.start_upload_tb_log(
            tensorboard_id=_number(tensorboard),
            tensorboard_experiment_name=run,
            logdir=model_dir,
            project=target.project,
            location=target.location,
        )
    try:
        yield
    finally:
        time.sleep(_LAST_LOOK)
        aiplatform.end_upload_tb_log()


@contextlib.contextmanager
def _as_upload_error(run: str, target: VertexTarget) -> Iterator[None]:
    with as_vertex_error(f"the event files of {run} cannot be uploaded", target.project):
        try:
            yield
        except ImportError as error:
            raise VertexError(f"the uploader needs TensorFlow and TensorBoard: {error}") from None


def _number(tensorboard: str) -> str:
    return tensorboard.rpartition("/")[2]
