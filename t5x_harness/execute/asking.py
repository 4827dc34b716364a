"""Asks T5X itself about a config: calls its entry point as a job does, but stops before any array is made.

The harness reads values before T5X uses them. If its own code cannot handle a value, T5X's judgment counts.
"""

import sys
from pathlib import Path
from typing import Any

import gin
import jax
import seqio

from t5x_harness.aot.programs import aot_run, capture
from t5x_harness.gin.config import GinConfig
from t5x_harness.gin.program import ENTRY_POINTS
from t5x_harness.plan.planned import Planned
from t5x_harness.resolve.datasets import few_examples
from t5x_harness.resolve.exceptions import passed_through_t5x, raised_by_harness
from t5x_harness.resolve.explanation import log_traceback
from t5x_harness.resolve.metric_failures import is_out_of_reach
from t5x_harness.spec import Mode

_EXAMPLES = 2
"""The number of examples of each task that SeqIO's evaluator reads when T5X is asked."""


class _Reached(BaseException):
    """T5X accepts the values so far. It is not an Exception, so that neither T5X nor the user's code handles it."""


def error_of_t5x(config: GinConfig, folder: Path) -> Exception | None:
    """Returns the error that T5X raises for a config before it makes the train state, and writes it into the log.

    Args:
      config: the parsed config.
      folder: the folder that T5X may write into.

    Returns:
      The error; None if T5X accepts the config so far, or if its error means nothing here because it could not read
      data that a stand-in replaces.
    """
    module, function = ENTRY_POINTS[config.mode]
    entry = gin.get_configurable(getattr(sys.modules[module], function))
    output = "model_dir" if config.mode is Mode.TRAIN else "output_dir"
    folder.mkdir(parents=True, exist_ok=True)
    tasks = [seqio.TaskRegistry.get(name) for name in seqio.TaskRegistry.names()]
    try:
        with few_examples(tasks, _EXAMPLES):
            entry(**{output: str(folder), "train_state_initializer_cls": _stop})
    except _Reached:
        return None
    except Exception as error:
        says_nothing = is_out_of_reach(error) or raised_by_harness(error) or "t5x-harness refuses" in str(error)
        if says_nothing or not passed_through_t5x(error):
            return None
        log_traceback(error)
        return error
    return None


def error_of_programs(plan: Planned) -> Exception | None:
    """Returns the error that T5X or the user's code raises while a run's steps are traced, and writes it into the log.

    Returns:
      The error; None if they can be traced, or if the error means nothing here.
    """
    for program in aot_run(plan).programs:
        try:
            _, captured = capture(program, plan.config, plan.partitioner)
            jax.eval_shape(captured.function, *captured.arguments)
        except Exception as error:
            if passed_through_t5x(error) and not raised_by_harness(error):
                log_traceback(error)
                return error
    return None


def _stop(*_: Any, **__: Any) -> Any:
    """Replaces T5X's TrainStateInitializer, and ends the call."""
    raise _Reached
