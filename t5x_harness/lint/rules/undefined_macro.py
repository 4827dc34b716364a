"""GIN18: macros that nothing defines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from t5x_harness.findings import examples
from t5x_harness.findings.rule import Example, Found, Mistake
from t5x_harness.gin.program import MacroBinding
from t5x_harness.gin.values import REQUIRED, format_value, macros_in
from t5x_harness.lint.edits import rename_macro_use
from t5x_harness.lint.rule import Context, finds
from t5x_harness.system.misspelling import did_you_mean, meant

GIN18 = Mistake(
    "GIN18",
    "UndefinedMacro",
    "macro that nothing defines",
    why="Gin stops with `No bindings specified for 'MODEL/gin.macro'` and prints the whole config, a hundred lines.",
    bad=Example("include 't5x/configs/runs/pretrain.gin'\n", at="include 't5x/configs/runs/pretrain.gin'"),
    good=Example(examples.head("pretrain")),
)


@finds(GIN18, whole_program=True)
def undefined_macro(context: Context) -> Iterator[Found]:
    """Finds each macro that nothing defines, at its first use, and each that takes its value from itself."""
    for circle in _circles(context.program.macros):
        first = circle[0]
        way = ", ".join(f"{macro.name} = {format_value(macro.value)}" for macro in circle)
        yield Found(
            f"the macro {first.name} takes its value from itself, so that it has none: {way}",
            first,
            f"give {first.name} a value of its own",
        )
    for name, use in context.program.undefined_macros:
        others = [other for other in context.program.macros if other != str(use)]
        hint = did_you_mean(name, (*others, REQUIRED))
        if name == "MODEL":
            fix = "include a model's gin file, such as 't5x/examples/t5/t5_1_1/small.gin'"
        elif hint:
            fix = f"correct the name in {use}"
        else:
            fix = f"add {name} = ... or include the file that defines it"
        right = meant(name, others)
        yield Found(
            f"nothing defines the macro {name} that {use} reads{hint}",
            use,
            fix,
            edits=rename_macro_use(context.program, use.location, name, right) if right else (),
        )


def _circles(macros: Mapping[str, MacroBinding]) -> Iterator[list[MacroBinding]]:
    """Yields macros that lead back to themselves, each circle once: Gin follows them until Python's stack is full."""
    known: set[str] = set()
    for start in macros:
        way: list[str] = []
        name = start
        while name in macros and name not in way and name not in known:
            way.append(name)
            name = next((macro.name for macro in macros_in(macros[name].value)), "")
        if name in way:
            yield [macros[step] for step in way[way.index(name) :]]
        known.update(way)
