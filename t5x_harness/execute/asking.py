"""What T5X itself says of a config: its own entry point, called as a job calls it, up to where arrays would be made.

The harness reads values before T5X uses them.  Where one is of a kind that the harness's own code cannot take, T5X's
judgment counts, and not the harness's.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gin
import seqio

from t5x_harness.resolve.datasets import few_examples
from t5x_harness.resolve.frames import passed_through_t5x, raised_by_harness
from t5x_harness.resolve.gin_config import ENTRY_POINTS, GinConfig
from t5x_harness.resolve.metric_errors import is_out_of_reach
from t5x_harness.spec import Mode

_EXAMPLES = 2
"""Examples of each task that SeqIO's evaluator reads meanwhile."""


class _Reached(BaseException):
    """T5X takes the values so far. Not an Exception, so that no code of T5X or the user handles it."""


def error_of_t5x(config: GinConfig, workspace: Path) -> Exception | None:
    """Returns what T5X raises for a config before it makes the train state.

    Args:
      config: the parsed config, its output folder bound.
      workspace: the run's folder, for what T5X writes meanwhile.

    Returns:
      None if T5X takes the config so far, or its error says nothing here: it could not read what a stand-in replaces.
    """
    module, function = ENTRY_POINTS[config.mode]
    entry = gin.get_configurable(getattr(sys.modules[module], function))
    output = "model_dir" if config.mode is Mode.TRAIN else "output_dir"
    folder = workspace / "asked"
    folder.mkdir(parents=True, exist_ok=True)
    tasks = [seqio.TaskRegistry.get(name) for name in seqio.TaskRegistry.names()]
    try:
        with few_examples(tasks, _EXAMPLES):
            entry(**{output: str(folder), "train_state_initializer_cls": _stop})
    except _Reached:
        return None
    except Exception as error:
        says_nothing = is_out_of_reach(error) or raised_by_harness(error) or "t5x-harness refuses" in str(error)
        return None if says_nothing or not passed_through_t5x(error) else error
    return None


def _stop(*_: Any, **__: Any) -> Any:
    """Stands for T5X's TrainStateInitializer, and ends the call."""
    raise _Reached
