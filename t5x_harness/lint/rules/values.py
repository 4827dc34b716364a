"""GIN36 and GIN37: values that their parameters cannot have, by the tables of T5X's, SeqIO's and optax's parameters."""

from collections.abc import Iterator

from t5x_harness.findings.rule import Example, Found, Rule, run_head
from t5x_harness.gin.program import Binding, MacroBinding
from t5x_harness.gin.values import Reference, format_value
from t5x_harness.lint.domains import Parameter, parameters_of
from t5x_harness.lint.domains.language import Misfit
from t5x_harness.lint.edits import set_literal
from t5x_harness.lint.rule import Context
from t5x_harness.lint.rules.numbers import float_for_count, read_as
from t5x_harness.lint.rules.strings import quoted_value
from t5x_harness.system.misspelling import closest, meant


def _misfits(context: Context) -> Iterator[tuple[Binding, Binding | MacroBinding, Parameter, Misfit]]:
    """Yields each statement whose value is outside its parameter's domain, once, with a binding that reads it."""
    seen: set[tuple[str, str, str]] = set()
    program = context.program
    for binding in program.final_bindings:
        parameter = parameters_of(binding.target).get(binding.param)
        given = program.resolve(binding)
        if parameter is None or parameter.code or given.key in seen:
            continue

        def sibling(name: str, binding: Binding = binding) -> float | None:
            other = program.lookup(binding.target, name, binding.scope)
            value = program.resolve(other).value if other is not None else None
            return value if isinstance(value, (int, float)) else None

        misfit = parameter.domain.misfit(given.value, sibling)
        if misfit is not None:
            seen.add(given.key)
            yield binding, given, parameter, misfit


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
    for binding, given, parameter, misfit in _misfits(context):
        if not misfit.is_out_of_range:
            continue
        value, needed = misfit.value, str(misfit.domain.numbers)
        is_share = "but not including, 1" in needed and 1 < value < 100
        share = f": {value:g} % is {value / 100:g}" if is_share else ""
        what = f"{given} = {value}" if not misfit.within else f"{given}{misfit.within} = {value}"
        outside = f": {parameter.outside}" if parameter.outside else ""
        yield Found(
            f"{what} is out of range{read_as(binding, given)}{outside}",
            given,
            f"give {needed}{share}",
            severity=parameter.severity,
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
    """Finds each value of another type than its parameter's, and each name that is none of its parameter's."""
    elsewhere = {
        found.at.key for rule in (quoted_value, float_for_count) if rule.check for found in rule.check(context)
    }
    for binding, given, parameter, misfit in _misfits(context):
        if misfit.is_out_of_range or given.key in elsewhere:
            continue
        value, choices = misfit.value, misfit.domain.choices
        if isinstance(value, Reference) and context.snapshot.is_module(value.target or ""):
            continue  # GIN03 reports it
        near = closest(value, choices) if isinstance(value, str) else None
        right = meant(value, choices) if isinstance(value, str) else None
        outside = f": {parameter.outside}" if parameter.outside else ""
        yield Found(
            f"{given}{misfit.within} cannot be {format_value(value)}{read_as(binding, given)}{outside}",
            given,
            f"did you mean {near!r}?" if near else f"give {misfit.domain}",
            severity=parameter.severity,
            edits=set_literal(context.program, given.location, value, repr(right)) if right else (),
        )
