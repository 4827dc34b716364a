"""Functions and classes of the user's own that do not take the arguments that T5X passes them."""

import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from t5x_harness.gin.config import BindingKey, GinConfig
from t5x_harness.resolve.exceptions import USER, definition_of
from t5x_harness.spec import Finding, Mode, Severity, Stage

_TRAINER = ("model", "train_state", "partitioner", "eval_names", "summary_dir", "train_state_axes", "rng")
_SUMMARY = ("model_dir", "summary_writer", "step")
_PREDICTIONS = ("path", "inferences", "task_ds", "mode", "vocabulary")
_RESTORED = ("state_dict", "target_state_dict")
_SAVED = ("state_dict", "parameter_infos")
_TRANSFORMATIONS = "state_transformation_fns"

_BY_NAME: Mapping[Mode, Mapping[str, Sequence[str]]] = {
    Mode.TRAIN: {"trainer_cls": _TRAINER},
    Mode.EVAL: {"summarize_config_fn": _SUMMARY},
    Mode.INFER: {"summarize_config_fn": _SUMMARY},
}
"""What T5X passes by name to what is bound to a parameter of the entry point."""
_IN_ORDER: Mapping[Mode, Mapping[str, Sequence[str]]] = {
    Mode.TRAIN: {"summarize_config_fn": _SUMMARY},
    Mode.INFER: {"write_fn": _PREDICTIONS},
}
"""The same for what it passes in this order."""
_EVALUATES = (Mode.TRAIN, Mode.EVAL)


class _Call(NamedTuple):
    """A call that T5X makes.

    Attributes:
      parameter: the parameter that what is called is bound to.
      function: what is called.
      names: the arguments.
      by_name: whether they are passed by name.
      what: what is called, in words.
    """

    parameter: str
    function: Any
    names: Sequence[str]
    by_name: bool
    what: str


def refused_calls(config: GinConfig) -> Iterator[Finding]:
    """Yields each function or class of the user's own that cannot be called as T5X will."""
    for call in _calls(config):
        if call.function is not None and not callable(call.function):
            yield _uncalled(config, call)
        elif (finding := _refused(call)) is not None:
            yield finding
    for action in _actions(config):
        if isinstance(action, type):
            at, name = config.place(config.owner(BindingKey("", config.entry, "actions")))
            message = f"{action.__name__} in {name} is a class, and T5X needs an action of it"
            yield Finding("GIN20", Severity.ERROR, Stage.PLAN, message, at, f"write @{action.__name__}()", name)


def _calls(config: GinConfig) -> Iterator[_Call]:
    for tables, by_name in ((_BY_NAME, True), (_IN_ORDER, False)):
        for parameter, names in tables.get(config.mode, {}).items():
            yield _Call(parameter, config.build(parameter), names, by_name, parameter)
    checkpoints = config.build("checkpoint_cfg") if config.mode is Mode.TRAIN else None
    for part, names in (("restore", _RESTORED), ("save", _SAVED)):
        functions = getattr(getattr(checkpoints, part, None), _TRANSFORMATIONS, None)
        for function in functions if isinstance(functions, list | tuple) else ():
            yield _Call(_TRANSFORMATIONS, function, names, False, f"{_TRANSFORMATIONS} when it {part}s")
    if config.mode in _EVALUATES:
        # Gin makes the objects of a value when it is copied.
        loggers = copy.deepcopy(config.value(config.owner(config.find("logger_cls", "Evaluator"))))
    else:
        loggers = ()
    for logger in loggers if isinstance(loggers, list | tuple) else ():
        yield _Call("logger_cls", logger, ("output_dir",), True, "a logger")
    for action in _actions(config):
        run = None if isinstance(action, type) else getattr(action, "run", None)
        yield _Call("actions", run, ("train_state",), False, "the run of an action")
        yield _Call("actions", run, ("metrics_by_task",), True, "the run of an action")


def _uncalled(config: GinConfig, call: _Call) -> Finding:
    """Returns the finding about an object in the place of a function."""
    at, name = config.place(config.owner(config.find(call.parameter)))
    message = f"{name or call.what} is an object of {type(call.function).__name__}, and T5X calls it"
    return Finding("GIN37", Severity.ERROR, Stage.PLAN, message, at, "give a function by reference (@…)", name)


def _actions(config: GinConfig) -> Iterator[Any]:
    """Yields the actions of a train config, which are made as T5X makes them."""
    actions = config.build("actions") if config.mode is Mode.TRAIN else None
    for listed in actions.values() if isinstance(actions, Mapping) else ():
        yield from listed if isinstance(listed, list | tuple) else ()


def _refused(call: _Call) -> Finding | None:
    # Of a class, the initializer: the call of one that Gin has wrapped takes anything.
    is_class = isinstance(call.function, type)
    called: Any = getattr(call.function, "__init__", None) if is_class else call.function
    place = definition_of(called)
    if place is None or place.party != USER:
        return None
    owner = (None,) if is_class else ()
    positional, named = (owner, dict.fromkeys(call.names)) if call.by_name else ((*owner, *call.names), {})
    try:
        inspect.signature(called).bind_partial(*positional, **named)
    except TypeError as error:
        message, fix = f"{place} does not take what T5X passes to {call.what}: {error}", ", ".join(call.names)
        return Finding("USR01", Severity.ERROR, Stage.PLAN, message, place.location, f"let it take {fix}")
    return None
