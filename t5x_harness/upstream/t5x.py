"""Everything that the harness changes in T5X, whether it is an installed one, a fork, or the embedded one.

If a T5X lacks something that is changed here, the error names it.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from t5x_harness.slices.slice import Slice
from t5x_harness.system.after_import import after_import

MESH_FUNCTIONS = ("default_mesh", "get_mesh", "with_sharding_constraint")
"""Functions of ``t5x.partitioning`` that build a mesh, or that do nothing on CPU devices."""

RESTORING = "create_checkpoint_manager_and_restore"
"""The function of ``t5x.utils`` with which train, eval and infer restore checkpoints."""

FINDING = "get_first_valid_restore_config_and_paths"
"""The function of ``t5x.utils`` with which training looks for a checkpoint, before it reads MODEL_DIR otherwise."""

INFERRING = "get_infer_fn"
"""The function of ``t5x.utils`` that makes the functions with which eval and infer run the model."""

PARSING = "parse_gin_flags"
"""The function of ``t5x.gin_utils`` that reads a program's Gin files and bindings, and locks the config."""

CHANGED = {
    "t5x.gin_utils": (PARSING,),
    "t5x.partitioning": MESH_FUNCTIONS,
    "t5x.utils": (RESTORING, FINDING, INFERRING),
}
"""Every name that is changed, by module."""

_ORIGINAL = "__t5x_harness_original__"


class T5XLacks(RuntimeError):
    """The T5X in use lacks something that the harness changes; the message names it and the location of that T5X."""

    FIX = "give the fork this function, or use the embedded T5X: --t5x-runtime=embedded"

    def __init__(self, module: ModuleType, name: str, purpose: str) -> None:
        what = f"{module.__name__}.{name}"
        super().__init__(f"the T5X in use ({module.__file__}) has no {what}, through which the harness {purpose}")


def install_mesh(slice: Slice, data_positions: int | None = None, devices: Sequence[Any] | None = None) -> None:
    """Makes the ``t5x.partitioning`` of any runtime build this slice's mesh over the process's CPU devices.

    This takes effect when the module is imported, or at once if it already is. Installing another slice replaces this
    one. This imports neither T5X nor JAX.

    Args:
      slice: the slice.
      data_positions: the number of first positions along the mesh's data axis to keep; None for all.
      devices: devices to use instead of CPU devices, in the order of the slice's.

    Raises:
      T5XLacks: the module has no such functions, as in a fork with other partitioners. Its import may raise it, too.
    """

    def emulate(partitioning: ModuleType) -> None:
        from t5x_harness.slices.emulated_mesh import SliceView

        purpose = "has T5X build the mesh of a TPU slice"
        functions = {name: _find(partitioning, name, purpose) for name in MESH_FUNCTIONS}
        for name, function in functions.items():
            original = getattr(function, _ORIGINAL, function)
            seen = SliceView(original, slice, data_positions, devices).wrapped(original)
            seen.__dict__[_ORIGINAL] = original
            setattr(partitioning, name, seen)

    after_import("t5x.partitioning", emulate)


def before_finding(utils: ModuleType, wait: Callable[[], None]) -> None:
    """Makes training call a function before it looks for a checkpoint.

    Args:
      utils: the imported ``t5x.utils``.
      wait: takes nothing.

    Raises:
      T5XLacks: it has no such function.
    """
    original = _find(utils, FINDING, "sees that a training is about to look for its checkpoint")

    @functools.wraps(original)
    def find(*args: Any, **options: Any) -> Any:
        wait()
        return original(*args, **options)

    setattr(utils, FINDING, find)


def before_restoring(utils: ModuleType, prepare: Callable[[str, Mapping[str, Any]], None]) -> None:
    """Makes train, eval and infer call a function before they restore a checkpoint.

    Args:
      utils: the imported ``t5x.utils``.
      prepare: takes the path, and the arguments of ``create_checkpoint_manager_and_restore`` by name.

    Raises:
      T5XLacks: it has no such function.
    """
    original = _find(utils, RESTORING, "puts stand-ins where checkpoints are missing")
    signature = inspect.signature(original)

    @functools.wraps(original)
    def restore(*args: Any, **options: Any) -> Any:
        arguments = signature.bind(*args, **options).arguments
        path = arguments.get("restore_path")
        if isinstance(path, str):
            prepare(path, arguments)
        return original(*args, **options)

    setattr(utils, RESTORING, restore)


def before_inferring(utils: ModuleType, prepare: Callable[[Any], None]) -> None:
    """Makes eval and infer call a function with each dataset before the model runs over it.

    Args:
      utils: the imported ``t5x.utils``.
      prepare: takes the dataset.

    Raises:
      T5XLacks: it has no such function.
    """
    original = _find(utils, INFERRING, "sees what is evaluated and inferred")

    @functools.wraps(original)
    def make(*args: Any, **options: Any) -> Any:
        infer = original(*args, **options)

        @functools.wraps(infer)
        def prepared(dataset: Any, *rest: Any, **more: Any) -> Any:
            prepare(dataset)
            return infer(dataset, *rest, **more)

        return prepared

    setattr(utils, INFERRING, make)


class Observed:
    """Observations of eval and infer.

    Attributes:
      restored: the paths of the checkpoints that were restored, in order.
    """

    def __init__(self) -> None:
        self.restored: list[str] = []
        self._examples: dict[int, int] = {}  # by function, because prediction and scoring see the same examples

    @property
    def examples(self) -> int:
        """The number of examples that went through the model; an example that is predicted and scored counts once."""
        return max(self._examples.values(), default=0)

    def restoring(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps the function that restores checkpoints, to record their paths."""
        signature = inspect.signature(original)

        @functools.wraps(original)
        def restore(*args: Any, **options: Any) -> Any:
            found = original(*args, **options)
            if found[0] is not None:
                self.restored.append(str(signature.bind(*args, **options).arguments.get("restore_path")).rstrip("/"))
            return found

        return restore

    def inferring(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps the function that makes functions of a dataset, to count the examples that they process."""

        @functools.wraps(original)
        def make(*args: Any, **options: Any) -> Any:
            infer = original(*args, **options)
            key = len(self._examples)
            self._examples[key] = 0

            @functools.wraps(infer)
            def counted(dataset: Any, *rest: Any, **more: Any) -> Any:
                result = infer(dataset, *rest, **more)
                self._examples[key] += len(dataset)  # T5X itself needs the length for padding
                return result

            return counted

        return make


@contextlib.contextmanager
def observe(utils: ModuleType) -> Iterator[Observed]:
    """Observes, while the context lasts, which checkpoints T5X restores and how many examples the model sees.

    Args:
      utils: the imported ``t5x.utils``.

    Raises:
      T5XLacks: it has no such function.
    """
    observed = Observed()
    purpose = "counts what is evaluated and inferred"
    originals = {name: _find(utils, name, purpose) for name in (RESTORING, INFERRING)}
    try:
        setattr(utils, RESTORING, observed.restoring(originals[RESTORING]))
        setattr(utils, INFERRING, observed.inferring(originals[INFERRING]))
        yield observed
    finally:
        for name, original in originals.items():
            setattr(utils, name, original)


def before_finalizing(gin_utils: ModuleType, change: Callable[[], None]) -> None:
    """Makes T5X call a function after it has read the Gin flags and before it locks the config.

    Args:
      gin_utils: the imported ``t5x.gin_utils``.
      change: the function, which may change the config. It is not called if the config stays unlocked.

    Raises:
      T5XLacks: it has no such function.
    """
    import gin

    original = _find(gin_utils, PARSING, "makes configs of programs small")
    signature = inspect.signature(original)

    @functools.wraps(original)
    def parse(*args: Any, **options: Any) -> Any:
        given = signature.bind(*args, **options)
        given.apply_defaults()
        if not given.arguments.get("finalize_config"):
            return original(*args, **options)
        given.arguments["finalize_config"] = False
        result = original(*given.args, **given.kwargs)
        change()
        gin.finalize()
        return result

    setattr(gin_utils, PARSING, parse)


def report_steps(trainer: ModuleType, report: Callable[[int], None]) -> None:
    """Makes the train loops of a process call a function at the beginning of each step.

    Args:
      trainer: the imported ``t5x.trainer``; a fork without ``BaseTrainer.train`` stays unchanged.
      report: takes the number of the step, counted from 1.
    """
    base = getattr(trainer, "BaseTrainer", None)
    original = getattr(base, "train", None)
    if base is None or original is None:
        return
    signature = inspect.signature(original)

    @functools.wraps(original)
    def train(self: Any, batch_iter: Iterator[Any], *args: Any, **options: Any) -> Any:
        given = signature.bind(self, batch_iter, *args, **options).arguments
        steps = itertools.count(int(given.get("start_step") or 0) + 1)
        return original(self, WatchedBatches(batch_iter, lambda _: report(next(steps))), *args, **options)

    base.train = train


def watch_batches(trainer: Any, taken: Callable[[Any], None], before: Callable[[], None] | None = None) -> bool:
    """Makes a trainer's train loop report its batches, and returns whether it does.

    A trainer of a fork whose loop is not ``train(batch_iter, …)`` stays unchanged.

    Args:
      trainer: the trainer.
      taken: a function that is called with each batch when it is taken.
      before: a function that is called before each batch is taken; None for none.
    """
    train = getattr(trainer, "train", None)
    if train is None:
        return False

    def watched(batch_iter: Iterator[Any], *rest: Any, **options: Any) -> Any:
        return train(WatchedBatches(batch_iter, taken, before), *rest, **options)

    trainer.train = watched
    return True


class WatchedBatches:
    """Calls functions when a batch is taken, and otherwise behaves like the iterator that it wraps."""

    def __init__(
        self, inner: Iterator[Any], taken: Callable[[Any], None], before: Callable[[], None] | None = None
    ) -> None:
        self._inner = inner
        self._taken = taken
        self._before = before

    def __iter__(self) -> WatchedBatches:
        return self

    def __next__(self) -> Any:
        if self._before is not None:
            self._before()
        batch = next(self._inner)
        self._taken(batch)
        return batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _find(module: ModuleType, name: str, purpose: str) -> Any:
    try:
        return getattr(module, name)
    except AttributeError:
        raise T5XLacks(module, name, purpose) from None
