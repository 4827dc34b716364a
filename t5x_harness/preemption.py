"""A trainer that ends a preempted run with a checkpoint of its last step.

A Spot VM sends SIGTERM, and SIGKILL 30 seconds later. T5X's ``train()`` writes an emergency checkpoint when its trainer
raises ``t5x.trainer.PreemptionError``, which nothing in T5X raises. The trainer here raises it after SIGTERM, at the
first step that all hosts agree on. Bind it in a Gin file; the bindings of ``trainer.Trainer`` apply to it, too::

    from t5x_harness import preemption
    train_script.train.trainer_cls = @preemption.Trainer

A process that is alone handles SIGTERM itself. Hosts of a slice agree by JAX's preemption service, which needs
``jax.distributed``. T5X does not start that on TPUs, so start the program of every host with
``JAX_ENABLE_PREEMPTION_SERVICE=1``: this module then starts it when Gin imports the module, before JAX looks for
devices.

This file needs only T5X and what T5X needs. A copy of it works in another package and under another name.
"""

import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import gin
import jax
import t5x.trainer
from absl import logging
from jax.experimental import multihost_utils

SERVICE_VARIABLE = "JAX_ENABLE_PREEMPTION_SERVICE"
"""JAX's variable for its preemption service; if it is set and true, this module joins the hosts of a slice."""


def join_hosts() -> None:
    """Calls ``jax.distributed.initialize()``, which starts JAX's preemption service, unless that was done.

    If this machine is not one of several, or if JAX has its devices already, the log says that nothing was joined.
    """
    if getattr(jax.distributed, "is_initialized", bool)():  # an old JAX cannot say
        return
    try:
        jax.distributed.initialize()
    except (RuntimeError, ValueError) as error:
        logging.warning("%s is set, but jax.distributed.initialize() failed: %s", SERVICE_VARIABLE, error)


class _Alone:
    """The preemption notice of a process that is alone: its own handler of SIGTERM."""

    def __init__(self) -> None:
        self._received = False
        # Python cannot put back a handler that C code installed before Python started.
        self._previous = signal.getsignal(signal.SIGTERM) or signal.SIG_DFL
        signal.signal(signal.SIGTERM, self._receive)

    def _receive(self, number: int, frame: Any) -> None:
        self._received = True
        logging.warning("Received SIGTERM: the training ends after this step with a checkpoint.")
        if callable(self._previous):
            try:
                self._previous(number, frame)
            except SystemExit:  # it would end the program here, in the middle of a step, with nothing saved
                logging.warning("The previous handler of SIGTERM wants to exit; the checkpoint is written first.")

    def reached(self, step: int) -> bool:
        """Returns whether SIGTERM has come."""
        return self._received

    def put_back(self) -> None:
        """Puts the previous handler back, if no other has replaced this one. May be called again."""
        in_main_thread = threading.current_thread() is threading.main_thread()
        if in_main_thread and signal.getsignal(signal.SIGTERM) == self._receive:
            signal.signal(signal.SIGTERM, self._previous)


class _Together:
    """The preemption notice of processes that JAX's preemption service connects; JAX handles SIGTERM.

    After a notice to any of them, the service makes all agree on the step after the largest that one has asked about,
    and answers True for exactly that step. So each has to ask about every step, without a gap.

    Args:
      step: the step at which the training begins.
    """

    def __init__(self, step: int) -> None:
        # If the notice came before, they have agreed on one of these steps, which a restored run would not ask about.
        self._agreed_before = any(multihost_utils.reached_preemption_sync_point(past) for past in range(1, step + 1))

    def reached(self, step: int) -> bool:
        """Returns whether the processes have agreed on this step, or on one before the training began."""
        return multihost_utils.reached_preemption_sync_point(step) or self._agreed_before

    def put_back(self) -> None:
        """Does nothing: the service goes on until the program ends."""


class _Never:
    """The preemption notice of a process that can have none: SIGTERM does what it did before."""

    def reached(self, step: int) -> bool:
        """Returns False."""
        return False

    def put_back(self) -> None:
        """Does nothing."""


_Notice = _Alone | _Together | _Never


def _notice(step: int) -> _Notice:
    """Chooses how a training that begins at ``step`` learns of a preemption; the log says what is missing."""
    if not hasattr(t5x.trainer, "PreemptionError"):
        logging.warning(
            "%s has no PreemptionError, so this T5X writes no emergency checkpoint: a preemption costs the steps since "
            "the last checkpoint. Update T5X.",
            t5x.trainer.__file__,
        )
        return _Never()
    if jax.process_count() == 1:
        if threading.current_thread() is threading.main_thread():
            return _Alone()
        logging.warning(
            "A preemption costs the steps since the last checkpoint: Python handles SIGTERM in the main thread only, "
            "and T5X trains in the thread %s.",
            threading.current_thread().name,
        )
        return _Never()
    try:
        if not getattr(jax.distributed, "is_initialized", lambda: True)():  # an old JAX cannot say
            raise RuntimeError("jax.distributed is not initialized")
        multihost_utils.reached_preemption_sync_point(0)
    except RuntimeError as error:
        logging.warning(
            "The %d hosts cannot agree on a step to end at, so a preemption costs the steps since the last checkpoint. "
            "Start the program of every host with %s=1 in its environment. What is missing: %s",
            jax.process_count(), SERVICE_VARIABLE, error,
        )  # fmt: skip
        return _Never()
    return _Together(step)


class _Step:
    """A train step that keeps the newest state.

    T5X's trainer takes over the state when its loop ends, and each step donates the arrays of the state before it.

    Attributes:
      state: the state after the last call, or None before the first.
    """

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self._function = function
        self.state: Any = None

    def __call__(self, state: Any, batch: Any) -> Any:
        """Returns the next state and the metrics of the step."""
        result = self._function(state, batch)
        self.state = result[0]
        return result


class _Batches:
    """The batches of a train loop, which end with an error before the first batch that is not to be trained on.

    The error is raised before a batch is drawn, so a saved iterator goes on with exactly that batch.

    Args:
      batches: the iterator that T5X trains on.
      first: the step at which the loop begins.
      check: a function that raises an error if the training is to end at this step.
    """

    def __init__(self, batches: Iterator[Any], first: int, check: Callable[[int], None]) -> None:
        self._batches = batches
        self._first = self._step = first
        self._check = check

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        # At its first step, T5X may have saved this state already, and orbax refuses to save a step twice.
        if self._step > self._first:
            self._check(self._step)
        batch = next(self._batches)
        self._step += 1
        return batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)


class Preemptible:
    """Makes a trainer of T5X end with an emergency checkpoint on SIGTERM; stands before it among the bases.

    A trainer of your own becomes ``class MyTrainer(preemption.Preemptible, MyOldTrainer)``.
    """

    train_state: Any  # of T5X's trainer, like the next two
    _compiled_train_step: Any
    _partitioned_train_step: Any
    _preemption_notice: _Notice | None = None

    def train(self, batch_iter: Iterator[Any], num_steps: int, start_step: int | None = None) -> Any:
        """Trains as T5X does.

        Args:
          batch_iter: yields batches, each a dict of arrays.
          num_steps: the number of steps.
          start_step: the step of the train state; None reads it from there.

        Returns:
          The future of the metrics of these steps.

        Raises:
          t5x.trainer.PreemptionError: this host or another received SIGTERM. ``train_state`` is the newest.
        """
        first = int(self.train_state.step if start_step is None else start_step)
        if self._preemption_notice is None:
            # Not earlier, as evaluations also make trainers, and a program that never trains ends on SIGTERM.
            self._preemption_notice = _notice(first)
            weakref.finalize(self, self._preemption_notice.put_back)  # T5X does not close a preempted trainer
        notice = self._preemption_notice
        compiled = self._compiled_train_step
        step_function = _Step(compiled or self._partitioned_train_step)

        def end_if_preempted(step: int) -> None:
            if not notice.reached(step):
                return
            if step_function.state is not None:
                self.train_state = step_function.state
            raise t5x.trainer.PreemptionError(f"received SIGTERM: the training ends at step {step}")

        self._compiled_train_step = step_function
        try:
            batches = _Batches(batch_iter, first, end_if_preempted)
            metrics = super().train(batches, num_steps, start_step=first)  # type: ignore[misc]
        finally:
            self._compiled_train_step = compiled
        end_if_preempted(first + num_steps)
        return metrics

    def close(self) -> None:
        """Closes the trainer, and puts back the previous handler of SIGTERM."""
        try:
            super().close()  # type: ignore[misc]
        finally:
            if self._preemption_notice is not None:
                self._preemption_notice.put_back()


class Trainer(Preemptible, t5x.trainer.Trainer):
    """T5X's trainer, with an emergency checkpoint on SIGTERM.

    Args:
      *args: what T5X's trainer takes.
      **kwargs: what T5X's trainer takes. What Gin binds to ``trainer.Trainer`` is the default.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        try:
            bound = gin.get_bindings(t5x.trainer.Trainer)
        except (KeyError, ValueError):  # Gin's files do not mention it
            bound = {}
        super().__init__(*args, **{**bound, **kwargs})


if os.environ.get(SERVICE_VARIABLE, "").lower() in ("1", "true", "t", "yes", "y", "on"):
    join_hosts()
