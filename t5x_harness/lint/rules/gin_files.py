"""GIN16, GIN17, GIN32 and GIN33: gin files that cannot be read."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from t5x_harness.findings.rule import Example, Found, Rule
from t5x_harness.gin.files import ModuleFinder, module_path
from t5x_harness.gin.problems import Problem, ProblemKind
from t5x_harness.gin.program import Include
from t5x_harness.gin.sources import SourceFinder
from t5x_harness.gin.values import format_value
from t5x_harness.lint.rule import Context, shown_folder
from t5x_harness.spec import Location, Severity
from t5x_harness.system.misspelling import closest


@Rule(
    "GIN16",
    "gin file that cannot be opened",
    why=(
        "T5X looks in the working directory, then in --gin_search_paths, then in the folder that holds the package "
        "t5x; an include is never relative to the file that it stands in."
    ),
    bad=Example("include 'models/tiny.gin'\n", at="include"),
    good=Example("include 't5x/examples/t5/t5_1_1/tiny.gin'\n"),
)
def missing_file(context: Context) -> Iterator[Found]:
    """Finds each gin file that cannot be read, except those missing from a package, which GIN17 reports."""
    for problem in context.program.problems:
        at = None if problem.named_by_user else problem.location
        if _package_lacks(context, problem):
            continue
        if problem.kind is ProblemKind.MISSING_FILE:
            folders = ", ".join(shown_folder(folder, context.program) for folder in problem.names)
            searched = f"; searched: {folders}" if folders else ""
            yield Found(f"there is no gin file {problem.subject}{searched}", at, _fix(context, problem))
        elif problem.kind is ProblemKind.UNREADABLE_FILE:
            yield Found(
                f"cannot read {problem.subject}: {problem.detail}",
                at,
                "give a .gin file of text in UTF-8, of at most 1 MB",
            )
        elif problem.kind is ProblemKind.NOT_A_PACKAGE:
            yield Found(
                f"Gin cannot open {problem.subject}: before {problem.names[0]} it looks into the folder "
                f"{problem.detail}, which has no __init__.py, and stops there (expected str, bytes or os.PathLike "
                "object, not NoneType)",
                at,
                f"add an __init__.py to {problem.detail}, or run from the folder that the name starts from",
            )
    for target, at in _closed_in_public_t5x(context):
        yield Found(
            f"the public T5X cannot open {target}, unless it starts in the folder of its own clone: its folder "
            f"{os.path.dirname(target)} has no __init__.py, and Gin stops there (expected str, bytes or "
            "os.PathLike object, not NoneType); the embedded T5X has one",
            at,
            f"copy {os.path.basename(target)} and what it includes into your project, start the job in T5X's "
            "clone, or add the __init__.py to the T5X of its image",
            severity=Severity.WARNING,
        )


_NO_PACKAGES = ("t5x/examples/decoder_only/models", "t5x/examples/decoder_only/examples")
"""Folders without ``__init__.py`` in the public T5X; in the embedded T5X they have one."""


def _closed_in_public_t5x(context: Context) -> Iterator[tuple[str, Location | None]]:
    """Yields the files that Gin can open only in the embedded T5X, and where the user names each."""
    program = context.program
    if not context.snapshot.is_embedded:
        return
    for name in program.spec.gin_files:
        if os.path.dirname(name) in _NO_PACKAGES and not (Path(program.spec.cwd) / name).is_file():
            yield name, None
    for statement in program.statements:
        if not isinstance(statement, Include) or os.path.dirname(statement.target) not in _NO_PACKAGES:
            continue
        is_own = not program.is_foreign(statement.location.file)
        if is_own and statement.file is not None and program.is_of_t5x(statement.file):
            yield statement.target, statement.location


def _package_lacks(context: Context, problem: Problem) -> bool:
    """Returns whether a file in a Python package includes a missing file of the same package."""
    if problem.kind is not ProblemKind.MISSING_FILE or problem.named_by_user:
        return False
    package = problem.subject.partition("/")[0]
    including = Path(context.program.spec.cwd).absolute() / problem.location.file
    return any(folder.name == package and (folder / "__init__.py").is_file() for folder in including.parents)


_PACKAGE = {
    "models_of_others/__init__.py": "",
    "models_of_others/large.gin": "include 'models_of_others/base.gin'\n",
}


@Rule(
    "GIN17",
    "package that lacks a gin file which it includes",
    why=(
        "Not every published config can be run: T5X's umT5 configs include "
        "`t5x/configs/runs/pretrain_deterministic.gin`, which its repository does not have. No search path fixes that."
    ),
    bad=Example("include 'models_of_others/large.gin'\n", files=_PACKAGE, at="include 'models_of_others/base.gin'"),
    good=Example(
        "include 'models_of_others/large.gin'\n",
        files={**_PACKAGE, "models_of_others/base.gin": "BATCH_SIZE = 4\n"},
    ),
)
def incomplete_package(context: Context) -> Iterator[Found]:
    """Finds each include of a package's own gin file that the package does not have."""
    for problem in context.program.problems:
        if _package_lacks(context, problem):
            package = problem.subject.partition("/")[0]
            yield Found(
                f"{problem.location.file} includes {problem.subject}, which the package {package} does not have",
                problem.location,
                f"copy {os.path.basename(problem.location.file)} and change the include in the copy, or use a "
                f"version of {package} that has the file",
            )


def _fix(context: Context, problem: Problem) -> str:
    target = problem.subject
    if target == "t5x/configs/runs/pretrain_deterministic.gin":
        return (
            "T5X has no such file: include 't5x/configs/runs/pretrain.gin' and set train/utils.DatasetConfig.seed = "
            "42, RANDOM_SEED = 42 and utils.SaveCheckpointConfig.save_dataset = True"
        )
    if target.startswith("t5x/") and context.snapshot.is_embedded:
        near = _nearest(target, _gin_files(Path(context.program.t5x_parent or "."), "t5x"))
        other = f"did you mean '{near}'? Or " if near else ""
        return f"{other}install T5X from its git repository if the file is one that the embedded runtime does not have"
    cwd = Path(context.program.spec.cwd).absolute()
    if not problem.named_by_user and os.path.isfile(cwd / os.path.dirname(problem.location.file) / target):
        folder = os.path.dirname(problem.location.file) or "."
        return f"it lies beside the file that includes it: pass --gin_search_paths={folder}"
    for searched in problem.names or (".",):
        near = closest(os.path.basename(target), _gin_files(cwd / searched / os.path.dirname(target), ""))
        if near:
            return f"did you mean {os.path.join(os.path.dirname(target), near)}?"
    return "check the name, or put the folder that it is relative to on the search paths"


def _nearest(target: str, files: Sequence[str]) -> str | None:
    """Returns the file that a name most likely means: the same words in another order, or a close spelling."""
    words = sorted(Path(target).stem.split("_"))
    same = [file for file in files if sorted(Path(file).stem.split("_")) == words]
    return closest(target, same) or (same[0] if len(same) == 1 else closest(target, files))


def _gin_files(folder: Path, below: str) -> list[str]:
    """Returns the gin files of a folder: those directly in it, or all files below a subfolder as paths."""
    try:
        if below:
            return [str(p.relative_to(folder)) for p in sorted((folder / below).rglob("*.gin"))]
        return sorted(p.name for p in folder.glob("*.gin"))
    except (OSError, ValueError):
        return []


@Rule(
    "GIN32",
    "includes that go round in a circle",
    why="Gin follows them until Python's stack is used up: `RecursionError`.",
    bad=Example("include 'other.gin'\n", files={"other.gin": "include 'other.gin'\n"}, at="include 'other.gin'"),
    good=Example("include 'other.gin'\n", files={"other.gin": "BATCH_SIZE = 4\n"}),
)
def include_cycle(context: Context) -> Iterator[Found]:
    """Finds each include that closes a cycle."""
    for problem in context.program.problems:
        if problem.kind is ProblemKind.INCLUDE_CYCLE:
            yield Found(
                f"including {problem.subject} here never ends: {' -> '.join(problem.names)}",
                problem.location,
                "remove this include",
            )


_GS = "gs://"
_HEAD = "include 't5x/examples/t5/t5_1_1/tiny.gin'\n"


@Rule(
    "GIN33",
    "gin file at gs://",
    why=(
        "Gin reads files as Python does, and T5X gives it no other reader: `Unable to open file: gs://…`, whether the "
        "object exists or not. Vertex AI mounts buckets at /gcs. Elsewhere the file has to lie beside the "
        "job, or the job's own program calls `gin.config.register_file_reader(tf.io.gfile.GFile, tf.io.gfile.exists)` "
        "before T5X; then silence this. A module that the config imports may call it, too, above the include."
    ),
    bad=Example(_HEAD + "include 'gs://bucket/finetune.gin'\n", at="include 'gs://bucket"),
    good=Example(_HEAD + "include '/gcs/bucket/finetune.gin'\n"),
)
def file_in_bucket(context: Context) -> Iterator[Found]:
    """Finds each gin file at gs://, unless a module that the config imports gives Gin a reader for it."""
    program = context.program
    includes = (statement for statement in program.statements if isinstance(statement, Include))
    asked = [*((name, None) for name in program.spec.gin_files), *((i.target, i.location) for i in includes)]
    asked = [(name, at) for name, at in asked if name.startswith(_GS)]
    if not asked:
        return
    finder = SourceFinder(ModuleFinder(module_path(program.spec), None))
    sources = (finder.source(each.module) for each in program.imports)
    if any(source is not None and source.mentions("register_file_reader") for source in sources):
        return
    for name, at in asked:
        mounted = format_value(f"/gcs/{name.removeprefix(_GS)}", limit=200)
        yield Found(
            f"Gin cannot open {name}, nor anything else at gs://",
            at,
            f"write {mounted}, Vertex AI's mount of the bucket, or copy the file beside the job",
        )
