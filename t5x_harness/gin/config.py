"""A run's gin config, parsed the way T5X's binaries parse it, with the place of every binding.

Gin keeps its parsed values in the process and forgets where they came from; the reader knows the place of every
statement but executes nothing.  :class:`GinConfig` joins the two.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, overload

import gin

from t5x_harness.gin.program import BINDINGS, ENTRY_POINTS, MAIN, Binding, GinProgram, MacroBinding
from t5x_harness.gin.reader import read
from t5x_harness.spec import Location, Mode, RunSpec
from t5x_harness.upstream.gin import bound_values, file_readers

REQUIRED = "%gin.REQUIRED"

_MACRO = "gin.macro"
_CONSTANT = "gin.constant"


@dataclasses.dataclass(frozen=True)
class BindingKey:
    """The full name of a binding: ``scope/selector.parameter``; a macro is ``selector`` ``gin.macro``."""

    scope: str
    selector: str
    parameter: str

    @classmethod
    def of_macro(cls, name: str) -> BindingKey:
        """Returns the key of the macro ``NAME``."""
        return cls(name, _MACRO, "value")

    @property
    def is_macro(self) -> bool:
        """Whether this is the key of a macro."""
        return self.selector == _MACRO

    def __str__(self) -> str:
        if self.is_macro:
            return self.scope
        scope = f"{self.scope}/" if self.scope else ""
        return f"{scope}{self.selector}.{self.parameter}"

    @property
    def short(self) -> str:
        """The name as the command line takes it: ``train/utils.DatasetConfig.batch_size``, ``train.total_steps``."""
        if self.is_macro:
            return self.scope
        scope = f"{self.scope}/" if self.scope else ""
        selector = self.selector.removeprefix("__main__.")
        return f"{scope}{'.'.join(selector.split('.')[-2:])}.{self.parameter}"


class GinConfig:
    """The parsed config of one run; changing it changes gin's state in this process.

    Attributes:
      mode: the mode, which determines T5X's entry point.
      program: the statements with their places.
    """

    def __init__(self, mode: Mode, program: GinProgram) -> None:
        self.mode = mode
        self.program = program

    @property
    def entry(self) -> str:
        """Gin's name of the entry point: ``__main__.train``."""
        return f"{MAIN}.{ENTRY_POINTS[self.mode][1]}"

    def items(self) -> Iterator[tuple[BindingKey, Any]]:
        """Yields every binding with its value; references stay unresolved."""
        for (scope, selector), parameters in list(bound_values().items()):
            for parameter, value in list(parameters.items()):
                yield BindingKey(scope, selector, parameter), value

    def __iter__(self) -> Iterator[BindingKey]:
        """Returns an iterator over every binding."""
        return (key for key, _ in self.items())

    def value(self, key: BindingKey | None) -> Any:
        """Returns the value bound under exactly this name; only references to constants are resolved."""
        if key is None:
            return None
        value = bound_values().get((key.scope, key.selector), {}).get(key.parameter)
        if isinstance(value, gin.config.ConfigurableReference) and value.selector == _CONSTANT and value.evaluate:
            constant = value.scoped_configurable_fn()
            return value if constant is gin.REQUIRED else constant
        return value

    def is_bound(self, key: BindingKey) -> bool:
        """Returns whether exactly this name is bound."""
        return key.parameter in bound_values().get((key.scope, key.selector), {})

    @overload
    def owner(self, key: BindingKey) -> BindingKey: ...
    @overload
    def owner(self, key: BindingKey | None) -> BindingKey | None: ...
    def owner(self, key: BindingKey | None) -> BindingKey | None:
        """Follows ``x = %A``, ``A = %B`` to the binding with the literal, which is the one to edit to change ``x``."""
        if key is None:
            return None
        seen = {key}
        while (macro := self.macro_of(self.value(key))) is not None:
            following = BindingKey.of_macro(macro)
            if following in seen or not self.is_bound(following):
                break
            seen.add(following)
            key = following
        return key

    def owner_of(self, parameter: str) -> BindingKey:
        """Returns the binding with the literal value of one of the entry point's parameters."""
        return self.owner(BindingKey("", self.entry, parameter))

    @staticmethod
    def macro_of(value: Any) -> str | None:
        """Returns the macro's name if a value is ``%NAME`` and nothing else."""
        if isinstance(value, gin.config.ConfigurableReference) and value.selector == _MACRO and value.evaluate:
            return "/".join(value.scopes)
        return None

    def is_required(self, value: Any) -> bool:
        """Returns whether a value is ``%gin.REQUIRED``, which something else has to override."""
        return value is gin.REQUIRED or (
            isinstance(value, gin.config.ConfigurableReference) and repr(value) == REQUIRED
        )

    @staticmethod
    def references(value: Any) -> Iterator[str]:
        """Yields the full names of the configurables that a value refers to; names of macros begin with ``%``."""
        if isinstance(value, gin.config.ConfigurableReference):
            name = "/".join(value.scopes)
            yield f"%{name}" if value.selector == _MACRO else value.selector
        elif isinstance(value, dict):
            for part in (*value.keys(), *value.values()):
                yield from GinConfig.references(part)
        elif isinstance(value, (list, tuple)):
            for part in value:
                yield from GinConfig.references(part)

    def entry_bindings(self) -> dict[str, Any]:
        """Returns the entry point's bound parameters, with references unresolved."""
        return dict(gin.get_bindings(self.entry, resolve_references=False))

    def build(self, parameter: str) -> Any:
        """Builds the entry point's argument as T5X does; None if it is not bound.

        Raises:
          Exception: any exception raised while building it; gin adds the place to its text.
        """
        return copy.deepcopy(self.entry_bindings().get(parameter))

    def scope_of(self, parameter: str) -> str | None:
        """Returns the scope of the reference bound to a parameter of the entry point: ``train`` for the train data."""
        return self._scope_in(self.entry_bindings().get(parameter))

    def _scope_in(self, value: Any) -> str | None:
        """Returns the scope of a reference, even one that a macro holds; None for any other value."""
        if (macro := self.macro_of(value)) is not None:
            value = self.value(self.owner(BindingKey.of_macro(macro)))
        return "/".join(value.scopes) if isinstance(value, gin.config.ConfigurableReference) else None

    def restore_key(self, parameter: str) -> BindingKey | None:
        """Returns the binding from which the run's own RestoreCheckpointConfig takes a parameter.

        A config may bind several of them, in different scopes.
        """
        if self.mode is not Mode.TRAIN:
            scope = self.scope_of("restore_checkpoint_cfg")
        else:
            scope = self.scope_of("checkpoint_cfg")
            holder = self.find("restore", "CheckpointConfig", scope or "")
            scope = (self._scope_in(self.value(holder)) if holder else None) or scope
        return self.find(parameter, "RestoreCheckpointConfig", scope or "")

    def find(self, parameter: str, configurable: str | None = None, scope: str = "") -> BindingKey | None:
        """Returns the binding from which a configurable called in ``scope`` takes a parameter.

        Args:
          parameter: the parameter's name.
          configurable: the last part of the configurable's name, such as ``DatasetConfig``; None for any.
          scope: the innermost active scope; weaker ones are tried after it.
        """
        parts = scope.split("/") if scope else []
        chain = ["/".join(parts[:i]) for i in range(len(parts), -1, -1)]
        found = [k for k, _ in self.items() if k.parameter == parameter and not k.is_macro]
        if configurable:
            found = [k for k in found if k.selector.split(".")[-1] == configurable]
        return next((k for s in chain for k in found if k.scope == s), None)

    def bind(self, key: BindingKey, value: Any) -> None:
        """Replaces a value."""
        with gin.unlock_config():
            gin.bind_parameter((key.scope, key.selector, key.parameter), value)

    def location(self, key: BindingKey | None) -> Location | None:
        """Returns the place of the winning statement; None if it is from the command line or the reader missed it."""
        statement = self._statement(key) if key else None
        return None if statement is None or statement.location.file == BINDINGS else statement.location

    def place(self, key: BindingKey | None) -> tuple[Location | None, str | None]:
        """Returns the line and the name of a binding for a finding."""
        return self.location(key), key.short if key else None

    def is_of_user(self, key: BindingKey | None) -> bool:
        """Returns whether the winning statement is the user's: in one of their files or given with the run."""
        statement = self._statement(key) if key else None
        return statement is not None and not self.program.is_foreign(statement.location.file)

    def origin(self, key: BindingKey | None) -> str:
        """Describes where a value comes from: ``base.gin:12``, or ``a binding given with the run``."""
        statement = self._statement(key) if key else None
        if statement is None:
            return "the default"
        return "a binding given with the run" if statement.location.file == BINDINGS else str(statement.location)

    def written(self, key: BindingKey) -> Any:
        """Returns a value as its statement writes it, with references as text; else the bound value."""
        statement = self._statement(key)
        return self.value(key) if statement is None else statement.value

    def _statement(self, key: BindingKey) -> Binding | MacroBinding | None:
        winner = self.program.final.get((key.scope, key.selector, key.parameter))
        if winner is not None or key.is_macro:
            return winner
        # A file may use another module path for a configurable than the one that gin registered.
        last = key.selector.split(".")[-1]
        for statement in reversed(self.program.final_bindings):
            same = (statement.scope, statement.param) == (key.scope, key.parameter)
            if same and statement.target.split(".")[-1] == last:
                return statement
        return None

    def missing(self) -> list[BindingKey]:
        """Returns the bindings that something reads and that are still ``%gin.REQUIRED``."""
        read = {name for _, value in self.items() for name in self.references(value)}
        return [
            key
            for key, value in self.items()
            if self.is_required(value) and (not key.is_macro or f"%{key.scope}" in read)
        ]


def parse(spec: RunSpec, t5x_parent: Path) -> GinConfig:
    """Parses a run's files and bindings into this process's gin state, up to ``gin.finalize``.

    In a config, ``import __main__ as train_script`` means the binary that T5X was started with. While the config is
    parsed, ``__main__`` is the runtime's module for the mode.

    Args:
      spec: files, bindings and search paths; T5X's own folder is searched after them.
      t5x_parent: the folder that holds the runtime's package ``t5x``.

    Raises:
      Exception: any exception of gin or an imported module; gin adds the place to its text.
    """
    import importlib

    from t5x import gin_utils

    program = read(spec, t5x_parent=t5x_parent)
    mode = spec.mode or program.mode or Mode.TRAIN
    module_name, function_name = ENTRY_POINTS[mode]
    binary = importlib.import_module(module_name)
    gin.clear_config()
    gin.register(getattr(binary, function_name), module="__main__")
    with _as_main(binary), _reading({os.path.join(t5x_parent, name): at for name, at in program.in_clone.items()}):
        gin_utils.parse_gin_flags(
            [*(spec.search_paths or (".",)), str(t5x_parent)],
            list(spec.gin_files),
            list(spec.bindings),
            finalize_config=False,
        )
    return GinConfig(mode, program)


@contextlib.contextmanager
def _as_main(module: ModuleType) -> Iterator[None]:
    """Replaces ``__main__`` by a module."""
    before = sys.modules["__main__"]
    sys.modules["__main__"] = module
    try:
        yield
    finally:
        sys.modules["__main__"] = before


@contextlib.contextmanager
def _reading(files: Mapping[str, str]) -> Iterator[None]:
    """Lets gin read files under names at which no file exists; it looks into T5X's own folder last."""
    readers = file_readers()
    before = list(readers)
    gin.config.register_file_reader(
        lambda name: Path(files[name]).open(encoding="utf-8"),  # noqa: SIM115  gin closes it
        files.__contains__,
    )
    try:
        yield
    finally:
        readers[:] = before
