"""The auxiliary jobs that a test requests, with a train job or after it."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

from t5x_harness.system.field_types import LARGEST
from t5x_harness.system.misspelling import closest
from t5x_harness.system.texts import unfit

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclasses.dataclass(frozen=True)
class Auxiliary:
    """Jobs for each checkpoint of a train job, one for each mixture, like those of ``t5x-harness auxiliary``.

    Attributes:
      gin: ``auxiliary_job_gin_file``: one file or several.
      mixtures: ``auxiliary_job_mixtures``: each has a job for each checkpoint.
      final_steps: ``final_auxiliary_job_steps``: 0 to evaluate into the train job's folder, else the train steps beyond
        the checkpoint's.
      replace_gin_file: whether to leave out the train job's gin files.
      bindings: gin bindings of the jobs, after their gin files.
      slice: the slice of the jobs; None for the train job's.
      skip_to_newest: whether to skip all checkpoints except the newest.

    Raises:
      ValueError: a value is impossible.
    """

    gin: Paths
    mixtures: Sequence[str]
    final_steps: int = 0
    replace_gin_file: bool = True
    bindings: Sequence[str] = ()
    slice: str | None = None
    skip_to_newest: bool = False

    def __post_init__(self) -> None:
        is_given = isinstance(self.gin, str | os.PathLike | Sequence) and self.files
        if not is_given or not all(map(_is_text, self.files)):
            raise ValueError(f"gin={self.gin!r}: give a gin file, or a list of some")
        for name, example in (("mixtures", "my_task"), ("bindings", "DROPOUT_RATE = 0.0")):
            value = getattr(self, name)
            has_lines = name == "bindings"
            if not isinstance(value, list | tuple) or not all(_is_text(text, has_lines=has_lines) for text in value):
                raise ValueError(f"{name}={value!r}: give a list, as {[example]!r}")
        if type(self.final_steps) is not int or not 0 <= self.final_steps <= LARGEST:
            raise ValueError(f"final_steps={self.final_steps!r}: give 0 to evaluate, or train steps")
        for name in ("replace_gin_file", "skip_to_newest"):
            if not isinstance(value := getattr(self, name), bool):
                raise ValueError(f"{name}={value!r}: give True or False")
        if self.slice is not None:
            _require_slice(self.slice)

    @property
    def files(self) -> tuple[str | os.PathLike[str], ...]:
        """The gin files."""
        return (self.gin,) if isinstance(self.gin, str | os.PathLike) else tuple(self.gin)

    @classmethod
    def of_mark(cls, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Self:
        """Creates it from the arguments of a marker.

        Raises:
          ValueError: an argument is missing, unknown, or has an impossible value.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        if twice := next((name for name, _ in zip(names, args, strict=False) if name in kwargs), None):
            raise ValueError(f"{twice} is given twice, as {args[names.index(twice)]!r} and {kwargs[twice]!r}")
        for name in kwargs:
            if name not in names:
                near = closest(name, names)
                raise ValueError(f"no argument {name!r}: {f'did you mean {near}?' if near else ', '.join(names)}")
        if len(args) > 2:
            raise ValueError(f"after gin and mixtures arguments are given by name: {', '.join(names[2:])}")
        if missing := [name for name in names[:2] if name not in given]:
            raise ValueError(f"{' and '.join(missing)}: not given, as in auxiliary('eval.gin', mixtures=['my_task'])")
        return cls(**given)


def _is_text(value: Any, *, has_lines: bool = False) -> bool:
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else ""
    return bool(text.strip()) and not unfit(text, has_lines=has_lines)


def _require_slice(name: Any) -> None:
    from t5x_harness.slices.slice import SliceError, get_slice

    try:
        get_slice(name if isinstance(name, str) else "")
    except SliceError as error:
        raise ValueError(f"slice={name!r}: {error}") from None


_SIGNATURE = ", ".join(
    field.name if field.default is dataclasses.MISSING else f"{field.name}={field.default!r}"
    for field in dataclasses.fields(Auxiliary)
)
MARKER = (
    f"auxiliary({_SIGNATURE}): each checkpoint that t5x_run trains in this test is evaluated, or fine-tuned, by runs "
    "of this config, one for each mixture; may be repeated"
)
"""The marker as pytest's help documents it."""
