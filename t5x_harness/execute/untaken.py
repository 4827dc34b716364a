"""GIN38 after a run: what the user binds, and every call gave itself instead of leaving it to Gin."""

from collections.abc import Iterator

from t5x_harness.gin.config import BindingKey, GinConfig
from t5x_harness.gin.program import scope_chain
from t5x_harness.gin.values import format_value
from t5x_harness.spec import Finding, Severity, Stage
from t5x_harness.upstream.gin import taken_values


def untaken(config: GinConfig, stage: Stage) -> Iterator[Finding]:
    """Yields a note for each of the user's bindings that no call in this process took, though there were some.

    What the run's own function takes is left out, because the harness calls it.

    Args:
      config: the config as the user wrote it.
      stage: the stage that has called everything.
    """
    for key in config:
        if key.is_macro or key.selector == config.entry or not config.is_of_user(key) or not _is_given(key):
            continue
        location, name = config.place(key)
        yield Finding(
            "GIN38",
            Severity.NOTE,
            stage,
            f"{key.short} = {format_value(config.written(key), 80)} has no effect: each call of "
            f"{key.selector.rpartition('.')[2]} gives {key.parameter} itself",
            location,
            "remove it",
            name,
        )


def _is_given(key: BindingKey) -> bool:
    """Returns whether what it binds was called where the binding counts, and always with that argument."""
    calls = [
        taken
        for (scope, selector), taken in taken_values().items()
        if selector == key.selector and (not key.scope or key.scope in scope_chain(scope))
    ]
    return bool(calls) and not any(key.parameter in taken for taken in calls)
