"""Where metrics go: TensorBoard and the log, written behind the back of the accelerator."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from typing import Any

import clu.metrics
import clu.values
import jax
from clu import asynclib, metric_writers
from t5x import checkpoints
from t5x import metrics as metrics_lib
from t5x._driver.protocols import MetricValueMapFuture, TimeFuture

MetricMap = Mapping[str, clu.metrics.Metric]


def now() -> float:
    """Returns the wall clock in seconds; tests replace it."""
    return time.time()


def _wait_for(arrays: Any) -> None:
    """Blocks until ``arrays`` (a pytree) are computed; a buffer that was donated since then must have been."""
    try:
        jax.block_until_ready(arrays)
    except RuntimeError as error:
        if "deleted or donated buffer" not in str(error):
            raise


class Stopwatch:
    """Measures the time between two moments on the device without holding up the thread that dispatches to it.

    One worker takes the readings in the order in which they were asked for.
    """

    def __init__(self) -> None:
        self._worker = asynclib.Pool(thread_name_prefix="t5x-stopwatch", max_workers=1)
        self._started: TimeFuture | None = None

    def _reading(self, arrays: Any) -> TimeFuture:
        @self._worker
        def read() -> float:
            _wait_for(arrays)
            return now()

        return read()

    def start(self, block_on: Any = ()) -> None:
        """Starts as soon as ``block_on`` (a pytree of arrays) is computed."""
        self._started = self._reading(block_on)

    def stop(self, block_on: Any = ()) -> TimeFuture:
        """Returns the future of the seconds from the start until ``block_on`` is computed.

        Raises:
            ValueError: if it was not started since the last stop.
        """
        if self._started is None:
            raise ValueError("a stopwatch was stopped that had not been started: call start_duration_timer() first")
        started, self._started = self._started, None
        stopped = self._reading(block_on)
        return self._worker(lambda: stopped.result() - started.result())()

    def close(self) -> None:
        """Waits for the readings that are still asked for."""
        self._worker.close()


class MetricsManager:
    """Writes the metrics of one collection, such as ``train`` or ``training_eval/my_task``.

    Only process 0 writes.  Scalars can be written from any thread; accumulated metrics are fetched, summarized and
    written by a thread of its own, in the order of the calls.  ``close()`` waits for what is still being written.

    Attributes:
        summary_dir: the folder of the TensorBoard events, or None where there is no folder.
    """

    def __init__(self, name: str, summary_dir: str | None = None):
        """Opens the writers.

        Args:
            name: of the collection; the sub-folder of ``summary_dir`` and the prefix in the log.
            summary_dir: parent folder of the events; None writes to the log only.
        """
        self.summary_dir = os.path.join(summary_dir, name) if summary_dir else None
        self._writer: metric_writers.MetricWriter | None
        if jax.process_index() == 0:
            self._writer = metric_writers.create_default_writer(summary_dir, collection=name, asynchronous=True)
        else:
            self._writer = metric_writers.MultiWriter([])
        self._one_writer_at_a_time = threading.Lock()
        self._summarizer = asynclib.Pool(thread_name_prefix="t5x-metrics", max_workers=1)
        self._stopwatch = Stopwatch()

    def __del__(self) -> None:
        self.close()

    @property
    def summary_writer(self) -> metric_writers.MetricWriter:
        """The open ``clu`` writer.

        Raises:
            ValueError: if the manager is closed.
        """
        if self._writer is None:
            raise ValueError(f"the metrics manager of {self.summary_dir!r} is closed")
        return self._writer

    def write_scalar(self, key: str, val: Any, step: Any) -> None:
        """Writes one scalar under the tag ``key`` at ``step`` (an int or a replicated array)."""
        self.write_scalars(step, {key: val})

    def write_scalars(self, step: Any, scalars: Mapping[str, Any]) -> None:
        """Writes ``scalars`` (value by tag) at ``step`` (an int or a replicated array)."""
        step = int(checkpoints.get_local_data(step))
        with self._one_writer_at_a_time:
            self.summary_writer.write_scalars(step, scalars)

    def start_duration_timer(self, block_on: Any = ()) -> None:
        """Starts the clock of the next summary once ``block_on`` (a pytree of arrays) is computed."""
        self._stopwatch.start(block_on)

    def write_metrics_summary(self, metrics: MetricMap, step: Any, num_steps: int) -> MetricValueMapFuture:
        """Summarizes ``metrics`` that were merged over ``num_steps`` steps and writes them at ``step``.

        The time-based ones get the time from ``start_duration_timer`` until ``metrics`` are computed, which follows the
        device closely although steps are dispatched ahead of it.

        Args:
            metrics: accumulated metric by tag, still on the device.
            step: the step that was reached.
            num_steps: how many steps were merged.

        Returns:
            The future of the summarized value by tag.
        """
        step = int(checkpoints.get_local_data(step))
        duration = self._stopwatch.stop(block_on=metrics)

        @self._summarizer
        def summarize() -> dict[str, clu.values.Value]:
            # Numpy from here on: a computation in this thread could otherwise wait on the one that trains.
            on_host = jax.device_get(metrics)
            timed = metrics_lib.set_time_metrics_duration(on_host, duration.result())
            complete = metrics_lib.set_step_metrics_num_steps(timed, num_steps)
            summary = {tag: metric.compute_value() for tag, metric in complete.items()}
            with self._one_writer_at_a_time:
                metric_writers.write_values(self.summary_writer, step, summary)
            return summary

        return summarize()

    def flush(self) -> None:
        """Waits until everything asked for so far is on disk; raises what went wrong in the background."""
        try:
            self._summarizer.join()
        finally:
            if self._writer is not None:
                self._writer.flush()

    def close(self) -> None:
        """Finishes the writing and closes the files; may be called again."""
        if getattr(self, "_writer", None) is None:
            return
        try:
            self._summarizer.close()
        finally:
            try:
                self._stopwatch.close()
            finally:
                self.summary_writer.close()
                self._writer = None
