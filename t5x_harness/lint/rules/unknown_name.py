"""GIN13 and GIN14: parameters and symbols that T5X does not have."""

from __future__ import annotations

from collections.abc import Iterator

from t5x_harness.lint.program import ENTRIES, MAIN, Binding, GinProgram, MacroBinding
from t5x_harness.lint.rule import Context, Example, Rule, closest, did_you_mean
from t5x_harness.lint.values import references_in
from t5x_harness.spec import Finding, Location

_HEAD = """\
from __gin__ import dynamic_registration
from t5x import utils
include 't5x/examples/t5/t5_1_1/tiny.gin'
include 't5x/configs/runs/pretrain.gin'
"""
_MAIN_NAMES = (*ENTRIES, f"{MAIN}.create_task_from_tfexample_file", f"{MAIN}.precompile", f"{MAIN}.save")


class UnknownParameter(Rule):
    """A parameter that the configurable does not take."""

    code = "GIN13"
    title = "parameter that the configurable does not have"
    why = "Gin stops with `Configurable '…' doesn't have a parameter named '…'`, after T5X was imported."
    bad = Example(_HEAD + "train/utils.DatasetConfig.bach_size = 8\n", at="train/utils.DatasetConfig.bach_size")
    good = Example(_HEAD + "train/utils.DatasetConfig.batch_size = 8\n")

    def check(self, context: Context) -> Iterator[Finding]:
        """Yields a finding for each binding of such a parameter."""
        for binding in context.program.bindings:
            known = context.snapshot.find(binding.target) if binding.resolved else None
            if known is None or known.parameters is None or known.takes_any or binding.param in known.parameters:
                continue
            if not context.snapshot.may_take(known.name, binding.param):
                near = closest(binding.param, known.parameters)
                right = str(binding).removesuffix(binding.param) + (near or "")
                yield self.finding(
                    f"{binding.selector} has no parameter {binding.param}"
                    f"{did_you_mean(binding.param, known.parameters)}",
                    binding,
                    f"write {right}" if near else f"it has {', '.join(known.parameters)}",
                )


class UnknownSymbol(Rule):
    """A name that the module does not have."""

    code = "GIN14"
    title = "name that T5X does not have"
    why = "Gin stops with `AttributeError: Couldn't resolve selector …`, after T5X was imported."
    bad = Example(_HEAD + "train/utils.DatasetConfg.batch_size = 8\n", at="train/utils.DatasetConfg")
    good = Example(_HEAD + "train/utils.DatasetConfig.batch_size = 8\n")

    def check(self, context: Context) -> Iterator[Finding]:
        """Yields a finding for each unknown name and file, in bindings and in references."""
        said: set[tuple[str, str]] = set()
        for selector, target, location in _names(context.program):
            if (target, location.file) in said:
                continue
            said.add((target, location.file))
            complaint = self._complaint(context, selector, target)
            if complaint is not None:
                message, fix = complaint
                yield self.finding(message, location, fix, binding=selector)

    def _complaint(self, context: Context, selector: str, target: str) -> tuple[str, str] | None:
        snapshot = context.snapshot
        if target.startswith(f"{MAIN}."):
            if target in _MAIN_NAMES:
                return None
            names = [n.removeprefix(f"{MAIN}.") for n in ENTRIES]
            word = target.removeprefix(f"{MAIN}.")
            return f"T5X's binaries have no {word}{did_you_mean(word, names)}", f"they have {', '.join(names)}"
        module = snapshot.module_of(target)
        if module is None or snapshot.find(target) is not None:
            return None
        symbol, _, method = target[len(module) + 1 :].partition(".")
        if not symbol:
            return f"{selector} is a module, not something to configure", f"name a function or class of {module}"
        if method and symbol in snapshot.names(module):
            word, names, owner = method, list(snapshot.methods(f"{module}.{symbol}")), f"{module}.{symbol}"
        else:
            word, names, owner = symbol, list(snapshot.names(module)), module
        if snapshot.mentions(module, word):
            return None
        fix = "check its spelling" if len(names) > 12 else f"it has {', '.join(names)}" if names else "remove it"
        return f"{owner} has no {word}{did_you_mean(word, names)}", fix


def _names(program: GinProgram) -> Iterator[tuple[str, str, Location]]:
    """Every name that a statement uses, overridden ones too: Gin looks them all up."""
    for statement in program.statements:
        if isinstance(statement, Binding) and statement.resolved:
            yield statement.selector, statement.target, statement.location
        if isinstance(statement, (Binding, MacroBinding)):
            for reference in references_in(statement.value):
                if reference.target is not None:
                    yield str(reference), reference.target, statement.location
