"""What went wrong where SeqIO could not compute the metrics of a task: which part of the task, and how to fix it."""

from __future__ import annotations

import dataclasses
import errno
import re
import traceback
import urllib.error
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import seqio

from t5x_harness.resolve.frames import causes, root_cause

LATE = (
    "; with concurrent_metrics this runs in a thread beside training, and T5X shows its failure at the next eval or at "
    "the end"
)
"""What T5X makes of a metric that raises while it trains."""

_SEQIO = Path(seqio.__file__).parent
_POSTPROCESSING = ("postprocess", "postprocess_fn")
_UNREACHABLE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ETIMEDOUT)
_REFUSED = ("ConnectionError", "ConnectTimeout", "MaxRetryError", "UnavailableError", "gaierror")
"""Exceptions of libraries that are not imported for this, by name."""


@dataclasses.dataclass(frozen=True)
class MetricFailure:
    """A kind of failure: its code and the smallest fix."""

    code: str
    fix: str


@dataclasses.dataclass(frozen=True)
class Postprocessed:
    """What a postprocess function was given when it raised."""

    value: Any
    is_target: bool


_DUPLICATE = MetricFailure("SEQ22", "give each metric function keys of its own")
_SIGNATURE = MetricFailure(
    "SEQ23",
    "name them (targets, predictions), (targets, scores) or (targets, predictions, aux_values), in this order",
)
_LOGGED = MetricFailure(
    "INF12", "return numbers, or the seqio.metrics value that is meant: Text, Image, Audio, Histogram"
)
POSTPROCESS = "SEQ24"
"""The code of failures of postprocess functions."""

_POSTPROCESS = MetricFailure(
    POSTPROCESS, "make the postprocess function accept any text that an untrained model may produce"
)
_ARGUMENTS = MetricFailure(
    POSTPROCESS, "let the postprocess function take **kwargs: SeqIO passes example=... and is_target=..."
)
_RETURNED = MetricFailure("SEQ20", "return a dict of names and values from the metric function")
_OUTPUT = MetricFailure("SEQ20", "use PREDICTION, PREDICTION_WITH_AUX or SCORE: T5X gives SeqIO no other model outputs")
_METRIC = MetricFailure("SEQ20", "correct the metric function")


def kind_of(error: BaseException) -> MetricFailure:
    """Returns which part of a task failed, of an exception that SeqIO's evaluator raised."""
    cause = root_cause(error)
    text = str(cause)
    if re.match(r"Duplicate metric key ", text):
        return _DUPLICATE
    if text.startswith("Metric functions must have positional arguments"):
        return _SIGNATURE
    frames = list(_seqio_frames(error))
    if any(file == "loggers.py" for file, _ in frames):
        return _LOGGED
    if any(file == "metrics.py" and name in _POSTPROCESSING for file, name in frames):
        return _ARGUMENTS if re.search(r"unexpected keyword argument '(?:example|is_target)'", text) else _POSTPROCESS
    if isinstance(cause, KeyError) and isinstance(cause.args[0], seqio.metrics.ModelOutputType):
        return _OUTPUT
    if re.search(r"object has no attribute 'items'", text) and frames[-1][0] == "evaluation.py":
        return _RETURNED
    return _METRIC


def postprocessed(error: BaseException) -> Postprocessed | None:
    """Returns what the postprocess function was given when it raised; None if it did not raise."""
    for link in causes(error):
        for frame, _ in traceback.walk_tb(link.__traceback__):
            if _of_seqio(frame) == "metrics.py" and frame.f_code.co_name in _POSTPROCESSING:
                given = frame.f_locals
                options = given.get("postprocess_kwargs", {})
                return Postprocessed(given.get("targets_or_predictions"), bool(options.get("is_target")))
    return None


def computed(error: BaseException) -> tuple[str, Mapping[str, Any]]:
    """Returns the logger that raised, by the name of its class, and the metrics that it was to write."""
    logger, metrics = "a logger", {}
    for link in causes(error):
        for frame, _ in traceback.walk_tb(link.__traceback__):
            if _of_seqio(frame) == "loggers.py" and "metrics" in frame.f_locals:
                logger, metrics = type(frame.f_locals.get("self")).__name__, frame.f_locals["metrics"]
    return logger, metrics


def is_out_of_reach(error: BaseException) -> bool:
    """Returns whether a function failed because it needs the network: nothing is known of it then."""
    return any(
        isinstance(link, (urllib.error.URLError, ConnectionError, TimeoutError))
        or (isinstance(link, OSError) and link.errno in _UNREACHABLE)
        or type(link).__name__ in _REFUSED
        for link in causes(error)
    )


def _seqio_frames(error: BaseException) -> Iterator[tuple[str, str]]:
    """Yields file and function of every frame in SeqIO, outermost first."""
    for link in causes(error):
        for frame, _ in traceback.walk_tb(link.__traceback__):
            if file := _of_seqio(frame):
                yield file, frame.f_code.co_name


def _of_seqio(frame: FrameType) -> str:
    """Returns the name of SeqIO's file that a frame is in; empty for other frames."""
    path = Path(frame.f_code.co_filename)
    return path.name if path.parent == _SEQIO else ""
