"""GIN13, GIN14 and GIN20: parameters and symbols that T5X does not have, and references that lack their ``()``."""

from collections.abc import Iterator, Mapping, Sequence

from t5x_harness.findings.rule import Example, Found, Rule, run_head, training
from t5x_harness.gin.program import ENTRIES, MAIN, Binding, Block, GinProgram, Import, MacroBinding
from t5x_harness.gin.snapshot import Snapshot
from t5x_harness.gin.symbols import BUILTINS
from t5x_harness.gin.values import Reference, references_in
from t5x_harness.lint.edits import add_call, drop_call, rename_bound, rename_selector
from t5x_harness.lint.rule import Context, where
from t5x_harness.lint.rules.numbers import read_as
from t5x_harness.spec import Edit, Location
from t5x_harness.system.misspelling import closest, did_you_mean, meant

_HEAD = run_head("pretrain", "from t5x import utils")
_MAIN_NAMES = (*ENTRIES, f"{MAIN}.create_task_from_tfexample_file", f"{MAIN}.precompile", f"{MAIN}.save")


@Rule(
    "GIN13",
    "parameter that the configurable does not have",
    why="Gin stops with `Configurable '…' doesn't have a parameter named '…'`, after T5X was imported.",
    bad=Example(_HEAD + "train/utils.DatasetConfig.bach_size = 8\n", at="train/utils.DatasetConfig.bach_size"),
    good=Example(_HEAD + "train/utils.DatasetConfig.batch_size = 8\n"),
)
def unknown_parameter(context: Context) -> Iterator[Found]:
    """Finds each binding of a parameter that the configurable does not have."""
    for binding in context.program.bindings:
        known = context.snapshot.find(binding.target) if binding.resolved else None
        if known is None or known.parameters is None or known.takes_any or binding.param in known.parameters:
            continue
        if context.snapshot.may_take(known.name, binding.param):
            continue
        if binding.param in known.denied:
            yield Found(
                f"{binding.selector}'s decorator keeps the parameter {binding.param} from Gin",
                binding,
                f"remove it, or take {binding.param} out of the decorator's list",
            )
            continue
        near = closest(binding.param, known.parameters)
        right = str(binding).removesuffix(binding.param) + (near or "")
        yield Found(
            f"{binding.selector} has no parameter {binding.param}{did_you_mean(binding.param, known.parameters)}",
            binding,
            f"write {right}" if near else f"it has {', '.join(known.parameters)}",
            edits=_renamed_parameter(context.program, binding, known.parameters),
        )


def _renamed_parameter(program: GinProgram, binding: Binding, parameters: Sequence[str]) -> tuple[Edit, ...]:
    """Renames a misspelled parameter, unless its file also binds the right one."""
    right = meant(binding.param, parameters)
    other = program.final.get((binding.scope, binding.target, right or ""))
    if right is None or (other is not None and other.location.file == binding.location.file):
        return ()
    return rename_bound(program, binding.location, binding.param, right)


@Rule(
    "GIN14",
    "name that T5X does not have",
    why="Gin stops with `AttributeError: Couldn't resolve selector …`, after T5X was imported.",
    bad=Example(_HEAD + "train/utils.DatasetConfg.batch_size = 8\n", at="train/utils.DatasetConfg"),
    good=Example(_HEAD + "train/utils.DatasetConfig.batch_size = 8\n"),
)
def unknown_symbol(context: Context) -> Iterator[Found]:
    """Finds each name that its module does not have, in bindings and references, once per file."""
    said: set[tuple[str, str]] = set()
    for used, target, location in _names(context.program):
        if (target, location.file) in said:
            continue
        said.add((target, location.file))
        selector = str(used)
        complaint = _not_loaded(context, selector, target, location)
        complaint = complaint or context.snapshot.remembered(_complaint, selector, target)
        if complaint is not None:
            message, fix, word, names = complaint
            if (clash := _clash(context.program, selector, target, location)) is not None:
                (first, last), names = clash, []
                message = (
                    f"{message}: {where(last.location)} imports {last.module} as {last.name}, which "
                    f"{where(first.location)} has imported {first.module} as"
                )
                package, _, name = last.module.rpartition(".")
                renamed = f"import {name} as {last.module.replace('.', '_')}"
                fix = f"import one of the two under another name: {f'from {package} ' if package else ''}{renamed}"
            edits = _renamed_symbol(context.program, location.file, selector, word, names)
            yield Found(message, location, fix, binding=selector, edits=edits)


def _complaint(snapshot: Snapshot, selector: str, target: str) -> tuple[str, str, str, list[str]] | None:
    """Returns the mistake, the fix, the wrong word and the names that would be right; None if nothing is wrong."""
    if target == MAIN or snapshot.is_module(target):
        owner = "T5X's binary" if target == MAIN else target
        message = f"{selector} is a module, not something to configure"
        return message, f"name a function or class of {owner}", "", []
    if target.startswith(f"{MAIN}."):
        if target in _MAIN_NAMES:
            return None
        names = [n.removeprefix(f"{MAIN}.") for n in ENTRIES]
        word = target.removeprefix(f"{MAIN}.")
        fix = f"they have {', '.join(names)}"
        return f"T5X's binaries have no {word}{did_you_mean(word, names)}", fix, word, names
    module = snapshot.module_of(target)
    if module is None or snapshot.find(target) is not None:
        return None
    symbol, _, method = target[len(module) + 1 :].partition(".")
    is_method = bool(method) and symbol in snapshot.names(module)
    if is_method:
        word, names, owner = method, list(snapshot.methods(f"{module}.{symbol}")), f"{module}.{symbol}"
    else:
        word, names, owner = symbol, list(snapshot.names(module)), module
    if snapshot.mentions(module, word, anywhere=is_method):
        return None
    owner = "gin" if owner == BUILTINS else owner
    fix = "check its spelling" if len(names) > 12 else f"it has {', '.join(names)}" if names else "remove it"
    return f"{owner} has no {word}{did_you_mean(word, names)}", fix, word, names


def _not_loaded(context: Context, selector: str, target: str, at: Location) -> tuple[str, str, str, list[str]] | None:
    """Returns the complaint about a module below an imported package, if nothing imports the module."""
    module = context.snapshot.module_of(target)
    statement = context.remembered(_last_imports).get((at.file, _name(selector)))
    if module is None or statement is None:
        return None
    # The module that the name of an import stands for: `a` for `import a.b`.
    bound = statement.module if statement.is_from or statement.alias else statement.module.partition(".")[0]
    if not module.startswith(f"{bound}."):
        return None
    if context.snapshot.may_load(module, [i.module for i in context.program.imports]):
        return None
    return (
        f"{selector} cannot be reached: `{statement}` does not import the module {module}, and nothing else does",
        f"add `import {module}` to {at.file}",
        "",
        [],
    )


def _last_imports(context: Context) -> Mapping[tuple[str, str], Import]:
    """Returns the last import of each name in each file."""
    return {(i.location.file, i.name): i for i in context.program.imports}


def _name(selector: str) -> str:
    """Returns the imported name that a selector or reference begins with: ``utils`` for ``@train/utils.X()``."""
    return selector.lstrip("@").rpartition("/")[2].removesuffix("()").split(".")[0]


def _clash(program: GinProgram, selector: str, target: str, at: Location) -> tuple[Import, Import] | None:
    """Returns two imports of a file that bind the name that a selector uses to two modules; None if none do."""
    name = _name(selector)
    same = [i for i in program.imports if i.name == name and i.location.file == at.file and i.location.line < at.line]
    other = [i for i in same if i.module != same[-1].module]
    is_of_last = bool(other) and target.startswith(f"{same[-1].module}.")
    return (other[-1], same[-1]) if is_of_last and (other[-1].alias or other[-1].is_from) else None


def _renamed_symbol(program: GinProgram, file: str, selector: str, word: str, names: Sequence[str]) -> tuple[Edit, ...]:
    """Corrects a misspelled word of a name everywhere in the file."""
    parts = selector.lstrip("@").removesuffix("()").rpartition("/")[2].split(".")
    right = meant(word, names)
    if right is None or parts.count(word) != 1:
        return ()
    before = parts[: parts.index(word)]
    return rename_selector(program, file, ".".join([*before, word]), ".".join([*before, right]))


def _names(program: GinProgram) -> Iterator[tuple[str | Reference, str, Location]]:
    """Yields every name that a statement uses, including overridden statements: Gin looks them all up."""
    for statement in program.statements:
        if isinstance(statement, (Binding, Block)) and statement.resolved:
            yield statement.selector, statement.target, statement.location
        if isinstance(statement, (Binding, MacroBinding)):
            for reference in references_in(statement.value):
                if reference.target is not None:
                    yield reference, reference.target, statement.location


_SCHEDULE = ("t5x.trainer.Trainer", "learning_rate_fn")
_DATASETS = ("train_dataset_cfg", "train_eval_dataset_cfg", "infer_eval_dataset_cfg")
_OBJECTS: Mapping[str, tuple[str, ...]] = {
    "__main__.train": ("model", *_DATASETS, "checkpoint_cfg", "partitioner"),
    "__main__.evaluate": ("model", "dataset_cfg", "restore_checkpoint_cfg", "partitioner"),
    "__main__.infer": ("model", "dataset_cfg", "restore_checkpoint_cfg", "partitioner"),
    "t5x.utils.CheckpointConfig": ("save", "restore"),
    "t5x.models.EncoderDecoderModel": ("module", "input_vocabulary", "output_vocabulary", "optimizer_def"),
    "t5x.models.DecoderOnlyModel": ("module", "vocabulary", "optimizer_def"),
    "t5x.examples.t5.network.Transformer": ("config",),
    "t5x.examples.scalable_t5.network.Transformer": ("config",),
    "t5x.partitioning.PjitPartitioner": ("logical_axis_rules",),
    "t5x.adafactor.Adafactor": ("logical_factor_rules",),
}


GIN20 = Rule(
    "GIN20",
    "reference without (), or with () where a class is needed",
    why="`@X` is the class, `@X()` an object of it. The wrong one fails late, with an attribute error on a class.",
    bad=training("train_script.train.partitioner = @partitioning.PjitPartitioner", at="train_script.train.partitioner"),
    good=training("train_script.train.partitioner = @partitioning.PjitPartitioner()"),
)


@GIN20
def uncalled_reference(context: Context) -> Iterator[Found]:
    """Finds each of T5X's parameters that is given a class instead of an object, or the reverse."""
    for binding, given in context.program.given_values:
        reference = given.value
        if not isinstance(reference, Reference):
            continue
        by = read_as(binding, given)
        lacks_call = None
        if (binding.target, binding.param) == _SCHEDULE and _makes_schedule(reference):
            lacks_call = "the function that makes a schedule, and the schedule is needed"
        elif binding.param in _OBJECTS.get(binding.target, ()):
            lacks_call = "not called, and an object is needed"
        if lacks_call and not reference.called:
            yield Found(
                f"{given} = {reference} is {lacks_call}{by}",
                given,
                f"add (): {given} = {reference}()",
                edits=add_call(context.program, given.location),
            )
        elif reference.called and _wants_class(context, binding, reference):
            plain = str(reference).removesuffix("()")
            yield Found(
                f"{given} = {reference} is called, and the class itself is needed{by}",
                given,
                f"take the () away: {given} = {plain}",
                edits=drop_call(context.program, given.location),
            )


def _wants_class(context: Context, binding: Binding, reference: Reference) -> bool:
    """Returns whether a parameter named like a class is given an object of one of T5X's classes."""
    known = context.snapshot.find(binding.target)
    return (
        binding.param.endswith("_cls")
        and known is not None
        and reference.target is not None
        and context.snapshot.is_class(reference.target)
    )


def _makes_schedule(reference: Reference) -> bool:
    """Returns whether a function certainly returns a learning rate schedule, and is not one itself."""
    target = reference.target or ""
    return target == "t5x.utils.create_learning_rate_scheduler" or (
        target.startswith("optax.") and target.endswith("_schedule")
    )
