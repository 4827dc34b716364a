"""GIN39: actions of a training that watch a task whose metrics they never get."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from t5x_harness.findings.rule import Found, Rule, training
from t5x_harness.spec import Severity

if TYPE_CHECKING:
    from t5x_harness.gin.config import BindingKey
    from t5x_harness.resolve.resolved import Resolved

_ACTIONS = "train_script.train.actions = {{'{}': [@trainer.TerminateOnNanAction()]}}"
_TASK = "trainer.TerminateOnNanAction.task = '{}'"


@Rule(
    "GIN39",
    "action that watches a task whose metrics it never gets",
    severity=Severity.WARNING,
    why=(
        "After training T5X gives actions the metrics of one task, train, and after an evaluation those of the "
        "evaluated tasks. For any other name an action only logs that there is no such task, and the job goes on: it "
        "neither stops early nor at a loss that is NaN."
    ),
    bad=training(
        "from t5x import trainer",
        _ACTIONS.format("TRAIN"),
        _TASK.format("counting"),
        at="trainer.TerminateOnNanAction.task",
    ),
    good=training("from t5x import trainer", _ACTIONS.format("TRAIN_EVAL"), _TASK.format("counting")),
)
def unknown_task_of_action(run: Resolved) -> Iterator[Found]:
    """Finds each of T5X's own actions whose task is not among those of its kind of work."""
    actions = run.config.entry_bindings().get("actions")
    given = {role.name.upper(): [task.name for task in run.tasks.get(role.parameter, ())] for role in run.roles}
    given["TRAIN"] = ["train"]
    for mode, listed in actions.items() if isinstance(actions, dict) else ():
        for action in listed if isinstance(listed, (list, tuple)) else ():
            key, watched = _watched(run, action)
            names = given.get(mode, [])
            if names and watched is not None and watched not in names:
                yield Found(
                    f"the action {action!r} of {mode} watches the task {watched!r} and only gets the metrics of "
                    f"{', '.join(names)}",
                    key,
                    f"name {' or '.join(map(repr, names[:3]))}",
                )


def _watched(run: Resolved, action: Any) -> tuple[BindingKey | None, str | None]:
    """Returns the binding with the task that an action watches, and its name; None for another kind of action."""
    name, scope = getattr(action, "selector", "").rpartition(".")[2], "/".join(getattr(action, "scopes", ()))
    parameter = {"TerminateOnNanAction": "task", "EarlyStoppingAction": "metric"}.get(name, "")
    key = run.config.owner(run.config.find(parameter, name, scope)) if parameter else None
    value = run.config.value(key)
    task = value[0] if isinstance(value, (list, tuple)) and value else value
    return key, task if isinstance(task, str) else None
