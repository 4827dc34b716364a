"""Options: fields of frozen values whose metadata says how users set them.

A field that is declared with :func:`option` can be set wherever its metadata says. The arguments of the commands,
options and ini values of pytest, keys of ``[tool.t5x_harness]``, environment variables, their precedence and the tables
of docs/reference.md are derived from it in :mod:`t5x_harness.settings`.
"""

import dataclasses
import enum
import functools
import types
import typing
from typing import Any, Literal

from t5x_harness.system.decode import type_hints


class OptionForm(enum.StrEnum):
    """The form in which people write a value."""

    TEXT = "text"
    SLICE = "TPU slice"
    TARGET = "part of a job's target"
    FLAG = "on or off"
    COUNT = "whole number from 1 up"
    FROM_ZERO = "whole number from 0 up"
    POSITIVE = "positive number"
    TEXTS = "list of texts"
    BINDINGS = "list of gin bindings"
    CODES = "codes of findings, with commas between them"
    FOLDERS = "folders, with commas between them"
    ADDRESSES = "folders and addresses, with commas between them"
    ADDRESS = "folder or address"
    PATH = "file or folder"
    BUCKETS = "folder of buckets"
    FAULT = "fault"
    CPU_ISA = "level of a CPU's instructions"
    RESOURCES = "resources of a job"
    TABLE = "table"

    @property
    def is_list(self) -> bool:
        """Whether an option may be repeated, each time with further values."""
        return self.is_separated or self in (OptionForm.TEXTS, OptionForm.BINDINGS)

    @property
    def is_separated(self) -> bool:
        """Whether one word may contain several values, separated by commas."""
        return self in (OptionForm.CODES, OptionForm.FOLDERS, OptionForm.ADDRESSES)

    @property
    def is_path(self) -> bool:
        """Whether a relative value starts from the folder of its source."""
        return self in (OptionForm.FOLDERS, OptionForm.ADDRESSES, OptionForm.ADDRESS, OptionForm.PATH)


_FORMS = {bool: OptionForm.FLAG, int: OptionForm.COUNT, float: OptionForm.POSITIVE, tuple: OptionForm.TEXTS}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Option:
    """One setting, which users can change.

    Attributes:
      field: the name of its field.
      help: a phrase for what it sets, without the default, a capital at its start or a period at its end.
      default: the default, in words; empty if the help says enough.
      form: the form of its values.
      shell: its names as an argument of commands; the first is the one that messages use.
      pytest: its names as an option of pytest; further ones are T5X's own.
      old: its earlier name in pytest, which still works, with a warning.
      ini: its name as an ini value of pytest.
      key: its name in ``[tool.t5x_harness]``.
      variable: its name in the environment.
      metavar: the word that help shows in place of a value.
      choices: the values that it takes; empty if it takes any of its form.
      bare: the value of an argument of commands that is given without one; None if it needs one.
      commands: the commands that take it.
      group: the heading of its arguments in their help.
      joined: how the values of several sources become one list: all of them, with the stronger source ``before`` or
        ``after`` the others; empty if only the values of the strongest source count.
    """

    field: str
    help: str
    default: str = ""
    form: OptionForm = OptionForm.TEXT
    shell: tuple[str, ...] = ()
    pytest: tuple[str, ...] = ()
    old: str = ""
    ini: str = ""
    key: str = ""
    variable: str = ""
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    bare: str | None = None
    commands: tuple[str, ...] = ()
    group: str = "how to run it"
    joined: Literal["before", "after", ""] = "before"

    @property
    def full_help(self) -> str:
        """The help with the default, in the form that argparse takes."""
        repeated = "; may be repeated" * self.form.is_list
        return f"{self.help}{repeated}{f' (default: {self.default})' if self.default else ''}".replace("%", "%%")


def option(
    default: Any,
    help: str,
    words: str | None = None,
    *,
    shell: str = "",
    pytest: bool | tuple[str, ...] = False,
    old: bool = False,
    ini: bool = False,
    key: bool = False,
    prefix: str = "",
    **others: Any,
) -> Any:
    """Declares a field that users can set.

    Names are derived from the field's: ``read_seconds`` is ``--read-seconds``, ``--t5x-read-seconds``, the ini value
    ``t5x_read_seconds`` and the key ``read_seconds``. The field's type decides the form of its values and the choices.

    Args:
      default: the field's default.
      help: see :class:`Option`.
      words: the default in words; by default, the value itself.
      shell: its name as an argument of commands, if it is not derived from the field's.
      pytest: whether it is an option of pytest, or its names there.
      old: whether pytest also accepts it by its earlier name, which has no ``t5x``.
      ini: whether it is an ini value of pytest.
      key: whether it is a key of ``[tool.t5x_harness]``.
      prefix: the prefix of its names in pytest, and the name of its table in ``[tool.t5x_harness]``.
      **others: further fields of :class:`Option`.
    """

    def declared(field: str, hint: Any) -> Option:
        kind = _type_of(hint)
        name = f"{prefix}_{field}" if prefix else field
        dashed = name.replace("_", "-")
        found: dict[str, Any] = {
            "default": _in_words(default) if words is None else words,
            "shell": (shell or f"--{field.replace('_', '-')}",) if others.get("commands") else (),
            "pytest": pytest if isinstance(pytest, tuple) else (f"--t5x-{dashed}",) * pytest,
            "old": f"--{dashed}" * old,
            "ini": f"t5x_{name}" * ini,
            "key": (f"{prefix}.{field}" if prefix else field) * key,
            "choices": tuple(map(str, kind)) if issubclass(kind, enum.Enum) else (),
            "form": _FORMS.get(kind, OptionForm.TEXT),
        }
        return Option(field=field, help=help, **{**found, **others})

    return dataclasses.field(default=default, metadata={"option": declared})


@functools.cache
def options_of(kind: type) -> tuple[Option, ...]:
    """Returns the options among the fields of a dataclass."""
    hints = type_hints(kind)
    return tuple(
        field.metadata["option"](field.name, hints[field.name])
        for field in dataclasses.fields(kind)
        if "option" in field.metadata
    )


def take_plain_strings(value: Any) -> None:
    """Converts plain strings in the fields of a new value into members of the fields' enumerations."""
    of: Any = type(value)
    for name, kind in _enumerations_of(of):
        given = getattr(value, name)
        if given is not None:
            object.__setattr__(value, name, kind(given))


@functools.cache
def _enumerations_of(kind: Any) -> tuple[tuple[str, type[enum.Enum]], ...]:
    """Returns the fields of a dataclass whose values are members of an enumeration."""
    kinds = ((name, _type_of(hint)) for name, hint in type_hints(kind).items())
    return tuple((name, kind) for name, kind in kinds if issubclass(kind, enum.Enum))


def _type_of(hint: Any) -> type:
    """Returns the type that a field's type hint names other than None, without its brackets."""
    parts = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    (kind,) = [part for part in parts if part is not types.NoneType]
    found: type = typing.get_origin(kind) or kind
    return found


def _in_words(default: Any) -> str:
    """Returns a default as help shows it; empty for one that is not worth showing."""
    return "" if default in (None, False, ()) else f"{default:g}" if isinstance(default, float) else str(default)
