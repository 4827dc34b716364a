"""GIN08, GIN09, GIN36 and GIN37: values that their parameters cannot have.

The tables of :mod:`t5x_harness.lint.domains` say what the parameters of T5X, SeqIO and optax take, and annotations what
those of the user's functions take. Without either, only texts are judged, by the defaults of the parameters.
"""

import functools
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from t5x_harness.findings.rule import Example, Found, Rule, run_head, training
from t5x_harness.gin.program import Binding, MacroBinding
from t5x_harness.gin.values import PLAIN, format_value, references_in
from t5x_harness.lint.domains import Parameter, parameters_of
from t5x_harness.lint.domains.annotations import annotated
from t5x_harness.lint.domains.language import NOT_A_LITERAL, UNKNOWN, Kind, Misfit, literal
from t5x_harness.lint.edits import set_literal
from t5x_harness.lint.rule import Context, evaluates, run_function, save_config
from t5x_harness.lint.rules.numbers import read_as
from t5x_harness.spec import Edit, Mode, Severity
from t5x_harness.system.misspelling import closest, meant


class Unfit(NamedTuple):
    """A statement whose value is outside the domain of a parameter that reads it.

    Attributes:
      binding: the parameter's binding.
      given: the statement with the value: the binding, or the macro that it reads.
      parameter: what the parameter takes.
      misfit: the part of the value that is outside.
    """

    binding: Binding
    given: Binding | MacroBinding
    parameter: Parameter
    misfit: Misfit

    @property
    def name(self) -> str:
        """The statement's name, and where in its value the misfit is."""
        return f"{self.given}{self.misfit.within}"

    @property
    def outside(self) -> str:
        """After a colon, what happens with such a value; may be empty."""
        return f": {self.parameter.outside}" if self.parameter.outside else ""

    def edits(self, context: Context, text: str | None) -> tuple[Edit, ...]:
        """Returns the edit that writes another text in place of the value; none if the value is only a part."""
        if text is None or self.misfit.within:
            return ()
        return set_literal(context.program, self.given.location, self.misfit.value, text)


def unfit_values(context: Context, *kinds: Kind, code: str = "") -> Iterator[Unfit]:
    """Yields each statement whose value is outside its parameter's domain, once.

    Args:
      context: the config.
      kinds: what may be wrong with the values; any kind if left out.
      code: the rule that the parameter's table names for texts; empty for those that have none, and other values.
    """
    seen: set[tuple[str, str, str]] = set()
    for unfit in context.remembered(_all_unfit):
        misfit, key = unfit.misfit, unfit.given.key
        if key in seen or (kinds and misfit.kind not in kinds):
            continue
        if code == (unfit.parameter.code if isinstance(misfit.value, str) else ""):
            seen.add(key)
            yield unfit


def _all_unfit(context: Context) -> list[Unfit]:
    """Returns a statement for each parameter whose value is outside its domain."""
    found = []
    program = context.program
    for binding, given in program.given_values:
        if isinstance(given.value, PLAIN) and _takes(binding.target, binding.param, given.value):
            continue
        parameter = _parameter(context, binding)
        if parameter is None:
            continue

        def sibling(name: str, binding: Binding = binding) -> Any:
            other = program.lookup(binding.target, name, binding.scope)
            return program.resolve(other).value if other is not None else UNKNOWN

        misfit = parameter.domain.misfit(given.value, sibling)
        if misfit is not None:
            found.append(Unfit(binding, given, parameter, misfit))
    return found


@functools.lru_cache(maxsize=4096, typed=True)  # most configs of a call have most of their values from the same files
def _takes(target: str, param: str, value: Any) -> bool:
    """Returns whether a parameter with a table takes a value, whatever those of other parameters are."""
    known = parameters_of(target).get(param)
    try:
        return known is not None and known.domain.misfit(value, _unknown) is None
    except LookupError:
        return False


def _unknown(name: str) -> Any:
    raise LookupError(name)


def _parameter(context: Context, binding: Binding) -> Parameter | None:
    """Returns what a parameter takes: by a table, or, for a function of the user's, by its annotation."""
    if (known := parameters_of(binding.target).get(binding.param)) is not None:
        return known
    configurable = context.snapshot.find(binding.target)
    annotation = configurable.annotations.get(binding.param) if configurable is not None else None
    domain = annotated(annotation) if annotation is not None else None
    # Python does not look at annotations, so the function may take other values, too.
    return Parameter(domain, f"it is annotated as {annotation}", Severity.WARNING) if domain is not None else None


def not_a_choice(context: Context, code: str = "") -> Iterator[Found]:
    """Yields a finding for each value of another type than its parameter's, and for each name that is none of its.

    Args:
      context: the config.
      code: the rule that the parameter's table names for texts; empty for those that have none, and other values.
    """
    for unfit in unfit_values(context, *((Kind.OTHER,) if not code else ()), code=code):
        value, domain = unfit.misfit.value, unfit.misfit.domain
        names = [each.target or "" for each in references_in(unfit.given.value)]
        if any(context.snapshot.is_module(name) or context.snapshot.find(name) is None for name in names):
            continue  # GIN03 and GIN14 report what is not the name of a function or class
        choices = domain.choices
        near = _SHORT.get(value) or closest(value, choices) if isinstance(value, str) and choices else None
        right = meant(value, choices) if near else None
        yield Found(
            f"{unfit.name} cannot be {format_value(value)}{read_as(unfit.binding, unfit.given)}{unfit.outside}",
            unfit.given,
            f"did you mean {near!r}?" if near else f"give {domain}",
            severity=unfit.parameter.severity,
            edits=unfit.edits(context, repr(right) if right else None),
        )


_SHORT = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "f32": "float32", "float": "float32"}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9_]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NEEDED: Mapping[type, str] = {
    bool: "a boolean",
    int: "a number",
    float: "a number",
    tuple: "a tuple or list",
    list: "a tuple or list",
    dict: "a dict",
    type(None): "None",
}


GIN08 = Rule(
    "GIN08",
    "string or list where a number, boolean, None, tuple or dict is needed",
    why=(
        "A quoted value is a string. TRAIN_STEPS = '100' fails with `'<' not supported between instances of 'str' and "
        "'int'`, after the model was built and restored; 'False' does not fail at all, because a string that is not "
        "empty counts as true. A list for a number fails as late. A value is judged by what T5X and its libraries "
        "take, and by what included files give the same parameter."
    ),
    later=(
        "A batch size has to be a whole number from 1 up: T5X computes with it after it built the datasets, and ends "
        "with `not all arguments converted`."
    ),
    bad=training("BATCH_SIZE = '16'", at="BATCH_SIZE = '16'"),
    good=training("BATCH_SIZE = 16"),
)


@GIN08
def quoted_value(context: Context) -> Iterator[Found]:
    """Finds each text that is clearly meant to be something else."""
    judged: set[tuple[str, str, str]] = set()
    for unfit in unfit_values(context):
        judged.add(unfit.given.key)
        if unfit.misfit.kind is Kind.QUOTED:
            text, is_truth = unfit.misfit.value, unfit.misfit.domain.is_truth
            # The opposite of what is written happens to 'False', as a text that is not empty counts as true.
            severity = unfit.parameter.severity if literal(text) else Severity.ERROR
            yield _quoted(context, unfit.binding, unfit.given, text, severity, unfit.misfit.within, is_truth=is_truth)
    for binding, given in context.program.given_values:
        if isinstance(given.value, str) and given.key not in judged and _is_clearly_other(context, binding, given):
            judged.add(given.key)
            is_of_t5x = binding.target.split(".")[0] in ("t5x", "__main__")
            yield _quoted(context, binding, given, given.value, Severity.ERROR if is_of_t5x else Severity.WARNING)


def _quoted(
    context: Context,
    binding: Binding,
    given: Binding | MacroBinding,
    text: str,
    severity: Severity,
    within: str = "",
    *,
    is_truth: bool = False,
) -> Found:
    """Returns the finding about a text, which is the whole value of a statement or the part ``within`` it."""
    spelled, plain, name = literal(text), text.strip(), f"{given}{within}"
    needed = f"{_NEEDED[bool if is_truth else type(spelled)]} is needed"
    is_simple = plain in ("True", "False", "None") or _NUMBER.fullmatch(plain) is not None
    return Found(
        f"{name} = {text!r} is a string, and {needed if spelled is not None else 'None is written without quotes'}"
        f"{read_as(binding, given)}",
        given,
        f"take the quotes away: {name} = {plain}",
        severity=severity,
        edits=set_literal(context.program, given.location, text, plain) if is_simple and not within else (),
    )


def _is_clearly_other(context: Context, binding: Binding, given: Binding | MacroBinding) -> bool:
    """Returns whether what a text spells has the type of the default, or of what included files give the parameter."""
    spelled = literal(given.value)
    known = context.snapshot.find(binding.target)
    if spelled is NOT_A_LITERAL or known is None or binding.param not in (known.parameters or ()):
        return False
    default = known.defaults.get(binding.param)
    if spelled is None:
        return not isinstance(default, str)
    statements = context.program.statements
    overridden = [s for s in statements if isinstance(s, (Binding, MacroBinding)) and s is not given]
    others = [default, *(other.value for other in overridden if other.key == given.key)]
    kinds = {_kind(value) for value in others if value is not None} - {None}
    return kinds == {_kind(spelled)} or (kinds == {bool} and spelled in (0, 1))


def _kind(value: Any) -> type | None:
    """Returns the type of a literal: one for all numbers, one for lists and tuples; None for anything else."""
    for kind, types in ((bool, bool), (int, (int, float)), (list, (list, tuple)), (dict, dict), (str, str)):
        if isinstance(value, types):
            return kind
    return None


GIN09 = Rule(
    "GIN09",
    "float where a whole number is needed",
    why=(
        "1e6 is a float in Gin. As TRAIN_STEPS it fails with `'float' object cannot be interpreted as an integer`, "
        "after compilation or, if it is longer than an epoch, in the last epoch, when the whole run is spent."
    ),
    bad=training("TRAIN_STEPS = 1e4", at="TRAIN_STEPS = 1e4"),
    good=training("TRAIN_STEPS = 10_000"),
)


@GIN09
def float_for_count(context: Context) -> Iterator[Found]:
    """Finds each float where only whole numbers are taken."""
    for unfit in unfit_values(context, Kind.FLOAT):
        value = unfit.misfit.value
        whole = f"{int(value):_}" if value.is_integer() else None
        is_exact = whole is not None and abs(value) < 2**53  # above it, a float cannot represent every whole number
        is_fatal = unfit.parameter.severity is Severity.ERROR and _is_fatal(context, unfit.binding)
        yield Found(
            f"{unfit.name} = {format_value(value)} is a float, and a whole number is needed"
            f"{read_as(unfit.binding, unfit.given)}",
            unfit.given,
            f"write {unfit.name} = {whole}" if whole else "give a whole number",
            severity=Severity.ERROR if is_fatal else Severity.WARNING,
            edits=unfit.edits(context, whole if is_exact else None),
        )


def _is_fatal(context: Context, binding: Binding) -> bool:
    """Returns whether T5X counts with a float; of several periods, it does so only with the smallest."""
    train, save = run_function(context, Mode.TRAIN), save_config(context)
    if not train or binding.param not in ("eval_period", "gc_period", "stats_period", "period"):
        return True
    periods = [
        train.value("eval_period") if evaluates(train) else None,
        save.value("period"),
        train.value("gc_period"),
    ]
    steps = min((p for p in periods if isinstance(p, (int, float)) and p > 0), default=math.inf)
    value = context.program.resolve(binding).value
    return value < steps if binding.param == "stats_period" else isinstance(steps, float) and value == steps


@Rule(
    "GIN36",
    "number outside of its range",
    why=(
        "T5X takes any number. DROPOUT_RATE = 10, meant as 10 %, drops every activation: the job trains to its end, "
        "and no parameter changes. Others end as a loss that is not finite, after the model was built and restored."
    ),
    bad=Example(run_head("pretrain"), bindings=("DROPOUT_RATE = 10",), at="DROPOUT_RATE"),
    good=Example(run_head("pretrain"), bindings=("DROPOUT_RATE = 0.1",)),
)
def out_of_range(context: Context) -> Iterator[Found]:
    """Finds each number that is outside its range."""
    for unfit in unfit_values(context, Kind.RANGE):
        value, needed = unfit.misfit.value, str(unfit.misfit.domain.numbers)
        is_share = "but not including, 1" in needed and 1 < value < 100
        share = f": {value:g} % is {value / 100:g}" if is_share else ""
        yield Found(
            f"{unfit.name} = {format_value(value)} is out of range{read_as(unfit.binding, unfit.given)}{unfit.outside}",
            unfit.given,
            f"give {needed}{share}",
            severity=unfit.parameter.severity,
        )


@Rule(
    "GIN37",
    "value that its parameter cannot have",
    why=(
        "Neither Gin nor T5X compares values with what a parameter takes. A name that does not exist, a number in "
        "place of an object or a text in place of a list is noticed where it is used: after the model was built, when "
        "the first checkpoint is written, or never. A table says what T5X, SeqIO and optax take for each parameter."
    ),
    bad=Example(
        run_head("pretrain", "from t5x.examples.t5 import network"),
        bindings=("network.T5Config.mlp_activations = ('gelo', 'linear')",),
        at="network.T5Config.mlp_activations",
    ),
    good=Example(
        run_head("pretrain", "from t5x.examples.t5 import network"),
        bindings=("network.T5Config.mlp_activations = ('gelu', 'linear')",),
    ),
)
def unfit_value(context: Context) -> Iterator[Found]:
    """Finds each value that is neither a text for another type nor a number, and that its parameter cannot have."""
    yield from not_a_choice(context)
