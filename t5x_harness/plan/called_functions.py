"""Functions and classes of the user's own that do not take the arguments that T5X passes them."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from t5x_harness.gin.config import BindingKey, GinConfig
from t5x_harness.resolve.exceptions import USER, definition_of
from t5x_harness.spec import Finding, Mode, Severity, Stage

_TRAINER = ("model", "train_state", "partitioner", "eval_names", "summary_dir", "train_state_axes", "rng")
_SUMMARY = ("model_dir", "summary_writer", "step")
_PREDICTIONS = ("path", "inferences", "task_ds", "mode", "vocabulary")
_RESTORED = ("state_dict", "target_state_dict")
_SAVED = ("state_dict", "parameter_infos")

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


def refused_calls(config: GinConfig) -> Iterator[Finding]:
    """Yields each function or class of the user's own that cannot be called as T5X will."""
    calls = [(each, config.build(each), names, True) for each, names in _BY_NAME.get(config.mode, {}).items()]
    calls += [(each, config.build(each), names, False) for each, names in _IN_ORDER.get(config.mode, {}).items()]
    checkpoints = config.build("checkpoint_cfg") if config.mode is Mode.TRAIN else None
    for part, given in (("restore", _RESTORED), ("save", _SAVED)):
        functions = getattr(getattr(checkpoints, part, None), "state_transformation_fns", None)
        for function in functions if isinstance(functions, list | tuple) else ():
            calls.append((f"state_transformation_fns when it {part}s", function, given, False))
    for action in _actions(config):
        if isinstance(action, type):
            at, name = config.place(config.owner(BindingKey("", config.entry, "actions")))
            message = f"{action.__name__} in {name} is a class, and T5X needs an action of it"
            yield Finding("GIN20", Severity.ERROR, Stage.PLAN, message, at, f"write @{action.__name__}()", name)
            continue
        calls.append(("the run of an action", getattr(action, "run", None), ("train_state",), False))
        calls.append(("the run of an action", getattr(action, "run", None), ("metrics_by_task",), True))
    for what, function, names, by_name in calls:
        if function is not None and not callable(function):
            yield _uncalled(config, what, function)
        elif (finding := _refused(what, function, names, by_name)) is not None:
            yield finding


def _uncalled(config: GinConfig, what: str, given: Any) -> Finding:
    """Returns the finding about an object in the place of a function."""
    key = config.find(what.partition(" ")[0])
    at, name = config.place(config.owner(key))
    message = f"{name or what} is an object of {type(given).__name__}, and T5X calls it"
    return Finding("GIN37", Severity.ERROR, Stage.PLAN, message, at, "give a function by reference (@…)", name)


def _actions(config: GinConfig) -> Iterator[Any]:
    """Yields the actions of a train config, which are made as T5X makes them."""
    actions = config.build("actions") if config.mode is Mode.TRAIN else None
    for listed in actions.values() if isinstance(actions, Mapping) else ():
        yield from listed if isinstance(listed, list | tuple) else ()


def _refused(what: str, function: Any, names: Sequence[str], by_name: bool) -> Finding | None:
    # Of a class, the initializer: the call of one that Gin has wrapped takes anything.
    called: Any = getattr(function, "__init__", None) if isinstance(function, type) else function
    place = definition_of(called)
    if place is None or place.party != USER:
        return None
    owner = (None,) if isinstance(function, type) else ()
    positional, named = (owner, dict.fromkeys(names)) if by_name else ((*owner, *names), {})
    try:
        inspect.signature(called).bind_partial(*positional, **named)
    except TypeError as error:
        message = f"{place} does not take what T5X passes to {what}: {error}"
        return Finding("USR01", Severity.ERROR, Stage.PLAN, message, place.location, f"let it take {', '.join(names)}")
    return None
