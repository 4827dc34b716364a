"""What the values of the parameters of T5X, SeqIO and optax may be: a table for each of their modules, read when asked.

``README.md`` beside the tables describes their form.
"""

import dataclasses
import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t5x_harness.gin.symbols import BINARIES
from t5x_harness.lint.domains.language import Domain, parse
from t5x_harness.spec import Severity


@dataclasses.dataclass(frozen=True)
class Parameter:
    """What the values of one parameter may be.

    Attributes:
      domain: the values that T5X accepts and uses.
      outside: a clause that says what happens with others; may be empty.
      severity: that of a value outside the domain. A value that T5X only asks whether it is true is a warning.
      code: the mistake of which such a value is, if it has a rule of its own; else empty.
      read_with: another parameter, and names in its text without which this one is not read; None if it always is.
    """

    domain: Domain
    outside: str = ""
    severity: Severity = Severity.ERROR
    code: str = ""
    read_with: tuple[str, tuple[str, ...]] | None = None


@functools.cache
def _table(module: str) -> Mapping[str, Mapping[str, Any]]:
    file = Path(__file__).with_name(f"{module}.toml")
    return tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


@functools.cache
def parameters_of(target: str) -> Mapping[str, Parameter]:
    """Returns the parameters of a configurable, by name; none if no table has it.

    Args:
      target: its full name, such as ``t5x.utils.DatasetConfig``, as bindings have it.
    """
    name = BINARIES.get(target, target)
    module = name.rpartition(".")[0]
    found = _table(module).get(name) or _table(module.rpartition(".")[0]).get(name, {})  # a method is in its class
    return {parameter: _of(entry) for parameter, entry in found.items()}


def _of(entry: str | Mapping[str, Any]) -> Parameter:
    entry = {"is": entry} if isinstance(entry, str) else entry
    domain = parse(entry["is"])
    usual = Severity.WARNING if domain.is_truth else Severity.ERROR
    severity = Severity(entry.get("severity", usual))
    read_with = next(((name, tuple(words)) for name, words in entry.get("read_with", {}).items()), None)
    return Parameter(domain, entry.get("outside", ""), severity, entry.get("code", ""), read_with)
