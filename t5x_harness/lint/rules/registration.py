"""GIN10, GIN11, GIN28 and GIN29: names that Gin does not know at the place of their use."""

from collections.abc import Iterator

from t5x_harness.findings.rule import Example, Found, Rule, run_head
from t5x_harness.gin.problems import Problem, ProblemKind
from t5x_harness.gin.program import BINDINGS, MAIN, Binding, Block, GinProgram, MacroBinding
from t5x_harness.gin.snapshot import Snapshot
from t5x_harness.gin.values import references_in
from t5x_harness.lint.edits import REGISTRATION, add_import, begin_with, raise_registration, remove, rename_selector
from t5x_harness.lint.rule import Context
from t5x_harness.spec import Edit
from t5x_harness.system.misspelling import closest, meant


def import_of_symbol(program: GinProgram, snapshot: Snapshot, symbol: str, selector: str) -> str | None:
    """Returns the import that gives ``symbol`` its meaning in ``selector``, as other files or T5X write it."""
    elsewhere = {str(statement) for statement in program.imports if statement.name == symbol}
    if elsewhere:
        return elsewhere.pop() if len(elsewhere) == 1 else None
    targets = snapshot.suffixes(selector)
    return import_of_module(snapshot, targets[0], selector) if len(targets) == 1 else None


def import_of_module(snapshot: Snapshot, target: str, selector: str) -> str | None:
    """Returns the import under which ``selector`` means ``target``: ``from t5x import utils`` for ``utils.X``."""
    module = snapshot.module_of(target)
    package, _, name = (module or "").rpartition(".")
    return f"from {package} import {name}" if package and f"{package}.{selector}" == target else None


def imports_of_file(program: GinProgram, snapshot: Snapshot, file: str) -> tuple[str, ...] | None:
    """Returns the imports that a file needs to switch on dynamic registration; None if one is unknown."""
    needed: dict[str | None, None] = {}
    for selector, target in _selectors(program, snapshot, file):
        needed.setdefault(import_of_module(snapshot, target, selector) if target else None)
    given = {str(i) for i in program.imports if i.location.file == file}
    return None if None in needed else tuple(sorted(s for s in needed if s is not None and s not in given))


def _selectors(program: GinProgram, snapshot: Snapshot, file: str) -> Iterator[tuple[str, str | None]]:
    """Yields the names that a file uses with their meanings; None if a meaning cannot be known."""
    for statement in program.statements:
        if statement.location.file != file:
            continue
        if isinstance(statement, (Binding, Block)) and statement.resolved:
            yield statement.selector, statement.target
        if isinstance(statement, (Binding, MacroBinding)):
            yield from ((r.selector, r.target) for r in references_in(statement.value) if r.target is not None)
    for problem in program.problems:
        if problem.kind is ProblemKind.UNKNOWN_SELECTOR and problem.location.file == file:
            targets = snapshot.suffixes(problem.subject)
            yield problem.subject, targets[0] if len(targets) == 1 else None


_HEAD = run_head("pretrain")


def _is_alias(program: GinProgram, problem: Problem) -> bool:
    aliases = {i.name for i in program.imports if i.module == MAIN and i.name != MAIN}  # such as train_script
    return problem.location.file == BINDINGS and problem.subject.split(".")[0] in aliases


@Rule(
    "GIN10",
    "name that is not registered at this point",
    whole_program=True,
    why=(
        "Without `from __gin__ import dynamic_registration` a file may only use names that an earlier include has "
        "registered: change the order of the includes and it fails with `No configurable matching …`."
    ),
    bad=Example("utils.SaveCheckpointConfig.period = 50\n" + _HEAD, at="utils.SaveCheckpointConfig.period"),
    good=Example(
        "from __gin__ import dynamic_registration\nfrom t5x import utils\n"
        + _HEAD
        + "utils.SaveCheckpointConfig.period = 50\n"
    ),
)
def not_registered(context: Context) -> Iterator[Found]:
    """Finds each name that matches no configurable registered by then, or several."""
    # A missing include might have registered a name that has no match.
    unknown = context.program.problems_of(ProblemKind.UNKNOWN_SELECTOR) if context.program.complete else ()
    for problem in unknown:
        if _is_alias(context.program, problem):
            continue
        names = context.snapshot.suffixes(problem.subject)
        if problem.location.file == BINDINGS:
            fix = "use a name as a gin file of this run writes it, without the alias of __main__"
        elif names:
            module = (context.snapshot.module_of(names[0]) or "").rpartition(".")
            fix = f"begin the file with `{REGISTRATION}` and `from {module[0]} import {module[2]}`"
        else:
            fix = f"begin the file with `{REGISTRATION}` and import the module of this name"
        # Switches dynamic registration on in the file and imports everything that it uses.
        file = problem.location.file
        imports = imports_of_file(context.program, context.snapshot, file)
        yield Found(
            f"no configurable matches {problem.subject} here: nothing that was read before has registered it",
            problem.location,
            fix,
            binding=problem.subject,
            edits=begin_with(context.program, file, (REGISTRATION, *imports)) if imports is not None else (),
        )
    for problem in context.program.problems_of(ProblemKind.AMBIGUOUS_SELECTOR):
        yield Found(
            f"{problem.subject} is ambiguous: it matches {', '.join(problem.names)}",
            problem.location,
            f"write more of its module's name, such as {problem.names[0]}",
            binding=problem.subject,
        )


@Rule(
    "GIN11",
    "dynamic registration below other imports",
    why=(
        "Gin refuses it: `Dynamic registration should be enabled before any other modules are imported`. It says the "
        "same where a file switches it on twice."
    ),
    bad=Example("import seqio\nfrom __gin__ import dynamic_registration\n", at="from __gin__"),
    good=Example("from __gin__ import dynamic_registration\nimport seqio\n"),
)
def late_registration(context: Context) -> Iterator[Found]:
    """Finds dynamic registration below other imports, or twice in a file."""
    for problem in context.program.problems_of(ProblemKind.LATE_REGISTRATION):
        yield Found(
            f"dynamic registration is switched on after {'; '.join(problem.names)}",
            problem.location,
            f"move `{REGISTRATION}` above all other imports of the file",
            edits=raise_registration(context.program, problem.location),
        )
    for problem in context.program.problems_of(ProblemKind.REPEATED_REGISTRATION):
        yield Found(
            "dynamic registration is switched on a second time in this file",
            problem.location,
            "remove this line",
            edits=remove(context.program, problem.location),
        )


@Rule(
    "GIN28",
    "alias of __main__ on the command line",
    why=(
        "`import __main__ as train_script` names the binary only inside its file. On the command line the function has "
        "its own name: `--gin.train.eval_period=…`."
    ),
    bad=Example(_HEAD, bindings=("train_script.train.eval_period = 5",), at="train_script.train"),
    good=Example(_HEAD, bindings=("train.eval_period = 5",)),
)
def alias_on_command_line(context: Context) -> Iterator[Found]:
    """Finds ``--gin.train_script.train.…``: an alias that exists only in gin files."""
    for problem in context.program.problems_of(ProblemKind.UNKNOWN_SELECTOR):
        if _is_alias(context.program, problem):
            alias, _, rest = problem.subject.partition(".")
            yield Found(
                f"no configurable matches {problem.subject}: {alias} is an alias inside gin files only",
                problem.location,
                f"leave the alias out: --gin.{rest}.PARAMETER=VALUE",
                binding=problem.subject,
            )


@Rule(
    "GIN29",
    "symbol that this file does not import",
    why=(
        "Under dynamic registration every file has imports of its own; those of an included file do not count. Gin "
        "stops with `NameError: '…' was not provided by an import statement`."
    ),
    bad=Example(
        "from __gin__ import dynamic_registration\n" + _HEAD + "adafactor.Adafactor.decay_rate = 0.9\n",
        at="adafactor.Adafactor.decay_rate",
    ),
    good=Example(
        "from __gin__ import dynamic_registration\nfrom t5x import adafactor\n"
        + _HEAD
        + "adafactor.Adafactor.decay_rate = 0.9\n"
    ),
)
def symbol_not_imported(context: Context) -> Iterator[Found]:
    """Finds each symbol that a file uses but only another file imports, once per file."""
    first: dict[tuple[str, str], Problem] = {}
    for problem in context.program.problems_of(ProblemKind.SYMBOL_NOT_IMPORTED):
        first.setdefault((problem.location.file, problem.detail), problem)
    for problem in first.values():
        elsewhere = next((str(i) for i in context.program.imports if i.name == problem.detail), None)
        missing = import_of_symbol(context.program, context.snapshot, problem.detail, problem.subject)
        near = closest(problem.detail, problem.names)
        if missing or elsewhere:
            fix = f"add `{missing or elsewhere}` to {problem.location.file}"
        elif near:
            fix = f"did you mean {near}?"
        else:
            fix = f"import the module that {problem.detail} stands for"
        yield Found(
            f"{problem.detail} in {problem.subject} is not imported in this file",
            problem.location,
            fix,
            binding=problem.subject,
            edits=_imported(context, problem, missing),
        )


def _imported(context: Context, problem: Problem, missing: str | None) -> tuple[Edit, ...]:
    """Adds the missing import, or corrects the symbol if it can only mean one of the file's imports."""
    if missing is not None:
        return add_import(context.program, problem.location, missing)
    right = meant(problem.detail, problem.names)
    return rename_selector(context.program, problem.location.file, problem.detail, right) if right else ()
