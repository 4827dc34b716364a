"""The recorded cases' tasks, and broken tasks, each with one mistake that users make."""

import concurrent.futures
from pathlib import Path
from typing import Any

import numpy as np
import ref_tasks
import seqio
from t5x import trainer

_GOOD = seqio.TaskRegistry.get("ref_reverse")
_STEPS = [seqio.preprocessors.tokenize, seqio.preprocessors.append_eos_after_trim]


def add(name: str, **changes: Any) -> None:
    """Registers a copy of ref_reverse with some parts changed."""
    parts: dict[str, Any] = {
        "source": _GOOD.source,
        "preprocessors": _STEPS,
        "output_features": ref_tasks._PAIR,
        "metric_fns": [ref_tasks.exact_match],
    }
    seqio.TaskRegistry.add(name, **{**parts, **changes})


def metric_with_a_bug(targets: Any, predictions: Any) -> dict[str, float]:
    """Mistakes a list of texts for a dict."""
    return {"bug": targets["text"]}


class MetricWithMemory:
    """Counts its calls, and breaks when it has no room for another one."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._calls = 0
        self.__name__ = type(self).__name__

    def __call__(self, targets: Any, predictions: Any) -> dict[str, float]:
        self._calls += 1
        return {"left": float([*range(self._room)][self._calls - 1])}


def int_postprocessor(text: str, **_: Any) -> int:
    """Assumes that a model writes numbers."""
    return int(text)


def broken_preprocessor(dataset: Any) -> Any:
    """Reads a feature that does not exist."""
    return dataset.map(lambda example: {**example, "inputs": example["source"]})


add("bad_metric", metric_fns=[metric_with_a_bug])
add("late_metric", metric_fns=[MetricWithMemory(room=5)])  # the early calls just fit in
add("bad_postprocess", postprocess_fn=int_postprocessor)
add("bad_preprocess", preprocessors=[broken_preprocessor, *_STEPS])
add("no_eos", preprocessors=[seqio.preprocessors.tokenize])
add("no_metrics", metric_fns=[])


def undefined(targets: Any, predictions: Any) -> dict[str, float]:
    """Returns NaN, like a correlation of predictions that are all alike."""
    return {"pearson": float("nan")}


def without_result(targets: Any, predictions: Any) -> dict[str, float]:
    """Forgets to return its result."""
    return {}


def of_all_kinds(targets: Any, predictions: Any) -> dict[str, Any]:
    """Returns a NumPy number, and examples as text, which SeqIO's loggers accept."""
    return {"ratio": np.float32(0.5), "shown": seqio.metrics.Text(textdata="as it is")}


class EvaluatorOfOnesOwn(seqio.Evaluator):
    """Returns numbers without asking a model for them."""

    def evaluate(self, **_: Any) -> Any:
        """Returns a perfect result that it did not measure."""
        metrics: Any = concurrent.futures.Future()
        metrics.set_result({task.name: {"exact_match": 100.0} for task in self.eval_tasks})
        return metrics, {}


class EvaluatorOfOneTask(seqio.Evaluator):
    """Leaves out all tasks but the first."""

    def evaluate(self, **options: Any) -> Any:
        """Returns the metrics and outputs of that task."""
        future, outputs = super().evaluate(**options)
        first = self.eval_tasks[0].name
        metrics: Any = concurrent.futures.Future()
        metrics.set_result({first: future.result()[first]})
        return metrics, {first: outputs[first]}


class IdleTrainer(trainer.Trainer):
    """Claims to train."""

    def train(self, *_: Any, **__: Any) -> Any:
        """Takes no batch, and makes no steps."""
        return {}


def write_some(path: str, *_: Any) -> None:
    """Writes two lines, regardless of the predictions."""
    Path(path).write_text("one\ntwo\n")


def write_none(path: str, *_: Any) -> None:
    """Writes an empty file."""
    Path(path).write_text("")


def write_blank(path: str, *_: Any) -> None:
    """Writes lines with nothing on them."""
    Path(path).write_text("\n\n")


add("undefined_metric", metric_fns=[undefined])
add("undefined_and_defined", metric_fns=[undefined, ref_tasks.exact_match])
add("no_result", metric_fns=[without_result])
add("metrics_of_all_kinds", metric_fns=[of_all_kinds])
seqio.MixtureRegistry.add("three_tasks", [("ref_reverse", 1), ("metrics_of_all_kinds", 1), ("no_metrics", 1)])


def without_logits(state_dict: Any, target_state_dict: Any, *, is_resuming: bool = False) -> Any:
    """Removes the logits' weights from a checkpoint, so that a run begins with new ones."""
    if is_resuming:
        return state_dict
    target = dict(state_dict["target"])
    assert target["decoder"]["logits_dense"]  # it receives the checkpoint's contents
    target["decoder"] = {name: value for name, value in target["decoder"].items() if name != "logits_dense"}
    return {**state_dict, "target": target}
